"""One seed of one of d3ray's own algorithms that learns while it acts, as a trial trains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from ...algos.base import Algorithm, Evaluator
from ...algos.learning.callbacks import Epoch
from ...algos.online.run import OnlineRun
from ...data.dataset import Dataset
from ...data.spec import Environment
from ..settings.online import OnlineConfig
from .actors import RayActors


class OnlineMember:
    """An algorithm, the environments in which it learns, and what it remembers of them.

    It draws from `dataset` too, where there is one, and for its first `online.pretrain` gradient steps from that alone; it acts in
    `actors`, or in this process where there are none.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        environment: str | Environment,
        dataset: Dataset | None,
        online: OnlineConfig,
        actors: RayActors | None = None,
    ) -> None:
        self.trained, self._environment = algorithm, environment
        self._dataset, self._pretrain = dataset, online.pretrain
        self._arguments: dict[str, Any] = {"dataset": dataset, "actors": actors, **online.arguments()}
        self._run: OnlineRun | None = None

    @property
    def step(self) -> int:
        return self.trained.step

    @property
    def _acts_later(self) -> bool:
        return self.step < self._pretrain

    @property
    def warned(self) -> Mapping[int, str]:
        """Warnings on its metrics, by seed."""
        return self.trained.fit_.divergence.warned

    @property
    def run(self) -> OnlineRun:
        """The run, begun where it is not. Raises ConfigError and DataError as `OnlineRun`."""
        if self._run is None:
            self._run = OnlineRun(self.trained, self._environment, **self._arguments)
        return self._run

    def fitter(self, n_steps: int, n_steps_per_epoch: int, evaluators: Mapping[str, Evaluator] | None = None) -> Iterator[Epoch]:
        """Learns until `n_steps` further gradient steps are done; yields and raises as `OnlineRun.epochs`."""
        end = self.step + n_steps
        if self._dataset is not None and self._acts_later:
            yield from self.trained.fitter(self._dataset, min(end, self._pretrain) - self.step, n_steps_per_epoch, evaluators)
        if self.step < end and not self._acts_later:  # else it was stopped before
            yield from self.run.epochs(end - self.step, n_steps_per_epoch, evaluators)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything to go on from, what it remembers and where its environments stand included."""
        return self.trained.state() if self._acts_later else self.run.state()

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> OnlineMember:
        """Goes on from a state, bit for bit where the environments can be brought back to where they stood."""
        self.close()
        if self._pretrain and "online" not in meta:
            self.trained.load_state(tensors, meta)
        else:
            self._run = OnlineRun.going_on(tensors, meta, self.trained, self._environment, **self._arguments)
        return self

    def close(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None
