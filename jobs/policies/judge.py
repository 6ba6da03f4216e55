"""`d3ray judge POLICY ... DATASET`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...platform.judging.settings import JudgeSettings
from ..command.base import RestartableConfig, Result
from ..views.columns import aligned
from ..views.live_view import live_experiment

if TYPE_CHECKING:
    from ...platform.record.policies import Judgement


class JudgeConfig(RestartableConfig, JudgeSettings):
    """Which policies, by which logs."""


@dataclass(frozen=True, kw_only=True)
class JudgeResult(Result):
    """Judgement of each policy by logs."""

    judgement: Judgement


def run(config: JudgeConfig) -> JudgeResult:
    """Trains FQE for every policy, estimates, and writes a page.

    Raises:
        ConfigError, DataError, StorageError: before any work, for what cannot be used; or a policy cannot act on the logs.
    """
    from ...platform.judging.judgement import RECORD
    from ...platform.judging.page import FILE
    from ...platform.judging.run import judge
    from ...platform.judging.words import by_sentence, lead, remarks, table
    from ...platform.storage.folders import Folder

    with live_experiment(config.storage_place, config.experiment_name) as on_progress:
        found = judge(config, resume=config.resume, replace=config.replace, on_progress=on_progress, say=print)
    lines = [lead(found), *remarks(found), *aligned(table(found), "  ", right=(2,))]
    of_whom = dict[str, list[str]]()
    for verdict in found.verdicts:
        rows = verdict.estimates.rows
        told = [f"{names} refused: {why}" for why, names in by_sentence({name: one.refused for name, one in rows.items()})]
        told += [f"{names}: {what}" for what, names in by_sentence({name: one.caveat for name, one in rows.items()})]
        for sentence in (*told, *(f"warning: {warning}" for warning in verdict.warnings)):
            of_whom.setdefault(sentence, []).append(verdict.label)
    for sentence, labels in of_whom.items():
        about = "" if len(labels) == len(found.verdicts) else f"{', '.join(labels)}: "
        lines.append(f"  {about}{sentence}")
    folder = Folder(found.folder)
    look = {"page": folder.address(FILE), "numbers": folder.address(RECORD)}
    if found.verdicts[0].source.startswith("models:/"):
        name = found.verdicts[0].source.removeprefix("models:/").partition("/")[0]
        look["make it the champion"] = f"d3ray promote {name} by=estimate"
    return JudgeResult(made="\n".join(lines), look=look, judgement=found)
