"""`d3ray status [EXPERIMENT]`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import ConfigError, StorageError
from ..command.base import JobConfig, Result, option

if TYPE_CHECKING:
    from ...platform.record.status import Status


class StatusConfig(JobConfig):
    """Which experiment, and how it is told."""

    experiment: str | None = option(
        None, "name of the experiment; null: a line about each in the storage", operand=True, example="TD3PlusBC-hopper"
    )
    storage: str = option("./d3ray_results", "folder or URI of all results")
    watch: bool = option(False, "go on until the experiment does not run any more, or Ctrl-C")
    rows: int = option(20, "configurations, or seeds of the only one, that are listed at most", gt=0)
    format: Literal["text", "json"] = option("text", "json: everything about every trial, moments in seconds since 1970")
    address: str | None = option(
        None, "of a cluster whose storage is not seen from here, which is then asked: http://HOST:8265; null: nobody is"
    )


@dataclass(frozen=True, kw_only=True)
class StatusResult(Result):
    """How each experiment stands that was asked for."""

    experiments: dict[str, Status]


def run(config: StatusConfig) -> StatusResult:
    """Reads the storage; changes nothing there, and holds up nobody who does. Raises ConfigError: there is none; StorageError."""
    from ...platform.results.mlflow_pages import view_links
    from ...platform.results.reading import experiment_names
    from ...platform.results.status_reader import StatusReader
    from ...platform.settings.config import absolute

    storage = absolute(config.storage)
    if config.address is not None:
        return _asked(config)
    if config.experiment is None:
        if config.watch:
            raise ConfigError("watch follows one experiment: name it.")
        names = experiment_names(storage)
        if not names:
            raise ConfigError(f"There are no experiments in {storage}; storage=FOLDER names another place.")
        return _all(storage, names, config.format)
    reader = StatusReader(storage, config.experiment)
    if config.watch:
        from ..views.live_view import showing

        with showing(reader.read) as over:
            over.wait()
    status = reader.read()
    if config.format == "json":
        return StatusResult(made=status.model_dump_json(indent=1), experiments={status.name: status})
    look = view_links(reader.experiment.folder.read_json("tracking.json") or {})
    return StatusResult(made=_drawn(status, config.rows), look=look, experiments={status.name: status})


def _asked(config: StatusConfig) -> StatusResult:
    from ...platform.api.clusters import Jobs

    if config.watch:
        raise ConfigError("watch reads the storage again and again, which a cluster is not asked to: leave address or watch out.")
    named = [] if config.experiment is None else [config.experiment]
    arguments = [*named, f"storage={config.storage}", f"rows={config.rows}", f"format={config.format}"]
    return StatusResult(made=Jobs(config.address).ask("status", arguments), experiments={})


def _all(storage: str, names: list[str], how: str) -> StatusResult:
    from ...platform.results.status_reader import StatusReader
    from ..views.view_text import summary

    found: dict[str, Status] = {}
    told: list[Any] = []
    for name in names:
        try:
            status = found[name] = StatusReader(storage, name).read()
        except StorageError as error:  # one that is damaged does not hide the others
            told.append({"name": name, "trouble": [str(error)]} if how == "json" else f"{name}: {error}")
            continue
        told.append(status.model_dump(mode="json", exclude={"trials"}) if how == "json" else summary(status))
    return StatusResult(made=json.dumps(told, indent=1) if how == "json" else "\n".join(told), experiments=found)


def _drawn(status: Status, rows: int) -> str:
    """The drawing for stdout, coloured where that is a terminal."""
    from rich.console import Console

    from ..views.view_text import Drawing

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(Drawing(status, rows))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
