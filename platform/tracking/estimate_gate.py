"""Estimates from logs at the gate, where there is no environment to play in.

Of the newest judgement (`d3ray judge`) that has versions of the model, the one with the largest lower bound is taken to the `gate`,
and held against the champion's in the same judgement: both were estimated from the same logs, by the same estimator, with the same
γ. A champion that was not judged with it has to be: nothing is compared across judgements. Where there is no champion yet, it is
held against what the logs themselves returned. Where the judgement had a limit of costs, versions that are known to keep it go
before all others, and none that is not passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..record.policies import CostBound, Evidence, Promotion
from .gate import CHAMPION, decide, model_of
from .registered import registry, tracking_uri

TAG = "d3ray.estimate"


def promote_by_estimate(
    name: str, *, tracking: str | None = None, storage: str = "./d3ray_results", move: bool = True
) -> Promotion:
    """Makes the version that was judged best a model's champion, if it passes the gate; returns what came of it, and why.

    Args:
        name: Of the registered model.
        tracking: MLflow's tracking URI; None: MLFLOW_TRACKING_URI, else the database in `storage`.
        storage: A local results folder.
        move: Whether it becomes the champion; else it is only said whether it would.

    Raises:
        ConfigError: there is no such model.
        StorageError: the server does not answer.
    """
    with registry(tracking_uri(tracking, storage)) as client:
        model = model_of(client, name)
        champion = {alias: str(version) for alias, version in model.aliases.items()}.get(CHAMPION)
        judged, returns = _newest({str(one.version): one.tags for one in client.search_model_versions(f"name = '{name}'")})
        if not judged:
            why = f"No version of {name} has an estimate: d3ray judge models:/{name}/VERSION DATASET makes one."
            return Promotion(passed=False, why=why)
        # of those that are known to keep the limit of costs, where there are some
        kept = [version for version, one in judged.items() if one.cost is None or not one.cost.broken(one.level)]
        best = max(kept or judged, key=lambda version: (judged[version].lower, version == champion))
        if best == champion and best in kept:
            why = f"Version {champion} of {name} is the champion already, and has the largest lower bound."
            return Promotion(passed=True, why=why, candidate=judged[best], champion=judged[best])
        if champion is not None and champion not in judged:
            both = f"models:/{name}/{best} models:/{name}/{champion}"
            why = f"The champion of {name}, version {champion}, was not judged with version {best}: d3ray judge {both} DATASET."
            return Promotion(passed=False, why=why, candidate=judged[best])
        returned = returns[best], "what the logs returned"
        noted = {"judgement": judged[best].source}
        return decide(client, model, judged[best], None if champion is None else judged[champion], returned, noted, move=move)


def _newest(tags: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Evidence], dict[str, float]]:
    """By version what the newest judgement says of it, and what the logs returned there."""
    noted = {
        version: {key.removeprefix(f"{TAG}."): str(value) for key, value in each.items() if key.startswith(f"{TAG}.")}
        for version, each in tags.items()
        if f"{TAG}.lower" in each
    }
    newest = max((one["time"] for one in noted.values()), default="")
    noted = {version: one for version, one in noted.items() if one["time"] == newest}
    return {version: _evidence(version, one) for version, one in noted.items()}, {v: float(one["data"]) for v, one in noted.items()}


def _evidence(version: str, noted: Mapping[str, str]) -> Evidence:
    kept = {name: noted[name] for name in ("by", "lower", "level", "episodes", "ess") if name in noted}
    cost = {name: noted.get(f"cost_{name}") for name in CostBound.model_fields} if "cost_limit" in noted else None
    about = {"version": version, "mean": noted["value"], "source": noted["judgement"], "cost": cost}
    return Evidence.model_validate({**kept, **about})
