"""The learner: runs an algorithm's losses for one seed or a stack of them.

It owns parameters, targets, optimisers, hyper-parameter tensors and the step count, and gives algorithms its verbs: `minimise`
a loss over named networks, `track` a target softly, `copy` a target hard, `precompute` what several losses read.

A loss is written for one seed. With one seed it is called as it stands; with S seeds parameters, targets, hyper-parameters,
keys and batches carry a leading axis and the same loss runs under `torch.func.vmap(grad_and_value(...))`.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import stack_module_state, vmap

from ...data.batch import Batch, Drawn, Sequences
from ...data.random import fold, root_key
from ...data.sampling import BLOCK
from ..config import AlgorithmConfig
from ..definition import Axes, Definition, Loss, Network, axes_of
from ..nets import Ahead, Hyper, Nets, Parameters
from ..networks.precision import mixed_precision
from ..networks.q_functions import bootstrap_mask
from ..optimizers import RowOptimizer
from .diagnostics import gradient_norm, with_dead_units

Named = dict[str, Parameters]  # by network

# One call for a list of tensors: torch's own optimisers are built on these, and they have no public name.
_lerp: Callable[..., None] = torch._foreach_lerp_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
_add: Callable[..., None] = torch._foreach_add_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


class Learner:
    """Trains S seeds of one algorithm.

    Args:
        algorithm: Whose networks, schedule and losses.
        config: Its settings. Floats become tensors that losses read as `h.NAME`.
        build: Makes the networks of a seed.
        seeds: One or more; with more than one every tensor carries a leading axis.
        rows: Settings in which rows differ, one mapping a seed; coefficients only (floats).
        device, dtype: Where and in which precision.
    """

    def __init__(
        self,
        algorithm: Definition,
        config: AlgorithmConfig,
        build: Callable[[], Mapping[str, Network]],
        seeds: Sequence[int],
        *,
        rows: Sequence[Mapping[str, float]] | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.algorithm, self.seeds, self.dtype, self.device = algorithm, tuple(seeds), dtype, torch.device(device)
        self.stacked = len(self.seeds) > 1
        self.mixed_precision = config.mixed_precision
        self.step = 0
        built = [self._build(build, seed) for seed in self.seeds]
        self.networks = built[0]
        self.modules: dict[str, nn.Module] = {name: network.module for name, network in built[0].items()}
        self._targets: dict[str, nn.Module] = {n: copy.deepcopy(w.module) for n, w in built[0].items() if w.target}
        self._set_up_parameters(built)
        self._set_up_hyper(config, rows or [{} for _ in self.seeds])
        keys = torch.stack([root_key(seed, self.device) for seed in self.seeds])
        self._key = fold(keys if self.stacked else keys[0], "loss")
        self._members = getattr(algorithm.wants(config), "members", 0)
        self._bootstrap = fold(keys if self.stacked else keys[0], "bootstrap")
        self._optimizers = {name: self._set_up_optimizers(name, network) for name, network in self.networks.items()}
        self._calls = Counter[str]()  # of each loss in this step
        self._addresses: dict[str, tuple[int, Tensor, Ahead | None]] = {}
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._updates = 0  # since metrics were last read
        self._diagnosing = False  # whether an update also looks for signs of trouble, see `diagnostics`
        self.errors: Tensor | None = None  # [(S,) B] `td_error` of each sample at the latest step, of losses that have it
        self._good = torch.zeros(self._lead, dtype=torch.int64, device=self.device)

    def _precision(self) -> AbstractContextManager[None]:
        """What losses are computed in."""
        return mixed_precision(self.device.type) if self.mixed_precision else nullcontext()

    @property
    def _lead(self) -> tuple[int, ...]:
        return (len(self.seeds),) if self.stacked else ()

    def _build(self, build: Callable[[], Mapping[str, Network]], seed: int) -> dict[str, Network]:
        """Initial weights are a function of the seed alone: torch's own initialisers, with its generator set and put back."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            networks = dict(build())
        for network in networks.values():
            for path, layer in network.module.named_modules():
                if hasattr(layer, "path"):
                    layer.path = path  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
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

    def _set_up_hyper(self, config: AlgorithmConfig, rows: Sequence[Mapping[str, float]]) -> None:
        """`values`: floats by setting, one a row; `hyper`: the same as tensors, written in place by `set_hyper`."""
        self.values = {name: [float(row.get(name, value)) for row in rows] for name, value in config.coefficients().items()}
        self.hyper = {
            n: torch.tensor(v if self.stacked else v[0], dtype=self.dtype, device=self.device) for n, v in self.values.items()
        }
        self._h = Hyper(self.hyper)

    def _set_up_optimizers(self, name: str, network: Network) -> dict[str, RowOptimizer]:
        """By the prefix of the parameters that each steps; "" is the rest, or all."""
        rows = len(self.seeds) if self.stacked else None
        parts: dict[str, Parameters] = {"": {}} | {group.prefix: {} for group in network.groups}
        for parameter, tensor in self.live[name].items():
            parts[next((group.prefix for group in network.groups if parameter.startswith(group.prefix)), "")][parameter] = tensor
        made = {"": RowOptimizer(network.optimizer, parts[""], self.values[network.rate], rows)}
        for group in network.groups:
            made[group.prefix] = RowOptimizer(group.optimizer, parts[group.prefix], [group.rate] * (rows or 1), rows)
        return made

    # ---- the verbs

    def minimise(self, loss: Loss, network: str | tuple[str, ...], batch: Drawn) -> None:
        """One optimiser step of the named networks down the gradient of the mean loss; no other network gets a gradient."""
        names = (network,) if isinstance(network, str) else network
        seen = with_dead_units(loss, self.modules, names) if self._diagnosing else loss
        self._calls[loss.__name__] += 1
        key = self.address(loss, self._calls[loss.__name__])
        gradients, value, metrics, statistics = self.gradients(seen, names, batch, key)
        at = 0
        for name in names:
            live, optimizers = self.live[name], self._optimizers[name]
            mine = gradients[at : at + len(live)]
            at += len(live)
            if self._diagnosing:
                metrics[f"{name}_gradient_norm"] = gradient_norm(mine, stacked=self.stacked)
            if len(optimizers) == 1:
                optimizers[""].step(mine, self.step)
            else:
                named = dict(zip(live, mine, strict=True))
                for optimizer in optimizers.values():
                    optimizer.step([named[parameter] for parameter in optimizer.names], self.step)
            for buffer, new in statistics[name].items():
                self.buffers[name][buffer].copy_(new)
        label = f"{loss.__name__}"
        self._add({label: value.detach(), **metrics}, value)

    @torch.no_grad()
    def look(self, part: Callable[..., Any], *inputs: Any) -> Any:
        """What a function of (nets, *inputs, h) gives at the present state: tensors without gradient, of a stack one row a seed.

        It is called for one seed; `inputs` are trees of tensors, of a stack with an axis of rows in front.
        """

        def one(live: Mapping[str, Parameters], target: Mapping[str, Parameters], h: Hyper, key: Tensor, *inputs: Any) -> Any:
            targets = Nets(self._targets, target, None, key, self.dtype, h=h)
            return part(Nets(self.modules, live, targets, key, self.dtype, h=h), *inputs, h)

        with self._precision():
            if not self.stacked:
                return one({}, {}, self._h, self.address(part), *inputs)
            live = {name: {**live, **self.buffers[name]} for name, live in self.live.items()}
            rows = vmap(lambda live, target, h, key, *inputs: one(live, target, Hyper(h), key, *inputs), randomness="different")
            return rows(live, self.target, self.hyper, self.address(part), *inputs)

    def precompute(self, part: Callable[[Nets, Batch, Hyper], Tensor], batch: Batch) -> Batch:
        """The batch with what a `precomputed` method gives now: for losses of networks that it does not depend on."""
        return batch.with_extra(**{part.__name__: self.look(part, batch)})

    @torch.no_grad()
    def track(self, network: str, rate: str = "tau") -> None:
        """The target moves towards the network by the share `h.RATE`: θ' ← τ θ + (1 - τ) θ'. Batch statistics are copied."""
        live, target = self.live[network], self.target[network]
        if self.stacked:
            for name, tensor in live.items():
                share = self.hyper[rate].reshape(-1, *[1] * (tensor.ndim - 1))
                target[name].lerp_(tensor, share)
        elif self.device.type == "cpu":  # a number is faster than a tensor here, and equal to it
            _lerp([target[name] for name in live], list(live.values()), self.values[rate][0])
        else:
            _lerp([target[name] for name in live], list(live.values()), [self.hyper[rate]] * len(live))
        for name, buffer in self.buffers[network].items():
            target[name].copy_(buffer)

    @torch.no_grad()
    def copy(self, network: str) -> None:
        """The target becomes equal to the network."""
        for name, tensor in {**self.live[network], **self.buffers[network]}.items():
            self.target[network][name].copy_(tensor)

    # ---- running

    def update(self, batch: Drawn, *, diagnose: bool = False) -> None:
        """One gradient step: every kind of update that the algorithm's schedule names for it, in order; see `diagnostics`."""
        self._diagnosing, self.errors = diagnose, None
        self._calls.clear()
        if self._members:
            batch = cast("Batch", batch).with_extra(kept=self._kept_by_members(batch.index))
        for kind in self.algorithm.schedule(self.step):
            getattr(self.algorithm, kind)(self, batch)
        total = self._sums.get("")
        # Once a row's losses are not finite, their sum stays so: the count stops at its first bad step.
        self._good += 1 if total is None else total.isfinite()
        self.step += 1
        self._updates += 1

    def _kept_by_members(self, index: Tensor) -> Tensor:
        """Which transitions each member of an ensemble learns from, [(S,) members, B]: the same whenever they are drawn."""
        if not self.stacked:
            return bootstrap_mask(self._bootstrap, index, self._members, self.dtype)
        return vmap(lambda key, at: bootstrap_mask(key, at, self._members, self.dtype))(self._bootstrap, index)

    def set_hyper(self, name: str, values: Sequence[float]) -> None:
        """Writes a hyper-parameter in place, one value a row; learning rates included."""
        self.values[name] = [float(v) for v in values]
        self.hyper[name].copy_(torch.tensor(self.values[name] if self.stacked else self.values[name][0], dtype=self.dtype))
        for network, w in self.networks.items():
            if w.rate == name:
                self._optimizers[network][""].set_rates(self.values[name])

    def read_metrics(self) -> list[dict[str, float]]:
        """Means since the last call, one dictionary a seed, and the only time that training waits for the device.

        A row whose losses were not finite also has `first_bad_step`, the gradient step where that began.
        """
        rows = [dict[str, float]() for _ in self.seeds]
        for name, total in self._sums.items():
            if name:
                for row, value in zip(rows, total.double().reshape(-1).tolist(), strict=True):
                    row[name] = value / self._counts[name]
        for row, good in zip(rows, self._good.reshape(-1).tolist(), strict=True):
            if self._sums and good < self._updates:
                row["first_bad_step"] = self.step - self._updates + good
        self._sums, self._counts, self._updates = {}, {}, 0
        self._good.zero_()
        return rows

    # ---- inside

    def gradients(self, loss: Loss, names: tuple[str, ...], batch: Drawn, key: Tensor) -> tuple[Any, ...]:
        """A loss at the present state: gradients of the named networks in the order of `live`, value, metrics, batch statistics."""
        with self._precision():
            return (self._gradients_of_stack if self.stacked else self._gradients_of_one)(loss, names, batch, key)

    @torch.no_grad()
    def value(self, loss: Loss, batch: Drawn) -> Tensor:
        """The mean of a loss at the present state of one seed, (); nothing is trained, and layers are at rest."""
        key = self.address(loss).clone()  # a bare key: training needs the noise of the steps ahead, and this of one
        target = Nets(self._targets, {}, None, key, self.dtype)
        nets = Nets(self.modules, {}, target, key, self.dtype, resting=True, h=self._h)
        values, _ = loss(nets, batch, self._h)
        return _mean(values, axes_of(loss, values), batch)

    def address(self, loss: Callable[..., Any], call: int = 1) -> Tensor:
        """The key of this step's draws of a loss, () or (S,), at the so-manieth call of it in the step.

        Keys of `BLOCK` steps are made at once, which changes no value.
        """
        block, at = divmod(self.step, BLOCK)
        known = self._addresses.get(loss.__name__)
        if known is None or known[0] != block:
            steps = torch.arange(block * BLOCK, (block + 1) * BLOCK, device=self.device)
            keys = fold(fold(self._key[..., None], steps), loss.__name__)
            known = (block, keys, Ahead(keys) if keys.ndim == 1 and self.device.type == "cpu" else None)
            self._addresses[loss.__name__] = known
        _, keys, ahead = known
        key = keys[..., at]
        if call > 1:
            return fold(key, call)
        if ahead is not None:  # goes with the key to where noise is asked for
            key.ahead = ahead, at  # pyright: ignore[reportAttributeAccessIssue]
        return key

    def _gradients_of_one(self, loss: Loss, names: tuple[str, ...], batch: Drawn, key: Tensor) -> tuple[Any, ...]:
        target = Nets(self._targets, {}, None, key, self.dtype, h=self._h)
        nets = Nets(self.modules, {}, target, key, self.dtype, names, h=self._h)
        values, metrics = loss(nets, batch, self._h)
        value = _mean(values, axes_of(loss, values), batch)
        parameters = [p for name in names for p in self.live[name].values()]
        gradients = torch.autograd.grad(value, parameters)
        metrics = {k: v.detach() for k, v in metrics.items()}  # what is kept must not keep the graph
        self.errors = metrics.get("td_error", self.errors)
        return gradients, value, {k: v.mean() for k, v in metrics.items()}, nets.statistics

    def _gradients_of_stack(self, loss: Loss, names: tuple[str, ...], batch: Drawn, key: Tensor) -> tuple[Any, ...]:
        def one(tensors: Named, target: Named, batch: Drawn, hyper: Parameters, key: Tensor) -> Any:
            h = Hyper(hyper)
            targets = Nets(self._targets, target, None, key, self.dtype, h=h)
            nets = Nets(self.modules, tensors, targets, key, self.dtype, names, h=h)
            values, metrics = loss(nets, batch, h)
            means = {k: v.detach().mean() for k, v in metrics.items()}
            errors = {k: v.detach() for k, v in metrics.items() if k == "td_error"}
            return _mean(values, axes_of(loss, values), batch), means, nets.statistics, errors

        tensors = {n: {**p, **self.buffers[n]} for n, p in self.live.items()}
        leaves = {n: {k: p.detach().requires_grad_() for k, p in self.live[n].items()} for n in names}
        for name in names:
            tensors[name] = {**leaves[name], **self.buffers[name]}
        rows = vmap(one, randomness="different")
        value, metrics, statistics, errors = rows(tensors, self.target, batch, self.hyper, key)
        self.errors = errors.get("td_error", self.errors)
        # Rows have nothing in common, so the sum's gradient holds each row's own. Taken outside of vmap, it is plain autograd on
        # stacked tensors, which costs a third less than grad inside.
        gradients = torch.autograd.grad(value.sum(), [p for n in names for p in leaves[n].values()])
        return gradients, value.detach(), metrics, {n: {k: t.detach() for k, t in s.items()} for n, s in statistics.items()}

    def _add(self, metrics: dict[str, Tensor], value: Tensor) -> None:
        """Adds to the sums; "" is the sum of all losses, which shows the first step that was not finite."""
        metrics[""] = value.detach()
        new = {name: metrics.pop(name) for name in list(metrics) if name not in self._sums}
        for name, number in new.items():
            self._sums[name], self._counts[name] = number.clone(), 1
        if metrics:
            _add([self._sums[name] for name in metrics], list(metrics.values()))
            for name in metrics:
                self._counts[name] += 1

    # ---- state

    def state(self) -> dict[str, Tensor]:
        """Every tensor that training goes on from, by name: `live/NETWORK/…`, `target/…`, `optimizer/…`, `hyper/…`."""
        return {name: _kept(tensor) for name, tensor in self._tensors()}

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """What `state` copies."""
        for name in self.networks:
            yield from ((f"live/{name}/{k}", t) for k, t in {**self.live[name], **self.buffers[name]}.items())
            for prefix, optimizer in self._optimizers[name].items():
                yield from ((f"optimizer/{_part(name, prefix)}/{k}", t) for k, t in optimizer.state().items())
        for name, target in self.target.items():
            yield from ((f"target/{name}/{k}", t) for k, t in target.items())
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
        for name in self.values:
            self.set_hyper(name, tensors[f"hyper/{name}"].tolist())

    def row_state(self, k: int) -> dict[str, Tensor]:
        """The k-th seed's part of what `state` gives: the state of an ordinary learner. The other rows are not copied."""
        if not self.stacked:
            return self.state()

        def mine(name: str, tensor: Tensor) -> Tensor:
            if name.startswith("optimizer/") and name.endswith("/step"):  # all rows have done as many
                return tensor
            return tensor[k : k + 1] if name.startswith("hyper/") else tensor[k]

        return {name: _kept(mine(name, tensor)) for name, tensor in self._tensors()}


def _kept(tensor: Tensor) -> Tensor:
    """A copy on the CPU."""
    return tensor.detach().cpu().contiguous().clone()


def _part(network: str, prefix: str) -> str:
    """What a checkpoint calls the optimiser of some parameters of a network."""
    return f"{network}:{prefix}" if prefix else network


def _mean(values: Tensor, axes: Axes, batch: Drawn) -> Tensor:
    """The mean of what a loss gives, importance weights applied: over samples, or steps that are there, of the sum over members."""
    if axes == "batch":
        return values
    if axes == "sample step":
        there = cast("Sequences", batch).mask[:, -values.shape[1] :].to(values.dtype)
        if batch.weight is not None:
            there = there * batch.weight[:, None]
        return (values * there).sum() / there.sum().clamp(min=1e-30)
    if axes == "member sample":
        values = values.sum(0)
    return values.mean() if batch.weight is None else (values * batch.weight).mean()
