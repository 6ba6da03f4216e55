"""d3rlpy's `.d3` files as algorithms of the same name here: networks, targets, optimisers, scalers and settings.

A `.d3` file of d3rlpy 2.8.1 is a pickle of three parts: its version, its settings as JSON, and what `torch.save` made of the states
of networks and optimisers. Both pickles are read by `data.formats.restricted_pickle`: numbers come out, and nothing is run.

What is not carried over: d3rlpy keeps no count of gradient steps, so the steps of the critics' optimiser (of BC the policy's) are
taken for it; and IQL's standard deviation is another function of its parameter there, whose optimiser begins anew.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from d3ray.algos.devices import AnyDevice
from d3ray.algos.learning.estimator import Estimator
from d3ray.algos.learning.fit import Fit
from d3ray.algos.registry import algorithm_class
from d3ray.data.errors import ConfigError, DataError, reason
from d3ray.data.formats.untrusted import restricted_pickle
from d3ray.data.formats.untrusted.torch_archive import read_torch
from d3ray.data.spec import Box, Discrete, Spec
from d3ray.data.storage.json_text import parse_json

from .settings import settings_of

VERSION = "2.8.1"
Arrays = dict[str, np.ndarray]  # by the names of d3rlpy's modules
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "_mask")
# Our name of a layer, of a lone parameter, and of what a transformer's blocks hold, by d3rlpy's.
_LAYERS = {
    **dict.fromkeys(("_fc", "_mu", "_logstd", "_output"), "head"),
    "_embed": "embed",
    "_embed_ln": "body.norm",
    "_gpt2._layer_norm": "body.transformer.norm",
    "_rtg_embed": "body.embed_return",
    "_action_embed": "body.embed_action",
}
_PLAIN = {
    "_logstd": "log_std",
    "_parameter": "log",
    "_position_encoding._embed.weight": "body.timestep",
    "_position_encoding._global_position_embedding.weight": "body.timestep",
    "_position_encoding._block_position_embedding._parameter": "body.place",
}
_BLOCK = re.compile(r"_gpt2\._transformer\.(\d+)\.(.+)")
_IN_BLOCKS = {
    "_layer_norm1": "attention_norm",
    "_layer_norm2": "perceptron_norm",
    "_attention._q": "attention.query",
    "_attention._k": "attention.key_value",
    "_attention._v": "attention.key_value",
    "_attention._proj": "attention.out",
    "_mlp._l1": "perceptron.0",
    "_mlp._l2": "perceptron.2",
}


# Our networks by what d3rlpy calls them; a target is called `targ_` and that.
_NETWORKS = {
    "policy": "policy",
    "perturbation": "perturbation",
    "transformer": "policy",
    "q_funcs": "critic",
    "value_func": "value",
    "log_temp": "temperature",
    "log_alpha": "alpha",
    "vae_encoder": "vae_encoder",
    "vae_decoder": "vae_decoder",
    "imitator": "imitator",
}
# Of d3rlpy's optimisers, what it steps of these in the order of its parameters; of one alone, whatever there is.
_OPTIMIZERS = {
    "actor_optim": ("policy", "perturbation"),
    "critic_optim": ("q_funcs", "value_func"),
    "temp_optim": ("log_temp",),
    "alpha_optim": ("log_alpha",),
    "vae_optim": ("vae_encoder", "vae_decoder"),
    "optim": ("transformer", "q_funcs", "imitator"),
}


def load_d3(path: Path, device: AnyDevice = None) -> Any:
    """The algorithm that d3rlpy 2.8.1 saved. It predicts what d3rlpy's does, and can be trained further.

    Args:
        path: What d3rlpy's `save` wrote.
        device: Where it is to be; None takes the first accelerator, else the CPU.

    Raises:
        DataError: it is no such file, is cut short or damaged, names code, is of another version of d3rlpy or of another
            algorithm, or has a setting that there is not here; the sentence says which.
    """
    version, config, states = _read(path)
    if version != VERSION:
        raise DataError(f"{path} was written by d3rlpy {version}; files of {VERSION} are read: load it there and save it anew.")
    try:
        name, settings = settings_of(config["config"])
        cls = algorithm_class(name)
        algorithm = cls(**settings, device=device)
        checked, spec = algorithm.check_settings(), _spec(config, discrete="discrete" in cls.action_kinds())
        _check_size(algorithm, checked, spec, path.stat().st_size)
        algorithm.fit_ = Fit(algorithm, checked, spec, (algorithm.seed,))
        tensors, steps = _Carrier(algorithm, states).state()
        state, meta = algorithm.state()
        return algorithm.load_state({**state, **tensors}, {**meta, "step": steps})
    except (ConfigError, DataError) as error:
        raise DataError(f"{path} cannot be taken over: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        why = f"{type(error).__name__}: {reason(error)}"
        raise DataError(f"{path} is damaged, or none of d3rlpy {VERSION}: its parts do not fit together ({why}).") from None


def _read(path: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Version, settings, and states by module."""
    saved = restricted_pickle.load(path)
    if not isinstance(saved, dict) or saved.keys() != {"torch", "config", "version"} or not isinstance(saved["torch"], bytes):
        raise DataError(f"{path} is no file that d3rlpy's save wrote: it has not the parts torch, config and version.")
    saved = cast("dict[str, Any]", saved)
    try:
        config = parse_json(saved["config"])
    except (TypeError, ValueError, RecursionError):
        raise DataError(f"{path} is damaged: its settings are no JSON, or nested too deeply.") from None
    return str(saved["version"]), config, read_torch(saved["torch"], source=str(path))


def _spec(config: Mapping[str, Any], *, discrete: bool) -> Spec:
    """The spaces, of which d3rlpy keeps the shapes."""
    shape = tuple(config["observation_shape"])
    if not all(isinstance(size, int) for size in shape):
        raise DataError("its observations have several parts, which are not read.")
    seen = Box(shape=shape, dtype="uint8" if len(shape) == 3 else "float32")
    size = int(config["action_size"])
    return Spec(observation=seen, action=Discrete(n=size) if discrete else Box(shape=(size,)))


def _check_size(algorithm: Estimator, config: Any, spec: Spec, size: int) -> None:
    """Refuses settings that ask for more than the file can hold, before memory is taken: a few bytes of JSON could fill it.

    Raises:
        DataError: the networks have more parameters than so many bytes can be the float32 numbers of.
    """
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        networks = algorithm.networks(spec, config)
    count = sum(p.numel() for network in networks.values() for p in network.module.parameters())
    if count > size // 4:
        raise DataError(f"its settings ask for {count:,} parameters, and the file has {size:,} bytes.")


class _Carrier:
    """Brings a file's states under the names of `Learner.state`."""

    def __init__(self, algorithm: Estimator, states: Mapping[str, Any]) -> None:
        self._learner, self._config, self._states = algorithm.fit_.learner, algorithm.config_, states
        self._shared: bool = getattr(self._config, "share_encoder", False)
        self._warms_up = isinstance(algorithm, algorithm_class("PLAS"))
        ours = _NETWORKS if "imitator" in self._learner.networks else {**_NETWORKS, "imitator": "policy"}
        self._ours = {theirs: name for theirs, name in ours.items() if theirs in states and name in self._learner.networks}
        if lacking := self._learner.networks.keys() - self._ours.values():
            raise DataError(f"it lacks {' or '.join(n for n, name in ours.items() if name in lacking)}.")

    def state(self) -> tuple[dict[str, Tensor], int]:
        """Tensors by name, and the gradient steps done."""
        tensors: dict[str, Tensor] = {}
        steps = dict[str, int]()
        for theirs, name in self._ours.items():
            kinds = [("live", theirs)] + [("target", f"targ_{theirs}")] * (name in self._learner.target)
            for kind, part in kinds:
                tensors |= {f"{kind}/{name}/{ours}": t for ours, t in self._network(name, self._states[part]).items()}
        for part, stepped in _OPTIMIZERS.items():
            parts = [theirs for theirs in stepped if theirs in self._ours]
            if parts and part in self._states:
                for name, (count, slots) in self._optimizer(self._states[part]["optim"]["state"], parts).items():
                    steps[name] = count
                    tensors |= {f"optimizer/{name}/{slot}": tensor for slot, tensor in slots.items()}
        if self._warms_up:  # the behaviour model has learnt before the critic begins
            return tensors, steps.get("vae_encoder", 0) + steps.get("critic", 0)
        return tensors, max(steps.values(), default=0)

    def _network(self, name: str, theirs: Arrays) -> dict[str, Tensor]:
        """Parameters and buffers of a network."""
        ours = {**self._learner.live[name], **self._learner.buffers[name]}
        found = _carried(name, theirs, ours, self._shared)
        if name in ("temperature", "alpha"):  # it is learnt beside its first value here, and as a whole there
            found["log"] = found["log"] - math.log(getattr(self._config, f"initial_{name}"))
        if "log_std" in found:  # a sigmoid between the bounds there; here the logarithm itself, clipped to them
            low, high = self._config.log_std_bounds
            found["log_std"] = low + (high - low) * found["log_std"].sigmoid()
        return found

    def _optimizer(self, held: Mapping[int, Mapping[str, Any]], parts: list[str]) -> dict[str, tuple[int, dict[str, Tensor]]]:
        """By network the steps done, and what the optimiser remembers; nothing where it has not stepped yet."""
        order = [(theirs, key) for theirs in parts for key in self._parameters(theirs)]
        result: dict[str, tuple[int, dict[str, Tensor]]] = {}
        for theirs in parts if held else ():
            name = self._ours[theirs]
            remembered = {key: held[k] for k, (of, key) in enumerate(order) if of == theirs}
            first = next(iter(remembered.values()))
            count = int(first.get("step", 1))  # plain gradient descent keeps none
            tensors = {"step": torch.tensor(float(count))}
            for slot in (slot for slot, value in first.items() if slot != "step" and value is not None):
                arrays = {key: values[slot] for key, values in remembered.items()}
                found = _carried(name, arrays, self._learner.live[name], self._shared)
                if "log_std" in found:
                    found["log_std"] = torch.zeros_like(found["log_std"])
                tensors |= {f"{ours}:{slot}": tensor for ours, tensor in found.items()}
            result[name] = (count, tensors)
        return result

    def _parameters(self, part: str) -> list[str]:
        """Names of parameters in the order in which an optimiser is given them; what is shared is given once."""
        names = [key for key in self._states[part] if not key.endswith(_BUFFERS)]
        if self._ours[part] == "imitator" and self._config.imitator_encoder is None:  # it has the critics' encoder
            names = [key for key in names if not key.startswith("_encoder.")]
        return [key for key in names if not (self._shared and "._encoder." in key and not key.startswith("0."))]


def _carried(name: str, theirs: Arrays, ours: Mapping[str, Tensor], shared: bool) -> dict[str, Tensor]:
    """Arrays by d3rlpy's names as tensors by ours: members of an ensemble side by side, affine weights turned.

    Raises:
        DataError: one of ours gets nothing, or an array of another shape.
    """
    members = _members(theirs)
    names = _names(list(members[0]), list(ours))
    result: dict[str, Tensor] = {}
    for mine, tensor in ours.items():
        keys = [key for key, given in names.items() if given == mine]
        if not keys:
            raise DataError(f"there is nothing for {mine!r} of the {name}.")
        alike = members[:1] if shared and keys[0].startswith("_encoder.") else members
        parts = [np.concatenate([_turned(key, member, tensor) for key in keys], -1) for member in alike]
        array = np.stack(parts)
        if array.size != tensor.numel() or (parts[0].ndim > 1 and _long(array) != _long(tensor)):
            raise DataError(f"{keys[0]!r} of the {name} has the shape {parts[0].shape}, and {mine!r} is {tuple(tensor.shape)}.")
        result[mine] = torch.tensor(np.ascontiguousarray(array)).reshape(tensor.shape)
    return result


def _members(theirs: Arrays) -> list[Arrays]:
    """Arrays of each member of an ensemble, or of the one network."""
    found: dict[str, Arrays] = {}
    for key, array in theirs.items():
        number, _, rest = key.partition(".")
        found.setdefault(number if number.isdigit() else "", {})[rest if number.isdigit() else key] = array
    return list(found.values())


def _names(theirs: list[str], ours: list[str]) -> dict[str, str]:
    """Our name for each of theirs. An encoder's layers follow one another in the same order; two heads there may be one here."""
    body = "body." if any(name.startswith("_gpt2.") for name in theirs) else ""
    there, here = _layers(theirs, "_encoder."), _layers(ours, f"{body}encoder.")
    paths = dict(zip(there, here, strict=False)) | _LAYERS
    found: dict[str, str] = {}
    for name in theirs:
        path, _, last = name.rpartition(".")
        block = _BLOCK.fullmatch(path)
        if block is not None and block[2] in _IN_BLOCKS:
            found[name] = f"body.transformer.blocks.{block[1]}.{_IN_BLOCKS[block[2]]}.{last}"
        elif path in paths:
            found[name] = f"{paths[path]}.{last}"
        elif name in _PLAIN:
            found[name] = _PLAIN[name]
    return found


def _layers(names: list[str], prefix: str) -> list[str]:
    """The layers that have parameters below a prefix, in order."""
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names if name.startswith(prefix)))


def _turned(key: str, member: Arrays, ours: Tensor) -> np.ndarray:
    """An affine weight is [out, in] there and [in, out] here; of embeddings, those that are looked up.

    A transformer of discrete actions has a vector for each of them, there as here.
    """
    array = member[key]
    if key.startswith("_position_encoding."):  # of timesteps, the first is padding's; of places, a third is looked at
        return array[0, : len(ours)] if array.ndim == 3 else array[1 : len(ours) + 1]
    by_action = key in ("_action_embed.weight", "_output.weight") and key.replace("weight", "bias") not in member
    return array.T if key.endswith("weight") and array.ndim == 2 and not by_action else array


def _long(array: np.ndarray | Tensor) -> list[int]:
    """The axes that are longer than one."""
    return [size for size in array.shape if size != 1]
