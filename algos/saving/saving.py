"""Saved algorithms: the folder of a checkpoint, opened by `d3ray.load`, and the settings of a run as `params.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...data.episodes import action_size, observation_shape
from ...data.errors import ConfigError, StorageError
from ...data.spec import Spec, space_columns
from ...data.storage.claims import scratch_names
from ...data.storage.files import storage_errors, write_atomically
from ...data.storage.json_text import parse_json
from ..devices import AnyDevice
from ..learning.estimator import Estimator
from ..learning.fit import Fit
from ..registry import algorithm_class, read_foreign
from .checkpoint import read_checkpoint, write_checkpoint
from .packed import is_packed, pack, unpacked
from .parts import check_free

_OF_FILES = (".d3", ".onnx", ".pt", ".pt2", ".pth", ".safetensors", ".zip")


def save(algorithm: Estimator, path: str | Path, *, overwrite: bool = False) -> None:
    """Writes everything that training goes on from; nothing is left half-written. Arguments and errors as `Algorithm.save`."""
    path = Path(path)
    if path.suffix in _OF_FILES:
        what = f"save writes a folder, which training goes on from, and {path} has the ending of a file"
        raise ConfigError(f"{what}: call it {path.stem!r}, or write the policy alone by save_policy, as .onnx, .pt or .pt2.")
    tensors, meta = algorithm.state()
    check_free(path, overwrite)
    write_checkpoint(path, tensors, {**meta, "seed": algorithm.seed})


def save_packed(algorithm: Estimator, path: str | Path) -> None:
    """Save as one file, which replaces what is there. Raises StorageError where it cannot be written."""
    with TemporaryDirectory(prefix=scratch_names("file")) as scratch:
        save(algorithm, folder := Path(scratch) / "saved")
        pack(folder, Path(path))


def load(path: str | Path, device: AnyDevice = None) -> Any:
    """An algorithm, ready to predict or to be trained further.

    Args:
        path: What `save` wrote, the same packed into one file, or a `.d3` file of d3rlpy.
        device: Where it is to be; None takes the first accelerator, else the CPU.

    Raises:
        StorageError: the folder is not a whole checkpoint, or one of another version.
        ConfigError: it is of an algorithm that is not known here.
        DataError: the file is none of d3rlpy's that can be read.
    """
    path = Path(path)
    if path.suffix == ".d3" and not path.exists():
        raise StorageError(f"There is no file {str(path)!r}.")
    if is_packed(path):
        with unpacked(path) as folder:
            return load(folder, device)
    if path.is_file():
        return read_foreign(path, device)
    tensors, meta, _ = read_checkpoint(path)
    algorithm = _unfitted(path, meta, device)
    return algorithm.load_state(tensors, meta)


def load_into(algorithm: Estimator, path: str | Path) -> None:
    """Make `algorithm` what was saved: networks, optimisers, step and settings.

    Raises ConfigError where it is another algorithm, or has other networks than this one, which are there already; StorageError as
    `load`.
    """
    other: Estimator = load(path, algorithm.device)
    if other.name != algorithm.name:
        raise ConfigError(f"{path} holds a {other.name}, not a {algorithm.name}.")
    tensors, meta = other.state()
    if hasattr(algorithm, "fit_"):
        ours = algorithm.state()[0]
        for name in sorted(n for n in {*ours, *tensors} if n.startswith("live/")):
            have, found = (tuple(t[name].shape) if name in t else None for t in (ours, tensors))
            if have != found:
                raise ConfigError(
                    f"The {algorithm.name} in {path} has other networks: {name.removeprefix('live/')!r} is "
                    f"{_of_shape(found)} there and {_of_shape(have)} here."
                )
    vars(algorithm).update({**other.get_params(), "device": algorithm.device})
    algorithm.load_state(tensors, meta)


def params_of(algorithm: Estimator) -> dict[str, Any]:
    """The settings that a fit has come to, and the spaces, as plain data: what `read_params` makes the algorithm from again."""
    _, meta = algorithm.state()
    kept = {name: meta[name] for name in ("algorithm", "config", "spec", "dtype", "data")}
    shapes = {name: leaf.shape for name, leaf in space_columns(algorithm.spec_.observation).items()}
    about = {"observation_shape": observation_shape(shapes), "action_size": action_size(algorithm.spec_), "seed": algorithm.seed}
    return {**kept, **about}


def write_params(algorithm: Estimator, file: Path) -> None:
    params = params_of(algorithm)
    with storage_errors("written", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(params, allow_nan=False, indent=2).encode())


def read_params(file: str | Path, device: AnyDevice = None) -> Any:
    """Make the algorithm of a `params.json`, set up with fresh networks, so that `restore` works at once.

    Raises StorageError where there is no such file, or it is not what a fit writes; ConfigError where the algorithm, or a setting,
    is not one of this version's.
    """
    try:
        with storage_errors("read", file):
            params = parse_json(Path(file).read_bytes())
    except ValueError:
        raise StorageError(f"{file} is no JSON.") from None
    if not isinstance(params, dict):
        raise StorageError(f"{file} does not hold the settings of a fit.")
    algorithm = _unfitted(file, params, device)
    algorithm.fit_ = Fit(algorithm, algorithm.check_settings(), Spec.checked(_part(file, params, "spec")), (algorithm.seed,))
    return algorithm


def _unfitted(path: str | Path, meta: Mapping[str, Any], device: AnyDevice) -> Any:
    cls = algorithm_class(_part(path, meta, "algorithm"))
    config = cls.read_config(_part(path, meta, "config"))
    settings = {name: getattr(config, name) for name in cls.Config.model_fields}
    seed = meta["seed"] if "seed" in meta else _part(path, meta, "seeds")[0]
    return cls(**settings, seed=seed, device=device, dtype=_part(path, meta, "dtype"))


def _part(path: str | Path, meta: Mapping[str, Any], name: str) -> Any:
    if name not in meta:
        raise StorageError(f"{path} does not say {name!r}: it is no saved algorithm, or one of another version.")
    return meta[name]


def _of_shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else f"of shape {shape}"
