"""Metrics in CSV files and for TensorBoard: every step once, also where a run was killed and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

import d3ray
from d3ray.algos.saving.loggers import CSVLogger, TensorBoardLogger
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError, StorageError
from d3ray.data.formats.rlds.tfrecord import records

CONTINUOUS = tiny_dataset(discrete=False)


def rows(file: Path) -> list[tuple[int, int, float]]:
    return [(int(e), int(s), float(v)) for e, s, v in (line.split(",") for line in file.read_text().splitlines())]


def events(folder: Path) -> list[Any]:
    files = sorted(folder.glob("events.*"), key=lambda file: file.stat().st_mtime_ns)
    return [Event.FromString(record) for file in files for record in records(file)]


def seen_by_tensorboard(folder: Path, tag: str) -> list[tuple[int, float]]:
    """Steps and values of a tag, as TensorBoard shows them: what a restart says it begins before is dropped."""
    found: list[tuple[int, float]] = []
    for event in events(folder):
        if event.session_log.status == SessionLog.START:
            found = [(step, value) for step, value in found if step < event.step]
        found += [(event.step, value.simple_value) for value in event.summary.value if value.tag == tag]
    return found


def test_each_metric_is_a_file_of_epoch_step_and_value(tmp_path: Path) -> None:
    evaluators = {"evaluation": lambda a, epoch: {"return": epoch / 3, "../up": 1.0}}
    logger = CSVLogger(tmp_path / "log", save_interval=2)
    algorithm = maker(d3ray.TD3)()
    epochs = list(algorithm.fitter(CONTINUOUS, 9, 2, evaluators=evaluators, logger=logger))
    assert rows(tmp_path / "log/evaluation/return.csv") == [(1, 2, 1 / 3), (2, 4, 2 / 3), (3, 6, 1.0), (4, 8, 4 / 3), (5, 9, 5 / 3)]
    losses = [(epoch, int(m["step"]), m["train/critic_loss"]) for epoch, m in epochs]
    assert rows(tmp_path / "log/train/critic_loss.csv") == losses  # to the last digit
    assert not (tmp_path / "log/step.csv").exists()
    assert {file.parent.parent for file in tmp_path.rglob("*.csv")} <= {tmp_path / "log", tmp_path / "log/evaluation"}
    assert sorted(path.name for path in tmp_path.glob("log/model_*")) == ["model_4", "model_8"]
    assert d3ray.load(tmp_path / "log/model_4").step == 4


def test_tensorboard_gets_every_metric_at_its_step(tmp_path: Path) -> None:
    algorithm = maker(d3ray.TD3)()
    epochs = list(algorithm.fitter(CONTINUOUS, 9, 4, logger=[TensorBoardLogger(tmp_path), CSVLogger(tmp_path / "csv")]))
    for name in epochs[0].metrics.keys() - {"step"}:
        shown = seen_by_tensorboard(tmp_path, name)
        assert shown == [(int(m["step"]), pytest.approx(m[name], rel=1e-6)) for _, m in epochs if name in m], name


@pytest.mark.parametrize("stacked", [False, True])
def test_a_run_that_goes_on_repeats_no_step(tmp_path: Path, stacked: bool) -> None:
    """Killed in epoch 4, while a line was written; the last saved algorithm is of epoch 2."""

    def subject() -> Any:
        return d3ray.Stack(maker(d3ray.TD3)(), (0, 1)) if stacked else maker(d3ray.TD3)()

    def loggers(name: str) -> list[Any]:
        return [CSVLogger(tmp_path / name), TensorBoardLogger(tmp_path / name / "board")]

    part = "seed-1/" if stacked else ""
    first = subject().fit(CONTINUOUS, 4, 2, logger=loggers("killed"))
    state = first.state()
    first.fit(CONTINUOUS, 4, 2, logger=loggers("killed"))
    with (tmp_path / f"killed/{part}train/critic_loss.csv").open("a") as file:
        file.write("5")  # of "5,10,0.1…"
    (tmp_path / f"killed/{part}train/policy").mkdir()
    other = tmp_path / "killed/other"  # another run below: it is left alone
    maker(d3ray.TD3)().fit(CONTINUOUS, 8, 2, logger=CSVLogger(other))
    kept = (other / "train/critic_loss.csv").read_text()
    subject().load_state(*state).fit(CONTINUOUS, 8, 2, logger=loggers("killed"))
    subject().fit(CONTINUOUS, 12, 2, logger=loggers("whole"))
    for name in ("critic_loss", "actor_loss", "td_error"):
        whole = rows(tmp_path / f"whole/{part}train/{name}.csv")
        assert [step for _, step, _ in whole] == [2, 4, 6, 8, 10, 12]
        assert rows(tmp_path / f"killed/{part}train/{name}.csv") == whole
        board = seen_by_tensorboard(tmp_path / f"killed/board/{part}", f"train/{name}")
        assert board == seen_by_tensorboard(tmp_path / f"whole/board/{part}", f"train/{name}")
        assert [step for step, _ in board] == [2, 4, 6, 8, 10, 12]
    assert (other / "train/critic_loss.csv").read_text() == kept


@pytest.mark.parametrize("logger", [CSVLogger, TensorBoardLogger])
def test_another_run_is_not_mixed_in(tmp_path: Path, logger: Any) -> None:
    maker(d3ray.TD3)().fit(CONTINUOUS, 2, 1, logger=logger(tmp_path))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(StorageError, match="holds the metrics of another run already: choose another folder") as caught:
        maker(d3ray.TD3)().fit(CONTINUOUS, 2, 1, logger=logger(tmp_path))
    assert "\n" not in str(caught.value)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("logger", [CSVLogger, TensorBoardLogger])
@pytest.mark.parametrize("other", [maker(d3ray.TD3, seed=5), maker(d3ray.BC)])
def test_another_run_that_goes_on_is_not_mixed_in_either(tmp_path: Path, logger: Any, other: Any) -> None:
    maker(d3ray.TD3)().fit(CONTINUOUS, 2, 1, logger=logger(tmp_path))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    algorithm = other().fit(CONTINUOUS, 1)
    with pytest.raises(StorageError, match="holds the metrics of another run already: choose another folder"):
        algorithm.fit(CONTINUOUS, 2, 1, logger=logger(tmp_path))
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_epochs_between_saved_algorithms_are_positive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="save_interval is 0; it counts epochs"):
        CSVLogger(tmp_path, save_interval=0)


@pytest.mark.parametrize("logger", [CSVLogger, TensorBoardLogger])
def test_a_folder_that_cannot_be_written_is_refused_before_any_step(tmp_path: Path, logger: Any) -> None:
    (tmp_path / "file").write_text("")
    algorithm = maker(d3ray.TD3)()
    with pytest.raises(StorageError) as caught:
        algorithm.fit(CONTINUOUS, 2, 1, logger=logger(tmp_path / "file" / "log"))
    assert algorithm.step == 0
    assert "\n" not in str(caught.value)


def test_files_of_others_are_not_cut(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    algorithm = maker(d3ray.TD3)().fit(CONTINUOUS, 1)
    with pytest.raises(StorageError, match="not such as are written here"):
        algorithm.fit(CONTINUOUS, 1, logger=CSVLogger(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["table.csv"]
    assert (tmp_path / "table.csv").read_text() == "a,b\n1,2\n"


def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    maker(d3ray.TD3)().fit(CONTINUOUS, 2, 1)
    assert list(tmp_path.iterdir()) == []
