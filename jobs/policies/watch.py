"""`d3ray watch LOG`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...platform.watch.settings import WatchSettings
from ..command.base import JobConfig, Result, option
from ..views.columns import aligned

if TYPE_CHECKING:
    from ...platform.record.watch import Watched

ALARMED = 3  # what the command exits with where there is an alarm


class WatchConfig(JobConfig, WatchSettings):
    """Whose log, what it is compared with, and what is an alarm."""

    every: float | None = option(None, "seconds from one look to the next, for ever; null: one look", gt=0)


@dataclass(frozen=True, kw_only=True)
class WatchResult(Result):
    """The newest look."""

    watched: Watched


def run(config: WatchConfig) -> WatchResult:
    """Looks at the log, writes a page, and exits with 3 where there is an alarm.

    Raises:
        ConfigError, DataError, StorageError: before anything is written, for what cannot be used; or nobody takes an alarm.
    """
    from ...data.errors import StorageError
    from ...platform.watch.keeping import RECORD, watch
    from ...platform.watch.page import FILE, chance, lead

    while True:
        try:
            found, folder = watch(config)
        except StorageError as error:
            if config.every is None:
                raise
            print(error)
        else:
            if config.every is None:
                break
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')}: {lead(found)}", flush=True)
        time.sleep(config.every)
    shown = [one for one in found.drift if one.shown]
    table = [["column", "recorded", "now", "distance", "by chance"]] if shown else []
    table += [[one.name, f"{one.old:.3g}", f"{one.new:.3g}", f"{one.distance:.2f}", chance(one)] for one in shown[:10]]
    lines = [lead(found), *aligned(table, "  ", right=(1, 2, 3, 4))]
    look = {"page": folder.address(FILE), "numbers": folder.address(RECORD)}
    return WatchResult(made="\n".join(lines), look=look, exit_status=ALARMED if found.alarms else 0, watched=found)
