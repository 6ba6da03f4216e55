"""Several seeds of an algorithm trained at once, as one axis of every tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, Self, Unpack, cast

from torch import Tensor

from ..data.dataset import Dataset
from ..data.episodes import Episode
from ..data.errors import ConfigError
from ..data.seeds import checked_seed
from .base import Algorithm
from .learning.callbacks import Callback, Evaluator, Watching, check_arguments, watching
from .learning.estimator import Estimator, steps_to_do
from .learning.fit import Fit, check_steps
from .learning.history import History
from .learning.setup import trained_on


class StackEpoch(NamedTuple):
    """One epoch of a stack: its number, from 1, and one dictionary of metrics a seed."""

    epoch: int
    metrics: list[dict[str, float]]


class Stack:
    """S seeds of one algorithm. Row k learns what seed k learns alone, up to the rounding of batched products.

    Args:
        algorithm: Whose settings all rows have; its own seed is not used.
        seeds: One a row.
        rows: Coefficients (settings that are floats) in which rows differ, one mapping a seed; None: rows are alike.

    Attributes:
        failed_rows: The first bad gradient step of each row whose losses stopped being finite; the others go on.
    """

    def __init__(self, algorithm: Algorithm, seeds: Sequence[int], rows: Sequence[Mapping[str, float]] | None = None) -> None:
        if not isinstance(cast("Any", seeds), Iterable):
            raise ConfigError(f"seeds is {seeds!r}; a stack takes several, as range({seeds!r}).")
        self.seeds = tuple(map(checked_seed, seeds))
        if not self.seeds or (len(set(self.seeds)) < len(self.seeds) and rows is None):
            raise ConfigError(f"A stack needs at least one seed, and different ones: {list(self.seeds)}.")
        if rows is not None:
            _check_rows(algorithm, self.seeds, rows)
        self.algorithm, self.rows = algorithm, rows
        self.failed_rows: dict[int, int] = {}
        self.fit_: Fit

    @property
    def failed(self) -> dict[int, int]:
        """The first bad gradient step of each seed whose losses stopped being finite, in any of its rows."""
        latest_first = sorted(self.failed_rows.items(), key=lambda item: -item[1])
        return {self.seeds[k]: step for k, step in latest_first}

    @property
    def history_(self) -> History:
        """The metrics of every epoch and seed since the networks were built or loaded; that of one seed is `.seed(k).history_`."""
        if not hasattr(self, "fit_"):
            raise ConfigError("This stack has not been trained yet: call fit first.")
        return History.of(self.fit_)

    @property
    def step(self) -> int:
        return self.fit_.learner.step if hasattr(self, "fit_") else 0

    def fit(
        self,
        dataset: Dataset | Sequence[Episode] | str | Path,
        n_steps: int | None = None,
        n_steps_per_epoch: int = 10_000,
        evaluators: Mapping[str, Evaluator] | None = None,
        callbacks: Sequence[Callback] = (),
        **watching: Unpack[Watching],
    ) -> Self:
        """Trains every seed for `n_steps` gradient steps more; arguments as `fitter`'s."""
        own = [name for name in signature(Stack.fitter).parameters if name != "watch"]
        check_arguments("fit", watching, (*own, *Watching.__annotations__))
        for _ in self.fitter(dataset, n_steps, n_steps_per_epoch, evaluators, callbacks, **watching):
            pass
        return self

    def fitter(
        self,
        dataset: Dataset | Sequence[Episode] | str | Path,
        n_steps: int | None = None,
        n_steps_per_epoch: int = 10_000,
        evaluators: Mapping[str, Evaluator] | None = None,
        callbacks: Sequence[Callback] = (),
        **watch: Unpack[Watching],
    ) -> Iterator[StackEpoch]:
        """The training loop of `Algorithm.fitter` for all seeds at once; arguments as there.

        Evaluators, callbacks and loggers get each seed that has not failed as an ordinary algorithm, in the order of the rows; a
        `callback` gets the stack, once a step. One that stops the training stops it for all seeds.
        """
        dataset, n_steps = trained_on(self.algorithm, dataset), steps_to_do(self.algorithm.name, n_steps)
        check_steps(n_steps, n_steps_per_epoch, least=0)
        if not hasattr(self, "fit_"):
            algorithm = self.algorithm.unfitted()
            self.fit_ = algorithm.fit_ = Fit.start(algorithm, dataset, self.seeds, self.rows)
        self.fit_.sampler(dataset)  # before anyone looks on: they ask what it is trained on
        parts = [f"seed-{seed}" if self._distinct else f"row-{k}" for k, seed in enumerate(self.seeds)]
        each = [(part, partial(self.seed, k)) for k, part in enumerate(parts)]
        with watching(self, each, callbacks, n_steps, n_steps_per_epoch, **watch) as called:
            for epoch, rows in self.fit_.epochs(dataset, n_steps, n_steps_per_epoch):
                for k, metrics in enumerate(rows):
                    self._finish_row(k, epoch, metrics, evaluators, called[k])
                yield StackEpoch(epoch, rows)

    def _finish_row(
        self,
        k: int,
        epoch: int,
        metrics: dict[str, float],
        evaluators: Mapping[str, Evaluator] | None,
        callbacks: Sequence[Callback],
    ) -> None:
        """Finishes an epoch of one row; one that failed in it is still logged, and left alone afterwards."""
        if k in self.failed_rows:
            return
        if "first_bad_step" in metrics:
            self.failed_rows[k], evaluators = int(metrics["first_bad_step"]), None
        if evaluators or callbacks:
            one = self.seed(k)
            one.finish_epoch(epoch, metrics, evaluators, callbacks)
            self.fit_.stopped |= one.fit_.stopped
        self.fit_.measured[k].append({"epoch": epoch, **metrics})

    def seed(self, k: int) -> Algorithm:
        """The k-th seed as an ordinary algorithm, on tensors of its own. Raises ConfigError where there is no such row."""
        if not hasattr(self, "fit_"):
            raise ConfigError("This stack has not been trained yet: call fit first.")
        if not isinstance(cast("Any", k), Integral) or not 0 <= k < len(self.seeds):
            rows = f"from 0 to {len(self.seeds) - 1}" if len(self.seeds) > 1 else "0 alone"
            raise ConfigError(f"There is no row {k!r} in this stack: rows are counted {rows}, whatever their seeds.")
        one = self.algorithm.unfitted()
        one.seed = self.seeds[k]
        one.fit_ = self.fit_.row(k, one)
        return one

    def set_params(self, **params: Any) -> Self:
        """Sets settings of all rows, `rows` included; as an algorithm's own, and with its errors."""
        for algorithm in (*([cast("Estimator", self.fit_.algorithm)] if hasattr(self, "fit_") else []), self.algorithm):
            algorithm.set_params(**params)
        if self.rows is not None:
            self.rows = [{name: value for name, value in row.items() if name not in params} for row in self.rows]
        return self

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that training goes on from: tensors with an axis of seeds, and JSON."""
        tensors, meta = self.fit_.state()
        names = self._names()
        return tensors, {**meta, "failed": {names[k]: step for k, step in self.failed_rows.items()}}

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Self:
        """Goes on from what `state` gave."""
        algorithm = self.algorithm.unfitted()
        self.fit_ = algorithm.fit_ = Fit.restore(algorithm, tensors, meta)
        self.seeds = self.fit_.seeds
        failed = meta.get("failed", {})
        self.failed_rows = {k: failed[name] for k, name in enumerate(self._names()) if name in failed}
        return self

    @property
    def _distinct(self) -> bool:
        return len(set(self.seeds)) == len(self.seeds)

    def _names(self) -> list[str]:
        """Names the rows in a state: by their seeds, where those tell them apart."""
        return [str(seed) if self._distinct else f"row-{k}" for k, seed in enumerate(self.seeds)]


def _check_rows(algorithm: Algorithm, seeds: Sequence[int], rows: Sequence[Mapping[str, float]]) -> None:
    floats = [name for name, field in algorithm.Config.model_fields.items() if field.annotation is float]
    if len(rows) != len(seeds):
        raise ConfigError(f"A stack of {len(seeds)} seeds needs {len(seeds)} rows of settings, not {len(rows)}.")
    for row in rows:
        for name in row:
            if name not in floats:
                raise ConfigError(f"Rows of a stack may differ in {', '.join(floats)}; {name!r} shapes the program.")
        algorithm.unfitted().set_params(**row).check_settings()
