"""Datasets that the command line made: those of the working folder, and those that experiments learned from, wherever they lie."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from d3ray.data.dataset import Dataset
from d3ray.experiments import datasets
from d3ray.platform.record.datasets import Inspected
from d3ray.platform.web.new_experiment import from_config
from d3ray.platform.web.watching import Watch

from ..results.fake_experiment import DATASET, write_experiment
from .site_server import Served, serving


def copy(to: Path, n_episodes: int) -> None:
    whole = Dataset.open("d3ray/cartpole-replay")
    whole.take(n_episodes).write(to)


def damage(folder: Path) -> None:
    for shard in folder.glob("data-*.arrow"):
        content = shard.read_bytes()
        shard.write_bytes(content[:-2000] + b"x" * 1000 + content[-1000:])


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """With `work` as its working folder, `mine` in it and deeper, and an experiment on another one that is far away."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    copy(tmp_path / "work" / "mine", 3)
    copy(tmp_path / "work" / "logs" / "deep er", 4)
    copy(tmp_path / "far" / "mine", 5)
    copy(tmp_path / "results" / "never", 2)  # which nobody names
    for name, source in (("on-far", tmp_path / "far" / "mine"), ("on-none", tmp_path / "gone"), ("on-uri", "s3://nowhere/x")):
        with monkeypatch.context() as patch:
            write_experiment(patch, tmp_path / "results", name, {0: [1.0]}, dataset={**DATASET, "source": str(source)})
    with monkeypatch.context() as patch:
        about = {**DATASET, "source": "d3ray/pendulum-replay"}
        write_experiment(patch, tmp_path / "results", "on-shipped", {0: [1.0]}, dataset=about)
    with serving(tmp_path, beside=str(tmp_path / "work")) as found:
        yield found


def test_what_the_command_line_made_is_offered(page: Served, tmp_path: Path) -> None:
    text = page.get("/datasets").text
    shown = set(re.findall(r'href="/datasets/([^"]+)"', text))
    assert shown == {"far-mine", "work-mine", "deep-er", "pendulum-replay"}
    assert "There is no dataset yet" not in text
    form = page.get("/experiments/new").text
    for name, episodes in (("far-mine", 5), ("work-mine", 3), ("deep-er", 4)):
        assert f'<option value="{name}"' in form
        told = page.get(f"/datasets/{name}").text
        assert f"<dd>{episodes}</dd>" in told
        assert "Bring in again" not in told
        assert f"/datasets/{name}/delete" not in told
        assert page.get(f"/datasets/{name}/delete").status_code == 400
        assert page.post(f"/datasets/{name}/delete", {"typed": name}).status_code == 400
        assert page.post(f"/datasets/{name}/again", {"timeout_at": "3"}).status_code == 400
    assert (tmp_path / "far" / "mine" / "dataset.json").exists()
    assert "3 episodes" in page.get("/experiments/new?dataset=work-mine").text
    config = {"dataset": str(tmp_path / "work" / "mine"), "algorithm": "DiscreteBC"}
    again = from_config(page.site, config)
    assert (again["top"]["dataset"], again["lost"]) == ("work-mine", [])
    assert from_config(page.site, {**config, "dataset": str(tmp_path / "gone")})["lost"] == ["dataset"]


def test_a_split_of_one_is_the_pages_own(page: Served, tmp_path: Path) -> None:
    assert page.post("/datasets/deep-er/split", {"share": "50"}).url.endswith("/datasets")
    made = datasets.open("deep-er-test", folder=page.site.datasets)
    assert (made.wait(60).n_episodes, made.status().elsewhere) == (2, False)
    assert (tmp_path / "datasets" / "deep-er-test" / "dataset.json").exists()


def test_nobody_reads_where_they_lie_in_a_sentence_about_them(page: Served, tmp_path: Path) -> None:
    for name, folder in (("work-mine", tmp_path / "work" / "mine"), ("far-mine", tmp_path / "far" / "mine")):
        damage(folder)
        for path in (f"/datasets/{name}/delete", f"/datasets/{name}/inspected"):
            for accepts in ("text/html", "application/json"):
                said = page.get(path, headers={"Accept": accepts})
                assert said.status_code == 400
                assert name in said.text
                assert str(tmp_path) not in said.text


def test_one_that_is_damaged_has_a_form_without_advice(page: Served, tmp_path: Path) -> None:
    damage(tmp_path / "far" / "mine")
    form = page.get("/experiments/new?dataset=far-mine")
    assert form.status_code == 200
    assert '<option value="far-mine" selected' in form.text
    assert "still looks" not in form.text


def test_the_doctor_looks_through_one_at_a_time_and_keeps_what_is_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    begun, go = threading.Semaphore(0), threading.Event()

    def inspect(_: datasets.DatasetHandle) -> Inspected:
        begun.release()
        go.wait(20)
        return Inspected.model_construct()

    monkeypatch.setattr(datasets.DatasetHandle, "inspect", inspect)
    for name in ("a", "b"):
        copy(tmp_path / "in" / name, 2)
    watch = Watch(str(tmp_path / "results"), None, str(tmp_path / "in"))
    assert not any(watch.inspected(name).done() for name in ("a", "b"))
    assert begun.acquire(timeout=20)
    assert not begun.acquire(timeout=0.5)
    go.set()
    first = watch.inspected("a").result(20)
    assert first is not None
    assert watch.inspected("a").result(20) is first
    former = weakref.ref(first)
    del first
    Dataset.open("d3ray/cartpole-replay").take(3).write(tmp_path / "in" / "a", overwrite=True)
    assert watch.inspected("a").result(20) is not former()
    gc.collect()
    assert former() is None
