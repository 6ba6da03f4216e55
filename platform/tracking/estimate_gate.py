"""The gate where there is no environment to play in: estimates from logs decide which version is the champion.

**The gate.** Of the newest judgement (`d3ray judge`) that has versions of the model, the one with the largest lower bound is taken.
It passes where

    its lower bound > the champion's in the same judgement,

and where there is no champion yet, its lower bound > what the logs themselves returned. Both were estimated from the same logs, by
the same estimator, with the same γ. A champion that was not judged with it has to be: nothing is compared across judgements.

**Kept in the registry**: what `promotion` keeps, with `d3ray.gate.by` in place of episodes and seed.
"""

from __future__ import annotations

from typing import Any

from .promotion import CHAMPION, Promotion, crown, model_of
from .registered import registry, tracking_uri

TAG = "d3ray.estimate"


def promote_by_estimate(name: str, *, tracking: str | None = None, storage: str = "./d3ray_results") -> Promotion:
    """Makes the version that was judged best a model's champion, if it passes the gate; arguments as `promote`'s.

    Raises:
        ConfigError: there is no such model.
        StorageError: the server does not answer.
    """
    with registry(tracking_uri(tracking, storage)) as client:
        model = model_of(client, name)
        champion = {alias: str(version) for alias, version in model.aliases.items()}.get(CHAMPION)
        judged = _newest({str(one.version): one.tags for one in client.search_model_versions(f"name = '{name}'")})
        if not judged:
            return Promotion(False, f"No version of {name} has an estimate: d3ray judge models:/{name}/VERSION DATASET makes one.")
        best = max(judged, key=lambda version: (float(judged[version]["lower"]), version == champion))
        about = judged[best]
        if best == champion:
            return Promotion(True, f"Version {champion} of {name} is the champion already, and has the largest lower bound.")
        if champion is not None and champion not in judged:
            both = f"models:/{name}/{best} models:/{name}/{champion}"
            return Promotion(
                False,
                f"The champion of {name}, version {champion}, was not judged with version {best}: d3ray judge {both} DATASET.",
            )
        above = float(about["data"] if champion is None else judged[champion]["lower"])
        what = "what the logs returned" if champion is None else f"that of the champion, version {champion}"
        lower = float(about["lower"])
        numbers = f"{about['by']} of {float(about['value']):.2f}, lower bound {lower:.2f}"
        if not lower > above:
            why = f"its {numbers} is not above {what}, {above:.2f}: {above - lower:.2f} short"
            return Promotion(False, f"Version {best} of {name} is not promoted: {why}.", above=above)
        gate = {"mean": about["value"], "lower": about["lower"], "above": repr(above), "by": about["by"]}
        crown(client, model, best, champion, gate | {"judgement": about["judgement"]})
    return Promotion(True, f"Version {best} of {name} is the champion: its {numbers} is above {what}, {above:.2f}.", above=above)


def _newest(tags: dict[str, dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The estimates of the newest judgement, by version."""
    found = {
        version: {key.removeprefix(f"{TAG}."): str(value) for key, value in each.items() if key.startswith(f"{TAG}.")}
        for version, each in tags.items()
        if f"{TAG}.lower" in each
    }
    newest = max((one["time"] for one in found.values()), default="")
    return {version: one for version, one in found.items() if one["time"] == newest}
