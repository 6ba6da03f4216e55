"""Every algorithm as a Tune Trainable: `d3ray/NAME`, registered when this module is imported.

    from ray import tune
    from d3ray.platform.trainable import trainable

    tune.Tuner(
        trainable("TD3PlusBC"),                          # or "d3ray/TD3PlusBC"
        param_space={
            "dataset": "/data/hopper", "n_steps": 100_000, "n_steps_per_epoch": 5_000, "seed": 0,
            "algorithm": {"alpha": tune.uniform(1, 5), "observation_scaler": "standard"},
            "evaluation": {"environment": "Hopper-v4", "episodes": 10},   # or None
        },
        tune_config=tune.TuneConfig(metric="evaluation/return", mode="max", scheduler=…, reuse_actors=True),
    )

A result has `step` and the metrics of an epoch by name; with several `seeds` their means over those that have not failed, and the
single ones under `seeds`. Checkpoints are Tune's then: ask for them with `CheckpointConfig`. A checkpoint's weights may be taken
over by another trial (population based training): its seed, random numbers, logging step and coefficients stay its own.
"""

from __future__ import annotations

import contextlib
import logging
import math
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ray import tune
from ray.train._internal.session import _TrainingResult  # pyright: ignore[reportPrivateUsage]

from ..algos.saving.checkpoint import read_checkpoint, write_checkpoint
from ..data.errors import ConfigError, D3rayError, StorageError, speaking_of_configs
from ..data.uris import label, without_secrets
from .storage.folders import Folder
from .storage.trials import Trial
from .storage.writer import Writer
from .subjects.kind import check_name, subject_names
from .worker.peers import PeerDiedError, begin_trial
from .worker.trial_config import TrialConfig
from .worker.trial_run import Rows, TrialRun, note_failure

_STATE = "d3ray"  # the checkpoint's folder within Tune's
_KNOWN = ("seed", "trial")


class Training(tune.Trainable):
    """A trial whose step is one epoch. Use `trainable(NAME)`."""

    algorithm: ClassVar[str] = ""
    run: TrialRun | None = None
    _failure: BaseException | None = None
    _told: TrialConfig

    def setup(self, config: dict[str, Any], places: Mapping[str, str] | None = None, trials: Folder | None = None) -> None:
        """Sets up the trial; one with a folder of its own begins, or goes on from its newest checkpoint, with its first step.

        `places` and `trials`, the driver's, have credentials that Tune's own files must not have.
        """
        self._places, self._trials = places or {}, trials
        self._before: TrialRun | None = None
        self._identity: str | None = None
        self._reached: int | None = None
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Another trial, or this one with other coefficients, in the same process."""
        same_trial = self._identity is not None and self._identity == self.trial_id and self.run is not None
        self._reached = self.run.step if same_trial and self.run is not None else None
        self._before, self.run = self.run, None
        if self._before is not None:
            self._before.close()
        self._take(new_config)
        return True

    def _take(self, config: Mapping[str, Any]) -> None:
        self._failure, self._identity, self._told = None, self.trial_id, self._settings(config)
        if self._told.folder is None:
            self._begin()

    @speaking_of_configs()
    def _begin(self) -> None:
        """Begins what was taken, once.

        An attempt at a trial with a folder fences off the one before. So it is not begun in `setup`: Tune starts a worker for
        each trial, and throws away those whose trial it has meanwhile given to one that became free.
        """
        if self.run is not None or self._failure is not None:
            return
        try:
            self.run = begin_trial(self._told)
            self._iteration = -(-self.run.step // self._told.n_steps_per_epoch)
        except Exception as error:
            if self._told.folder is None:
                raise
            self._failure = error
            self._say_failed(self._told, error)

    def _settings(self, config: Mapping[str, Any]) -> TrialConfig:
        """The config of a user's Tuner or of d3ray's driver, checked."""
        if "trial" in config:
            told = config["trial"]
            told = {**told, "dataset": self._places.get(told["dataset"], told["dataset"])}
            if self._trials is not None:
                told["folder"] = (self._trials / label(str(told["folder"]))).name
            return TrialConfig.checked(told, title="trial")
        given = {key: value for key, value in config.items() if key not in _KNOWN}
        if "seed" in config:
            given["seeds"] = (config["seed"],)
        given["algorithm"] = {"name": self.algorithm, **given.get("algorithm", {})}
        if (reserved := self.trial_resources) is not None:
            cpu, gpu = (reserved.required_resources.get(kind, 0.0) for kind in ("CPU", "GPU"))
            if (n := max(bundle.get("GPU", 0.0) for bundle in reserved.bundles)) > 1:
                raise ConfigError(
                    f"d3ray/{self.algorithm} has {n:g} GPUs in one bundle, and each trains in a process of its own: reserve "
                    f"tune.PlacementGroupFactory([{{'CPU': 1, 'GPU': 1}}] * {n:g}, strategy='STRICT_PACK')."
                )
            given["resources"] = {"cpu": cpu, "gpu": gpu}  # its GPU is looked for as that of d3ray's own trials is
            given.setdefault("threads", max(1, int(cpu)))
            if not gpu:
                given.setdefault("device", "cpu")
        return TrialConfig.checked(given, title=f"d3ray/{self.algorithm}")

    @speaking_of_configs()
    def step(self) -> dict[str, Any]:
        self._begin()
        if self._failure is not None:
            return {"step": 0, "done": True, "failed": str(self._failure)}
        assert self.run is not None
        self._before = None
        run = self.run
        if run.writer is None:
            rows = run.epoch()
            self._raise_if_all_failed()
            return {**_result(run, rows), "done": run.done}
        try:
            run.heed()
            rows = [] if run.done else run.epoch()
            if run.done:
                run.finish()
            return {**_result(run, rows), "done": run.done}
        except PeerDiedError:  # as if this process had died: Tune starts the trial again, from its newest checkpoint
            raise
        except Exception as error:
            self._say_failed(run.config, error)
            return {"step": run.step, "done": True, "failed": str(error)}

    def _raise_if_all_failed(self) -> None:
        if self.run is not None and len(self.run.failed) == len(self.run.config.seeds):
            raise D3rayError("; ".join(f"seed {seed} {ended['reason']}" for seed, ended in self.run.failed.items()) + ".")

    def _say_failed(self, settings: TrialConfig, error: BaseException) -> None:
        """The trial ends here, with a reason in its folder: Tune would only try the same again."""
        logging.getLogger("d3ray").error("%s", without_secrets("".join(traceback.format_exception(error))))
        if self.run is not None:
            self.run.fail(error)
            return
        with contextlib.suppress(StorageError):  # a folder that this machine cannot see or write: the driver says it then
            note_failure(Writer(Trial(Folder(str(settings.folder)))), error, {})

    def save(self, checkpoint_dir: str | None = None) -> _TrainingResult:
        """Save before Tune pauses a trial. One with a folder goes on from there, so Tune gets nothing to keep.

        A copy would be a second one, and on a node that does not see Tune's own folder it could not be made.
        """
        if self._told.folder is None:
            return super().save(checkpoint_dir)
        if self.run is not None and self.run.step:
            self.run.commit()
        return _TrainingResult(checkpoint=None, metrics=dict(self._last_result or {}))

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        if self.run is not None:
            if not hasattr(self.run.subject, "fit_"):
                raise D3rayError("A trial that has not trained yet has nothing to checkpoint.")
            write_checkpoint(Path(checkpoint_dir) / _STATE, *self._labelled())

    def _labelled(self) -> tuple[Any, dict[str, Any]]:
        assert self.run is not None
        tensors, meta = self.run.state()
        return tensors, {**meta, "tune_trial": self.trial_id}

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Goes on from a checkpoint: this trial's own exactly, another's with this trial's seed, logging step and coefficients."""
        run = self.run
        if run is None:
            return
        tensors, meta, _ = read_checkpoint(Path(checkpoint) / _STATE)
        foreign = meta["tune_trial"] != self.trial_id
        reached = self._reached if foreign else None
        if self._before is not None and foreign:
            run.take_over(self._before)
        run.load(tensors, meta, own=not foreign, reached=reached)

    def cleanup(self) -> None:
        if self.run is not None:
            self.run.close()


def _result(run: TrialRun, rows: Rows) -> dict[str, Any]:
    result: dict[str, Any] = {"step": run.step, "seeds": {}, "n_failed": len(run.failed)}
    good = [metrics for seed, metrics in zip(run.config.seeds, rows, strict=False) if seed not in run.failed]
    for name in {name: None for metrics in good for name in metrics if name != "step"}:
        values = [metrics[name] for metrics in good if name in metrics]
        result[name] = math.fsum(values) / len(values)
    if run.config.objective is not None:
        latest = dict(zip(run.config.seeds, rows, strict=True)) if rows else run.last
        if (value := run.config.objective.of(latest, run.failed)) is not None:
            result["objective"] = value
    if len(run.config.seeds) > 1 or run.writer is not None:
        result["seeds"] = {str(seed): run.last[seed] for seed in run.config.seeds}
    else:
        del result["seeds"]
    return result


_classes: dict[str, type[Training]] = {}


def trainable(name: str) -> type[Training]:
    """The Trainable class of an algorithm. Raises ConfigError for a name that there is not, naming the nearest."""
    check_name(name)
    return _trainable(name)


def _trainable(name: str) -> type[Training]:
    if name not in _classes:
        _classes[name] = type(name, (Training,), {"algorithm": name, "__doc__": f"d3ray's {name} as a Tune Trainable."})
    return _classes[name]


def register(*names: str) -> None:
    """Makes algorithms known to Tune as `d3ray/NAME`; none named: all there are, a user's own included."""
    for name in names or subject_names():
        tune.register_trainable(f"d3ray/{name}", _trainable(name))


register()
