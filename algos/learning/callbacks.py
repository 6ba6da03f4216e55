"""Callbacks by step and by epoch, evaluators, loggers, and the display of progress."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, Unpack

from ...data.errors import ConfigError, did_you_mean, named
from ...data.progress import Advance, draws_bars, progress
from ..former import SCORING, warn_of

if TYPE_CHECKING:
    from .fit import Fit

Evaluator = Callable[[Any, int], Mapping[str, float]]  # (algorithm, epoch) to named numbers
Callback = Callable[[Any, int, Mapping[str, float]], None]  # (algorithm, epoch, metrics)
Score = Callable[[Any, Any], float]  # (algorithm, episodes), as scikit-learn calls it
StepCallback = Callable[[Any, int, int], None]  # (algorithm or stack, epoch, gradient steps done)
_SECONDS_BETWEEN_LOOKS = 0.1


class StopTraining(Exception):  # noqa: N818 - no error: a callback's way to say that it is enough
    """Raised by a callback it ends the training: what is due at the end of an epoch is still done, and `fit` returns."""


class Epoch(NamedTuple):
    """One epoch of training: its number, from 1, and its metrics by name."""

    epoch: int
    metrics: dict[str, float]


class Log(Protocol):
    """Where a logger writes the metrics of one run. It is a callback."""

    def __call__(self, algorithm: Any, epoch: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None:
        """Called when training ends, however it ends."""
        ...


class Logger(Protocol):
    """Something that keeps metrics, as `loggers.CSVLogger`; anything with this method is one."""

    def begin(self, algorithm: Any, part: str) -> Log:
        """Called when training begins, before the first gradient step.

        Args:
            algorithm: What is trained, set up; `algorithm.step` is not 0 where an earlier run is gone on from.
            part: "", or what tells a row of a stack from the others.
        """
        ...


class Watching(TypedDict, total=False):
    callback: StepCallback | None
    epoch_callback: StepCallback | None
    logger: Logger | Sequence[Logger] | None
    show_progress: bool | None


class Training(Watching, total=False):
    """Further arguments of `Algorithm.fitter`."""

    n_epochs: int | None


def check_arguments(called: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises ConfigError where an argument is none of those known; the nearest one is named."""
    names = [name for name in known if name != "self"]
    for name in given:
        if name not in names:
            raise ConfigError(f"{called} takes no {name!r}{did_you_mean(name, names)}")


def scored(scorers: Mapping[str, Score], episodes: Any) -> Evaluator:
    """Scorers as one evaluator; what they turned round so that the larger is the better has its own sign again."""
    return lambda algorithm, epoch: {
        name: getattr(scorer, "sign", 1) * float(scorer(algorithm, episodes)) for name, scorer in scorers.items()
    }


def with_scorers(evaluators: Mapping[str, Evaluator] | None, dataset: Any, former: Mapping[str, Any]) -> Mapping[str, Evaluator]:
    """Evaluators, with the `scorers` of `eval_episodes` that `fit` once took. Raises ConfigError where it took no such argument."""
    check_arguments("fit", former, SCORING)
    if not (scorers := former.get("scorers")):
        return evaluators or {}
    warn_of("scorers of fit", 'evaluators={"scorers": scored(scorers, episodes)}', stacklevel=5)
    judged = dataset if former.get("eval_episodes") is None else former["eval_episodes"]
    return {**(evaluators or {}), "scorers": scored(scorers, judged)}


@contextmanager
def watching(
    subject: Any,
    rows: Sequence[tuple[str, Callable[[], Any]]],
    callbacks: Sequence[Callback],
    n_steps: int,
    n_steps_per_epoch: int,
    **watch: Unpack[Watching],
) -> Generator[list[list[Callback]]]:
    """Has callbacks, loggers and the display look on while the body trains.

    Args:
        subject: The algorithm or stack that is trained, set up.
        rows: For each seed what loggers call it, and what gives it as an ordinary algorithm.
        callbacks: By epoch.
        n_steps: Gradient steps that will be done.
        n_steps_per_epoch: Between two epochs.
        **watch: As `Algorithm.fitter`'s.

    Yields:
        What is to be called after an epoch, for each seed.
    """
    fit: Fit = subject.fit_
    _warn_of_warm_up(fit, n_steps)
    _warn_of_spent_rates(fit, n_steps)
    callback, epoch_callback, show_progress = watch.get("callback"), watch.get("epoch_callback"), watch.get("show_progress")
    logger = watch.get("logger")
    loggers = () if logger is None else logger if isinstance(logger, Sequence) else (logger,)
    if show_progress is None:
        show_progress = draws_bars()
    with ExitStack() as stack:
        after_epoch = [list(callbacks) for _ in rows]
        if epoch_callback is not None:
            for row in after_epoch:
                row.append(_by_step(epoch_callback))
        for (part, one), row in zip(rows, after_epoch, strict=True):
            for each in loggers:
                log = each.begin(one(), part)
                stack.callback(log.close)
                row.insert(0, log)  # what is logged does not depend on callbacks
        after_step = [callback] if callback is not None else []
        if show_progress:
            show = _Display(stack.enter_context(progress("training", n_steps)), subject.step, n_steps)
            after_step.append(show.step)
            after_epoch[0].append(show.epoch)
        fit.stopped = False
        if after_step:
            stack.callback(setattr, fit, "after_update", None)

            def after_update() -> None:
                step = subject.step
                for each in after_step:
                    fit.stopped |= stops(each, subject, -(-step // n_steps_per_epoch), step)

            fit.after_update = after_update
        yield after_epoch


def _warn_of_warm_up(fit: Fit, n_steps: int) -> None:
    """Warns of a training that ends before the policy has seen a critic; once, for it may be done in many parts."""
    warm_up, end = fit.algorithm.warm_up, fit.learner.step + n_steps
    if warm_up is None or n_steps < 1 or "warm_up" in fit.told:
        return
    if end <= (steps := getattr(fit.config, warm_up)):
        fit.told.add("warm_up")
        warnings.warn(
            f"{fit.algorithm.name}: the policy learns nothing of rewards in the first {steps:,} gradient steps ({warm_up}), and "
            f"this training ends with step {end:,}: ask for more n_steps, or set a smaller {named(warm_up)}.",
            stacklevel=6,
        )


def _warn_of_spent_rates(fit: Fit, n_steps: int) -> None:
    """Warns of a training in which a schedule has brought a learning rate to 0, or will; once, for it may be done in many parts."""
    end, networks = fit.learner.step + n_steps, fit.learner.networks.items()
    schedules = [(name, o.schedule) for name, each in networks for o in (each.optimizer, *(part.optimizer for part in each.groups))]
    fallen = [(name, schedule) for name, schedule in schedules if schedule and (schedule.spent() or end) < end]
    if n_steps < 1 or "rates" in fit.told or not fallen:
        return
    fit.told.add("rates")
    name, schedule = fallen[0]
    warnings.warn(
        f"{fit.algorithm.name}: the learning rate of the network {name!r} is 0 from gradient step {schedule.spent():,} on, where "
        f"its {schedule.name} schedule ends, and this training goes on to step {end:,}: make the algorithm with an optimizer that "
        "has a longer schedule or none, or begin the schedule anew by step = 0.",
        stacklevel=6,
    )


def stops(callback: Callable[..., None], *arguments: Any) -> bool:
    """Calls a callback; whether it asked to stop."""
    try:
        callback(*arguments)
    except StopTraining:
        return True
    return False


def _by_step(callback: StepCallback) -> Callback:
    return lambda algorithm, epoch, metrics: callback(algorithm, epoch, algorithm.step)


class _Display:
    def __init__(self, advance: Advance, first: int, total: int) -> None:
        self._advance, self._first, self._total, self._looked = advance, first, total, 0.0

    def step(self, subject: Any, epoch: int, step: int) -> None:
        now, done = time.monotonic(), step - self._first
        if now - self._looked >= _SECONDS_BETWEEN_LOOKS and done < self._total:  # the last line has the losses
            self._looked = now
            self._advance(to=done)

    def epoch(self, algorithm: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        shown = {n.rpartition("/")[2]: v for n, v in metrics.items() if n.endswith(("_loss", "/return"))}
        self._advance(to=metrics["step"] - self._first, note="  ".join(f"{name} {value:.4g}" for name, value in shown.items()))
