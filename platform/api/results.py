"""What came of a judgement, from its folder alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..judging.judgement import RECORD
from ..record.policies import Estimated, Judged, Judgement
from ..storage.folders import Folder


def judgement_of(folder: Folder) -> Judgement | None:
    """What a folder keeps of a judgement; None: nothing yet."""
    found = folder.read_json(RECORD)
    if found is None:
        return None
    policies = [
        Judged(
            label=one["label"],
            estimates={name: Estimated(**{key: row[key] for key in Estimated.model_fields}) for name, row in _rows(one).items()},
            warnings=list(one["estimates"]["warnings"]),
            played=sum(one["played"]) / len(one["played"]) if one["played"] else None,
        )
        for one in found["verdicts"]
    ]
    logs = found["verdicts"][0]["estimates"]
    data, episodes = logs["data"]["value"], logs["n_episodes"]
    return Judgement(dataset=found["dataset"], trusted=found["trusted"], episodes=episodes, data=data, policies=policies)


def _rows(verdict: Mapping[str, Any]) -> Mapping[str, Any]:
    return verdict["estimates"]["rows"]
