"""`d3ray web`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...data.errors import ConfigError
from ..command.base import JobConfig, Result, option


class WebConfig(JobConfig):
    """Where the page listens, and what it is about."""

    home: str = option("./d3ray_web", "folder of the page's own: uploads, and what only it knows", operand=True)
    datasets: str = option("./datasets", "folder of datasets")
    storage: str = option("./d3ray_results", "folder or URI of all results")
    services: tuple[str, ...] = option((), "log folders or URIs of services, which the page Service shows as d3ray watch saw them")
    address: str | None = option(None, "Ray cluster that runs experiments, as http://HOST:8265; null: this machine")
    port: int = option(8501, "where it listens; 0: any that is free", ge=0, le=65535)
    host: str = option("127.0.0.1", "address that it binds; another than this machine's own is open to the network")
    allowed_hosts: tuple[str, ...] = option((), "further names, with their ports, by which browsers call it, as page.example:443")
    base: str = option("", "path below which a proxy shows it, as /d3ray")
    proxies: str | None = option(None, "addresses or networks of proxies whose X-Forwarded headers are believed, comma-separated")
    accounts: bool = option(False, "people come in by name and password, as viewers or editors; the printed link is the owner's")
    most_upload: float = option(20.0, "GB of an uploaded file, at most", gt=0)
    most_running: int = option(8, "experiments that may run at once", gt=0)


@dataclass(frozen=True, kw_only=True)
class WebResult(Result):
    """Nothing: it was stopped."""


def run(config: WebConfig) -> WebResult:
    """Serves until it is interrupted. Raises ConfigError: the base path does not begin with a slash; StorageError."""
    from ...data.storage.files import storage_errors
    from ...platform.settings.config import absolute
    from ...platform.web.application import application
    from ...platform.web.serving import listening, server
    from ...platform.web.site import Site

    if config.base and (not config.base.startswith("/") or config.base.endswith("/")):
        raise ConfigError(f"base is {config.base!r}; it begins with a slash and ends without one, as /d3ray.")
    with listening(config.host, config.port) as listener:
        with storage_errors("written", config.home):
            site = Site(
                home=Path(config.home).expanduser().absolute(),
                datasets=absolute(config.datasets),
                storage=absolute(config.storage),
                beside=str(Path.cwd()),
                services=tuple(map(absolute, config.services)),
                address=config.address,
                host=config.host,
                port=listener.getsockname()[1],
                hosts=config.allowed_hosts,
                base=config.base,
                accounts=config.accounts,
                most_upload=int(config.most_upload * 1e9),
                most_running=config.most_running,
            )
            app = application(site)
        print(f"Open {site.link}\nCtrl-C stops the page; what runs goes on.", flush=True)  # `say` would leave out the token
        if (config.base or config.allowed_hosts) and config.proxies is None:
            print("Behind a proxy say which it is, as proxies=127.0.0.1: else all who come have its address.", flush=True)
        with suppress(KeyboardInterrupt):  # which is how it ends
            server(app, config.host, site.port, proxies=config.proxies).run(sockets=[listener])
    return WebResult(made="The page has stopped; what it started goes on.")
