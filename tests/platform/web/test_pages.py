"""Pages as a client without scripts sees them: datasets from a file to a decision, experiments of a storage, and bad input."""

from __future__ import annotations

import html
import re
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import experiments
from d3ray.data.doctor.findings import KINDS, found
from d3ray.data.errors import ConfigError
from d3ray.experiments import datasets
from d3ray.platform.api.datasets import _finding  # pyright: ignore[reportPrivateUsage]
from d3ray.platform.web import datasets as pages_of_datasets
from d3ray.platform.web import mending
from d3ray.platform.web.new_experiment import config_of, shown
from d3ray.platform.yaml_text import parse_value

from ..results.fake_experiment import write_experiment
from .site_server import Served

N, T = 5, 20
LOG = "\n".join(
    [
        "episode,observation:0,observation:1,action:0,reward,terminated",
        *(f"{e},{t},{e},{t - 0.5},1,{int(t == T - 1)}" for e in range(N) for t in range(T)),
    ]
)


@pytest.fixture
def mine(served: Served) -> Served:
    """With a dataset `mine`."""
    upload = served.upload("log.csv", LOG.encode())
    answer = served.post("/datasets", {"name": "mine", "upload": upload})
    assert answer.url.endswith("/datasets/mine"), answer.text
    found = datasets.open("mine", folder=served.site.datasets).wait(60)
    assert found.state == "READY", found.reason
    return served


def test_a_file_becomes_a_dataset_and_the_doctor_asks(mine: Served) -> None:
    page = mine.get("/datasets/mine").text
    assert "Train on it" in page
    assert page.count("/datasets/mine/episodes/") == N
    asked = mine.get("/datasets/mine/inspected").text
    said = re.search(r'name="timeout_at" value="(\d+)">\s*<button>([^<]+)<', asked)
    assert said is not None
    assert said[2] == f"Yes, {T} steps are a time limit"
    mine.post("/datasets/mine/again", {"timeout_at": said[1]})
    handle = datasets.open("mine", folder=mine.site.datasets)
    handle.wait(60)
    assert handle.settings()["timeout_at"] == T
    assert not any(episode.terminated for episode in handle.episodes())
    episode = mine.get("/datasets/mine/episodes/2")
    assert "20 steps, return 20, was cut" in " ".join(episode.text.split())
    steps = mine.get("/datasets/mine/episodes/2/steps.json").json()
    assert steps["columns"]["observation 0"] == list(range(T))
    assert mine.get("/datasets/mine/episodes/99").status_code == 404


def test_what_training_makes_up_for_is_in_the_form(served: Served) -> None:
    """A finding leads to the form; what the form has no field for is said there."""
    rows = [f"{e},{t},{1e5 * (e - t)},{t % 3 - 0.5},1" for e in range(N) for t in range(T)]
    text = "\n".join(["episode,observation:0,observation:1,action:0,reward", *rows])
    served.post("/datasets", {"name": "wide", "upload": served.upload("wide.csv", text.encode())})
    assert datasets.open("wide", folder=served.site.datasets).wait(60).state == "READY"
    asked = served.get("/datasets/wide/inspected").text
    (link,) = re.findall(r'href="([^"]+)">Train with observation scaler standard<', asked)
    plain = served.get("/experiments/new?dataset=wide").text  # what is advised is taken over without the button too
    assert "the doctor</a> advised: Observation scaler standard" in plain
    page = served.get(html.unescape(link)).text
    for text in (plain, page):
        said = parse_value(html.unescape(re.search(r'id="yaml">([^<]*)<', text)[1]))  # pyright: ignore[reportOptionalSubscript]
        assert said["algorithm"]["observation_scaler"]["name"] == "standard"
    assert "no field for" not in page
    assert "no field for algorithm.nothing" in served.get(f"{html.unescape(link)}&algorithm.nothing=1").text
    assert "Which column is what?" in served.get("/datasets/wide").text  # where findings send people


@pytest.mark.parametrize("name", KINDS)
def test_a_finding_has_a_button_or_says_what_to_do(name: str) -> None:
    numbers = {"timeout_at": 5, "limit": 5, "action_scale": [2.0]}
    told = found(name, "Something is there.", **numbers).to_dict()
    finding = _finding(told)
    has_button = bool(finding.mends) or mending.training(finding, "mine") is not None
    assert has_button != bool(mending.todo(finding))


def test_a_list_that_has_not_changed_is_not_sent_again(mine: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    page = mine.get("/datasets").text
    again = html.unescape(re.search(r'id="rows" hx-get="([^"]+)"', page)[1])  # pyright: ignore[reportOptionalSubscript]
    htmx = {"HX-Request": "true"}
    same = mine.get(again, headers=htmx)
    assert (same.status_code, same.text) == (204, "")
    assert mine.get(again).status_code == 200  # who opens that address sees a page
    mine.post("/datasets/shipped", {"name": "cartpole-replay"})
    other = mine.get(again, headers=htmx)
    assert (other.status_code, "/datasets/cartpole-replay" in other.text, "<html" in other.text) == (200, True, False)
    mine.until("/datasets", "ready")

    monkeypatch.setattr(pages_of_datasets, "_SHOWN", 1)  # with more of them than a page shows
    newest, oldest = mine.get("/datasets").text, mine.get("/datasets?start=1").text
    assert ["/datasets/cartpole-replay" in one for one in (newest, oldest)] == [True, False]
    assert ["/datasets/mine" in one for one in (newest, oldest)] == [False, True]
    assert ["1 to 1 of 2" in newest, "2 to 2 of 2" in oldest] == [True, True]


def chosen(page: str) -> dict[str, str]:
    """What the form of a dataset has selected, by field."""
    fields = re.findall(r'<select id="[^"]+" name="([^"]+)">(.*?)</select>', page, re.DOTALL)
    found = {name: re.search(r"<option(?: value=\"([^\"]*)\")? selected>([^<]*)", options) for name, options in fields}
    return {name: (one[1] if one[1] is not None else one[2]) if one else "" for name, one in found.items()}


def test_a_file_that_cannot_be_read_is_decided_about_again(served: Served) -> None:
    """Columns of other names: the page shows them with their values and a guess, and keeps what was said when that fails too."""
    text = LOG.replace("observation:0,observation:1,action:0", "x,y,force").replace("episode", "run").replace("reward", "what")
    served.post("/datasets", {"name": "odd", "upload": served.upload("odd.csv", text.encode()), "kind": "continuous"})
    handle = datasets.open("odd", folder=served.site.datasets)
    assert handle.wait(60).state == "FAILED"
    page = served.get("/datasets/odd").text
    assert [text for text in (page, served.get("/datasets").text) if "rename" in text] == []
    assert "which column is the observation, the action, the reward: say so below" in page  # a flag ends episodes
    assert "0, 1, 2, 3</td>" in page  # first values
    columns = {"run": "episode", "x": "observation", "y": "observation", "force": "action", "what": "observation"}
    assert chosen(page) == {
        **{f"column:{name}": role for name, role in columns.items()},
        **{"column:terminated": "", "kind": "continuous", "ends": "", "actions": ""},
    }
    said = {"timeout_at": "7", "kind": "continuous", "ends": "terminated", "actions": "clip", "action_scale": "2"}
    said |= {f"column:{name}": role for name, role in columns.items()}
    served.post("/datasets/odd/again", said)
    assert handle.wait(60).state == "FAILED"
    page = served.get("/datasets/odd").text
    assert "which column is the reward: say so below" in page
    assert {f"column:{name}": role for name, role in columns.items()}.items() <= chosen(page).items()
    assert {"kind": "continuous", "ends": "terminated", "actions": "clip"}.items() <= chosen(page).items()
    assert re.search(r'name="timeout_at"[^>]* value="7"', page)
    assert re.search(r'name="action_scale"[^>]* value="2.0"', page)
    emptied = {"timeout_at": "", "ends": "", "actions": "keep", "action_scale": ""}
    served.post("/datasets/odd/again", {**said, **emptied, "column:what": "reward"})
    found = handle.wait(60)
    assert (found.state, found.n_episodes, found.observation) == ("READY", N, "2 float32, bounds not known (x, y)")
    assert handle.settings().keys() == {"rename", "discrete_action"}  # what was emptied is taken back


def test_split_and_delete_with_what_depends_on_it(mine: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    mine.post("/datasets/mine/split", {"share": "40"})
    assert datasets.open("mine-test", folder=mine.site.datasets).wait(60).n_episodes == 2
    assert datasets.open("mine-train", folder=mine.site.datasets).wait(60).n_episodes == 3
    experiment = write_experiment(monkeypatch, Path(mine.site.storage), "learner", {0: [1.0, 2.0]})
    config = {"dataset": f"{mine.site.datasets}/mine", "algorithm": "BC"}
    experiment.keep_settings({"job": "train", "config": config})
    page = mine.get("/datasets/mine/delete").text
    assert "1 experiment learnt from it" in page
    assert "learner" in page
    assert mine.post("/datasets/mine/delete", {"typed": "mein"}).status_code == 400
    assert mine.post("/datasets/mine/delete", {"typed": "mine"}).url.endswith("/datasets")
    assert mine.get("/datasets/mine").status_code == 404
    assert not (mine.site.home / "sources" / "mine").exists()


@pytest.mark.parametrize("name", ["../mine", "..", "a/b", "", "x" * 300, "<script>alert(1)</script>"])
def test_names_lead_nowhere_else(served: Served, tmp_path: Path, name: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    answer = served.post("/datasets", {"name": name, "upload": "nobody"})
    assert answer.status_code == 400
    assert "<script>alert" not in answer.text
    assert sorted(tmp_path.rglob("*")) == before
    for path in ("/datasets/..%2f..%2fetc", "/experiments/..%2f..", "/datasets/%2e%2e", "/static/..%2f..%2fapplication.py"):
        assert served.get(path).status_code in (400, 404)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/experiments/nobody", "There is no experiment &#39;nobody&#39;"),
        ("/experiments/nobody/policy", "There is no experiment &#39;nobody&#39;"),
        ("/experiments/nobody/policy/exe", "There is no format &#39;exe&#39;: onnx, torchscript or package."),
        ("/datasets/nothing", "There is no dataset &#39;nothing&#39;"),
        ("/datasets/nothing/episodes/0", "There is no dataset &#39;nothing&#39;"),
        ("/datasets/nothing/episodes/first", "There is no such page."),
        ("/datasets/nothing/inspected", "There is no dataset &#39;nothing&#39;"),
        ("/datasets/nothing/delete", "There is no dataset &#39;nothing&#39;"),
        ("/compare?of=nobody", "There is no experiment &#39;nobody&#39;"),
        ("/nowhere", "There is no such page."),
    ],
)
def test_a_page_that_is_not_there_is_missing_and_leads_back(served: Served, path: str, sentence: str) -> None:
    answer = served.get(path)
    assert answer.status_code == 404
    assert sentence in answer.text
    assert 'Go on from the <a href="/experiments">experiments</a>' in answer.text
    assert "what you typed" not in answer.text
    asked = served.get(path, headers={"Accept": "application/json"})
    assert (asked.status_code, [*asked.json()]) == (404, ["detail"])


def test_a_form_for_what_is_not_there_is_told_apart_from_one_that_was_typed_wrong(served: Served) -> None:
    assert served.post("/experiments/nobody/cancel").status_code == 404
    answer = served.post("/experiments", {"dataset": "nothing", "algorithm": "BC"})
    assert answer.status_code == 400
    assert "what you typed is still there" in answer.text


def test_what_others_wrote_is_shown_and_not_run(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason, a label and an environment that hold markup."""
    bad = "<img src=x onerror=alert(1)>"
    write_experiment(
        monkeypatch,
        Path(served.site.storage),
        "plain",
        {0: [1.0], 1: [2.0]},
        status={1: ("FAILED", bad)},
        overall="FAILED",
    )
    for path in ("/experiments", "/experiments/plain", "/compare?of=plain", f"/compare?of={bad}", f"/datasets/{bad}"):
        text = served.get(path).text
        assert bad not in text, path
    assert html.escape(bad) in served.get("/experiments/plain").text


def test_an_experiment_of_a_folder(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {0: [1.0, 2.0, 3.0, 4.0], 1: [2.0, 3.0, 4.0, 5.0]}
    write_experiment(monkeypatch, Path(served.site.storage), "done", curves)
    served.site.watch.forget("done")  # what was read half a second ago
    home = served.get("/").text  # who has an experiment begins there
    assert re.search(r'data-label="Best"><span>4.5 <span class="hint">evaluation/return<', home)
    assert 'id="legend"' in served.get("/experiments/done").text  # also while there is one configuration: more may come
    text = served.get("/experiments/done").text
    assert "finished" in text
    assert "4.5" in text
    rows = served.get("/experiments/done/rows.json").json()
    returns = {
        (row["seed"], row["step"]): row["metrics"]["evaluation/return"] for row in rows if "evaluation/return" in row["metrics"]
    }
    assert returns == {(seed, 100 * (k + 1)): value for seed, values in curves.items() for k, value in enumerate(values)}
    with served.get("/experiments/done/events", stream=True) as stream:
        lines = [line.decode() for line in stream.iter_lines()]
    assert [line for line in lines if line.startswith("event: ")] == ["event: rows", "event: end"]
    assert served.get("/compare?of=done").text.count("<td") > 5
    assert served.post("/experiments/done/cancel").status_code == 400
    assert served.post("/experiments/done/delete", {"typed": "other"}).status_code == 400
    assert served.post("/experiments/done/delete", {"typed": "done"}).url.endswith("/experiments")
    assert served.get("/experiments/done").status_code == 404


def test_a_best_by_an_error_says_what_it_does_not(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {alpha: {seed: [alpha, alpha + seed] for seed in (0, 1)} for alpha in (0.5, 2.0)}
    for name, metric in (("fits", "holdout/td_error"), ("plays", "evaluation/return")):
        with monkeypatch.context() as patch:
            one = write_experiment(patch, Path(served.site.storage), name, curves, metric=metric)
        about = one.folder.read_json("experiment.json")
        one.folder.write_json("experiment.json", {**about, "configuration": {**about["configuration"], "best": metric}})
    said = "holdout/td_error says how well something learned fits the data"
    assert [said in served.get(f"/experiments/{name}").text for name in ("fits", "plays")] == [True, False]
    assert "does not rank policies" not in served.get("/experiments/plays").text
    served.site.watch.forget()  # what was read when the test came in
    home = served.get("/experiments").text
    named = re.findall(r'data-label="Best"><span>([^<]+) <span class="hint">([^<]+)<', home)
    assert sorted(named) == [("1", "holdout/td_error"), ("2.5", "evaluation/return")]


def test_the_form_says_a_config_that_can_be_run(mine: Served) -> None:
    page = shown(mine.site, "mine", {"name": "IQL"}, {})
    job, config = config_of(mine.site, page["pairs"])
    assert job == "train"
    assert config["dataset"] == f"{mine.site.datasets}/mine"
    assert config["algorithm"] == {"name": "IQL", "action_scaler": config["algorithm"]["action_scaler"]}  # actions reach 18.5
    assert config["algorithm"]["action_scaler"]["name"] == "min_max"
    assert config["seeds"] == [0, 1, 2]
    assert experiments.problems(config) == []
    told = mine.post("/experiments/check", page["pairs"]).text
    yaml = html.unescape(re.search(r'id="yaml">([^<]*)<', told)[1])  # pyright: ignore[reportOptionalSubscript]
    assert parse_value(yaml) == {key: value for key, value in config.items() if key != "storage"}
    wrong = [(key, "-3" if key == "algorithm.batch_size" else value) for key, value in page["pairs"]]
    assert 'data-wrong="algorithm-batch_size"' in mine.post("/experiments/check", wrong).text
    for name in page["algorithms"][::6]:
        assert mine.get(f"/experiments/new?dataset=mine&algorithm={name}").status_code == 200, name


def test_what_it_takes_stands_beside_the_form(mine: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one like it that is there, which did 100 updates a second."""
    pairs = {**dict(shown(mine.site, "mine", {"name": "IQL"}, {})["pairs"]), "n_steps": "10000", "seeds": "0, 1, 2", "gpu": "0.5"}
    assert "nothing like it was trained here" in mine.post("/experiments/check", pairs).text
    with monkeypatch.context() as patch:
        one = write_experiment(
            patch, Path(mine.site.storage), "earlier", {0: [1.0, 2.0, 3.0], 1: [1.0, 2.0, 3.0, 4.0]}, algorithm="IQL"
        )
    one.keep_settings({"job": "train", "config": {"algorithm": {"name": "IQL"}, "dataset": f"{mine.site.datasets}/mine"}})
    for trial in one.trials():
        trial.settle({k: {"status": "FINISHED", "step": 400, "metrics": {"time/updates_per_second": 100.0}} for k in trial.seeds})
    mine.site.watch.forget()
    told = mine.post("/experiments/check", pairs).text
    assert "It takes about 5 min and 0.042 GPU hours, if it is as fast as earlier was." in told
    assert "It takes" not in mine.post("/experiments/check", {**pairs, "n_steps": "0"}).text
    sweep = mine.post("/experiments/check", {**pairs, "algorithm.expectile": "0.7 | 0.9"}).text
    assert "GPU hours for each configuration, if" in sweep
    other = dict(shown(mine.site, "mine", {"name": "BC"}, {})["pairs"])
    assert "nothing like it was trained here" in mine.post("/experiments/check", other).text


def test_a_form_cannot_name_code_or_places(mine: Served) -> None:
    pairs = shown(mine.site, "mine", {"name": "BC"}, {})["pairs"]
    more = [("storage", "/tmp/elsewhere"), ("plugins", '["os"]'), ("evaluation.environment", "os:Env"), ("tracking", "http://x")]
    _, config = config_of(mine.site, [*pairs, *more])
    assert config["storage"] == mine.site.storage
    assert not {"plugins", "tracking"} & config.keys()
    for key, value in (("environment", "evil_module:Env-v0"), ("dataset", "/etc"), ("dataset", "../x"), ("algorithm", "os.system")):
        changed = [(name, value if name == key else said) for name, said in pairs]
        with pytest.raises(ConfigError):
            config_of(mine.site, changed)


def test_a_decision_cannot_name_code_or_places(mine: Served) -> None:
    more = {"source": "/etc/passwd", "target": "/tmp/x", "images": "/etc", "options": '{"images": "/etc"}', "format": "csv"}
    mine.post("/datasets/mine/again", more)
    handle = datasets.open("mine", folder=mine.site.datasets)
    assert handle.wait(60).state == "READY"
    assert handle.settings() == {}
    assert mine.post("/datasets/mine/again", {"environment": "evil_module:Env-v0"}).status_code == 400


def test_forms_and_answers_are_bounded(mine: Served) -> None:
    for body in ("a=" + "x" * (2 << 20), "&".join(f"a{k}=1" for k in range(2000))):
        answer = mine.post("/experiments/check", body, headers={"Content-Type": "application/x-www-form-urlencoded"})
        assert answer.status_code == 400
    nested = "[" * 100_000
    for path, data in (
        ("/datasets/mine/again", {"action_scale": nested}),
        ("/experiments/check", {"algorithm": "BC", "algorithm.batch_size": nested}),
        ("/experiments/x/policy/act", {"observation": nested}),
    ):
        assert mine.post(path, data).status_code in (200, 400)
    assert mine.get("/datasets/mine").status_code == 200


def test_twenty_viewers_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are served from what one of them read."""
    write_experiment(monkeypatch, Path(served.site.storage), "done", {0: [1.0, 2.0]})
    reads: list[float] = []
    handle = served.site.watch.handle("done")
    status = handle.status
    monkeypatch.setattr(handle, "status", lambda: (reads.append(time.monotonic()), time.sleep(0.1), status())[-1])

    def look(_: int) -> int:
        return served.get("/experiments/done/state").status_code

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(look, range(100))) == {200}
    assert len(reads) < 50
    assert all(b - a > 0.4 for a, b in pairwise(reads))


@pytest.fixture
def act(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []
    monkeypatch.setattr(
        experiments, "act", lambda source, observation, **more: (asked.append((source, observation)), [0.5, -1.0])[-1]
    )
    return asked


def test_an_observation_as_somebody_types_it(served: Served, act: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    write_experiment(monkeypatch, Path(served.site.storage), "one", {0: [1.0]})
    for text in ("1, 2 3.5", "[1, 2, 3.5]", " 1,2,\n3.5 "):
        assert "0.5, -1" in served.post("/experiments/one/policy/act", {"observation": text}).text
    assert [np.allclose(seen, [1, 2, 3.5]) for _, seen in act] == [True] * 3
    answer = served.post("/experiments/one/policy/act", {"observation": "much"})
    assert (answer.status_code, "numbers with commas" in answer.text) == (400, True)


def test_projects_gather_and_hold_nothing_fast(mine: Served) -> None:
    mine.post("/projects", {"kind": "dataset", "project": "Poles & more"})
    assert mine.post("/projects", {"kind": "dataset", "project": "Poles"}).url.endswith("/datasets?project=Poles")
    assert "There is no dataset yet" in mine.get("/datasets?project=Poles").text
    assert mine.post("/projects", {"kind": "dataset", "project": "Poles", "member": "mine"}).url.endswith("/datasets/mine")
    assert "/datasets/mine" in mine.get("/datasets?project=Poles").text
    mine.post("/projects", {"kind": "dataset", "project": "", "member": "mine"})
    assert mine.site.records.members("Poles", "dataset") == set()
    mine.post("/projects", {"kind": "dataset", "project": "Poles", "member": "mine"})
    mine.post("/projects", {"kind": "dataset", "project": "Poles", "do": "delete"})
    assert mine.site.records.projects() == []
    assert "/datasets/mine" in mine.get("/datasets").text
    assert mine.post("/projects", {"kind": "dataset", "project": "<b>"}).status_code == 400
    assert mine.post("/projects", {"kind": "house", "project": "x"}).status_code == 400
