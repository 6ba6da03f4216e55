"""Every route of the page, asked for what nobody would ask for: it answers with a sentence, and goes on."""

from __future__ import annotations

import html
import http.client
import logging
import re
import string
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import requests
from fastapi.routing import iter_route_contexts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from d3ray import BC, Dataset
from d3ray.data.errors import StorageError
from d3ray.platform.api.processes import Processes
from d3ray.platform.web import application as module
from d3ray.platform.web import policies
from d3ray.platform.web.application import application
from d3ray.platform.web.site import Site

from ..results.fake_experiment import write_experiment
from .hostile_text import BODIES, TEXTS, YAMLS
from .site_server import Served, serving

WEB = Path(module.__file__).parent
VALID = {"name": "mine", "index": "0", "step": "0", "format": "onnx", "path": "algorithm.encoder", "id": "0" * 32}
FORM = "application/x-www-form-urlencoded"
SAID = re.compile(r"""(?:said|one|query_params)(?:\.get\(|\[)"([\w:]+)\"""")
INPUT = re.compile(r'<(?:input|select|textarea|button)[^>]*? name="([\w:]+)"')
FIELDS = sorted(
    {name for file in WEB.glob("*.py") for name in SAID.findall(file.read_text())}
    | {name for file in WEB.rglob("*.html") for name in INPUT.findall(file.read_text())}
)


class Asked:
    """Who asks a page, and looks at every answer."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.n = 0
        self.headers = {"Sec-Fetch-Site": "same-origin", "Origin": served.url}
        self._connection = http.client.HTTPConnection("127.0.0.1", served.site.port, timeout=60)

    def enter(self) -> None:
        """Comes in anew: one of the routes is the way out."""
        found = requests.get(self.served.site.link, allow_redirects=False, timeout=60).cookies
        self.headers["Cookie"] = "; ".join(f"{one.name}={one.value}" for one in found)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> str:
        """What is answered, which is no failure of the server's."""
        self.n += 1
        accept = ("text/html", "*/*")[self.n % 2]
        told = {"Accept": accept, **self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        try:
            self._connection.request(method, path, body, told)
            answer = self._connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        except (http.client.HTTPException, ConnectionError):  # it answered before all had come, and closed the connection
            self._connection.close()
            assert body is not None, f"{method} {path[:200]} has no answer"
            return ""
        where = f"{method} {path[:300]} {(body or b'')[:300]!r} {headers} is answered {answer.status}: {text[-2000:]}"
        assert answer.status < 500 or answer.status == 503, where
        assert "Traceback" not in text, where
        assert 'File "/' not in text, where
        return text

    def form(self, path: str, pairs: Iterable[tuple[str, str]]) -> str:
        body = "&".join(f"{encoded(name)}={encoded(value)}" for name, value in pairs)
        return self.ask("POST", path, body.encode(), Content_Type=FORM)


def encoded(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A page with a dataset and an experiment of one name, and a policy; it starts no process."""
    folder = tmp_path_factory.mktemp("page")
    data = Dataset.open("d3ray/pendulum-replay").take(3)
    data.write(folder / "datasets" / "mine")
    BC(action_scaler="min_max").fit(data, n_steps=2, n_steps_per_epoch=1).save_policy(folder / "package")

    def started(*_: Any) -> Any:
        raise StorageError("No process is started here.")

    with pytest.MonkeyPatch.context() as patch, serving(folder, most_running=0) as page:
        with pytest.MonkeyPatch.context() as for_now:
            write_experiment(for_now, Path(page.site.storage), "mine", {0.1: {0: [1.0], 1: [2.0]}, 0.2: {0: [1.0], 1: [3.0]}})
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setattr(Processes, "start", started)
        patch.setattr(Processes, "ask", started)
        found = policies.policy

        def policy(site: Site, name: str, of: str) -> tuple[str, int | None]:
            return (str(folder / "package"), None) if (name, of) == ("mine", "") else found(site, name, of)

        patch.setattr(policies, "policy", policy)
        yield Asked(page)


@pytest.fixture(autouse=True)
def no_failure(asked: Asked, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing fails behind an answer either, and the server goes on."""
    asked.enter()
    yield
    asked.enter()
    assert [one.getMessage() for one in caplog.get_records("call") if one.levelno >= logging.ERROR] == []
    for path in ("/datasets", "/experiments", "/datasets/mine", "/experiments/mine"):
        asked.ask("GET", path)


def routes(page: Served) -> list[tuple[str, str, Any]]:
    """Method, path and what is known of each route but those that never end."""
    found = [(method, one.path, one) for one in iter_route_contexts(application(page.site).routes) for method in one.methods or ()]
    return sorted((one for one in found if not one[1].endswith("/events")), key=lambda one: one[:2])


def filled(path: str, /, **values: str) -> str:
    """A route's path with values in it, none of which is more than a part of it."""
    names = [name for _, name, _, _ in string.Formatter().parse(path.replace(":path", "")) if name]
    return path.replace(":path", "").format(**{name: values.get(name) or quote(VALID[name], safe="") for name in names})


def some(values: Sequence[Any], n: int, turn: int) -> list[Any]:
    """So many of them, others at another turn, so that all come in turn over the routes; all where there are so few."""
    return list(values) if n >= len(values) else list(islice(cycle(values), turn * n % len(values), turn * n % len(values) + n))


def attack(asked: Asked, n: int) -> None:
    """Asks each route with `n` texts in each of its places."""
    turn = 0
    for method, path, route in routes(asked.served):
        asked.enter()
        sends = method not in ("GET", "HEAD")
        for name in [*re.findall(r"{(\w+)", path)]:
            for text in some(TEXTS, n, turn := turn + 1):
                asked.ask(method, filled(path, **{name: encoded(text)[:20_000] or "%20"}), b"" if sends else None)
        queries = {*(one.name for one in route.dependant.query_params), "of", "name"}
        for text in some(TEXTS, n, turn := turn + 1):
            query = "&".join(f"{name}={encoded(text)[:10_000]}&{name}=2" for name in queries)
            asked.ask(method, f"{filled(path)}?{query}", b"" if sends else None)
        asked.ask(method, f"{filled(path)}?" + urlencode([(f"algorithm.{k}", "x") for k in range(500)]), b"" if sends else None)
        if not sends:
            continue
        for text in some(TEXTS, n, turn := turn + 1):
            asked.form(filled(path), [(name, text) for name in FIELDS])
        for name in FIELDS:
            for text in some(TEXTS, max(n // 20, 1), turn := turn + 1):
                asked.form(filled(path), [(name, text)])
        for kind, body in some(BODIES, n, turn := turn + 1):
            asked.ask(method, filled(path), body, Content_Type=kind)


def test_every_route_answers_whatever_it_is_asked(asked: Asked) -> None:
    assert len(routes(asked.served)) > 40
    attack(asked, 3)


def form_of(asked: Asked, algorithm: str) -> list[tuple[str, str]]:
    """The form of a new experiment as a browser would send it."""
    text = asked.ask("GET", f"/experiments/new?dataset=mine&algorithm={algorithm}")
    found = dict.fromkeys(re.findall(r'<(?:input|select|textarea)[^>]*? name="([\w.:]+)"', text), "")
    values = dict(re.findall(r'<input[^>]*? name="([\w.:]+)"[^>]*? value="([^"]*)"', text))
    chosen = re.findall(r'<select[^>]*? name="([\w.:]+)".*?<option value="([^"]*)" selected', text, re.S)
    return list({**found, **{name: html.unescape(value) for name, value in values.items()}, **dict(chosen)}.items())


def attack_form(asked: Asked, algorithm: str, n: int) -> None:
    pairs = form_of(asked, algorithm)
    assert len(pairs) > 20
    for turn, (name, _) in enumerate(pairs):
        for text in some(TEXTS, n, turn):
            changed = [(key, text if key == name else value) for key, value in pairs]
            for path in ("/experiments/check", "/experiments", "/experiments/plan", f"/experiments/part/{name}"):
                asked.form(path, changed)
    for name in ("algorithm." + "x." * 5000 + "x", "algorithm." + "." * 5000, "algorithm.encoder" + ".name" * 50):
        asked.form("/experiments/check", [*pairs, (name, "1")])
        asked.form(f"/experiments/part/{name}", [*pairs, (name, "1")])


def test_every_field_of_a_form_takes_whatever_is_typed(asked: Asked) -> None:
    attack_form(asked, "BC", 2)


def attack_texts(asked: Asked, n: int) -> None:
    """Pastes, types and uploads `n` texts."""
    for text in some(TEXTS, n, 0):
        asked.form("/experiments/yaml", [("yaml", text)])
    for text in some(TEXTS, n, 1):
        asked.form("/experiments/mine/policy/act", [("observation", text)])
    for text in some(TEXTS, n, 2):
        found = re.search(r'"id":"(\w+)"', asked.ask("POST", f"/uploads?name={encoded(text)[:20_000]}", b"", Upload_Length="0"))
        if found is not None:
            asked.form("/datasets", [("upload", found[1]), ("name", f"d{asked.n}"), (f"column:{text}", "reward")])
            asked.ask("DELETE", f"/uploads/{found[1]}", b"")


def test_every_text_is_answered(asked: Asked) -> None:
    attack_texts(asked, 20)
    assert "Action: <output" in asked.form("/experiments/mine/policy/act", [("observation", "1, 0, 0.5")])


def test_every_config_that_is_pasted_is_answered(asked: Asked) -> None:
    for text in YAMLS:
        asked.form("/experiments/yaml", [("yaml", text)])


def test_every_header_of_an_upload_is_answered(asked: Asked) -> None:
    for header in ("-1", "1e3", "9" * 400, "x", "", " ", "\xff", "0, 0"):
        asked.ask("POST", "/uploads?name=a", b"", Upload_Length=header)
        one = re.search(r'"id":"(\w+)"', asked.ask("POST", "/uploads?name=a", b"", Upload_Length="3"))
        assert one is not None
        for name in ("Upload_Offset", "Upload_Checksum", "Content_Type"):
            asked.ask("PATCH", f"/uploads/{one[1]}", b"abc", **{"Upload_Offset": "0", name: header})
        asked.ask("DELETE", f"/uploads/{one[1]}", b"")


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_every_route_answers_everything(asked: Asked) -> None:
    attack(asked, len(TEXTS))
    attack_texts(asked, len(TEXTS))


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("algorithm", ["TD3PlusBC", "IQL", "CQL", "BCQ", "DecisionTransformer"])
def test_every_field_of_every_form_takes_everything(asked: Asked, algorithm: str) -> None:
    attack_form(asked, algorithm, 25)


@pytest.mark.long
@pytest.mark.timeout(3000)
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_chance_finds_nothing_either(asked: Asked, data: st.DataObject) -> None:
    method, path, _ = data.draw(st.sampled_from(routes(asked.served)))
    text = st.text(max_size=50) | st.sampled_from(TEXTS)
    names = re.findall(r"{(\w+)", path)
    target = filled(path, **{name: encoded(data.draw(text))[:20_000] or "%20" for name in names if data.draw(st.booleans())})
    target += "?" + "&".join(f"{encoded(data.draw(text))[:500]}={encoded(data.draw(text))[:500]}" for _ in range(2))
    if method in ("GET", "HEAD"):
        asked.ask(method, target)
    else:
        asked.form(target, data.draw(st.lists(st.tuples(st.sampled_from(FIELDS) | text, text), max_size=5)))
