"""What becomes of a policy that was trained from the page, by the page: a video, a report, a judgement, a champion and its end."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from PIL import Image

from d3ray import experiments

from .site_server import Served, serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
NAME = "poles"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page on which two seeds were trained that balance a pole longer than the logs do."""
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        with serving(folder) as page:
            page.post("/datasets/shipped", {"name": "cartpole-replay"})
            page.until("/datasets", "ready")
            form = {"dataset": "cartpole-replay", "algorithm": "DiscreteBC", "algorithm.batch_size": "64", "name": NAME}
            form |= {"n_steps": "300", "n_steps_per_epoch": "100", "seeds": "0, 1", "environment": "CartPole-v1", "holdout": "0"}
            assert page.post("/experiments", form).url.endswith(f"/experiments/{NAME}")
            page.until(f"/experiments/{NAME}/state", "finished", 240)
            experiments.open(NAME, storage=page.site.storage).wait(60)
            yield page


def test_a_video_of_an_episode(trained: Served) -> None:
    asked = trained.get(f"/experiments/{NAME}/policy").text
    assert "See it play in CartPole-v1" in asked
    played = trained.get(f"/experiments/{NAME}/policy/play", headers={"HX-Request": "true"}).text
    source = re.search(r'<img src="([^"]+)"', played)
    assert source is not None
    answer = trained.get(html.unescape(source[1]))
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/gif")
    frames = Image.open(io.BytesIO(answer.content))
    assert frames.n_frames > 10  # pyright: ignore[reportAttributeAccessIssue]
    first = frames.copy().tobytes()
    frames.seek(10)
    assert frames.copy().tobytes() != first
    assert trained.get(f"/experiments/{NAME}/policy/video.gif?of=nobody:0").status_code == 404


def test_a_report_that_does_nothing(trained: Served) -> None:
    answer = trained.get(f"/experiments/{NAME}/report")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert "DiscreteBC" in answer.text
    best = experiments.open(NAME, storage=trained.site.storage).status().best
    assert best is not None
    assert f"{best.value:.1f}" in answer.text


def test_logs_judge_it(trained: Served) -> None:
    """By importance sampling alone, which trains nothing; what a policy is called stands in the table, and no path.

    Only logs of its spaces are offered, those that it has not seen first.
    """
    trained.post("/datasets/shipped", {"name": "pendulum-replay"})
    trained.until("/datasets", "ready")
    experiments.datasets.open("pendulum-replay", folder=trained.site.datasets).wait(60)
    assert trained.post("/datasets/cartpole-replay/split", {"share": "8"}).status_code == 200
    for part in ("test", "train"):
        experiments.datasets.open(f"cartpole-replay-{part}", folder=trained.site.datasets).wait(60)
    trained.site.watch.forget()
    form = trained.get(f"/experiments/{NAME}/policy").text
    offered = re.findall(r"<option value=\"(cartpole[^\"]*|pendulum[^\"]*)\">([^<]+)<", form)
    assert offered[-1] == ("cartpole-replay", "cartpole-replay (it learned from these)")
    assert {name for name, _ in offered} == {"cartpole-replay", "cartpole-replay-train", "cartpole-replay-test"}
    asked = trained.post(f"/experiments/{NAME}/policy/judge", {"dataset": "cartpole-replay-test", "n_steps": "0"})
    name = f"/experiments/judge-{NAME}-by-cartpole-replay-test"
    assert asked.url.endswith(name)
    trained.until(f"{name}/state", "finished", 120)
    page = trained.get(name).text
    assert "What logs of cartpole-replay-test say" in page
    assert [f"<td>{NAME} seed {seed}</td>" in page for seed in (0, 1)] == [True, True]
    assert ">PDIS" in page
    assert "judged-policies" not in page
    assert "Clone" not in page
    folder = Path(trained.site.storage) / name.rpartition("/")[2]
    assert (folder / "judgement.html").exists()
    assert trained.post(f"{name}/delete", {"typed": folder.name}).url.endswith("/experiments")
    assert not folder.exists()


def test_the_champion_and_the_one_before_it(trained: Served) -> None:
    """The one by play, its successor by what logs say; then the first is given back."""

    def ask(**form: str) -> str:
        answer = trained.post(f"/experiments/{NAME}/policy/promote", form, headers={"HX-Request": "true"})
        assert answer.status_code == 200
        return " ".join(html.unescape(re.sub("<[^>]+>", " ", answer.text)).split())

    def champion() -> str | None:
        found = client.get_registered_model(NAME).aliases.get("champion")
        return None if found is None else str(found)

    client = MlflowClient(experiments.open(NAME, storage=trained.site.storage).results().tracking_uri)
    assert ask(back="1") == f"{NAME} has no champion: nothing to go back from."
    said = ask(by="play")
    assert "is the champion: over 100 episodes of CartPole-v1" in said
    evidence = re.search(
        r"Version Return Lower bound \(95 %\) Episodes (\d+) (\S+) (\S+) 100 The lower bound had to be above", said
    )
    assert evidence is not None, said
    assert float(evidence[2]) >= float(evidence[3]) > 0
    first = champion()
    assert first is not None
    again = ask(by="play")
    assert again.startswith(f"Version {first} of {NAME} is the champion already.")
    assert f"{evidence[1]} {evidence[2]} {evidence[3]} 100 The lower bound had to be above what it was held against" in again
    assert ask(back="1") == f"Version {first} is the only champion that {NAME} has had: nothing to go back to."
    assert ask(by="estimate").startswith(f"No version of {NAME} has an estimate")
    (second,) = {str(one.version) for one in client.search_model_versions(f"name = '{NAME}'")} - {first}
    for version, lower in ((first, 50.0), (second, 60.0)):  # as a judgement notes them
        noted = {"by": "WDR", "value": lower + 5, "lower": lower, "data": 40.0, "judgement": "judge", "time": "2026-01-01"}
        for key, value in noted.items():
            client.set_model_version_tag(NAME, version, f"d3ray.estimate.{key}", str(value))
    said = ask(by="estimate")
    assert said.startswith(f"Version {second} of {NAME} is the champion: its WDR of 65.00")
    assert f"Version WDR Lower bound (95 %) Episodes {second} 65 60 not known {first}, the champion before 55 50 not known" in said
    assert champion() == second
    assert ask(back="1") == f"Version {first} of {NAME} is the champion again, in place of version {second}."
    assert champion() == first
