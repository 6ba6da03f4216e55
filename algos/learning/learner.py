"""The learner: runs an algorithm's losses for one seed or a stack of them.

Upon the tensors of `TrainingState` it gives algorithms its verbs: `minimise` a loss over named networks, `track` a target softly,
`copy` a target hard, `precompute` what several losses read, `hold` a network in the rows where a test is true.

A loss is written for one seed. With one seed it is called as it stands; with S seeds parameters, targets, hyper-parameters,
keys and batches carry a leading axis and the same loss runs under `torch.func.vmap(grad_and_value(...))`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import vmap

from ...data.batch import BLOCK, Batch, Drawn, Sequences, Steps
from ...data.errors import ConfigError
from ...data.histories import steps_there
from ...data.random import fold, root_key
from ...data.tracing import untraced
from ..config import TrainedConfig
from ..definition import Axes, Definition, Loss, Network
from ..nets import Ahead, Hyper, Nets, Parameters, asked, kind_of_update
from ..networks.q_functions import bootstrap_mask
from ..networks.training import (
    Shard,
    encoders_in_bfloat16,
    has_tensor_float,
    mean_of_shards,
    products_in_tensor_float,
    shard_under_way,
)
from ..optimizers import where_held
from .diagnostics import gradient_norm, with_dead_units
from .ranks import ranks_of
from .recording import Undoing
from .state import Named, TrainingState
from .trust_region import Limits, trust_region_step

# One call for a list of tensors: torch's own optimisers are built on these, and they have no public name.
_lerp: Callable[..., None] = torch._foreach_lerp_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
_add: Callable[..., None] = torch._foreach_add_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
_multiply: Callable[..., None] = torch._foreach_mul_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
_subtract: Callable[..., Sequence[Tensor]] = torch._foreach_sub  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


NONE: Named = {}


class Learner(TrainingState):
    """Trains S seeds of one algorithm.

    Args:
        algorithm: Whose networks, schedule and losses.
        config, build, seeds, rows, guests, device, dtype: As `TrainingState`'s.
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
        super().__init__(algorithm, config, build, seeds, rows=rows, guests=guests, device=device, dtype=dtype)
        self.matmul_precision = config.matmul_precision
        self.ranks = ranks_of(algorithm, config)  # the processes that share its batches; None: this one alone
        self._shard: Shard | None = None  # this process's part of the batch under way
        keys = torch.stack([root_key(seed, self.device) for seed in self.seeds])
        self._key = fold(keys if self.stacked else keys[0], "loss")
        self._members = getattr(algorithm.wants(config), "members", 0)
        self._bootstrap = fold(keys if self.stacked else keys[0], "bootstrap")
        self._calls: dict[str, int] = {}  # of each loss in this step
        self._block: tuple[int, Steps] | None = None  # the steps whose addresses are made together, see `now`
        self._traced: Steps | None = None
        self._sums: dict[str, Tensor] = {}
        self.counts = Counter[str]()  # of how many updates each sum is
        self._updates = 0  # since metrics were last read
        self._signs = set[str]()  # metrics that are looked for at the step that ends an epoch
        self._diagnosing = False  # whether an update also looks for signs of trouble, see `diagnostics`
        self.errors: Tensor | None = None  # [(S,) B] `td_error` of each sample at the latest step, of losses that have it
        self._good = torch.zeros(self._lead, dtype=torch.int64, device=self.device)

    def _precision(self) -> AbstractContextManager[None]:
        return encoders_in_bfloat16(self.device.type) if self.matmul_precision == "bfloat16" else nullcontext()

    def products(self) -> AbstractContextManager[None]:
        """Sets the precision of a gradient step's products; to be held wherever its kernels are chosen, captured or launched."""
        return products_in_tensor_float() if self._tensor_float else nullcontext()

    @cached_property
    def _tensor_float(self) -> bool:
        """Tells whether steps run in TensorFloat-32, and warns once where that is set and not there."""
        if self.matmul_precision != "tf32" or has_tensor_float(self.device):
            return self.matmul_precision == "tf32"
        lacking = f"{self.device} has no TF32, which NVIDIA's GPUs have from Ampere on"
        warnings.warn(f"{self.algorithm.name} trains in float32: {lacking}.", stacklevel=2)
        return False

    # ---- the verbs

    def minimise(self, loss: Loss, network: str | tuple[str, ...], batch: Drawn) -> None:
        names, step = (network,) if isinstance(network, str) else network, self._schedule_step()
        call = self._calls[loss.__name__] = self._calls.get(loss.__name__, 0) + 1
        key, ahead = self._address(loss, call)
        gradients, value, metrics, statistics = self.gradients(loss, names, batch, key, ahead, diagnose=self._diagnosing)
        at = 0
        for name in names:
            live, optimizers, held = self.live[name], self._optimizers[name], self.held.get(name)
            mine = gradients[at : at + len(live)]
            at += len(live)
            if self._diagnosing:
                metrics[f"{name}_gradient_norm"] = gradient_norm(mine, stacked=self.stacked)
                self._signs |= {sign for sign in (f"{name}_gradient_norm", f"{name}_dead_units") if sign in metrics}
            if len(optimizers) == 1:
                optimizers[""].step(mine, step, held)
            else:
                named = dict(zip(live, mine, strict=True))
                for optimizer in optimizers.values():
                    optimizer.step([named[parameter] for parameter in optimizer.names], step, held)
            for buffer, new in statistics[name].items():
                old = self.buffers[name][buffer]
                old.copy_(new if held is None else where_held(held, old, new))
        self._add(loss.__name__, value.detach(), metrics)

    def constrain(
        self, loss: Loss, divergence: Callable[[Nets, Any, Hyper], Tensor], network: str, batch: Drawn, limits: Limits
    ) -> None:
        """One step of the network down the mean loss, as far as the mean divergence [B] from where it is allows.

        Of one seed; raises ConfigError for a stack, whose rows would each need a line search of their own.
        """
        if self.stacked:
            raise ConfigError("A step within a trust region is one seed's: train every seed for itself.")
        nets = self._nets(self.address(loss), self._h)
        told = dict[str, Tensor]()

        def value() -> Tensor:
            values, metrics, axes = asked(loss, nets, batch, self._h)
            told.update({name: metric.detach().mean() for name, metric in metrics.items()})
            return _mean(values, axes, batch)

        if network not in self.live:
            raise self.no_network(network)
        parameters = list(self.live[network].values())
        found = trust_region_step(parameters, value, lambda: divergence(nets, batch, self._h).mean(), limits)
        self._add(loss.__name__, found.loss, {**told, "kl": found.divergence, "step_share": found.share})

    @torch.no_grad()
    def look(self, part: Callable[..., Any], *inputs: Any, call: int = 1) -> Any:
        """Calls a function of (nets, *inputs, h) at the present state, without gradient; of a stack it gives one row a seed.

        It is called for one seed; `inputs` are trees of tensors, of a stack with an axis of rows in front. What looks several times
        in one step numbers its calls, so that each draws numbers of its own.
        """
        key, ahead = self._address(part, call)
        if self.stacked:
            return self._of_rows(part, key, *inputs)
        with self._precision():
            return part(self._nets(key, self._h, ahead=ahead), *inputs, self._h)

    def precompute(self, part: Callable[[Nets, Batch, Hyper], Tensor], batch: Batch) -> Batch:
        return batch.with_extra(**{part.__name__: self.look(part, batch)})

    @torch.no_grad()
    def track(self, network: str, rate: str = "tau") -> None:
        if network not in self.target:
            raise self.no_network(network, target=True)
        if rate not in self.values:
            raise self.no_coefficient(rate, f"the target of {network!r}")
        live, target = self.live[network], self.target[network]
        if self.stacked:
            for name, tensor in live.items():
                share = self.hyper[rate].reshape(-1, *[1] * (tensor.ndim - 1))
                target[name].lerp_(tensor, share)
        elif self._on_host:  # a number is faster than a tensor here
            _lerp([target[name] for name in live], list(live.values()), self.values[rate][0])
        else:
            ours = [target[name] for name in live]
            moves = _subtract(list(live.values()), ours)
            _multiply(moves, self.hyper[rate])
            _add(ours, moves)
        for name, buffer in self.buffers[network].items():
            target[name].copy_(buffer)

    @torch.no_grad()
    def copy(self, network: str) -> None:
        if network not in self.target:
            raise self.no_network(network, target=True)
        for name, tensor in {**self.live[network], **self.buffers[network]}.items():
            self.target[network][name].copy_(tensor)

    @torch.no_grad()
    def hold(self, test: Callable[[Nets, Any, Hyper], Tensor], network: str, batch: Drawn) -> None:
        held, found = self._held(network), self.look(test, batch)
        if found.dtype != torch.bool or found.shape != held.shape:
            said = f"{found.dtype} {tuple(found.shape[len(self._lead) :])}"
            raise TypeError(
                f"The test {test.__qualname__} says whether one seed is held, with a bool of shape (), and gave {said}."
            )
        held.logical_or_(found)

    @torch.no_grad()
    def release(self, network: str) -> None:
        self._held(network).zero_()

    def _held(self, network: str) -> Tensor:
        if network not in self.held:
            raise ConfigError(f"{self.algorithm.name} holds the network {network!r}, which it has to name in `holds`.")
        return self.held[network]

    # ---- running

    def update(self, batch: Drawn, *, diagnose: bool = False) -> None:
        """One gradient step: every kind of update that the algorithm's schedule names for it, in order; see `diagnostics`."""
        self.run(self.algorithm.schedule(self.step), batch, diagnose=diagnose)
        self.passed(1)

    def run(self, kinds: Iterable[str], batch: Drawn, *, diagnose: bool = False) -> None:
        """Does to tensors what a gradient step does; `passed` counts it."""
        if self.ranks is None:
            self._run(kinds, batch, diagnose=diagnose)
            return
        own, self._shard = self.ranks.shard(batch, len(self._lead))
        with shard_under_way(self._shard):
            self._run(kinds, own, diagnose=diagnose)

    def _run(self, kinds: Iterable[str], batch: Drawn, *, diagnose: bool) -> None:
        self._diagnosing, self.errors = diagnose, None
        self._calls.clear()
        if self._members:
            batch = cast("Batch", batch).with_extra(kept=self._kept_by_members(batch.index))
        with self.products():
            for kind in kinds:
                kind_of_update(self.algorithm, kind)(self, batch)
        total = self._sums.get("")
        # Once a row's losses are not finite, their sum stays so: the count stops at its first bad step.
        self._good += 1 if total is None else total.isfinite()

    def diagnosed(self, batch: Drawn) -> dict[str, Tensor]:
        """The signs of trouble at a gradient step that a program is about to do, which gives what it gives at others."""
        counts, undoing = self.counts.copy(), Undoing()
        self._signs.clear()
        with undoing:
            self.run(self.algorithm.schedule(self.step), batch, diagnose=True)
        found = {name: self._sums[name].clone() for name in self._signs}
        undoing.undo()
        self.counts = counts
        return found

    def note(self, signs: Mapping[str, Tensor]) -> None:
        for name, value in signs.items():
            self._sums[name].copy_(value)
            self.counts[name] = 1

    def passed(self, n: int) -> None:
        self.step += n
        self._updates += n

    @property
    def now(self) -> Steps:
        """The step under way among those whose random numbers are drawn together, which changes no value."""
        if self._traced is not None:
            return self._traced
        block, at = divmod(self.step, BLOCK)
        if self._block is None or self._block[0] != block:
            self._block = block, Steps(torch.arange(block * BLOCK, (block + 1) * BLOCK, device=self.device))
        steps = self._block[1]
        steps.at = at
        return steps

    @contextmanager
    def counted_by(self, steps: Steps) -> Generator[None]:
        """Within it steps have the numbers of tensors, and `step` is not looked at."""
        self._traced = steps
        try:
            yield
        finally:
            self._traced = None

    def _schedule_step(self) -> int | Tensor:
        """The step that schedules of learning rates go by; in a tensor where rates are tensors."""
        return self.step if self._on_host else self.now.numbers[self.now.at]

    @property
    def _on_host(self) -> bool:
        """True if numbers may stand for tensors: no device is waited for, and no program made of the step."""
        return self._traced is None and self.device.type == "cpu"

    def _kept_by_members(self, index: Tensor) -> Tensor:
        """Which transitions each member of an ensemble learns from, [(S,) members, B]: the same whenever they are drawn."""
        if not self.stacked:
            return bootstrap_mask(self._bootstrap, index, self._members, self.dtype)
        return vmap(lambda key, at: bootstrap_mask(key, at, self._members, self.dtype))(self._bootstrap, index)

    def read_metrics(self) -> list[dict[str, float]]:
        """Means since the last call, one dictionary a seed, and the only time that training waits for the device.

        A row whose losses were not finite also has `first_bad_step`, the gradient step where that began.
        """
        rows = [dict[str, float]() for _ in self.seeds]
        there = [name for name in self._sums if name and self.counts[name]]
        for name, total in zip(there, self._read([self._sums[name] for name in there]), strict=True):
            for row, value in zip(rows, total, strict=True):
                row[name] = value / self.counts[name]
        for row, good in zip(rows, self._good.reshape(-1).tolist(), strict=True):
            if there and good < self._updates:
                row["first_bad_step"] = self.step - self._updates + int(good)
        for total in (*self._sums.values(), self._good):  # they stay where they are: programs add to them there
            total.zero_()
        self.counts.clear()
        self._updates = 0
        return rows

    @staticmethod
    def _read(totals: Sequence[Tensor]) -> list[list[float]]:
        return torch.stack([total.double().reshape(-1) for total in totals]).tolist() if totals else []

    # ---- inside

    def gradients(
        self,
        loss: Loss,
        names: tuple[str, ...],
        batch: Drawn,
        key: Tensor,
        ahead: tuple[Ahead, int] | None = None,
        *,
        diagnose: bool = False,
    ) -> tuple[Any, ...]:
        """A loss at the present state: gradients of the named networks in the order of `live`, value, metrics, batch statistics."""
        if unknown := [name for name in names if name not in self.live]:
            raise self.no_network(unknown[0])
        seen = with_dead_units(loss, self.modules, names) if diagnose else loss
        if self.stacked:
            gradients, value, metrics, statistics, errors = self._gradients_of_rows(seen, names, batch, key)
        else:
            gradients, value, metrics, statistics, errors = self._gradients_of_one(seen, names, batch, key, ahead)
        if self.ranks is not None and self._shard is not None:
            of_networks = [tensor for network in statistics.values() for tensor in network.values()]
            self.ranks.average([*gradients, value.detach(), *metrics.values(), *of_networks])
            errors = {name: self._shard.gather(each) for name, each in errors.items()}
        self.errors = errors.get("td_error", self.errors)
        return gradients, value, metrics, statistics

    @torch.no_grad()
    def value(self, loss: Loss, batch: Drawn) -> Tensor:
        """The mean of a loss at the present state of one seed, (); nothing is trained, and layers are at rest."""
        values, _, axes = asked(loss, self._nets(self.address(loss), self._h, resting=True), batch, self._h)
        return _mean(values, axes, batch)

    def _nets(
        self,
        key: Tensor,
        h: Hyper,
        live: Named = NONE,
        target: Named = NONE,
        guests: Named = NONE,
        minimised: Iterable[str] = (),
        *,
        resting: bool = False,
        ahead: tuple[Ahead, int] | None = None,
    ) -> Nets:
        """Makes the networks that a loss of one seed sees; no tensors where the modules hold their own."""
        targets = Nets(self._targets, target, None, key, self.dtype, h=h)
        others = Nets(self._guests, guests, None, key, self.dtype, h=h) if self._guests else None
        return Nets(self.modules, live, targets, key, self.dtype, minimised, resting=resting, h=h, guests=others, ahead=ahead)

    def address(self, loss: Callable[..., Any], call: int = 1) -> Tensor:
        """The key of a loss's draws in this step, () or (S,); `call` counts its calls in the step."""
        return self._address(loss, call)[0]

    def _address(self, loss: Callable[..., Any], call: int = 1) -> tuple[Tensor, tuple[Ahead, int] | None]:
        """The key, and of one seed's first call the noise of the steps ahead."""
        now, name = self.now, loss.__name__
        if name not in now.made:
            keys = fold(fold(self._key[..., None], now.numbers), name)
            now.made[name] = keys, Ahead(keys) if keys.ndim == 1 else None
        keys, ahead = now.made[name]
        key = keys[..., now.at]
        if call > 1:
            return fold(key, call), None
        return key, None if ahead is None else (ahead, now.at)

    def _gradients_of_one(
        self, loss: Loss, names: tuple[str, ...], batch: Drawn, key: Tensor, ahead: tuple[Ahead, int] | None
    ) -> tuple[Any, ...]:
        """Gradients in the order of `live`, value, metrics, batch statistics and errors, where the modules hold the tensors."""
        with self._precision():
            nets = self._nets(key, self._h, minimised=names, ahead=ahead)
            values, metrics, axes = asked(loss, nets, batch, self._h)
            value = _mean(values, axes, batch)
            gradients = torch.autograd.grad(value, [p for name in names for p in self.live[name].values()])
        metrics = {k: v.detach() if v.requires_grad else v for k, v in metrics.items()}  # what is kept must not keep the graph
        return gradients, value, _means(metrics, batch), nets.statistics, _errors(metrics)

    def _gradients_of_rows(self, loss: Loss, names: tuple[str, ...], batch: Drawn, key: Tensor) -> tuple[Any, ...]:
        def one(nets: Nets, batch: Drawn, h: Hyper) -> Any:
            values, metrics, axes = asked(loss, nets, batch, h)
            metrics = {k: v.detach() for k, v in metrics.items()}
            value = _mean(values, axes, batch)
            return value, _means(metrics, batch), nets.statistics, _errors(metrics)

        leaves = {n: {k: p.detach().requires_grad_() for k, p in self.live[n].items()} for n in names}
        value, metrics, statistics, errors = self._of_rows(one, key, batch, leaves=leaves)
        # Rows have nothing in common, so the sum's gradient holds each row's own. Taken outside of vmap, it is plain autograd
        # on stacked tensors, which costs a third less than grad inside.
        gradients = torch.autograd.grad(value.sum(), [p for network in leaves.values() for p in network.values()])
        statistics = {n: {k: t.detach() for k, t in s.items()} for n, s in statistics.items()}
        return gradients, value.detach(), metrics, statistics, errors

    def _of_rows(self, one: Callable[..., Any], key: Tensor, *inputs: Any, leaves: Named = NONE) -> Any:
        """Calls a function of (nets, *inputs, h) of one seed for every row; `leaves` are parameters that get gradients."""

        def called(live: Named, target: Named, guests: Named, hyper: Parameters, key: Tensor, *inputs: Any) -> Any:
            h = Hyper(hyper)
            return one(self._nets(key, h, live, target, guests, leaves), *inputs, h)

        live = {name: {**leaves.get(name, own), **self.buffers[name]} for name, own in self.live.items()}
        with self._precision():
            return vmap(called, randomness="different")(live, self.target, self._guest_tensors, self.hyper, key, *inputs)

    def _add(self, loss: str, value: Tensor, metrics: dict[str, Tensor]) -> None:
        """Adds to the sums; "" is the sum of all losses, which shows the first step that was not finite."""
        metrics = {loss: value, **metrics, "": value}
        for name, number in metrics.items():
            if name not in self._sums:
                with untraced():
                    self._sums[name] = torch.zeros_like(number)
            self.counts[name] += 1
        _add([self._sums[name] for name in metrics], list(metrics.values()))


def _errors(metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: values for name, values in metrics.items() if name == "td_error"}


def _means(metrics: Mapping[str, Tensor], batch: Drawn) -> dict[str, Tensor]:
    """The mean of each metric, of padded steps none."""
    there = None if isinstance(batch.observation, Tensor) else steps_there(batch.observation)
    if there is None:
        return {name: values.mean() for name, values in metrics.items()}
    n = mean_of_shards(there.sum())
    return {name: (v * there).sum() / n if v.shape == there.shape else v.mean() for name, v in metrics.items()}


def _mean(values: Tensor, axes: Axes, batch: Drawn) -> Tensor:
    """The mean of what a loss gives, importance weights applied: over samples, or steps that are there, of the sum over members."""
    if axes == "batch":
        return values
    if axes == "sample step":
        there = cast("Sequences", batch).mask[:, -values.shape[1] :].to(values.dtype)
        if batch.weight is not None:
            there = there * batch.weight[:, None]
        return (values * there).sum() / mean_of_shards(there.sum()).clamp(min=1e-30)
    if axes == "member sample":
        values = values.sum(0)
    return values.mean() if batch.weight is None else (values * batch.weight).mean()
