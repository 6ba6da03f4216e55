"""`MLflowLogger`: a run for each training, added to by what goes on, whatever becomes of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import d3ray
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError
from d3ray.platform.tracking.runs import ServerAwayError, Tracking

CONTINUOUS = tiny_dataset(discrete=False)
LOSS = "train/critic_loss"


@pytest.fixture
def logger(tmp_path: Path) -> d3ray.MLflowLogger:
    return d3ray.MLflowLogger("notes", storage=str(tmp_path))


def runs(tmp_path: Path, experiment: str = "notes") -> list[Any]:
    """All runs of an MLflow experiment, the oldest first."""
    tracking = Tracking.open(str(tmp_path), experiment=experiment)
    return list(tracking.client.search_runs([tracking.experiment_id], order_by=["attributes.start_time ASC"]))


def steps(tmp_path: Path, run: Any, metric: str = LOSS) -> list[tuple[int, float]]:
    points = Tracking.open(str(tmp_path)).client.get_metric_history(run.info.run_id, metric)
    return [(point.step, point.value) for point in sorted(points, key=lambda one: one.step)]


def test_a_training_is_a_run_with_settings_data_and_every_metric(logger: d3ray.MLflowLogger, tmp_path: Path) -> None:
    algorithm = maker(d3ray.TD3)(seed=4, gamma=0.9)
    epochs = list(algorithm.fitter(CONTINUOUS, 5, 2, logger=logger))
    (run,) = runs(tmp_path)
    assert (run.info.run_name, run.info.status) == (f"TD3-{CONTINUOUS.name}", "FINISHED")
    assert (run.data.params["algorithm"], run.data.params["algorithm.gamma"], run.data.params["seed"]) == ("TD3", "0.9", "4")
    assert run.data.tags["d3ray.fingerprint"] == CONTINUOUS.fingerprint
    assert run.inputs.dataset_inputs[0].dataset.name == CONTINUOUS.name
    assert "step" not in run.data.metrics
    for name in epochs[0].metrics.keys() - {"step"}:
        assert steps(tmp_path, run, name) == [(int(m["step"]), m[name]) for _, m in epochs if name in m], name
    drawn = d3ray.plot(f"runs:/{run.info.run_id}", storage=str(tmp_path), metrics=LOSS)
    assert [s.label for s in drawn.panels[0].series] == ["TD3"]


def test_what_goes_on_adds_to_its_run_and_a_new_training_has_its_own(logger: d3ray.MLflowLogger, tmp_path: Path) -> None:
    other = maker(d3ray.TD3)(gamma=0.5).fit(CONTINUOUS, 2, 2, logger=logger)
    first = maker(d3ray.TD3)().fit(CONTINUOUS, 4, 2, logger=logger)
    first.save(tmp_path / "saved")
    first.fit(CONTINUOUS, 2, 2, logger=logger)
    again = d3ray.load(tmp_path / "saved")  # of step 4: what follows is there up to step 6
    d3ray.load(tmp_path / "saved").fit(CONTINUOUS, 4, 2, logger=d3ray.MLflowLogger("notes", storage=str(tmp_path)))
    maker(d3ray.TD3)().fit(CONTINUOUS, 2, 2, logger=logger)
    other.fit(CONTINUOUS, 2, 2, logger=logger)  # not the newest of its name, but the one with its settings
    of_other, of_first, new = runs(tmp_path)
    assert again.step == 4
    assert [[step for step, _ in steps(tmp_path, one)] for one in (of_other, of_first, new)] == [[2, 4], [2, 4, 6, 8], [2]]
    assert {one.info.status for one in (of_other, of_first, new)} == {"FINISHED"}


def test_seeds_of_a_stack_are_runs_and_online_training_is_one(logger: d3ray.MLflowLogger, tmp_path: Path) -> None:
    rows = [{}, {"critic_learning_rate": 1e35}]
    d3ray.Stack(maker(d3ray.TD3)(), (3, 7), rows=rows).fit(CONTINUOUS, 4, 2, logger=logger)
    found = {run.info.run_name: run for run in runs(tmp_path)}
    assert sorted(found) == [f"TD3-{CONTINUOUS.name} seed {seed}" for seed in (3, 7)]
    good, bad = (found[name] for name in sorted(found))
    assert (good.info.status, good.data.params["seed"], bad.info.status) == ("FINISHED", "3", "FAILED")
    assert bad.data.tags["d3ray.reason"].startswith("diverged at step ")
    online = d3ray.MLflowLogger("online", run="poles", storage=str(tmp_path))
    d3ray.DQN(batch_size=4).fit_online("CartPole-v1", n_steps=4, n_steps_per_epoch=2, random_steps=8, logger=online)
    (run,) = runs(tmp_path, "online")
    assert (run.info.run_name, "dataset" in run.data.params, run.inputs.dataset_inputs) == ("poles", False, [])
    assert [step for step, _ in steps(tmp_path, run, "train/environment_steps")] == [2, 4]


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), "KILLED"), (ZeroDivisionError("by x"), "FAILED")])
def test_how_training_ended_is_how_the_run_ends(
    logger: d3ray.MLflowLogger, tmp_path: Path, error: BaseException, status: str
) -> None:
    def stops(*_: Any) -> None:
        raise error

    algorithm = maker(d3ray.TD3)()
    with pytest.raises(type(error)):
        algorithm.fit(CONTINUOUS, 4, 2, callbacks=[stops], logger=logger)
    (run,) = runs(tmp_path)
    assert (run.info.status, run.data.tags.get("d3ray.reason")) == (
        status,
        "ZeroDivisionError: by x" if status == "FAILED" else None,
    )
    try:
        raise ValueError
    except ValueError:  # an error that is over is none of this training's
        algorithm.fit(CONTINUOUS, 2, 2, logger=logger)
    (run,) = runs(tmp_path)
    assert (run.info.status, "d3ray.reason" in run.data.tags) == ("FINISHED", False)


def test_a_server_that_goes_away_holds_nothing_up(
    logger: d3ray.MLflowLogger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, away = Tracking.send, [True]

    def send(self: Tracking, *arguments: Any) -> None:
        if away[0]:
            raise ServerAwayError("The MLflow server does not answer.")
        real(self, *arguments)

    monkeypatch.setattr(Tracking, "send", send)

    def back(algorithm: Any, epoch: int, metrics: Any) -> None:
        away[0] = epoch < 2

    with pytest.warns(UserWarning, match="does not answer. Training goes on") as told:
        maker(d3ray.TD3)().fit(CONTINUOUS, 6, 2, callbacks=[back], logger=logger)
    assert len([one for one in told if "does not answer" in str(one.message)]) == 1
    (run,) = runs(tmp_path)
    assert [step for step, _ in steps(tmp_path, run)] == [2, 4, 6]


def test_a_place_that_is_not_there_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = maker(d3ray.TD3)()
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9 does not answer.* or name another one"):
        algorithm.fit(CONTINUOUS, 2, logger=d3ray.MLflowLogger(tracking_uri="http://127.0.0.1:9"))
    assert algorithm.step == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    named = f"sqlite:///{tmp_path}/own.db"
    algorithm.fit(CONTINUOUS, 2, logger=d3ray.MLflowLogger(tracking_uri=named))  # before the variable
    assert (tmp_path / "own.db").is_file()
