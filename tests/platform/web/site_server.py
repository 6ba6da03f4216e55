"""A page that is served, for tests: a browser's session that was let in, and the folders behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from d3ray.platform.web.application import application
from d3ray.platform.web.serving import listening, server
from d3ray.platform.web.site import Site


@dataclass
class Served:
    """A page, and who looks at it."""

    site: Site
    url: str
    session: requests.Session

    @property
    def cookie(self) -> str:
        """As a browser that was let in sends it."""
        return "; ".join(f"{one.name}={one.value}" for one in self.session.cookies)

    def get(self, path: str, **kwargs: Any) -> requests.Response:
        return self.session.get(self.url + path, timeout=60, **kwargs)

    def post(self, path: str, data: Any = None, **kwargs: Any) -> requests.Response:
        """As a form of this page sends it."""
        headers = {"Sec-Fetch-Site": "same-origin", "Origin": self.url, **kwargs.pop("headers", {})}
        return self.session.post(self.url + path, data=data, headers=headers, timeout=60, **kwargs)

    def upload(self, name: str, content: bytes, chunk: int = 1 << 20) -> str:
        """As the page's script does it; its id."""
        url, same = f"{self.url}/uploads", {"Sec-Fetch-Site": "same-origin"}
        begun = self.session.post(url, params={"name": name}, headers={**same, "Upload-Length": str(len(content))}, timeout=60)
        assert begun.status_code == 201, begun.text
        id = begun.json()["id"]
        for start in range(0, len(content), chunk):
            headers = {**same, "Upload-Offset": str(start)}
            done = self.session.patch(f"{url}/{id}", data=content[start : start + chunk], headers=headers, timeout=60)
            assert done.status_code == 204, done.text
        return id

    def until(self, path: str, state: str, seconds: float = 60) -> str:
        """The page once it shows a state."""
        end = time.monotonic() + seconds
        while f'class="state {state}"' not in (text := self.get(path).text):
            assert time.monotonic() < end, text
            time.sleep(0.2)
        return text


@contextmanager
def serving(folder: Path, *, proxies: str | None = None, **about: Any) -> Iterator[Served]:
    """A page over folders below `folder`."""
    with listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        places = {"home": folder / "web", "datasets": str(folder / "datasets"), "storage": str(folder / "results")}
        site = Site(**{**places, "port": port, **about})
        running = server(application(site), "127.0.0.1", port, proxies=proxies)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not running.started:
            time.sleep(0.01)
        session = requests.Session()
        session.headers["Accept"] = "text/html"
        found = Served(site, f"http://127.0.0.1:{port}", session)
        assert session.get(site.link, timeout=60, allow_redirects=False).status_code == 303
        yield found
        session.close()
        running.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
