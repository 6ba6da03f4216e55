"""The state of training: parameters, targets, optimisers, coefficients and held rows of S seeds, and how they are kept."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import stack_module_state

from ...data.errors import ConfigError, did_you_mean
from ..config import TrainedConfig
from ..definition import Definition, Network
from ..devices import check_room
from ..nets import Hyper, Parameters
from ..optimizers import RowOptimizer
from .memory import least_bytes

Named = dict[str, Parameters]  # by network


class TrainingState:
    """The tensors of S seeds of one algorithm; with more than one seed each carries a leading axis.

    Args:
        algorithm: Whose networks.
        config: Its settings. Floats become tensors that losses read as `h.NAME`.
        build: Makes the networks of a seed.
        seeds: One or more.
        rows: Settings in which rows differ, one mapping a seed; coefficients only (floats).
        guests: Networks of others that losses read, by name, one mapping a seed.
        device, dtype: Where and in which precision.

    Attributes:
        held: Of networks that may be held, whether they are, bool () or (S,).

    Raises:
        ConfigError: guests of two rows are built otherwise, or have a name that is given; or there is no network to hold, or no
            setting of the name that a learning rate has.
        GpuTooSmallError: they need more of a GPU's memory than there is; nothing was taken then.
    """

    def __init__(
        self,
        algorithm: Definition,
        config: TrainedConfig,
        build: Callable[[], Mapping[str, Network]],
        seeds: Sequence[int],
        *,
        rows: Sequence[Mapping[str, float]] | None = None,
        guests: Sequence[Mapping[str, nn.Module]] | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.algorithm, self.seeds, self.dtype, self.device = algorithm, tuple(seeds), dtype, torch.device(device)
        self.stacked = len(self.seeds) > 1
        self.step: int = 0
        first = self._build(build, self.seeds[0])
        check_room(algorithm.name, least_bytes(first, len(self.seeds), dtype), self.device, len(self.seeds))
        built = [self._placed(first), *(self._placed(self._build(build, seed)) for seed in self.seeds[1:])]
        self.networks = built[0]
        self.modules: dict[str, nn.Module] = {name: network.module for name, network in built[0].items()}
        self._targets: dict[str, nn.Module] = {n: copy.deepcopy(w.module) for n, w in built[0].items() if w.target}
        self._set_up_parameters(built)
        self._set_up_hyper(config, rows or [{} for _ in self.seeds])
        self._set_up_guests(guests or [{} for _ in self.seeds])
        if unknown := [name for name in algorithm.holds if name not in self.networks]:
            raise ConfigError(f"{algorithm.name} may hold {unknown[0]!r}, and has only: {', '.join(self.networks)}.")
        self.held = {name: torch.zeros(self._lead, dtype=torch.bool, device=self.device) for name in algorithm.holds}
        self._optimizers = {name: self._set_up_optimizers(name, network) for name, network in self.networks.items()}

    @property
    def acting(self) -> dict[str, nn.Module]:
        """The networks that act: of those that `Definition.averages` names the targets."""
        return {**self.modules, **{name: self._targets[name] for name in self.algorithm.averages}}

    def acting_tensors(self) -> Named:
        """Parameters and buffers of the networks that act."""
        live = {name: {**own, **self.buffers[name]} for name, own in self.live.items()}
        return {**live, **{name: self.target[name] for name in self.algorithm.averages}}

    @property
    def has_guests(self) -> bool:
        return bool(self._guests)

    @property
    def discounts(self) -> list[float]:
        """γ of each row; 1 where nothing is discounted."""
        return self.values.get("gamma", [1.0] * len(self.seeds))

    @property
    def _lead(self) -> tuple[int, ...]:
        return (len(self.seeds),) if self.stacked else ()

    def _build(self, build: Callable[[], Mapping[str, Network]], seed: int) -> dict[str, Network]:
        """A seed's networks on the host, whose weights are a function of it alone: torch's generator is set and put back."""
        generator = torch.default_generator  # the CPU's alone: torch.manual_seed would seed accelerators too
        kept = generator.get_state()
        generator.manual_seed(seed)
        try:
            networks: dict[str, Any] = dict(build())
        finally:
            generator.set_state(kept)
        for name, network in networks.items():
            if not isinstance(network, Network):
                given = f"{self.algorithm.name}.networks gives {name!r} as a {type(network).__name__}"
                raise TypeError(f"{given}: make it Network(module, 'learning_rate'), with the name of a setting.")
            for path, layer in network.module.named_modules():
                if hasattr(layer, "path"):
                    layer.path = path  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
        return networks

    def _placed(self, networks: dict[str, Network]) -> dict[str, Network]:
        for network in networks.values():
            network.module.to(self.device, self.dtype)
        return networks

    def _set_up_parameters(self, built: Sequence[Mapping[str, Network]]) -> None:
        """`live` and `buffers`: tensors by network and name; `target` likewise, parameters and buffers together."""
        self.live: dict[str, Parameters] = {}
        self.buffers: dict[str, Parameters] = {}
        for name, module in self.modules.items():
            if self.stacked:
                parameters, buffers = stack_module_state([row[name].module for row in built])
                self.live[name], self.buffers[name] = {k: p.detach() for k, p in parameters.items()}, dict(buffers)
                self.modules[name] = copy.deepcopy(module).to("meta")  # a skeleton: its tensors are handed in
            else:
                self.live[name], self.buffers[name] = dict(module.named_parameters()), dict(module.named_buffers())
        self.target: dict[str, Parameters] = {}
        for name, module in self._targets.items():
            module.requires_grad_(False)
            if self.stacked:
                self.target[name] = {k: t.detach().clone() for k, t in {**self.live[name], **self.buffers[name]}.items()}
                self._targets[name] = self.modules[name]
            else:
                self.target[name] = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def _set_up_guests(self, rows: Sequence[Mapping[str, nn.Module]]) -> None:
        """Copies at rest, for the givers go on being trained; of a stack modules without tensors, which `_guest_tensors` has."""
        self._guests: dict[str, nn.Module] = {}
        self._guest_tensors: Named = {}
        name = self.algorithm.name
        for guest in dict.fromkeys(guest for row in rows for guest in row):
            if guest in self.modules:
                raise ConfigError(f"{name} has a network {guest!r} of its own: call the guest otherwise.")
            if lacking := [k for k, row in enumerate(rows) if guest not in row]:
                raise ConfigError(f"{name} has the guest {guest!r} in some rows, and none in row {lacking[0]}.")
            if others := [k for k, row in enumerate(rows) if _structure(row[guest]) != _structure(rows[0][guest])]:
                raise ConfigError(
                    f"The guest {guest!r} of row {others[0]} is built otherwise than row 0's: stack those that are alike."
                )
            members = [copy.deepcopy(row[guest]).to(self.device).eval().requires_grad_(False) for row in rows]
            self._guests[guest] = members[0]
            if self.stacked:
                parameters, buffers = stack_module_state(members)
                self._guest_tensors[guest] = {**parameters, **buffers}
                self._guests[guest] = members[0].to("meta")

    def _set_up_hyper(self, config: TrainedConfig, rows: Sequence[Mapping[str, float]]) -> None:
        """`values`: floats by setting, one a row; `hyper`: the same as tensors, written in place by `set_hyper`."""
        self.values = {name: [float(row.get(name, value)) for row in rows] for name, value in config.coefficients().items()}
        self.hyper = {
            n: torch.tensor(v if self.stacked else v[0], dtype=self.dtype, device=self.device) for n, v in self.values.items()
        }
        self._h = Hyper(self.hyper)

    def _set_up_optimizers(self, name: str, network: Network) -> dict[str, RowOptimizer]:
        """By the prefix of the parameters that each steps; "" is the rest, or all."""
        if network.rate not in self.values:
            raise self.no_coefficient(network.rate, f"the learning rate of {name!r}")
        rows = len(self.seeds) if self.stacked else None
        live = self.live[name]
        parts = {prefix: {name: live[name] for name in names} for prefix, names in network.parts(live).items()}
        holds = name in self.held
        made = {"": RowOptimizer(network.optimizer, parts[""], self.values[network.rate], rows, holds=holds)}
        for group in network.groups:
            rates = [group.rate] * (rows or 1)
            made[group.prefix] = RowOptimizer(group.optimizer, parts[group.prefix], rates, rows, holds=holds)
        return made

    def no_network(self, name: str, *, target: bool = False) -> ConfigError:
        """What is to be raised where there is no such network, or with `target` none that has a target."""
        what = f"target network {name!r}, which Network(…, target=True) makes" if target else f"network {name!r}"
        known = self.target if target else self.networks
        return ConfigError(f"{self.algorithm.name} has no {what}{did_you_mean(name, known)}")

    def no_coefficient(self, name: str, use: str) -> ConfigError:
        """What is to be raised where no setting of this name is a float; `use` says what it would be."""
        return ConfigError(f"{self.algorithm.name} has no coefficient {name!r} for {use}{did_you_mean(name, self.values)}")

    def set_hyper(self, name: str, values: Sequence[float]) -> None:
        """Writes a hyper-parameter in place, one value a row; learning rates included."""
        self.values[name] = [float(v) for v in values]
        self.hyper[name].copy_(torch.tensor(self.values[name] if self.stacked else self.values[name][0], dtype=self.dtype))
        for network, w in self.networks.items():
            if w.rate == name:
                self._optimizers[network][""].set_rates(self.values[name])

    @property
    def arrangement(self) -> tuple[int, ...]:
        """Which rows optimisers step together, as a program of steps has it: with another arrangement it is another program."""
        return tuple(one.arrangements for parts in self._optimizers.values() for one in parts.values())

    # ---- keeping

    def state(self) -> dict[str, Tensor]:
        """Every tensor that training goes on from, by name: `live/NETWORK/…`, `target/…`, `optimizer/…`, `held/…`, `hyper/…`."""
        return {name: _kept(tensor) for name, tensor in self._tensors()}

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        for name in self.networks:
            yield from ((f"live/{name}/{k}", t) for k, t in {**self.live[name], **self.buffers[name]}.items())
            for prefix, optimizer in self._optimizers[name].items():
                yield from ((f"optimizer/{_part(name, prefix)}/{k}", t) for k, t in optimizer.state().items())
        for name, target in self.target.items():
            yield from ((f"target/{name}/{k}", t) for k, t in target.items())
        yield from ((f"held/{name}", t) for name, t in self.held.items())
        yield from ((f"hyper/{k}", torch.tensor(v, dtype=torch.float64)) for k, v in self.values.items())

    @torch.no_grad()
    def load_state(self, tensors: Mapping[str, Tensor], step: int) -> None:
        """Goes on from what `state` gave at `step`. Raises KeyError where a tensor is missing."""
        self.step = step
        for name in self.networks:
            for k, t in {**self.live[name], **self.buffers[name]}.items():
                t.copy_(tensors[f"live/{name}/{k}"])
            for prefix, optimizer in self._optimizers[name].items():
                part = f"optimizer/{_part(name, prefix)}/"
                optimizer.load_state({k.removeprefix(part): t for k, t in tensors.items() if k.startswith(part)})
        for name, target in self.target.items():
            for k, t in target.items():
                t.copy_(tensors[f"target/{name}/{k}"])
        for name, t in self.held.items():
            t.copy_(tensors[f"held/{name}"])
        for name in self.values:
            self.set_hyper(name, tensors[f"hyper/{name}"].tolist())

    def row_state(self, k: int) -> dict[str, Tensor]:
        """The k-th seed's part of what `state` gives: the state of an ordinary learner. The other rows are not copied."""
        if not self.stacked:
            return self.state()

        def mine(name: str, tensor: Tensor) -> Tensor:
            if name.startswith("optimizer/") and name.endswith("/step") and not tensor.ndim:  # all rows have done as many
                return tensor
            return tensor[k : k + 1] if name.startswith("hyper/") else tensor[k]

        return {name: _kept(mine(name, tensor)) for name, tensor in self._tensors()}


def _structure(module: nn.Module) -> tuple[str, dict[str, torch.Size]]:
    """Describes a module as far as modules of a stack agree: layers, and shapes of parameters and buffers."""
    return str(module), {name: t.shape for part in (module.named_parameters(), module.named_buffers()) for name, t in part}


def _kept(tensor: Tensor) -> Tensor:
    """A copy on the CPU."""
    return tensor.detach().cpu().contiguous().clone()


def _part(network: str, prefix: str) -> str:
    """Names the optimiser of some parameters of a network in a checkpoint."""
    return f"{network}:{prefix}" if prefix else network
