"""Candidates and champions, with a real registry and policies that really play."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from d3ray import Dataset
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.export.package import read_package
from d3ray.algos.export.packing import write_package
from d3ray.algos.registry import algorithm_class
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Environment
from d3ray.jobs.command.running import run_command
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import Outbox
from d3ray.platform.storage.trials import Status
from d3ray.platform.storage.writer import Writer
from d3ray.platform.tracking import promotion
from d3ray.platform.tracking.delivery import deliver
from d3ray.platform.tracking.promotion import promote, rollback
from d3ray.platform.tracking.runs import Tracking

CARTPOLE = Environment(id="CartPole-v1")
RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # what each policy learns; returns of about 9, 40 and 70
    "bad": lambda o: o[:, 2] + o[:, 3] < 0,
    "fair": lambda o: o[:, 2] > 0,
    "good": lambda o: o[:, 2] + 0.06 * o[:, 3] > 0,
}
DATASET: dict[str, Any] = {
    "name": "rules",
    "fingerprint": "f" * 64,
    "source": "/data/rules",
    "n_transitions": 10,
    "n_episodes": 1,
    "environment": "CartPole-v1",
    "return_mean": 25.0,
    "schema": {},
}
SETTINGS = {"algorithm": {"name": "DiscreteBC"}, "n_steps": 40, "evaluation": {"episodes": 5}, "best": None, "seeds": [0, 1]}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy package for each rule."""
    folder, rng = tmp_path_factory.mktemp("packages"), np.random.default_rng(0)
    observation = rng.normal(scale=(1, 1, 0.1, 1), size=(2000, 4)).astype(np.float32)
    for name, rule in RULES.items():
        data = Dataset.from_arrays(observation, rule(observation).astype(np.int64), np.ones(2000), np.arange(2000) % 20 == 19)
        learner = algorithm_class("DiscreteBC")(observation_scaler="standard", seed=0)
        write_package(learner.fit(data, n_steps=300, n_steps_per_epoch=300), folder / name, environment=CARTPOLE)
    return folder


class Model:
    """Experiments of one name, as they follow one another with --replace, and the model registered under it."""

    def __init__(self, storage: Path, packages: Path) -> None:
        self.storage, self.packages, self.name = str(storage), packages, "rules"

    def train(
        self, *rules: str, value: float | None = 1.0, status: Status = "FINISHED", metric: str = "evaluation/return", **dataset: Any
    ) -> None:
        """An experiment that has ended, whose seed k learned rule k; the value by which seeds are compared grows with k."""
        about = {**DATASET, **dataset}
        experiment = Experiment.begin(self.storage, self.name, SETTINGS, about, replace=True)
        trial = experiment.trial(SETTINGS, tuple(range(len(rules))))
        Writer(trial)
        ended: dict[int, Any] = {}
        for seed, rule in enumerate(rules):
            with (trial.folder / "policy").scratch() as scratch:
                (trial.folder / "policy").local.mkdir(exist_ok=True)  # type: ignore[union-attr]
                copied = scratch / "package"
                copied.mkdir()
                for file in (self.packages / rule).iterdir():
                    (copied / file.name).write_bytes(file.read_bytes())
                (trial.folder / "policy").put_tree(copied, f"seed-{seed}")
            metrics = {} if value is None else {metric: value + seed}
            box = Outbox(trial.outbox(seed))
            box.begin(-1)
            box.add(40, metrics)
            box.write(40)
            ended[seed] = {"status": "FINISHED", "step": 40, "time": 0, "metrics": metrics}
        (trial.folder / "checkpoints" / "step-000000040").write("manifest.json", b"{}")
        trial.settle(ended)
        experiment.set_state(status)
        deliver(Tracking.open(self.storage), experiment, experiment.trials())
        experiment.close()

    @property
    def client(self) -> Any:
        return Tracking.open(self.storage).client

    @property
    def aliases(self) -> dict[str, str]:
        return {alias: str(version) for alias, version in self.client.get_registered_model(self.name).aliases.items()}

    def tags(self, version: str) -> dict[str, str]:
        return self.client.get_model_version(self.name, version).tags

    def promote(self, **options: Any) -> promotion.Promotion:
        return promote(self.name, storage=self.storage, **{"episodes": 20, **options})

    def rollback(self) -> promotion.Rollback:
        return rollback(self.name, storage=self.storage)

    def command(self, name: str, *arguments: str) -> int:
        return run_command(name, [self.name, f"storage={self.storage}", *arguments])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage whose database is there: making one takes seconds."""
    folder = tmp_path_factory.mktemp("store")
    Tracking.open(str(folder))
    return folder


@pytest.fixture
def model(store: Path, packages: Path, request: pytest.FixtureRequest) -> Model:
    """A model that nothing is registered for yet."""
    made = Model(store, packages)
    made.name = request.node.name
    return made


def test_the_best_seed_is_the_candidate_and_nobody_the_champion(model: Model) -> None:
    model.train("fair", "bad")
    assert model.aliases == {"candidate": "2"}  # seed 1 has the higher value, whatever its policy is worth
    assert model.tags("2").items() >= {"d3ray.seed": "1", "d3ray.value": "2.0", "d3ray.data_return": "25.0"}.items()


def test_what_was_stopped_has_no_candidate_yet(model: Model) -> None:
    """When it goes on another configuration may turn out to be the best."""
    model.train("fair", status="KILLED")
    assert model.name not in [registered.name for registered in model.client.search_registered_models()]


def test_a_mean_above_is_not_enough(model: Model) -> None:
    model.train("fair", return_mean=1e9)
    played = model.promote().candidate
    assert played is not None
    assert played.lower < played.mean
    model.train("fair", return_mean=(played.lower + played.mean) / 2)
    assert not model.promote().passed
    model.train("fair", return_mean=played.lower - 0.01)
    assert model.promote().passed


def test_the_first_champion_must_be_better_than_its_data(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    model.train("bad")
    refused = model.promote()
    assert not refused.passed
    assert refused.candidate is not None
    assert refused.above == 25.0
    short = f"{25 - refused.candidate.lower:.2f} short"
    assert refused.why.endswith(f"is not above the mean return of its data, 25.00: {short}.")
    assert model.command("promote", "episodes=20") == 1
    assert capsys.readouterr().err == refused.why + "\n"
    assert model.aliases == {"candidate": "1"}
    model.train("fair")
    assert model.command("promote", "episodes=20") == 0
    assert f"d3ray rollback {model.name}" in capsys.readouterr().out
    assert model.aliases == {"candidate": "2", "champion": "2"}


@pytest.mark.long
def test_the_gate_compares_lower_bounds_of_equal_episodes(model: Model, packages: Path) -> None:
    model.train("fair")
    first = model.promote(seed=3)
    model.train("good")
    second = model.promote(seed=3)
    assert second.passed
    assert second.candidate is not None
    assert second.champion is not None
    played = {rule: evaluate(read_package(packages / rule), "CartPole-v1", episodes=20, seed=3).returns for rule in RULES}
    assert (second.candidate.mean, second.candidate.episodes) == (played["good"].mean(), 20)
    assert (second.champion.mean, second.champion.source) == (played["fair"].mean(), "CartPole-v1 (seed 3)")
    assert first.candidate is not None
    assert second.above == second.champion.lower == first.candidate.lower
    theirs = scipy.stats.bootstrap((played["fair"],), np.mean, method="percentile", rng=np.random.default_rng(0))
    assert second.above == pytest.approx(theirs.confidence_interval.low, abs=0.06 * played["fair"].std())
    tags = model.tags("2")
    gate = {name.removeprefix("d3ray.gate."): text for name, text in tags.items() if name.startswith("d3ray.gate.")}
    assert gate.pop("by") == "play"
    assert {name: float(text) for name, text in gate.items()} == {
        "mean": played["good"].mean(),
        "lower": second.candidate.lower,
        "level": 0.95,
        "above": second.above,
        "episodes": 20,
        "seed": 3,
    }
    model.train("good")
    again = model.promote(seed=3)
    assert not again.passed  # as good is not better
    assert "champion, version 2" in again.why
    assert again.why.endswith("0.00 short.")
    model.train("bad")
    assert not model.promote().passed
    assert model.aliases["champion"] == "2"


@pytest.mark.long
def test_a_rollback_undoes_promotions_one_by_one(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert model.command("rollback") == 2  # there is no such model yet
    model.train("bad", return_mean=1.0)
    assert model.command("rollback") == 1
    assert "has no champion" in capsys.readouterr().err
    assert model.promote().passed
    assert model.rollback().version is None
    for rule in ("fair", "good"):
        model.train(rule)
        assert model.promote().passed
    assert model.aliases == {"candidate": "3", "champion": "3"}
    assert model.promote().why == f"Version 3 of {model.name} is the champion already."
    assert model.rollback().version == "2"
    assert model.command("rollback") == 0
    assert model.aliases["champion"] == "1"
    assert model.command("rollback") == 1
    assert "the only champion" in capsys.readouterr().err
    assert model.promote().passed  # the candidate may try again
    assert model.rollback().version == "1"


def test_deleted_and_hand_made_champions_do_not_confuse_a_rollback(model: Model) -> None:
    for rule in ("bad", "fair", "good"):
        model.train(rule, return_mean=1.0)
        assert model.promote().passed
    model.client.delete_model_version(model.name, "2")
    assert model.rollback().version == "1"
    model.client.set_registered_model_alias(model.name, "champion", "3")  # by hand
    assert model.rollback().version == "1"


def test_a_promotion_that_is_killed_changes_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    for rule in ("bad", "fair"):
        model.train(rule, return_mean=1.0)
        if rule == "bad":
            assert model.promote().passed

    class Died(BaseException):
        pass

    def die(*args: Any, **kwargs: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_registered_model_alias", die)
        with pytest.raises(Died):
            model.promote()
    assert model.aliases["champion"] == "1"
    assert model.rollback().version is None  # what was noted before the alias moved does not count
    assert model.promote().passed
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_registered_model_tag", die)
        with pytest.raises(Died):
            model.rollback()
    assert model.aliases["champion"] == "1"
    assert model.rollback().version is None


def test_what_cannot_be_compared_is_refused(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert model.command("promote") == 2
    assert "There is no registered model" in capsys.readouterr().err
    model.train("good", value=None)
    assert model.command("promote") == 1
    assert f"{model.name} has no candidate: no seed of it was scored, and the gate compares returns. " in capsys.readouterr().err
    model.train("good")
    version = model.aliases["candidate"]
    assert model.command("promote", "episodes=3") == 2
    assert "at least 20, 17 more" in capsys.readouterr().err
    assert model.command("promote", "episodes=20", "environment=Pendulum-v1") == 2
    assert capsys.readouterr().err.count("\n") == 1
    model.client.delete_model_version_tag(model.name, version, "d3ray.data_return")
    assert model.command("promote", "episodes=20") == 1
    assert "is not known" in capsys.readouterr().err
    model.client.delete_model_version_tag(model.name, version, "d3ray.value")
    assert model.command("promote", "episodes=20") == 1
    assert "has no score" in capsys.readouterr().err
    assert "champion" not in model.aliases


def test_what_was_scored_on_held_out_data_alone_is_told_how_to_decide(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = f"d3ray judge models:/{model.name}/VERSION DATASET and then d3ray promote {model.name} by=estimate.\n"
    model.train("good", metric="holdout/action_match")
    assert model.command("promote") == 1
    assert capsys.readouterr().err == (
        f"{model.name} has no candidate: its seeds were scored on held-out data alone, by holdout/action_match, and the gate "
        "compares returns. Train with evaluation.environment=ID to be scored by playing, or decide from logs with "
        f"{judge.replace('VERSION', '1')}"
    )
    data = Dataset.from_arrays(np.zeros((40, 4), np.float32), np.arange(40) % 2, np.ones(40), np.arange(40) % 20 == 19)
    learner = algorithm_class("DiscreteBC")(seed=0).fit(data, n_steps=1, n_steps_per_epoch=1)
    model.packages = tmp_path
    write_package(learner, tmp_path / "good")
    model.train("good")
    assert model.command("promote", "episodes=20") == 2
    way_out = f"write environment=ID, or decide from logs with {judge.replace('VERSION', '2')}"
    assert capsys.readouterr().err.endswith(f" names no environment to play in: {way_out}")


def test_there_is_no_way_around_the_gate(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert model.command("promote", "--force") == 2
    assert model.command("promote", "force=true") == 2
    assert "force" in capsys.readouterr().err


def test_a_candidate_that_costs_too_much_is_refused(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step costs 1, so a policy that balances for long costs much."""
    model.train("bad", "good")
    with pytest.raises(ConfigError, match="CartPole-v1 does not tell what its steps cost"):
        model.promote(cost_limit=5.0)

    def costly(*arguments: Any, **how: Any) -> Any:
        played = evaluate(*arguments, **how)
        return replace(played, costs=played.lengths.astype(float))

    monkeypatch.setattr(promotion, "evaluate", costly)
    found = model.promote(cost_limit=30.0)
    assert found.candidate is not None
    assert found.candidate.cost is not None
    assert found.candidate.cost.value == pytest.approx(found.candidate.mean)
    version, bound = found.candidate.version, found.candidate.cost.upper
    why = f"the upper bound of its cost, {bound:.4g} (95%), is above the limit, 30."
    assert found.why == f"Version {version} of {model.name} is not promoted: {why}"
    assert "champion" not in model.aliases
    assert model.promote(cost_limit=1e3).passed
    assert model.tags(version)["d3ray.gate.cost_limit"] == "1000.0"
