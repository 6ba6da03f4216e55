"""A trial as it runs in a worker: training, checkpoints, outboxes, and how each seed ends. Without Ray."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from ...algos.base import Algorithm
from ...algos.config import TrainedConfig
from ...algos.devices import GpuTooSmallError, pick_device
from ...algos.judging.evaluators import Scores
from ...algos.judging.held_out import HeldOut
from ...algos.learning.programs import compiling_pays
from ...algos.stack import Stack
from ...data.config import Config
from ...data.errors import ConfigError, D3rayError, StorageError, did_you_mean
from ..cluster.gpus import check_gpu, ran_out
from ..settings.evaluation import environment_to_play, scorers
from ..settings.objective import is_better
from ..settings.plugins import import_plugins
from ..storage.experiments import CANCELLED, asked_to_stop
from ..storage.folders import Folder
from ..storage.outbox import Outbox
from ..storage.trials import Trial
from ..storage.writer import FencedError, Writer
from ..subjects.kind import kind_of, streams
from ..surroundings import describe_machine, this_machine
from ..words import time_text
from .decisions import Exploit, donated, exploits_of, forget_donated, stop_of
from .host_memory import keep_freed_memory
from .in_turn import InTurn
from .opened_data import check_recorded, in_memory, open_dataset
from .returns import Every, Returns
from .subjects import Subject, leaves, make_subject, split
from .system_metrics import SystemMetrics
from .trial_config import TrialConfig

Rows = list[dict[str, float]]  # metrics, one dictionary a seed
_CUT = "evaluation/cut"  # the metric that stands where a limit ended episodes
_PROGRAM = ("n_steps", "n_steps_per_epoch", "seeds", "evaluation", "dataset", "device", "threads", "folder", "plugins")


class Peers(Protocol):
    """Other processes that train the model of a trial with it."""

    def training(self, step: int, n_steps: int) -> AbstractContextManager[None]:
        """Has them train from a gradient step on, while what is within trains as many; raises what one of them raised."""
        ...

    def load(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Has them go on from a state."""
        ...

    def close(self) -> None:
        """Ends them."""
        ...


class TrialRun:
    """One trial: some seeds of a configuration, trained epoch by epoch.

    Attributes:
        device: Where it trains.
        failed: The seeds that failed and why; the others go on.
        writer: The trial's folder, where it has one.
        stopped: Why it ended early; None: it did not.
        goes_on: Whether a resume goes on from there: the whole experiment was cancelled, or a time limit met.
        met: The time limit that ended it, in seconds, by whose it was, `trial` or `experiment`; empty: none did.
    """

    def __init__(self, config: TrialConfig, peers: Peers | None = None) -> None:
        self.config, self._peers = config, peers
        self.writer: Writer | None = None
        self._experiment: Folder | None = None
        self.failed: dict[int, dict[str, Any]] = {}
        self.best: dict[int, tuple[float, int]] = {}  # seed to (value, step)
        self.last: dict[int, dict[str, float]] = {seed: {} for seed in config.seeds}
        self.offset = 0  # logging step minus the learner's step: not 0 after weights of another trial were taken over
        self._outboxes: dict[int, Outbox] = {}
        self._committed = -1
        self._taken_over = False
        self.stopped: str | None = None
        self.goes_on = False
        self.met: dict[str, float] = {}
        self._began, self._trained_before = time.monotonic(), 0.0  # seconds
        self._exploited = 0  # how many of the exploits that were decided are done
        self._epochs: Iterator[Rows] | None = None
        self._followed: Any = None  # what a peer trains on
        self._evaluators: list[Returns | HeldOut] = []
        self._system = SystemMetrics() if config.system_metrics else None
        torch.set_num_threads(max(1, config.threads // config.n_processes))
        keep_freed_memory()
        check_gpu(config.resources.get("gpu", 0.0), config.device)
        self.device = pick_device(config.device)
        if (gpu := config.resources.get("gpu")) and self.device.type == "cuda":  # who needs more than its share runs out itself
            torch.cuda.set_per_process_memory_fraction(min(float(gpu), 1.0), self.device)
        import_plugins(config.plugins)
        self.dataset = open_dataset(config.dataset, mapped=not streams(config.algorithm))
        self.subject: Subject = make_subject(
            {**config.algorithm, "data_parallel": True} if config.n_processes > 1 else config.algorithm,
            config.seeds,
            config.device,
            self.dataset,
            config.evaluation,
            config.online,
            actor_cpu=config.resources.get("actor_cpu", 1.0),
            plugins=config.plugins,
        )
        own = self._algorithm
        if own.compile_graph is None:  # by all of its steps, however few are left
            own.compile_graph = compiling_pays(own, self.device, config.n_steps)
        if config.folder is not None:
            self._take_up(Trial(Folder(config.folder)))

    # ---- where it stands

    @property
    def step(self) -> int:
        """The logging step: gradient steps that this trial has done, whosever weights it went on from."""
        return self.subject.step + self.offset

    @property
    def seconds(self) -> float:
        """For how long it has trained, evaluations included, over all attempts that left a checkpoint."""
        return self._trained_before + time.monotonic() - self._began

    @property
    def done(self) -> bool:
        """True if nothing is left to train."""
        all_failed = len(self.failed) == len(self.config.seeds)
        return self.step >= self.config.n_steps or all_failed or self.stopped is not None

    def one(self, seed: int) -> Algorithm:
        """A seed as an ordinary algorithm."""
        return self.subject if isinstance(self.subject, Algorithm) else self.subject.seed(self.config.seeds.index(seed))

    # ---- training

    def epoch(self) -> Rows:
        """Trains an epoch, and commits a checkpoint where one is due. Metrics, one dictionary a seed, `step` the logging step."""
        if self._epochs is None:
            self._epochs = self._start()
        with self._together(self._left_of_epoch()):
            rows = next(self._epochs)
        system = self._system() if self._system is not None else {}
        for k, (seed, metrics) in enumerate(zip(self.config.seeds, rows, strict=True)):
            metrics["step"] = float(self.step)
            metrics.update(system)
            if seed in self.failed:  # it failed in an earlier epoch: its numbers mean nothing
                continue
            if self.config.perturbed:
                values = self.subject.fit_.learner.values
                metrics |= {f"hyper/{name}": values[name][k] for name in self.config.perturbed}
                metrics["time/gradient_steps"] = float(self.subject.step)  # that its weights have seen, a donor's included
            if (why := self._divergence(seed, metrics)) is not None:
                metrics.setdefault("first_bad_step", float(self.subject.step))
            self.last[seed] = {**self.last[seed], **metrics}
            if seed in self._outboxes:
                self._outboxes[seed].add(self.step, {name: value for name, value in metrics.items() if name != "step"})
            if why is not None:
                step = int(metrics["first_bad_step"]) + self.offset
                reason = f"diverged at step {step}: {why}"
                self.failed[seed] = {"status": "FAILED", "reason": reason, "first_bad_step": step, "final": True}
            else:
                self._look_at_best(seed, metrics)
        every = self.config.checkpoint.every or self.config.n_steps_per_epoch
        if self.writer is not None and (self.step % every == 0 or self.done):
            self.commit()
        return rows

    def _divergence(self, seed: int, metrics: Mapping[str, float]) -> str | None:
        if "first_bad_step" in metrics:
            return "its losses are not finite from there on"
        if not self.config.stop_diverging:
            return None
        name = self.config.objective.metric if self.config.objective else ""
        if not math.isfinite(metrics.get(name, 0.0)):
            return f"its {name} is {metrics[name]}"
        warned = self.subject.fit_.divergence.warned.get(seed)
        return warned and warned.partition(": ")[2]

    def _start(self) -> Iterator[Rows]:
        train, evaluators = self.prepare()
        left = self.config.n_steps - self.step
        for one in self.subject.fitter(train, left, self.config.n_steps_per_epoch, evaluators):
            yield one.metrics if isinstance(one.metrics, list) else [one.metrics]

    def _left_of_epoch(self) -> int:
        within = self.config.n_steps_per_epoch
        return min(self.config.n_steps - self.step, within - self.subject.step % within)

    def _together(self, n_steps: int) -> AbstractContextManager[None]:
        """Within it gradient steps are done, by peers too where there are some."""
        return contextlib.nullcontext() if self._peers is None else self._peers.training(self.subject.step, n_steps)

    def train(self, data: Any, n_steps: int) -> Iterator[Rows]:
        """Gradient steps of which nothing is kept, as a plan is made from; metrics as `epoch` has them."""
        with self._together(n_steps):
            for one in self.subject.fitter(data, n_steps, self.config.n_steps_per_epoch):
                yield one.metrics if isinstance(one.metrics, list) else [one.metrics]

    def follow(self, step: int, n_steps: int) -> None:
        """Trains as rank 0 of its group does, from a gradient step on: nothing is measured or kept."""
        if self._followed is None:
            self._followed = split(self.dataset, self.config.evaluation)[0]
        if step != self.subject.step:
            self.subject.fit_.learner.step = step
        for _ in self.subject.fitter(self._followed, n_steps, self.config.n_steps_per_epoch):
            pass

    def prepare(self) -> tuple[Any, dict[str, Every]]:
        """Return the training data, and the evaluators by name."""
        config, found = self.config.evaluation, dict[str, Every]()
        train, test = split(self.dataset, config)
        if config is None:
            return train, found
        when = config.every or self.config.n_steps_per_epoch, self.config.n_steps, self.offset
        if config.holdout:
            if streams(self.config.algorithm):  # else looking at it would map all of the data
                test = in_memory(test)
            held_out = HeldOut(test)
            self._evaluators.append(held_out)
            found["holdout"] = Every(held_out, *when)
            if config.scorers:
                found["scorers"] = Every(Scores(scorers(config), test), *when)
        if (environment := environment_to_play(config, self.dataset, self._algorithm)) is not None:
            returns = Returns(environment, config, self.dataset.name)
            self._evaluators.append(returns)
            found["evaluation"] = Every(returns, *when)
        return train, found

    def _look_at_best(self, seed: int, metrics: Mapping[str, float]) -> None:
        name = self.config.checkpoint.best
        if name is not None and name not in self.last[seed] and self._measured_all() and _CUT not in self.last[seed]:
            raise ConfigError(f"checkpoint.best: there is no metric {name!r}{did_you_mean(name, self.last[seed])}")
        if name is None or name not in metrics or not math.isfinite(metrics[name]):
            return
        value, before = metrics[name], self.best.get(seed)
        if before is not None and not is_better(name, value, before[0]):
            return
        self.best[seed] = (value, self.step)
        if self.writer is not None:
            tensors, meta = self.one(seed).state()
            about = {"seed": seed, "metric": name, "value": value, "logging_step": self.step}
            self.writer.keep_best(seed, tensors, {**meta, **about})

    def _measured_all(self) -> bool:
        """Return whether every metric of the trial was measured once."""
        every = self.config.evaluation and self.config.evaluation.every
        return self.done or every is None or self.step >= every

    # ---- state

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, meta = self.subject.state()
        trial = {
            "trial": self.writer.trial.key if self.writer else None,
            "logging_step": self.step,
            "seconds": self.seconds,
            "exploits": self._exploited,
            "failed_seeds": {str(seed): ended for seed, ended in self.failed.items()},
            "best": {str(seed): list(best) for seed, best in self.best.items()},
            "last": {str(s): {k: v if math.isfinite(v) else str(v) for k, v in m.items()} for s, m in self.last.items()},
        }
        return tensors, {**meta, "seed": self.config.seeds[0], "trial_state": trial}

    def load(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, own: bool, reached: int | None = None) -> None:
        """Goes on from a state.

        Args:
            tensors: As `state` gave them.
            meta: As `state` gave it.
            own: Whether it is this trial's, to be continued bit for bit. Otherwise weights, optimisers and the learner's step
                are taken over; seeds, random keys, the logging step and the coefficients of the configuration stay this trial's.
            reached: The logging step that this trial had reached; None: the state's.
        """
        trial = meta["trial_state"]
        if own:
            self._began, self._trained_before = time.monotonic(), float(trial.get("seconds", 0.0))
            self.failed = {int(seed): ended for seed, ended in trial["failed_seeds"].items()}
            self.best = {int(seed): (value, step) for seed, (value, step) in trial["best"].items()}
            self.last = {int(s): {k: float(v) for k, v in metrics.items()} for s, metrics in trial["last"].items()}
        else:
            tensors, meta = self._adopted(tensors, meta)
        if self._taken_over:  # the set-up learner stays: whatever was compiled or captured for it holds
            self.subject.fit_.learner.load_state(tensors, int(meta["step"]))
        else:
            self.subject.load_state(tensors, meta)
        exploits = trial.get("exploits", 0) if own else 0
        if exploits and not isinstance(self.subject, InTurn):  # its coefficients are no longer those of its configuration
            self._exploited = exploits
            self.subject.set_params(**{name: meta["config"][name] for name in _coefficients(self._settings())})
        self.offset = (trial["logging_step"] if reached is None else reached) - self.subject.step
        self._epochs = None
        if self._peers is not None:
            self._peers.load(*self.subject.state())

    def _adopted(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """A state of another trial with this trial's seeds and coefficients."""
        if len(meta["seeds"]) != len(self.config.seeds):
            raise ConfigError(f"A checkpoint of {len(meta['seeds'])} seeds cannot be taken over by {len(self.config.seeds)}.")
        floats = _coefficients(self._settings())
        config = {**meta["config"], **floats}
        hyper = {f"hyper/{name}": torch.full_like(tensors[f"hyper/{name}"], value) for name, value in floats.items()}
        return {**tensors, **hyper}, {**meta, "config": config, "seeds": list(self.config.seeds), "failed": {}}

    def _settings(self) -> Any:
        return self._algorithm.check_settings()

    @property
    def _algorithm(self) -> Algorithm:
        return self.subject if isinstance(self.subject, Algorithm) else self.subject.algorithm

    def take_over(self, other: TrialRun) -> bool:
        """Takes the set-up learner of a run of the same program, coefficients written in place; False where programs differ.

        What follows is a `load`: weights are not this trial's yet.
        """
        before, now = other._settings(), self._settings()
        if self._peers is not None or other._peers is not None:  # peers are told of states, not of learners
            return False
        same = all(getattr(self.config, n) == getattr(other.config, n) for n in _PROGRAM) and type(before) is type(now)
        if not same or not isinstance(other.subject, Algorithm | Stack) or not hasattr(other.subject, "fit_") or other.failed:
            return False
        shapes = [{name: value for name, value in one if name not in one.coefficients()} for one in (before, now)]
        if shapes[0] != shapes[1]:
            return False
        self.subject, self._taken_over = other.subject.set_params(**now.coefficients()), True
        return True

    # ---- what others have decided

    def heed(self) -> None:
        """Does what was decided about the step that it has reached; to be called between two epochs.

        Raises:
            StorageError: the folder cannot be read, or the checkpoint that an exploit takes is gone.
        """
        if self.writer is None or self._experiment is None:
            return
        if self.config.heeds:
            for exploit in exploits_of(self.writer.trial)[self._exploited :]:
                if exploit.step <= self.step:
                    self._exploit(self.writer.trial, exploit)
        stop = stop_of(self.writer.trial)
        if stop is not None and self.step >= stop[0]:
            self.stopped = stop[1]
        elif not self.done and (asked := asked_to_stop(self._experiment)) is not None:
            self._end_early("experiment", asked.get("time_limit"))
        elif not self.done and self.step and self.seconds >= (self.config.time_limit or math.inf):
            self._end_early("trial", self.config.time_limit)

    def _end_early(self, whose: str, time_limit: float | None) -> None:
        """Ends it where a resume will go on: a time limit was met, or None: the experiment was cancelled."""
        self.stopped, self.goes_on = CANCELLED if time_limit is None else "the time limit was met before it began", True
        if time_limit is not None and self.step:
            self.met = {whose: time_limit}

    def _exploit(self, trial: Trial, exploit: Exploit) -> None:
        """Goes on from the donor's weights with new coefficients, both written into the learner that there is."""
        assert not isinstance(self.subject, InTurn)  # populations learn from data
        tensors, meta = donated(trial, exploit)
        self._end_epochs()
        self.subject.set_params(**exploit.coefficients)
        self._taken_over = True
        self.load(tensors, meta, own=False, reached=self.step)
        self._exploited += 1

    # ---- the trial's own folder

    def _take_up(self, trial: Trial) -> None:
        """Begins an attempt and goes on from the newest checkpoint that is whole. Raises DataError where the data are others."""
        check_recorded(self.dataset, trial.dataset)
        self.writer = Writer(trial, describe_machine(this_machine()))
        self._experiment = trial.folder.above.above
        self._outboxes = self.writer.begin_outboxes()
        if (found := self.writer.newest()) is not None:
            self.load(*found, own=True)
            self._committed = self.step

    def commit(self) -> None:
        """Puts what was reached into the trial's folder, with the metrics up to it. Raises StorageError."""
        if self.writer is not None and self._committed != self.step:
            tensors, meta = self.state()
            self.writer.commit(self.step, tensors, meta, list(self._outboxes.values()), self.config.checkpoint.keep)
            self._committed = self.step
            if self._exploited:
                forget_donated(self.writer.trial)

    def finish(self) -> dict[int, dict[str, Any]]:
        """Writes the packages, and how each seed ended.

        A seed whose policy cannot be exported has finished all the same, with its checkpoint and a warning that says why.

        Raises:
            StorageError: the place cannot be written; nothing is settled then, and a resume writes it again.
        """
        ended, now = dict[int, dict[str, Any]](), time.time_ns() // 1_000_000
        for seed in self.config.seeds:
            about: dict[str, Any] = {
                "time": now,
                "step": self.step,
                "metrics": {k: v for k, v in self.last[seed].items() if math.isfinite(v)},
            }
            warned = [self.subject.fit_.divergence.warned.get(seed)] if self.step else []
            if cut := self.last[seed].get(_CUT):
                warned.append(
                    f"an evaluation met evaluation.max_steps or evaluation.timeout, which cut {cut:g} of its "
                    f"{self.config.evaluation.episodes if self.config.evaluation else 0} episodes"
                )
            if any(warned):
                about["warning"] = "; ".join(filter(None, warned))
            if seed in self.best:
                value, step = self.best[seed]
                about["best"] = {"metric": self.config.checkpoint.best, "value": value, "step": step}
            if seed in self.failed:
                ended[seed] = {**self.failed[seed], **about}
            elif self.stopped is not None and not self.met:
                if seed in self.best and not self.goes_on:
                    about |= self._left(seed, about)
                ended[seed] = {"status": "KILLED", "reason": self.stopped, "final": not self.goes_on, **about}
            else:
                about |= self._left(seed, about)
                for whose, seconds in self.met.items():
                    at = f"{self.step:,} of {self.config.n_steps:,} steps"
                    about["reason"] = f"time limit of {time_text(seconds)} met at {at}; a larger time_limit.{whose} goes on"
                    about["time_limit"] = self.met
                ended[seed] = {"status": "FINISHED", **about}
        if self.writer is not None:
            if self.step:  # else it was cancelled before it had begun
                self.commit()
            self.writer.settle(ended)
            if self.config.heeds and not self.goes_on:
                (self.writer.trial.folder / "donated").remove()
        return ended

    def _left(self, seed: int, about: Mapping[str, Any]) -> dict[str, str]:
        """Writes the package of a seed. What is to be added to how it ended: a warning where it cannot be exported."""
        try:
            self._write_package(seed)
            return {}
        except Exception as error:
            if isinstance(error, FencedError) or isinstance(error.__cause__ or error.__context__, OSError) or ran_out(error):
                raise  # the trial is another's, the disk is full, or the memory is: to write it again may do
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise
            said = str(error) if isinstance(error, D3rayError) else f"{type(error).__name__}: {error}"
            lost = f"its {leaves(self._algorithm)} was not exported, and its checkpoint is kept: {said.strip().rstrip('.')}"
            return {"warning": "; ".join(filter(None, (about.get("warning"), lost)))}

    def _write_package(self, seed: int) -> None:
        """The package of the best checkpoint where a metric chooses one, else of the last weights; of a judge there is none."""
        if self.writer is None or (kind := leaves(self._algorithm)) is None:
            return
        folder = self.writer.trial.folder
        algorithm = self.one(seed)
        if seed in self.best:
            with (folder / "best" / f"seed-{seed}").as_local() as best:
                algorithm = kind_of(algorithm.name).load(algorithm, best, self.config.device)
        evaluation = self.config.evaluation
        environment = environment_to_play(evaluation, self.dataset) if evaluation else self.dataset.environment
        with (folder / kind).scratch() as scratch:
            run = f"{folder.above.above.label}/{folder.label}, seed {seed}"
            holdout = evaluation.holdout if evaluation else 0.0
            kind_of(algorithm.name).write_package(algorithm, scratch / "package", self.dataset, environment, run, holdout)
            with folder.commit_lock():
                self.writer.check()
                (folder / kind).put_tree(scratch / "package", f"seed-{seed}")
        if seed in self.best and hasattr(algorithm, "close"):  # one of RLlib's, built for this alone
            algorithm.close()  # pyright: ignore[reportAttributeAccessIssue]

    def fail(self, error: BaseException) -> None:
        """Keeps why the trial ended early; what was committed stays, and `--resume` tries again."""
        if self.writer is not None:
            note_failure(self.writer, error, self.failed)

    def close(self) -> None:
        self._end_epochs()
        if self._peers is not None:
            self._peers.close()
        if hasattr(self.subject, "close"):  # RLlib's algorithms have processes and threads of their own
            self.subject.close()  # pyright: ignore[reportAttributeAccessIssue]
        if self._system is not None:
            self._system.close()

    def _end_epochs(self) -> None:
        """Ends the loop and what plays in it; the next epoch begins both anew."""
        if self._epochs is not None:
            with contextlib.suppress(Exception):
                self._epochs.close()  # pyright: ignore[reportAttributeAccessIssue]
        for one in self._evaluators:
            one.close()
        self._evaluators, self._epochs = [], None


def _coefficients(settings: Config) -> dict[str, float]:
    """Settings that a learner holds as tensors; RLlib's algorithms have none."""
    return settings.coefficients() if isinstance(settings, TrainedConfig) else {}


def note_failure(writer: Writer, error: BaseException, failed: Mapping[int, Mapping[str, Any]]) -> None:
    """Keeps why a trial ended early. A worker that was fenced off keeps quiet: the trial is another's."""
    if isinstance(error, FencedError):
        return
    reason = str(error) if isinstance(error, D3rayError) else f"{type(error).__name__}: {error}"
    ended = {"status": "FAILED", "reason": reason.strip().rstrip("."), "step": max(writer.trial.committed, 0)}
    if ran_out(error):
        ended["out_of_memory"] = True  # the driver hands it out again with more of a GPU
    if isinstance(error, GpuTooSmallError):
        ended["lacking"] = error.lacking  # which it says where there is no more
    with contextlib.suppress(StorageError):  # the disk may be full for this too; then the driver says it
        writer.settle({seed: failed.get(seed, ended) for seed in writer.trial.seeds})
