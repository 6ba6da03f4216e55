"""The policy that a folder or a registered model stands for: a package, or an algorithm that one is made of."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...algos.export.model_package import is_model_package
from ...algos.export.package import is_package
from ...algos.saving.checkpoint import newest_valid
from ...data.errors import ConfigError, did_you_mean
from ...data.spec import Environment
from ...data.uris import is_remote
from ..results.configurations import objective_of, seed_score
from ..settings.objective import Objective, is_better
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..storage.trials import Trial
from .registered import is_registered, registered_package

if TYPE_CHECKING:  # torch, which a package does without
    from ...algos.base import Algorithm


@dataclass(frozen=True)
class Found:
    """A policy: one of `package`, a folder, and `algorithm`, which may be a model too. `what` says in words which it is.

    `environment` is where an experiment scores its policies, or else recorded its data; None where that is not known.
    """

    what: str
    package: Path | None = None
    algorithm: Algorithm | None = None
    environment: Environment | None = None


@contextmanager
def open_policy(
    source: str, *, seed: int | None = None, tracking: str | None = None, storage: str = "./d3ray_results"
) -> Generator[Found]:
    """The policy of a source, on this machine for as long as the context lasts.

    Args:
        source: A policy package; a saved algorithm or checkpoint, or a `.d3` file of d3rlpy; a folder of checkpoints, whose newest
            whole one counts; a trial or an experiment, by its folder, its name in `storage` (EXPERIMENT/TRIAL) or its run in MLflow
            (`runs:/ID`), of which the best finished seed counts (of an unfinished one the best checkpoint, else the newest);
            `models:/NAME@ALIAS`. Folders may be URIs.
        seed: Which one, where there are several.
        tracking: As for `registered_package`.
        storage: As for `registered_package`.

    Raises:
        ConfigError: it is none of these, or several seeds are there and nothing was measured to choose by.
        StorageError: it is damaged or cannot be read.
    """
    if is_registered(source):
        with registered_package(source, tracking, storage) as package:
            yield _plain(package, source, seed)
        return
    if (file := Path(source)).is_file():
        yield _file(file)
        return
    place, of_run = located(source, storage, tracking)
    folder, seed = Folder(place), of_run if seed is None else seed
    if folder.read("experiment.json") is not None:
        experiment = Experiment(folder)
        trials, objective = experiment.trials(), objective_of(experiment.configuration)
    elif folder.read("trial.json") is not None:
        trials, objective = [Trial(folder)], Objective()
    else:
        with folder.as_local() as local:
            yield _plain(local, source, seed)
        return
    trial, chosen, why = _choose(trials, seed, source, objective)
    name = f"seed {chosen} of {trial.identity}{why}"
    for place in (
        trial.folder / "policy" / f"seed-{chosen}",
        trial.folder / "best" / f"seed-{chosen}",
        trial.folder / "checkpoints",
    ):
        if place.names():
            with place.as_local() as local:
                yield replace(_plain(local, name, chosen), environment=_environment(trial))
            return
    raise ConfigError(f"The trial {trial.identity} has neither a policy nor a checkpoint yet: train it first.")


def located(source: str, storage: str, tracking: str | None = None) -> tuple[str, int | None]:
    """Where what was named lies, and which seed of it was: the name of an experiment, EXPERIMENT/TRIAL, `runs:/ID`, or a place.

    Raises:
        ConfigError: there is no such run, or one that no experiment of d3ray made.
        StorageError: the server does not answer.
    """
    if source.startswith("runs:"):
        from .measured import tags_of_run  # which brings MLflow

        tags = tags_of_run(source, tracking, storage)
        if (folder := tags.get("d3ray.folder")) is None:
            raise ConfigError(f"{source} is of no experiment of d3ray, so where its policy lies is not known: name that.")
        return folder, int(tags["d3ray.seed"]) if "d3ray.seed" in tags else None
    if os.path.exists(source) or Folder(source).names():  # noqa: PTH110 - a path would raise for a name that is too long
        return source, None
    name, _, trial = source.strip("/").partition("/")
    if name in ("", ".", "..") or is_remote(source) or (Folder(storage) / name).read("experiment.json") is None:
        return source, None
    if not trial:
        return (Folder(storage) / name).name, None
    known = [one.identity for one in Experiment.look(storage, name).trials()]
    if trial not in known:
        raise ConfigError(f"The experiment {name!r} in {storage} has no trial {trial!r}{did_you_mean(trial, known)}")
    return (Folder(storage) / name / "trials" / trial).name, None


def _environment(trial: Trial) -> Environment | None:
    """Where its policies are scored, or else where its data were recorded."""
    named = (trial.configuration.get("evaluation") or {}).get("environment") or trial.dataset.get("environment")
    return None if named is None else Environment.checked({"id": named} if isinstance(named, str) else named)


def _file(path: Path) -> Found:
    """An algorithm that d3rlpy saved. Raises ConfigError: another file."""
    if path.suffix == ".onnx":
        raise ConfigError(
            f"{path} is a policy as it is, which evaluate, record, play, compare and judge take: it is not read back."
        )
    if path.suffix != ".d3":
        raise ConfigError(f"{path} is no policy: of single files d3rlpy's .d3 is read; name the folder that d3ray saved.")
    from ...algos.registry import read_foreign

    return Found(str(path), algorithm=read_foreign(path, "cpu"))


def _plain(path: Path, name: str, seed: int | None) -> Found:
    if is_package(path):
        return Found(name, package=path)
    if is_model_package(path):
        return Found(name, algorithm=_model(path))
    if (path / "manifest.json").is_file():
        return Found(name, algorithm=_algorithm(path, seed))
    if (newest := newest_valid(path)) is not None:
        return Found(f"{name}, {newest.name}", algorithm=_algorithm(newest, seed))
    kinds = "a policy package, a saved algorithm, a checkpoint, a trial, an experiment or models:/NAME@ALIAS"
    raise ConfigError(f"{name} is no policy: name {kinds}.")


def _model(path: Path) -> Algorithm:
    from ...algos.export.model_packing import read_torch_model

    return read_torch_model(path)


def _algorithm(path: Path, seed: int | None) -> Algorithm:
    from ...algos.registry import algorithm_class
    from ...algos.saving.checkpoint import read_checkpoint
    from ...algos.stack import Stack

    tensors, meta, _ = read_checkpoint(path)
    seeds: list[int] = meta["seeds"]
    if seed is None and len(seeds) > 1:
        raise ConfigError(f"{path} holds the seeds {', '.join(map(str, seeds))}: say which with seed={seeds[0]}.")
    if seed is not None and seed not in seeds:
        raise ConfigError(f"{path} holds no seed {seed}; there is {', '.join(map(str, seeds))}.")
    cls = algorithm_class(meta["algorithm"])
    config = cls.read_config(meta["config"])
    settings = {name: getattr(config, name) for name in cls.Config.model_fields}
    one = cls(**settings, seed=meta.get("seed", seeds[0]), device="cpu", dtype=meta["dtype"])
    if len(seeds) == 1:
        return one.load_state(tensors, meta)
    return Stack(one, seeds).load_state(tensors, meta).seed(seeds.index(seed if seed is not None else seeds[0]))


def _choose(trials: list[Trial], seed: int | None, source: str, objective: Objective) -> tuple[Trial, int, str]:
    """Trial, seed and why: the best of the finished seeds, or the only one there is."""
    there = [(trial, k, trial.status.get(k, {})) for trial in trials for k in trial.seeds if seed in (None, k)]
    if not there:
        seeds = sorted({k for trial in trials for k in trial.seeds})
        raise ConfigError(
            f"{source} has no seed {seed}; there is {', '.join(map(str, seeds))}." if seeds else f"{source} has no trials yet."
        )
    finished = [entry for entry in there if entry[2].get("status") == "FINISHED"] or there
    scored = [(*entry, score) for entry in finished if (score := seed_score(entry[2], objective.metric)) is not None]
    if not scored:
        if len(finished) == 1:
            return (*finished[0][:2], "")
        seeds = sorted({entry[1] for entry in finished})
        told = f"say which of {', '.join(map(str, seeds))}, as seed={seeds[0]}"
        how = told if len(seeds) == len(finished) else "name one of its trials"
        raise ConfigError(f"{source} has {len(finished)} seeds and no return was measured to choose by: {how}.")
    best = scored[0]
    for entry in scored[1:]:
        metric, value = entry[3]
        better = objective.is_better(value, best[3][1]) if metric == objective.metric else is_better(metric, value, best[3][1])
        if metric == best[3][0] and better:
            best = entry
    metric, value = best[3]
    if len(scored) == 1 and not best[2].get("best"):
        return best[0], best[1], f", {metric} {value:.4g}"
    larger = objective.is_better(1, 0) if metric == objective.metric else is_better(metric, 1, 0)
    among = f" of {len(scored)}" if len(scored) > 1 else ""  # one seed has a best too, of its checkpoints
    return best[0], best[1], f", {metric} {value:.4g}, best{among} in training; expect {'less' if larger else 'more'}"
