"""Which registered policy is the champion: given by passing a gate, given back by a rollback.

**The gate.** Candidate and champion play the same `episodes` episodes, reset by the same seeds, through onnxruntime. With R the
returns of one of them, its lower bound is the 2.5 % quantile of the mean of R over bootstrap resamples of the episodes
(`d3ray.platform.statistics`; both get the same resamples). The gate passes where

    lower bound of the candidate > lower bound of the champion,

and where there is no champion yet, lower bound of the candidate > mean return of the data that it learned from. Where
there is nothing to play in, `estimate_gate` asks for the same of estimates from logs; no version passes without one of the two.
Nothing is played where the candidate was never scored in training, or with fewer than `FEWEST` episodes. A model of the dynamics
plays nothing: its error on what it held out has to be below the champion's, or where there is none below that of the mean.

**Kept in the registry**, so that whoever asks the server knows: the alias `champion`; the tag `d3ray.champions` of the registered
model, the versions that were the champion, oldest first, the present one last; and on the version that was promoted
`d3ray.gate.mean`, `d3ray.gate.lower`, `d3ray.gate.above` (what it had to be above), `d3ray.gate.episodes`, `d3ray.gate.seed`.
The tag is written before the alias moves forward and after it moves back, and what follows the present champion in it does not
count: so a command that is killed between the two has changed nothing but a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...algos.environments.evaluate import evaluate
from ...algos.environments.make import make
from ...algos.export.package import read_package
from ...data.errors import ConfigError, StorageError, did_you_mean
from ...data.spec import Environment
from ..statistics import bootstrap_interval
from .models import CANDIDATE
from .registered import registered_package, registry, tracking_uri

CHAMPION = "champion"
ERROR = "d3ray.held_out_error"  # a tag of a version that is a model of the dynamics
FEWEST = 20  # episodes of which a bootstrap may be asked for a lower bound
_HISTORY = "d3ray.champions"
_KEPT = 200  # versions of the history: a tag has 5,000 characters


@dataclass(frozen=True)
class Played:
    """What a version returned."""

    version: str
    returns: np.ndarray  # [episodes]
    lower: float  # bound of their mean

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())


@dataclass(frozen=True)
class Promotion:
    """How a promotion went.

    Attributes:
        passed: Whether the candidate is the champion now.
        why: What decided it, in a sentence.
        candidate: What it returned; None where it did not have to play.
        champion: What the champion returned; None where there was none or it did not have to play.
        above: What the candidate's lower bound had to be above.
    """

    passed: bool
    why: str
    candidate: Played | None = None
    champion: Played | None = None
    above: float | None = None


@dataclass(frozen=True)
class Rollback:
    """How a rollback went: `version` is the champion now, None where there was none to go back to."""

    version: str | None
    why: str


def promote(
    name: str,
    *,
    tracking: str | None = None,
    storage: str = "./d3ray_results",
    episodes: int = 100,
    seed: int = 0,
    environment: Environment | None = None,
) -> Promotion:
    """Makes the candidate of a registered model its champion, if it passes the gate.

    Args:
        name: Of the model, which is the experiment's.
        tracking: MLflow's tracking URI; None: MLFLOW_TRACKING_URI, else the database in `storage`.
        storage: A local results folder.
        episodes: That each of the two plays.
        seed: Decides how they are reset.
        environment: None: the one that the candidate's package names.

    Raises:
        ConfigError: there is no such model, too few episodes, or no environment.
        DataError: the champion cannot act in the candidate's environment.
        StorageError: the server does not answer, or a package is not whole.
    """
    if episodes < FEWEST:
        raise ConfigError(f"episodes is {episodes}; the gate needs at least {FEWEST}, {FEWEST - episodes} more.")
    uri = tracking_uri(tracking, storage)
    with registry(uri) as client:
        model = model_of(client, name)
        aliases = {alias: str(version) for alias, version in model.aliases.items()}
        champion = aliases.get(CHAMPION)
        if (candidate := aliases.get(CANDIDATE)) is None:
            return Promotion(False, f"{name} has no candidate: {_unscored(client, name)}")
        tags: dict[str, str] = client.get_model_version(name, candidate).tags
        if (decided := _without_playing(client, model, candidate, champion, tags)) is not None:
            return decided
    played, place = _play(uri, name, candidate, environment, episodes, seed)
    if champion is None:
        best, above, what = None, float(tags["d3ray.data_return"]), "the mean return of its data"
    else:
        best, _ = _play(uri, name, champion, place, episodes, seed)
        above, what = best.lower, f"that of the champion, version {champion}"
    said = f"{episodes} episodes of {place.id} (seed {seed})"
    numbers = f"return {played.mean:.2f}, lower bound {played.lower:.2f}"
    if not played.lower > above:
        short = f"is not above {what}, {above:.2f}: {above - played.lower:.2f} short"
        return Promotion(
            False, f"Version {candidate} of {name} stays a candidate: over {said} its {numbers} {short}.", played, best, above
        )
    with registry(uri) as client:
        gate = {"mean": repr(played.mean), "lower": repr(played.lower), "above": repr(above), "episodes": episodes, "seed": seed}
        crown(client, model, candidate, champion, gate)
    won = f"is above {what}, {above:.2f}"
    return Promotion(True, f"Version {candidate} of {name} is the champion: over {said} its {numbers} {won}.", played, best, above)


def _without_playing(client: Any, model: Any, candidate: str, champion: str | None, tags: Mapping[str, str]) -> Promotion | None:
    """What needs no episodes: of a champion, of a model of the dynamics, or where nothing could be compared."""
    name = model.name
    if candidate == champion:
        return Promotion(True, f"Version {champion} of {name} is the champion already.")
    if ERROR in tags:
        return _of_model(client, model, candidate, champion)
    if "d3ray.value" not in tags:
        return Promotion(False, f"Version {candidate} of {name} has no score: it was never evaluated while it learned.")
    if champion is None and "d3ray.data_return" not in tags:
        return Promotion(False, f"{name} has no champion yet, and the mean return of its data is not known: nothing to be above.")
    return None


def _of_model(client: Any, model: Any, candidate: str, champion: str | None) -> Promotion:
    """The same of a model of the dynamics, which plays nothing: by its error on what it held out."""

    def told(version: str, tag: str) -> float:
        return float(client.get_model_version(model.name, version).tags.get(tag, "nan"))

    error = told(candidate, ERROR)
    above, what = told(candidate, "d3ray.mean_error"), "that of the mean of all targets"
    if champion is not None:
        above, what = told(champion, ERROR), f"that of the champion, version {champion}"
    said = f"on what it held out its error {error:.4g}"
    if not error < above:
        return Promotion(False, f"Version {candidate} of {model.name} stays a candidate: {said} is not below {what}, {above:.4g}.")
    crown(client, model, candidate, champion, {"error": repr(error), "below": repr(above)})
    return Promotion(True, f"Version {candidate} of {model.name} is the champion: {said} is below {what}, {above:.4g}.")


def crown(client: Any, model: Any, candidate: str, champion: str | None, gate: Mapping[str, Any]) -> None:
    """Makes a version of a registered model its champion in place of another, and notes what it had to pass."""
    for key, value in gate.items():
        client.set_model_version_tag(model.name, candidate, f"d3ray.gate.{key}", str(value))
    history = _history(model.tags, champion)
    client.set_registered_model_tag(model.name, _HISTORY, " ".join([*history, candidate][-_KEPT:]))
    client.set_registered_model_alias(model.name, CHAMPION, candidate)


def rollback(name: str, *, tracking: str | None = None, storage: str = "./d3ray_results") -> Rollback:
    """Gives the alias `champion` back to the version that had it before.

    Args:
        name: Of the model.
        tracking: As for `promote`.
        storage: As for `promote`.

    Raises:
        ConfigError: there is no such model.
        StorageError: the server does not answer.
    """
    with registry(tracking_uri(tracking, storage)) as client:
        model = model_of(client, name)
        champion = model.aliases.get(CHAMPION)
        if champion is None:
            return Rollback(None, f"{name} has no champion: nothing to go back from.")
        champion = str(champion)
        there = {str(version.version) for version in client.search_model_versions(f"name = '{name}'")}
        before = [version for version in _history(model.tags, champion)[:-1] if version in there]  # others were deleted
        if not before:
            return Rollback(None, f"Version {champion} is the only champion that {name} has had: nothing to go back to.")
        client.set_registered_model_alias(name, CHAMPION, before[-1])
        client.set_registered_model_tag(name, _HISTORY, " ".join(before))
        return Rollback(before[-1], f"Version {before[-1]} of {name} is the champion again, in place of version {champion}.")


def _history(tags: dict[str, str], champion: str | None) -> list[str]:
    """The versions that were the champion, the present one last; one that somebody set by hand counts too."""
    known = tags.get(_HISTORY, "").split()
    if champion is None:
        return []
    while known and known[-1] != champion:
        known.pop()
    return known or [*tags.get(_HISTORY, "").split(), champion]


def _play(
    uri: str, name: str, version: str, environment: Environment | None, episodes: int, seed: int
) -> tuple[Played, Environment]:
    """What a version returns, and where it played."""
    with registered_package(f"models:/{name}/{version}", uri) as package:
        policy = read_package(package)
    if environment is None:
        if (named := policy.about["environment"]) is None:
            raise ConfigError(
                f"Version {version} of {name} names no environment to play in: write environment=ID, or decide from logs with "
                f"{_by_estimate(name, version)}"
            )
        environment = Environment.checked(named)
    with make(environment, n=min(episodes, 10), evaluating=True) as vector:
        returns = evaluate(policy, vector, episodes=episodes, seed=seed).returns
    if not np.isfinite(returns).all():
        raise StorageError(f"Version {version} of {name} gets returns in {environment.id} that are not finite numbers.")
    return Played(version, returns, float(bootstrap_interval(returns[:, None])[0][0])), environment


def _by_estimate(name: str, version: str) -> str:
    """The commands that decide without an environment."""
    return f"d3ray judge models:/{name}/{version} DATASET and then d3ray promote {name} by=estimate."


def _unscored(client: Any, name: str) -> str:
    """Why none of the versions is the candidate, and what makes one or decides without."""
    newest = max(client.search_model_versions(f"name = '{name}'"), key=lambda version: int(version.version), default=None)
    if newest is None:
        return "no version of it is registered."
    metrics = client.get_run(newest.run_id).data.metrics if newest.run_id else {}
    held_out = [metric for metric in sorted(metrics) if metric.startswith("holdout/")]
    why = f"its seeds were scored on held-out data alone, by {held_out[0]}" if held_out else "no seed of it was scored"
    return (
        f"{why}, and the gate compares returns. Train with evaluation.environment=ID to be scored by playing, or decide from logs "
        f"with {_by_estimate(name, str(newest.version))}"
    )


def model_of(client: Any, name: str) -> Any:
    """The registered model of a name."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
    known = [model.name for model in client.search_registered_models(max_results=1000)]
    raise ConfigError(f"There is no registered model {name!r}{did_you_mean(name, known) if known else '; none is registered yet.'}")
