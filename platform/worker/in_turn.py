"""Seeds of a trial that cannot train as one stack: one after another, an epoch each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Protocol

from torch import Tensor

from ...algos.base import Algorithm, Evaluator
from ...algos.learning.callbacks import Epoch
from ..places import Data


class Member(Protocol):
    """Trains one seed, and holds whatever it needs for it."""

    @property
    def step(self) -> int: ...

    @property
    def warned(self) -> Mapping[int, str]:
        """Warnings on its metrics, by seed."""
        ...

    @property
    def trained(self) -> Any:
        """The algorithm, as evaluators see it."""
        ...

    def fitter(self, n_steps: int, n_steps_per_epoch: int, evaluators: Mapping[str, Evaluator] | None = None) -> Iterator[Epoch]:
        """Trains on for `n_steps` further steps, an epoch at a time."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]: ...

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Any: ...

    def close(self) -> None: ...


class InTurn:
    """Seeds that train one after another, an epoch each, each with its own random numbers: `members` are one a seed."""

    def __init__(self, algorithm: Algorithm, members: Sequence[Member]) -> None:
        self.algorithm, self.members = algorithm, list(members)

    @property
    def step(self) -> int:
        return self.members[-1].step

    @property
    def fit_(self) -> Any:
        """Stand-in for a fit, with warnings on metrics, by seed. Raises AttributeError before the first step."""
        if not self.step:
            raise AttributeError("fit_")
        warned = {seed: said for member in self.members for seed, said in member.warned.items()}
        return SimpleNamespace(divergence=SimpleNamespace(warned=warned))

    def seed(self, k: int) -> Any:
        return self.members[k].trained

    def fitter(
        self, dataset: Data, n_steps: int, n_steps_per_epoch: int, evaluators: Mapping[str, Evaluator] | None = None
    ) -> Iterator[SimpleNamespace]:
        """Trains on, an epoch of every seed at a time; `metrics` has one dictionary a seed. The rest is as the members'."""
        epochs = [member.fitter(n_steps, n_steps_per_epoch, evaluators) for member in self.members]
        with suppress(StopIteration):
            while True:
                yield SimpleNamespace(metrics=[next(one).metrics for one in epochs])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if len(self.members) == 1:
            return self.members[0].state()
        tensors, metas = dict[str, Tensor](), list[dict[str, Any]]()
        for k, member in enumerate(self.members):
            held, meta = member.state()
            tensors |= {f"{k}/{name}": tensor for name, tensor in held.items()}
            metas.append(meta)
        seeds = [seed for meta in metas for seed in meta["seeds"]]
        return tensors, {"algorithm": self.algorithm.name, "step": self.step, "seeds": seeds, "members": metas}

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> InTurn:
        if len(self.members) == 1:
            self.members[0].load_state(tensors, meta)
            return self
        for k, (member, own) in enumerate(zip(self.members, meta["members"], strict=True)):
            held = {name.removeprefix(f"{k}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{k}/")}
            member.load_state(held, own)
        return self

    def close(self) -> None:
        for member in self.members:
            member.close()
