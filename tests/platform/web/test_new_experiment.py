"""What a form of a new experiment says: searches, pasted configs, and the queue that begins what is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from d3ray import experiments
from d3ray.data.errors import ConfigError, StorageError
from d3ray.experiments import datasets
from d3ray.platform.record.status import Status
from d3ray.platform.web import queue
from d3ray.platform.web.new_experiment import config_of, fitting, from_config, from_yaml, planned, searched, shown, spelled
from d3ray.platform.web.site import Site
from d3ray.platform.yaml_text import to_block


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A page with a dataset `poles`."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        found = Site(home=folder / "web", datasets=str(folder / "datasets"), storage=str(folder / "results"), most_running=1)
        datasets.derive(["d3ray/cartpole-replay"], "poles", folder=found.datasets, take=5).wait(60)
        yield found


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("0.1", None),
        ("0.1 | 0.3", {"choice": [0.1, 0.3]}),
        ("standard | none", {"choice": ["standard", "none"]}),
        ("16 .. 64", {"integers": [16, 64]}),
        ("0.1 .. 0.9", {"uniform": [0.1, 0.9]}),
        ("1e-5 .. 1e-3", {"loguniform": [1e-5, 1e-3]}),
        ("-1.5 .. 1e3", {"uniform": [-1.5, 1000.0]}),
        ("[1, 2]", None),
        ("a..b", ConfigError),
        ("0.9 .. 0.1", ConfigError),
    ],
)
def test_a_field_with_several_values_is_searched(text: str, space: Any) -> None:
    if space is ConfigError:
        with pytest.raises(ConfigError):
            searched("algorithm.alpha", text)
    else:
        assert searched("algorithm.alpha", text) == space
        if space is not None:
            assert searched("algorithm.alpha", spelled(space)) == space  # what is shown says the same again


PASTED: dict[str, Any] = {
    "algorithm": {"name": "DiscreteCQL", "alpha": 2.0, "batch_size": 16},
    "n_steps": 500,
    "seeds": [3, 4],
    "evaluation": {"environment": "CartPole-v1", "holdout": 0.2},
    "search": {"algorithm.learning_rate": {"loguniform": [1e-5, 1e-2]}},
    "budget": {"configurations": 4},
}


def test_a_pasted_config_fills_the_form_and_comes_out_again(site: Site) -> None:
    config = {"dataset": f"{site.datasets}/poles", **PASTED}
    shown = from_yaml(site, to_block(config))
    job, found = config_of(site, shown["pairs"])
    assert job == "sweep"
    assert {key: found[key] for key in config} == config
    assert found["objective"] == {"metric": "evaluation/return"}
    assert experiments.problems(found, job=job) == []
    for foreign in ("storage: /tmp/x", "plugins: [os]", "tracking: http://x"):
        with pytest.raises(ConfigError, match="The page takes no"):
            from_yaml(site, f"{to_block(config)}\n{foreign}")
    for broken in ("", "a: [", "- 1", "dataset: poles", "algorithm: &a [*a]"):
        with pytest.raises(ConfigError):
            from_yaml(site, broken)


def test_what_there_is_no_room_for_waits_and_begins(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[Status] = []
    begun: list[str] = []

    def submit(config: dict[str, Any], **how: Any) -> None:
        if config["name"] == "bad":
            raise StorageError("The disk is full.")
        begun.append(config["name"])
        running.append(Status(name=config["name"], folder="", state="RUNNING"))

    monkeypatch.setattr(experiments, "list", lambda storage, address=None: running)
    monkeypatch.setattr(experiments, "submit", submit)
    config = {"dataset": f"{site.datasets}/poles", "algorithm": "DiscreteBC", "storage": site.storage}
    for name in ("first", "second", "bad", "third"):
        page = queue.begin(site, "train", {**config, "name": name}, "mine")
        assert page == ("/experiments/first" if name == "first" else "/experiments")
        time.sleep(0.01)
    assert begun == ["first"]
    assert [one.name for one in site.records.waiting()] == ["second", "bad", "third"]
    queue.step(site)
    assert begun == ["first"]
    with pytest.raises(ConfigError, match="waits already"):
        queue.begin(site, "train", {**config, "name": "second"}, "")
    with pytest.raises(ConfigError, match="There is an experiment 'first' already"):
        queue.begin(site, "train", {**config, "name": "first"}, "")
    running.clear()
    queue.step(site)
    assert begun == ["first", "second"]
    running.clear()
    queue.step(Site(home=site.home, datasets=site.datasets, storage=site.storage, most_running=1))  # a page that was started anew
    assert begun == ["first", "second", "third"]
    (stuck,) = site.records.waiting()
    assert (stuck.name, stuck.reason) == ("bad", "The disk is full.")
    assert site.records.leave("bad")
    with pytest.raises(ConfigError, match="greater than 0"):
        queue.begin(site, "train", {**config, "n_steps": 0}, "")
    assert site.records.waiting() == []


def test_what_the_form_has_no_field_for_is_said(site: Site) -> None:
    """Of a clone, and of a config that somebody pastes; nothing is left out in silence."""
    config = {"dataset": f"{site.datasets}/poles", **PASTED}
    assert from_yaml(site, to_block(config))["lost"] == []
    objective = {"metric": "evaluation/return", "seeds": "iqm"}
    more = {**config, "evaluation": {"environment": "CartPole-v1", "episodes": 7}, "objective": objective}
    assert from_yaml(site, to_block(more))["lost"] == ["evaluation.episodes", "objective.seeds"]
    cloned = from_config(site, {**config, "retries": 7, "plugins": ["plugin_of_nobody"], "storage": "/elsewhere"})
    assert cloned["lost"] == ["plugins", "retries"]
    short = {"dataset": f"{site.datasets}/poles", "algorithm": "DQN", "evaluation": "CartPole-v1"}
    shown = from_yaml(site, to_block(short))
    assert (shown["top"]["environment"], shown["lost"]) == ("CartPole-v1", [])
    for broken in (
        {"evaluation": 3},
        {"seeds": 3},
        {"search": {"algorithm.gamma": 3}},
        {"resources": "much"},
        {"algorithm": ["DQN"]},
    ):
        with pytest.raises(ConfigError):
            from_yaml(site, to_block({**short, **broken}))


def test_a_form_names_no_policy_by_its_path(site: Site) -> None:
    assert not {"FQE", "DiscreteFQE"} & {*fitting("continuous"), *fitting("discrete")}
    with pytest.raises(ConfigError, match="on the policy's page"):
        config_of(site, [("dataset", "poles"), ("algorithm", "DiscreteFQE"), ("algorithm.algo", "/etc")])


def test_what_is_mistyped_is_told_at_its_field_by_its_label(site: Site) -> None:
    pairs = shown(site, "poles", {"name": "DiscreteCQL"}, {})["pairs"]

    def wrong(**said: str) -> list[tuple[str, str]]:
        typed = {key.replace("__", "."): value for key, value in said.items()}
        return planned(site, [(key, typed.get(key, value)) for key, value in pairs])["wrong"]

    said = wrong(n_steps="10k", seeds="0, two", gpu="one", environment="os:system", algorithm__alpha="9 .. 1")
    assert sorted(said) == sorted(
        [
            ("n_steps", "Gradient steps is '10k'; write a number."),
            ("seeds", "Seeds is 'two'; write a number."),
            ("environment", "The environment is 'os:system'; write the id of a registered one, as Pendulum-v1."),
            ("gpu", "GPUs of a trial is 'one'; write a number."),
            ("algorithm.alpha", "Alpha is '9 .. 1': the smaller number comes first."),
        ]
    )
    found = dict(wrong(n_steps="0", holdout="3", algorithm__batch_size="-3", name="a/b"))
    assert found["n_steps"].startswith("Gradient steps is 0; ")
    assert found["holdout"].startswith("Held out is 3; ")
    assert found["algorithm.batch_size"].startswith("Batch size is -3; ")
    assert wrong() == []


def test_a_sweep_by_errors_says_what_they_do_not(site: Site) -> None:
    pairs = [
        (key, "1 | 4" if key == "algorithm.alpha" else value)
        for key, value in shown(site, "poles", {"name": "DiscreteCQL"}, {})["pairs"]
    ]
    played = planned(site, pairs)
    assert (played["job"], played["caution"]) == ("sweep", "")  # it plays in CartPole
    logged = planned(site, [(key, "" if key == "environment" else value) for key, value in pairs])
    assert logged["caution"].startswith("holdout/td_error says how well something learned fits the data, not what a policy returns")
