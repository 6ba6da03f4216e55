"""Which registered policy is the champion: given by passing the gate, given back by a rollback.

Candidate and champion play the same `episodes` episodes, reset by the same seeds, through onnxruntime. With R the returns of one of
them, its lower bound is the 2.5 % quantile of the mean of R over bootstrap resamples of the episodes (`d3ray.platform.statistics`;
both get the same resamples). `gate` decides by these, and keeps what decided in the registry. Where there is nothing to play in,
`estimate_gate` asks the same gate with estimates from logs. Nothing is played where the candidate was never scored in training, or
with fewer than `FEWEST` episodes. A model of the dynamics plays nothing: its error on what it held out has to be below the
champion's, or where there is none below that of the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...algos.environments.evaluate import evaluate
from ...algos.environments.goals import aimed
from ...algos.environments.make import make
from ...algos.export.package import read_package
from ...data.errors import ConfigError, StorageError
from ...data.spec import Environment
from ...data.storage.costs import checked_limit
from ..record.policies import CostBound, Evidence, Promotion, Rollback
from ..statistics import bootstrap_interval
from .gate import CHAMPION, FEWEST, back_to, champions, crown, decide, model_of, passed_by
from .models import CANDIDATE
from .registered import registered_package, registry, tracking_uri

ERROR = "d3ray.held_out_error"  # a tag of a version that is a model of the dynamics


def promote(
    name: str,
    *,
    tracking: str | None = None,
    storage: str = "./d3ray_results",
    episodes: int = 100,
    seed: int = 0,
    environment: Environment | None = None,
    move: bool = True,
    cost_limit: float | None = None,
) -> Promotion:
    """Makes the candidate of a registered model its champion, if it passes the gate.

    Args:
        name: Of the model, which is the experiment's.
        tracking: MLflow's tracking URI; None: MLFLOW_TRACKING_URI, else the database in `storage`.
        storage: A local results folder.
        episodes: That each of the two plays.
        seed: Decides how they are reset.
        environment: None: the one that the candidate's package names.
        move: Whether it becomes the champion; else it is only said whether it would.
        cost_limit: What an episode may cost there, undiscounted: the upper bound of the candidate's mean has to keep to it. None:
            costs are not looked at.

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
            return Promotion(passed=False, why=f"{name} has no candidate: {_unscored(client, name)}")
        tags: dict[str, str] = client.get_model_version(name, candidate).tags
        if (decided := _without_playing(client, model, candidate, champion, tags)) is not None:
            return decided
    played, place = _play(uri, name, candidate, environment, episodes, seed, cost_limit)
    best = None if champion is None else _play(uri, name, champion, place, episodes, seed)[0]
    returned = float(tags.get("d3ray.data_return", "nan")), "the mean return of its data"
    with registry(uri) as client:
        return decide(client, model, played, best, returned, {"seed": seed}, move=move)


def _without_playing(client: Any, model: Any, candidate: str, champion: str | None, tags: Mapping[str, str]) -> Promotion | None:
    """Decide on a champion, a model of the dynamics, or where nothing can be compared; None: has to be played."""
    name = model.name
    if candidate == champion:
        found = passed_by(candidate, tags) or Promotion(passed=True, why="")
        return found.model_copy(update={"why": f"Version {champion} of {name} is the champion already."})
    if ERROR in tags:
        return _of_model(client, model, candidate, champion)
    if "d3ray.value" not in tags:
        return Promotion(passed=False, why=f"Version {candidate} of {name} has no score: it was never evaluated while it learned.")
    if champion is None and "d3ray.data_return" not in tags:
        return Promotion(
            passed=False, why=f"{name} has no champion yet, and the mean return of its data is not known: nothing to be above."
        )
    return None


def _of_model(client: Any, model: Any, candidate: str, champion: str | None) -> Promotion:
    """Decide on a model of the dynamics, which plays nothing, by its error on what it held out."""

    def told(version: str, tag: str) -> float:
        return float(client.get_model_version(model.name, version).tags.get(tag, "nan"))

    error = told(candidate, ERROR)
    above, what = told(candidate, "d3ray.mean_error"), "that of the mean of all targets"
    if champion is not None:
        above, what = told(champion, ERROR), f"that of the champion, version {champion}"
    said = f"on what it held out its error {error:.4g}"
    if not error < above:
        return Promotion(
            passed=False, why=f"Version {candidate} of {model.name} stays a candidate: {said} is not below {what}, {above:.4g}."
        )
    crown(client, model, candidate, champion, {"error": repr(error), "below": repr(above)})
    return Promotion(passed=True, why=f"Version {candidate} of {model.name} is the champion: {said} is below {what}, {above:.4g}.")


def rollback(name: str, *, tracking: str | None = None, storage: str = "./d3ray_results") -> Rollback:
    """Gives the alias `champion` back to the version that had it before; `tracking` and `storage` as for `promote`.

    Raises:
        ConfigError: there is no such model.
        StorageError: the server does not answer.
    """
    with registry(tracking_uri(tracking, storage)) as client:
        model = model_of(client, name)
        champion = model.aliases.get(CHAMPION)
        if champion is None:
            return Rollback(version=None, why=f"{name} has no champion: nothing to go back from.")
        champion = str(champion)
        there = {str(version.version) for version in client.search_model_versions(f"name = '{name}'")}
        before = [version for version in champions(model.tags, champion)[:-1] if version in there]  # others were deleted
        if not before:
            return Rollback(
                version=None, why=f"Version {champion} is the only champion that {name} has had: nothing to go back to."
            )
        back_to(client, name, before[-1], before)
        return Rollback(
            version=before[-1], why=f"Version {before[-1]} of {name} is the champion again, in place of version {champion}."
        )


def _play(
    uri: str, name: str, version: str, environment: Environment | None, episodes: int, seed: int, cost_limit: float | None = None
) -> tuple[Evidence, Environment]:
    """Play a version; return the evidence and where it played."""
    with registered_package(f"models:/{name}/{version}", uri) as package:
        policy = read_package(package)
    if environment is None:
        if (named := policy.about["environment"]) is None:
            raise ConfigError(
                f"Version {version} of {name} names no environment to play in: write environment=ID, or decide from logs with "
                f"{_by_estimate(name, version)}"
            )
        environment = Environment.checked(named)
    with make(aimed(environment, policy.spec), n=min(episodes, 10), evaluating=True) as vector:
        found = evaluate(policy, vector, episodes=episodes, seed=seed)
    returns, cost = found.returns, None
    if cost_limit is not None:
        if found.costs is None:
            raise ConfigError(
                f"{environment.id} does not tell what its steps cost (info['cost']), so cost_limit cannot be kept there."
            )
        upper = float(bootstrap_interval(found.costs[:, None])[1][0])
        cost = CostBound(value=float(found.costs.mean()), upper=upper, limit=checked_limit(cost_limit))
    if not np.isfinite(returns).all():
        raise StorageError(f"Version {version} of {name} gets returns in {environment.id} that are not finite numbers.")
    lower = float(bootstrap_interval(returns[:, None])[0][0])
    source, mean = f"{environment.id} (seed {seed})", float(returns.mean())
    about: dict[str, Any] = {"mean": mean, "lower": lower, "episodes": episodes, "source": source, "cost": cost}
    return Evidence(version=version, by="play", **about), environment


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
