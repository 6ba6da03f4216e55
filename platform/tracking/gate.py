"""The gate through which a version of a registered model becomes its champion, whatever speaks for it.

With `FEWEST` episodes or more it passes where

    lower bound of the candidate > lower bound of the champion, by the same evidence,

and where there is no champion yet, lower bound of the candidate > what its data returned. Evidence is episodes that both played
(`promotion`) or estimates from the same logs (`estimate_gate`); no version passes without one of the two, nor where there is a
limit of costs and the upper bound of its cost is above it.

**Kept in the registry**, so that whoever asks the server knows: the alias `champion`; the tag `d3ray.champions` of the registered
model, the versions that were the champion, oldest first, the present one last; and on the version that was promoted
`d3ray.gate.by`, `d3ray.gate.mean`, `d3ray.gate.lower`, `d3ray.gate.level`, `d3ray.gate.above` (what it had to be above),
`d3ray.gate.episodes` and `d3ray.gate.ess`, where there was a limit of costs `d3ray.gate.cost_value`, `.cost_upper` and
`.cost_limit`, with `d3ray.gate.seed` or `d3ray.gate.judgement`. The tag is written before the alias moves forward and after it
moves back, and what follows the present champion in it does not count: so a command that is killed between the two has changed
nothing but a note.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...data.errors import ConfigError, did_you_mean
from ..record.policies import Evidence, Promotion

CHAMPION = "champion"
FEWEST = 20  # episodes of which a bootstrap may be asked for a lower bound
_GATE = "d3ray.gate."  # what tags begin with that keep how a version passed
_HISTORY = "d3ray.champions"
_KEPT = 200  # versions of the history: a tag has 5,000 characters


def decide(
    client: Any,
    model: Any,
    candidate: Evidence,
    champion: Evidence | None,
    returned: tuple[float, str],
    noted: Mapping[str, Any],
    *,
    move: bool = True,
) -> Promotion:
    """Makes a version of a registered model its champion, where it passes; unless `move`, only says whether it would.

    Args:
        client: MLflow's.
        model: The registered model.
        candidate: What speaks for the version.
        champion: The same of the present champion; None: there is none.
        returned: What the data returned, which a first champion has to be above, and what that is called.
        noted: Tags of the version beside those of the evidence.
        move: Whether the alias moves.
    """
    above, what = returned if champion is None else (champion.lower, f"that of the champion, version {champion.version}")
    short = above - candidate.lower
    digits = min(6, max(2, 1 - math.floor(math.log10(abs(short))))) if short and math.isfinite(short) else 2  # so that both differ
    called = "return" if candidate.by == "play" else candidate.by
    bound = f"lower bound {candidate.lower:.{digits}f} ({candidate.level:.0%})"
    numbers = f"{candidate.behind}its {called} of {candidate.mean:.{digits}f}, {bound}"
    told: dict[str, Any] = {"candidate": candidate, "champion": champion, "above": above, "what": what}
    stays = f"Version {candidate.version} of {model.name} is not promoted: "
    if candidate.episodes is not None and candidate.episodes < FEWEST:
        why = f"{stays}{numbers}, stands on too few: the gate needs at least {FEWEST} episodes."
        return Promotion(passed=False, why=why, **told)
    if candidate.cost is not None and (broken := candidate.cost.broken(candidate.level)):
        return Promotion(passed=False, why=f"{stays}{broken}.", **told)
    if not candidate.lower > above:
        why = f"{stays}{numbers}, is not above {what}, {above:.{digits}f}: {short:.{digits}f} short."
        return Promotion(passed=False, why=why, **told)
    gate = {name: getattr(candidate, name) for name in ("by", "mean", "lower", "level", "episodes", "ess")}
    costs = {} if candidate.cost is None else {f"cost_{name}": value for name, value in candidate.cost.model_dump().items()}
    if move:
        crown(client, model, candidate.version, champion and champion.version, {**gate, **costs, "above": above, **noted})
    passes = "is the champion" if move else "passes"
    why = f"Version {candidate.version} of {model.name} {passes}: {numbers}, is above {what}, {above:.{digits}f}."
    return Promotion(passed=True, why=why, **told)


def passed_by(version: str, tags: Mapping[str, str]) -> Promotion | None:
    """How a version passed, as its tags keep it, without a sentence; None: it did not pass, or not by this gate."""
    kept = {key.removeprefix(_GATE): value for key, value in tags.items() if key.startswith(_GATE)}
    if not {"mean", "lower", "above"} <= kept.keys():
        return None
    said = {name: kept[name] for name in Evidence.model_fields if name in kept}
    by = Evidence.model_validate({"by": "play", **said, "version": version, "source": kept.get("judgement", "")})
    above = float(kept["above"])
    return Promotion(passed=True, why="", candidate=by, champion=by, above=above, what="what it was held against")


def crown(client: Any, model: Any, candidate: str, champion: str | None, gate: Mapping[str, Any]) -> None:
    """Makes a version of a registered model its champion in place of another, and notes what it had to pass, and that alone."""
    noted = {f"{_GATE}{key}": str(value) for key, value in gate.items() if value is not None}
    for key in client.get_model_version(model.name, candidate).tags:
        if key.startswith(_GATE) and key not in noted:
            client.delete_model_version_tag(model.name, candidate, key)
    for key, value in noted.items():
        client.set_model_version_tag(model.name, candidate, key, value)
    history = champions(model.tags, champion)
    client.set_registered_model_tag(model.name, _HISTORY, " ".join([*history, candidate][-_KEPT:]))
    client.set_registered_model_alias(model.name, CHAMPION, candidate)


def back_to(client: Any, name: str, champion: str, history: list[str]) -> None:
    """Gives the alias back to a champion of before, with which the history then ends."""
    client.set_registered_model_alias(name, CHAMPION, champion)
    client.set_registered_model_tag(name, _HISTORY, " ".join(history))


def champions(tags: Mapping[str, str], champion: str | None) -> list[str]:
    """The versions that were the champion, the present one last; one that somebody set by hand counts too."""
    known = tags.get(_HISTORY, "").split()
    if champion is None:
        return []
    while known and known[-1] != champion:
        known.pop()
    return known or [*tags.get(_HISTORY, "").split(), champion]


def model_of(client: Any, name: str) -> Any:
    """The registered model of a name. Raises ConfigError: there is none."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
    known = [model.name for model in client.search_registered_models(max_results=1000)]
    raise ConfigError(f"There is no registered model {name!r}{did_you_mean(name, known) if known else '; none is registered yet.'}")
