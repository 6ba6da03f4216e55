"""Looking into an update: what each loss gives and trains, and what each verb moves."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ...data.batch import Batch
from ..definition import Loss
from ..learning.fit import Fit
from ..learning.learner import Learner
from ..learning.recording import ValueReadError
from ..nets import kind_of_update
from .errors import Make
from .tiny import data_for

HORIZON = 2_000  # gradient steps within which a kind of update has to be due once


@dataclass(frozen=True)
class SeenLoss:
    """A loss where an update minimises it.

    `batch` has what the kind of update put into it; `value` is the mean, () or (S,); `gradients` are those of the networks `names`'
    parameters, in their order.
    """

    loss: Loss
    names: tuple[str, ...]
    batch: Batch
    value: Tensor
    gradients: tuple[Tensor, ...]

    def differs(self, other: SeenLoss, by: float = 0.0) -> bool:
        """Tell whether any bit of value or gradients differs, or any number by more than `by`."""
        mine, others = (self.value, *self.gradients), (other.value, *other.gradients)
        return any(not torch.allclose(a, b, rtol=0, atol=by) for a, b in zip(mine, others, strict=True))


def started(make: Make, **run: Any) -> Fit:
    algorithm, dataset = make(**run), data_for(make)
    algorithm.fit(dataset, n_steps=0)
    algorithm.fit_.sampler(dataset)
    return algorithm.fit_


def first_steps(learner: Learner) -> dict[str, int]:
    """The gradient step at which each kind of update is due for the first time."""
    steps: dict[str, int] = {}
    for step in range(HORIZON):
        for kind in learner.algorithm.schedule(step):
            steps.setdefault(kind, step)
    return steps


def seen_losses(learner: Learner, batch: Batch) -> dict[str, SeenLoss]:
    """Every loss on a batch at the present state, by name. Every kind of update runs once; nothing is stepped."""
    found, at = dict[str, SeenLoss](), learner.step

    def minimise(loss: Loss, network: str | tuple[str, ...], given: Batch) -> None:
        names = (network,) if isinstance(network, str) else network
        if loss.__name__ not in found:
            gradients, value, *_ = learner.gradients(loss, names, given, learner.address(loss))
            found[loss.__name__] = SeenLoss(loss, names, given, value.detach(), tuple(g.detach() for g in gradients))

    def stay(*arguments: Any, **named: Any) -> None: ...

    with verbs(learner, minimise=minimise, **dict.fromkeys(("track", "copy", "hold", "release"), stay)):
        for kind, step in first_steps(learner).items():
            learner.step = step
            kind_of_update(learner.algorithm, kind)(learner, batch)
    learner.step = at
    return found


@contextmanager
def verbs(learner: Learner, **replaced: Callable[..., None]) -> Generator[None]:
    """Within it the learner's verbs are others."""
    for name, function in replaced.items():
        setattr(learner, name, function)
    try:
        yield
    finally:
        for name in replaced:
            delattr(learner, name)


def moved_by_verbs(learner: Learner, batch: Batch) -> Iterator[tuple[str, tuple[str, ...], set[str]]]:
    """(verb, what it may move, the tensors that it moved) at the first step of every kind of update and the one after it.

    A verb "" is what moved between two verbs, and may move nothing. Names are those of `Learner.state`.
    """
    steps, moves, seen = set(first_steps(learner).values()), list[tuple[str, tuple[str, ...], set[str]]](), [learner.state()]

    def note(verb: str, may: tuple[str, ...]) -> None:
        before, after = seen[0], learner.state()
        seen[0] = after
        moves.append((verb, may, {name for name, t in after.items() if name not in before or not torch.equal(t, before[name])}))

    def spied(verb: str) -> Callable[..., None]:
        original = getattr(learner, verb)

        def run(first: Any, *rest: Any, **named: Any) -> None:
            note("", ())
            original(first, *rest, **named)
            if verb in ("track", "copy"):
                note(f"{verb}({first!r})", (f"target/{first}/",))
                return
            if verb == "release":
                note(f"{verb}({first!r})", (f"held/{first}",))
                return
            network = rest[0] if rest else named["network"]
            if verb == "hold":
                note(f"{verb}({first.__name__}, {network!r})", (f"held/{network}",))
                return
            names = (network,) if isinstance(network, str) else network
            parts = tuple(part for name in names for part in (f"live/{name}/", f"optimizer/{name}/", f"optimizer/{name}:"))
            note(f"minimise({first.__name__}, {', '.join(map(repr, names))})", parts)

        return run

    with verbs(learner, **{verb: spied(verb) for verb in ("minimise", "track", "copy", "hold", "release")}):
        for learner.step in sorted(steps | {step + 1 for step in steps}):
            for kind in learner.algorithm.schedule(learner.step):
                kind_of_update(learner.algorithm, kind)(learner, batch)
        note("", ())
    yield from moves


def gradients_elsewhere(learner: Learner, seen: SeenLoss) -> dict[str, float]:
    """Name where else a loss has a gradient, with its largest entry: target networks, and the next observation."""
    following = pytree.tree_map(_copy, seen.batch.next_observation)
    named = [(f"target network {n!r}", t) for n, ts in learner.target.items() for t in ts.values() if t.is_floating_point()]
    named += [("next observation", leaf) for leaf in pytree.tree_leaves(following) if leaf.is_floating_point()]
    found: dict[str, float] = {}

    def looking(nets: Any, batch: Batch, h: Any) -> Any:
        values, metrics = seen.loss(nets, batch, h)
        wanted = [leaf for _, leaf in named]
        gradients = torch.autograd.grad(values.sum(), wanted, retain_graph=True, allow_unused=True, materialize_grads=True)
        for (name, _), gradient in zip(named, gradients, strict=True):
            found[name] = max(found.get(name, 0.0), float(gradient.abs().max()))
        return values, metrics

    functools.update_wrapper(looking, seen.loss)
    for _, leaf in named:
        leaf.requires_grad_(True)
    try:
        learner.gradients(looking, seen.names, replace(seen.batch, next_observation=following), learner.address(seen.loss))
    finally:
        for _, leaf in named:
            leaf.requires_grad_(False)
    return {name: size for name, size in found.items() if size}


def values_shape(learner: Learner, seen: SeenLoss) -> tuple[int, ...]:
    """The shape of what a loss gives, before means are taken."""
    shapes: list[tuple[int, ...]] = []

    def looking(nets: Any, batch: Batch, h: Any) -> Any:
        values, metrics = seen.loss(nets, batch, h)
        shapes.append(tuple(values.shape))
        return values, metrics

    functools.update_wrapper(looking, seen.loss)
    learner.gradients(looking, seen.names, seen.batch, learner.address(seen.loss))
    return shapes[0]


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


_aten: Any = torch.ops.aten
_STEPPED = (_aten._fused_adam_.tensor_lr, _aten._fused_adamw_.tensor_lr)  # kernels that say nothing of tensors without values


class OnMeta(TorchDispatchMode):
    """Within it meta tensors stand for those of an accelerator, as strictly as a captured graph takes them.

    Every operation has to stay on them. What reads a value waits for the device; a tensor of the host that meets one of the device,
    or is copied there, is lost in a captured graph. A Python number that meets a coefficient is neither: it stays a constant of the
    operation, which `vmap` brings to the coefficient's type first.

    Args:
        first: Whether it is the first run, at which what stays on the device may be brought there: that is not captured.

    Raises:
        ValueReadError: an operation does not stay there.
    """

    def __init__(self, *, first: bool = False) -> None:
        super().__init__()
        self._first = first
        self._numbers: dict[int, Tensor] = {}  # Python's, as `vmap` wraps them

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func is _aten._local_scalar_dense.default:
            raise ValueReadError("a value is read, as .item(), float(tensor) or an if on a tensor do")
        leaves = pytree.tree_leaves((args, kwargs))
        given = [leaf for leaf in leaves if isinstance(leaf, Tensor) and id(leaf) not in self._numbers]
        if not self._first and len({tensor.is_meta for tensor in given}) > 1:
            raise ValueReadError(f"{func} takes a tensor of the CPU beside those of the device")
        if func in _STEPPED:
            return None
        out = func(*args, **(kwargs or {}))
        if func is _aten._to_copy.default and not isinstance(args[0], Tensor):
            self._numbers[id(out)] = out
            return out
        if self._first:
            return out
        if any(isinstance(t, Tensor) and not t.is_meta for t in pytree.tree_leaves(out)):
            raise ValueReadError(f"{func} makes a tensor on the CPU: make it from one that is there, or name its device")
        return out


def on_meta(batch: Any) -> Any:
    return pytree.tree_map(lambda t: t.to("meta") if isinstance(t, Tensor) else t, batch)


def where(error: BaseException, algorithm: object) -> str:
    """The line of an algorithm's own file that an error went through last, as `file:line`; empty where there is none."""
    files = {inspect.getsourcefile(cls) for cls in type(algorithm).__mro__[:-1]}
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{lines[-1].filename}:{lines[-1].lineno}" if lines else ""
