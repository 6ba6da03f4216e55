"""`d3ray serve POLICY ...`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from ...platform.service.settings import ServeSettings
from ..command.base import JobConfig, Result
from ..views.columns import aligned


class ServeConfig(JobConfig, ServeSettings):
    """Which policies, how they act, and where they answer."""


@dataclass(frozen=True, kw_only=True)
class ServeResult(Result):
    """Nothing: it was stopped."""


def run(config: ServeConfig) -> ServeResult:
    """Serves until it is interrupted. Raises ConfigError, DataError and StorageError, before Ray starts where that can be."""
    from ...platform.service.running import running, wait

    with suppress(KeyboardInterrupt), running(config) as service:  # an interrupt is how it ends
        several = len(service.versions) > 1
        rows = [
            (name, f"version {one.label}", one.source, f"{service.address}{f'/{name}' if several else ''}/act")
            for name, one in service.versions.items()
        ]
        log = (
            f"Decisions are logged to {config.log.folder}." if config.log else "No decision is logged: say log=FOLDER to keep them."
        )
        lines = [f"Serving at {service.address} (how to ask: {service.address}/docs).", *aligned(rows, "  ")]
        print("\n".join([*lines, log, f"Clients show the token of {service.token_at}. Ctrl-C ends the service."]), flush=True)
        wait()
    return ServeResult(made="The service has ended.")
