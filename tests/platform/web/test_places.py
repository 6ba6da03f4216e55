"""Where things lie on the server: whoever is not its owner is told in no answer, whatever it is about."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, StorageError
from d3ray.experiments import datasets
from d3ray.platform.web.application import application
from d3ray.platform.web.places import Places
from d3ray.platform.web.records import Waiting

from ..results.fake_experiment import write_experiment
from .site_server import Served, serving
from .test_roles import of


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    del scope, receive, send


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/var/kim/logs/a.csv has no column.", "a.csv has no column."),
        ("There is nothing at '/data/lab/x'; did you mean '/data/lab/y'?", "There is nothing at 'x'; did you mean 'y'?"),
        ("(/var/x/) and [/var/y], file:///var/z", "(x) and [y], z"),
        ('File "/usr/lib/python3/json/decoder.py", line 3', 'File "decoder.py", line 3'),
        ("sqlite:////var/d3ray_results/mlflow.db", "mlflow.db"),
        ("mlflow ui --uri=/var/runs:/other/runs", "mlflow ui --uri=runs:runs"),
        ("/data", "data"),
        ("/My Folder/results/one/trials", "one/trials"),
        ("/My Folder/results", "results"),
        ("/My Folder/results-2/x", "My Folder/results-2/x"),
        ("s3://bucket/all/one", "one"),
        ("s3://bucket/all", "all"),
        ("(pid=1)/var/lab/x, /$HOME/y, \x1b[36m/var/z", "(pid=1)x, y, z"),
        ("http://head:8265 cannot be reached", "of this page cannot be reached"),
        ("3/4 of td/error; and/or; 1 / 2; https://page.example/a/b, ~/.ray/x, ../y, ./z", None),
        ("d3ray/pendulum-replay, evaluation/return, updates/s, <b>/", None),
    ],
)
def test_of_a_path_its_last_part_is_left(said: str, told: str | None) -> None:
    places = Places(nothing, ["/My Folder/results", "s3://bucket/all/", "/My Folder/other", ""], "http://head:8265")
    assert places.of(said) == (said if told is None else told)
    page = f'<a href="/datasets/x" title="{html.escape(said)}">{html.escape(said)}</a>'
    shown = said if told is None else told
    assert places.of_html(page) == f'<a href="/datasets/x" title="{html.escape(shown)}">{html.escape(shown)}</a>'
    lines = {"detail": f"{said}\n{said}", "n": 1}
    assert json.loads(places.of_json(json.dumps(lines))) == {"detail": f"{shown}\n{shown}", "n": 1}


def test_names_of_columns_are_no_places() -> None:
    steps = json.dumps({"/joint1/pos": ["/var/x"], "/joint2/pos": [1.0]})
    assert json.loads(Places(nothing, []).of_json(steps)) == {"/joint1/pos": ["x"], "/joint2/pos": [1.0]}


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A page with what tells of places: in reasons, logs, configs and names."""
    pytest.importorskip("argon2", reason="argon2 is not installed")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "a server"
    Dataset.open("d3ray/cartpole-replay").take(4).write(root / "work" / "there" / "poles")
    Dataset.open("d3ray/cartpole-replay").take(4).write(root / "datasets" / "here")
    with serving(root, accounts=True, beside=str(root / "work")) as found:
        for name, role in (("ottilie", "viewer"), ("eduard", "editor")):
            found.site.people.add(name, f"{name} and a long word", role)  # pyright: ignore[reportOptionalMemberAccess]
        reason = f"Nothing could be written to {root}/results/failed/trials: {tmp_path}/scratch is full."
        with monkeypatch.context() as patch:
            write_experiment(patch, root / "results", "done", {0: [1.0], 1: [2.0]})
        with monkeypatch.context() as patch:
            status = {1: ("FAILED", reason)}
            failed = write_experiment(patch, root / "results", "failed", {0: [1.0], 1: [2.0]}, status=status, overall="FAILED")
        config = {"dataset": str(root / "datasets" / "here"), "algorithm": "DQN", "storage": str(root / "results")}
        failed.keep_settings({"job": "train", "config": config})
        found.site.records.wait(Waiting("waits", "train", config, "", time.time(), reason))
        found.post("/datasets", {"name": "odd", "upload": found.upload("odd.csv", b"a,b\n1,2\n")})
        assert datasets.open("odd", folder=found.site.datasets).wait(60).state == "FAILED"
        yield found


def told(served: Served, name: str, paths: Iterable[str], **headers: str) -> dict[str, str]:
    """What somebody is answered, but for files to keep."""
    browser = of(served, name)
    answers = {path: browser.get(served.url + path, headers=headers, timeout=120) for path in paths}
    return {path: one.text for path, one in answers.items() if "octet" not in one.headers.get("content-type", "")}


def tells(text: str, tmp_path: Path) -> bool:
    return str(tmp_path) in html.unescape(text) or "a server" in text


@pytest.mark.parametrize("name", ["ottilie", "eduard"])
def test_reasons_and_configs_tell_of_no_place(full: Served, tmp_path: Path, name: str) -> None:
    paths = ("/experiments", "/experiments/failed", "/experiments/failed/log", "/experiments/nothing", "/datasets", "/datasets/odd")
    found = told(full, name, (*paths, "/datasets/poles", "/compare/table.csv?of=done"))
    assert [path for path, text in found.items() if tells(text, tmp_path)] == []
    assert "failed/trials: scratch is full" in found["/experiments/failed"]
    assert "failed/trials: scratch is full" in found["/experiments"]  # of the one that waits
    assert "dataset: &quot;here&quot;" in found["/experiments/failed"]
    owner = told(full, "owner", paths)
    assert f"{tmp_path}/scratch is full" in owner["/experiments/failed"]
    assert f"dataset: &#34;{tmp_path}" in owner["/experiments/failed"]


@pytest.mark.long
def test_no_route_tells_of_a_place(full: Served, tmp_path: Path) -> None:
    routes = {one.path for one in iter_route_contexts(application(full.site).routes) if "GET" in (one.methods or ())}
    filled = {"/experiments/new?dataset=here", "/experiments/new?like=failed", "/compare?of=done&of=failed"}
    for route in routes:
        if route.endswith(("/play", "/video.gif")):  # which would play
            continue
        for name in ("here", "poles", "odd", "failed", "nothing"):
            path = route.replace("{name}", name).replace("{format}", "package")
            filled |= {path.replace("{index}", "0").replace("{step}", "0"), path.replace("{index}", "99")}
    for headers in ({}, {"Accept": "application/json"}, {"HX-Request": "true"}):
        found = told(full, "eduard", sorted(filled), **headers)
        assert [path for path, text in found.items() if tells(text, tmp_path)] == []


def test_errors_of_every_kind_tell_of_no_place(full: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = of(full, "eduard")
    for error in (ConfigError, StorageError, ValueError):

        def fail(kind: type[Exception] = error) -> None:
            raise kind(f"There is no room at {tmp_path}/x.")

        monkeypatch.setattr(full.site.watch, "all", fail)
        for headers in ({}, {"HX-Request": "true"}, {"Accept": "application/json"}):
            text = browser.get(f"{full.url}/experiments", headers=headers, timeout=20).text
            assert "There is no room at x." in text
            assert str(tmp_path) not in text
        assert f"{tmp_path}/x" in full.get("/experiments").text
