"""Seeds of one of RLlib's algorithms in a trial: trained one after another, an epoch each, each with its own random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from ...algos.base import Evaluator
from ...algos.learning.callbacks import Epoch
from ...data.spec import Environment
from ..places import Data
from .algorithm import RllibAlgorithm


class RllibStack:
    """What a trial of RLlib's algorithms trains, be it of one seed or of several.

    Args:
        first: The algorithm, unfitted.
        seeds: One or more.
        dataset: What it learns from, or where.
        environment: Where an algorithm learns that does; None: nowhere.
    """

    def __init__(self, first: RllibAlgorithm, seeds: Sequence[int], dataset: Data, environment: str | Environment | None) -> None:
        self.algorithm, self.seeds = first, tuple(seeds)
        self.members = [first.for_run(seed, dataset, environment) for seed in seeds]

    @property
    def step(self) -> int:
        """The step that every seed has done."""
        return self.members[-1].step

    @property
    def fit_(self) -> Any:
        """What a trial asks of a fit: what its metrics give cause to doubt, by seed. There is none before a step is done."""
        if not self.step:
            raise AttributeError("fit_")
        return SimpleNamespace(divergence=SimpleNamespace(warned=dict[int, str]()))

    def seed(self, k: int) -> RllibAlgorithm:
        """The seed at position k."""
        return self.members[k]

    def fitter(
        self, dataset: Data, n_steps: int, n_steps_per_epoch: int, evaluators: Mapping[str, Evaluator] | None = None
    ) -> Iterator[SimpleNamespace]:
        """Trains on, an epoch of every seed at a time; `metrics` has one dictionary a seed. The rest is as the algorithm's."""
        epochs: list[Iterator[Epoch]] = [m.fitter(n_steps, n_steps_per_epoch, evaluators) for m in self.members]
        while True:
            rows = [next(one, None) for one in epochs]
            if rows[0] is None:
                return
            yield SimpleNamespace(metrics=[row.metrics for row in rows if row is not None])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything to go on from."""
        if len(self.members) == 1:
            return self.members[0].state()
        tensors, metas = dict[str, Tensor](), list[dict[str, Any]]()
        for k, member in enumerate(self.members):
            held, meta = member.state()
            tensors |= {f"{k}/{name}": tensor for name, tensor in held.items()}
            metas.append(meta)
        return tensors, {"algorithm": self.algorithm.name, "step": self.step, "seeds": list(self.seeds), "members": metas}

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> RllibStack:
        """Goes on from a state."""
        if len(self.members) == 1:
            self.members[0].load_state(tensors, meta)
            return self
        for k, (member, own) in enumerate(zip(self.members, meta["members"], strict=True)):
            held = {name.removeprefix(f"{k}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{k}/")}
            member.load_state(held, own)
        return self

    def close(self) -> None:
        """Ends what RLlib runs."""
        for member in self.members:
            member.close()
