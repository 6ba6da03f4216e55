"""`d3ray judge POLICY ... DATASET`: what policies would return, estimated from logs alone, with intervals and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...platform.judging.settings import JudgeSettings
from ..command.base import RestartableConfig, Result
from ..views.live_view import live_experiment

if TYPE_CHECKING:
    from ...platform.judging.judgement import Judgement


class JudgeConfig(RestartableConfig, JudgeSettings):
    """Which policies, by which logs."""


@dataclass(frozen=True, kw_only=True)
class JudgeResult(Result):
    """What the logs say of each policy."""

    judgement: Judgement


def run(config: JudgeConfig) -> JudgeResult:
    """Trains FQE for every policy, estimates, and writes a page.

    Raises:
        ConfigError, DataError, StorageError: before any work, for what cannot be used; or a policy cannot act on the logs.
    """
    from ...platform.judging.judgement import RECORD
    from ...platform.judging.page import FILE
    from ...platform.judging.run import judge
    from ...platform.judging.words import lead, remarks, said, within
    from ...platform.storage.folders import Folder

    with live_experiment(config.storage_place, config.experiment_name) as on_progress:
        found = judge(config, resume=config.resume, replace=config.replace, on_progress=on_progress, say=print)
    wide = max(len(verdict.label) for verdict in found.verdicts)
    lines = [lead(found), *remarks(found)]
    for verdict in found.verdicts:
        told = [
            f"{name} {said(one.value)} ({within(one)})" for name, one in verdict.estimates.rows.items() if one.value is not None
        ]
        refused = [name for name, one in verdict.estimates.rows.items() if one.refused is not None]
        told += [f"refused: {', '.join(refused)}"] if refused else []
        told += [f"played {said(verdict.true)}"] if verdict.played else []
        lines.append(f"  {verdict.label:<{wide}}  {'; '.join(told)}")
    of_whom = dict[str, list[str]]()
    for verdict in found.verdicts:
        for warning in verdict.estimates.warnings:
            of_whom.setdefault(warning, []).append(verdict.label)
    for warning, labels in of_whom.items():
        about = "" if len(labels) == len(found.verdicts) else f" of {', '.join(labels)}"
        lines.append(f"  warning{about}: {warning}")
    folder = Folder(found.folder)
    look = {"page": folder.address(FILE), "numbers": folder.address(RECORD)}
    if found.verdicts[0].source.startswith("models:/"):
        name = found.verdicts[0].source.removeprefix("models:/").partition("/")[0]
        look["make it the champion"] = f"d3ray promote {name} by=estimate"
    return JudgeResult(made="\n".join(lines), look=look, judgement=found)
