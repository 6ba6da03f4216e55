"""A judgement in MLflow: metrics of FQE's runs, and tags of the registered versions that were judged.

Metrics `judge/NAME`, `judge/NAME/lower` and `judge/NAME/upper` of each estimator that was not refused. Tags of a version, of its
newest judgement: `d3ray.estimate.by` (the estimator), `.value`, `.lower`, `.upper`, `.level`, `.episodes` (of the logs), `.ess`
(effective ones, where there are weights), `.gamma`, `.data` (what the logs returned, with what the policy is expected to make of
episodes that were cut where the estimator counts that too), where there is a limit of costs `.cost_value`, `.cost_upper` and
`.cost_limit` (discounted as they are), `.fingerprint` (of the logs), `.judgement` (the folder) and `.time`
(UTC; equal for all that were judged together). Where the newest judgement has nothing to decide by, a version has none of them, so
an older one promotes nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ...data.errors import ConfigError
from ...data.uris import without_secrets
from ..record.policies import Judged, Judgement
from ..tracking.estimate_gate import TAG
from ..tracking.registered import is_registered, registry, tracking_uri
from .judgement import against


def note(judgement: Judgement, storage: str, tracking: str | None) -> None:
    """Writes metrics and tags. Raises StorageError where the server does not answer."""
    try:
        uri = tracking_uri(tracking, storage)
    except ConfigError:  # nothing was ever tracked there
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with registry(uri) as client:
        for verdict in judgement.verdicts:
            for run in verdict.runs:
                known = client.get_run(run).data.metrics
                for name, value in _metrics(verdict):
                    if known.get(name) != value:  # as where a judgement that had ended goes on
                        client.log_metric(run, name, value)
            if is_registered(verdict.source):
                name, _, version = verdict.source.removeprefix("models:/").partition("/")
                tags = _tags(judgement, verdict, now)
                for key, value in tags.items():
                    client.set_model_version_tag(name, version, f"{TAG}.{key}", value)
                for key in () if tags else client.get_model_version(name, version).tags:
                    if key.startswith(f"{TAG}."):
                        client.delete_model_version_tag(name, version, key)


def _metrics(verdict: Judged) -> list[tuple[str, float]]:
    found = list[tuple[str, float]]()
    for name, one in verdict.estimates.items():
        if one.value is not None:
            found.append((f"judge/{name}", one.value))
        if one.interval is not None:
            found += [(f"judge/{name}/lower", one.interval[0]), (f"judge/{name}/upper", one.interval[1])]
    return found


def _tags(judgement: Judgement, verdict: Judged, now: str) -> dict[str, str]:
    found, data, cost = judgement.decisive(verdict), against(judgement, verdict), judgement.cost(verdict)
    if found is None or found.value is None or found.interval is None or data.value is None:
        return {}
    return {
        "by": str(judgement.trusted),
        "value": repr(found.value),
        "lower": repr(found.interval[0]),
        "upper": repr(found.interval[1]),
        "level": repr(verdict.estimates.level),
        "episodes": str(verdict.estimates.n_episodes),
        **({} if found.ess is None else {"ess": repr(found.ess)}),
        **({} if cost is None else {f"cost_{name}": repr(value) for name, value in cost.model_dump().items() if value is not None}),
        "gamma": repr(verdict.estimates.gamma),
        "data": repr(data.value),
        "fingerprint": judgement.fingerprint,
        "judgement": without_secrets(judgement.folder),
        "time": now,
    }
