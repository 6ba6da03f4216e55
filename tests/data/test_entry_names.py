"""What the entries of observations and actions are called: kept from the file to wherever a person reads of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from d3ray import Dataset, MDPDataset
from d3ray.data.errors import DataError
from d3ray.data.exporters.registry import export
from d3ray.data.spec import Box, Dict, Discrete, Leaf, MultiBinary, ObservationSpace, Spec
from d3ray.jobs.command.running import run_command
from d3ray.platform.datasets.derive import write_dataset
from d3ray.platform.datasets.ingest import ingest

RENAME = {"observation:0": "glucose", "observation:1": "bmi", "action:0": "dose", "reward": "outcome"}
SEEN, DONE = ("glucose", "bmi"), ("dose",)


def names(dataset: Dataset) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    assert isinstance(dataset.spec.observation, Box)
    return dataset.spec.observation.names, dataset.spec.action.names


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    made = {"patient": np.repeat(np.arange(10), 4), "glucose": rng.normal(6, 1, 40), "bmi": rng.normal(25, 3, 40)}
    return pd.DataFrame({**made, "dose": rng.integers(0, 3, 40), "outcome": rng.random(40), "terminated": np.arange(40) % 4 == 3})


@pytest.fixture
def ingested(table: pd.DataFrame, tmp_path: Path) -> Dataset:
    table.to_csv(tmp_path / "log.csv", index=False)
    renamed = {"rename": {**RENAME, "episode": "patient"}}
    return ingest(tmp_path / "log.csv", tmp_path / "set", format="csv", options=renamed).dataset


def test_columns_of_a_csv_keep_their_names_and_the_fingerprint_is_of_the_rows_alone(ingested: Dataset, tmp_path: Path) -> None:
    assert names(ingested) == (SEEN, DONE)
    plain = (tmp_path / "log.csv").read_text().replace("glucose,bmi,dose", "observation:0,observation:1,action:0")
    (tmp_path / "plain.csv").write_text(plain)
    bare = ingest(
        tmp_path / "plain.csv", tmp_path / "bare", options={"rename": {"episode": "patient", "reward": "outcome"}}
    ).dataset
    assert names(bare) == (None, None)
    assert bare.fingerprint == ingested.fingerprint
    said = json.loads((tmp_path / "bare" / "dataset.json").read_text())["spec"]  # as it was before there were names
    assert said["observation"] == {"kind": "box", "shape": [2], "dtype": "float32", "low": None, "high": None}
    Dataset.open(tmp_path / "set").verify()


def test_columns_of_parquet_keep_their_names_and_come_back_from_an_export(table: pd.DataFrame, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), tmp_path / "log.parquet")
    renamed = {"rename": {**RENAME, "episode": "patient"}}
    found = ingest(tmp_path / "log.parquet", tmp_path / "set", format="parquet", options=renamed).dataset
    assert names(found) == (SEEN, DONE)
    assert export(found, tmp_path / "again.parquet", "parquet") == []
    assert export(found, tmp_path / "again.npz", "npz") == ["Left out, having no place in the format: what entries are called."]
    again = ingest(tmp_path / "again.parquet", tmp_path / "again").dataset
    assert names(again) == (SEEN, DONE)
    assert again.fingerprint == found.fingerprint


def test_data_frames_give_their_columns_names(table: pd.DataFrame) -> None:
    seen, done = table[["glucose", "bmi"]], table["dose"]
    assert names(Dataset.from_arrays(seen, done, table["outcome"], table["terminated"])) == (SEEN, DONE)
    assert names(MDPDataset(seen, done, table["outcome"], table["terminated"])) == (SEEN, DONE)
    parts = {"labs": seen, "code": np.zeros(40, np.int64)}
    spec = Dataset.from_arrays(parts, table[["dose"]], table["outcome"], table["terminated"]).spec
    assert spec.observation == Dict(spaces={"labs": Box(shape=(2,), names=SEEN), "code": Discrete(n=1)})


def test_operations_and_writing_keep_names(ingested: Dataset, tmp_path: Path) -> None:
    half, rest = ingested.split(0.5)
    changed = ingested.relabel("reward * 2")
    mapped = ingested.map_batches(lambda batch: {"reward": batch["reward"] + 1})
    for one in (half, Dataset.concat([half, rest]), changed, mapped, half.write(tmp_path / "half")):
        assert names(one) == (SEEN, DONE)
    assert names(write_dataset(ingested.filter("return > 0"), tmp_path / "derived")) == (SEEN, DONE)


def test_entries_that_others_have_in_another_order_are_not_put_together(table: pd.DataFrame) -> None:
    def made(*columns: str, **called: str) -> Dataset:
        seen = table[list(columns)].rename(columns=called)
        return Dataset.from_arrays(seen, table["dose"], table["outcome"], table["terminated"])

    with pytest.raises(DataError, match="same entries in another order: number 0 is 'glucose' in one and 'bmi' in another"):
        Dataset.concat([made("glucose", "bmi"), made("bmi", "glucose")])
    assert names(Dataset.concat([made("glucose", "bmi"), made("glucose", "bmi", glucose="sugar")])) == (None, DONE)
    plain = Dataset.from_arrays(table[["glucose", "bmi"]].to_numpy(), table["dose"], table["outcome"], table["terminated"])
    assert names(Dataset.concat([plain, made("glucose", "bmi")])) == (SEEN, DONE)


def test_what_has_the_same_names_is_put_together_whatever_else_differs() -> None:
    def made(observation: ObservationSpace, action: Leaf) -> Dataset:
        taken = np.zeros((4, action.size), np.uint8 if isinstance(action, MultiBinary) else np.float32)
        return Dataset.from_arrays(
            np.zeros(4, np.int64), taken, np.zeros(4), [0, 1] * 2, spec=Spec(observation=observation, action=action)
        )

    def both(a: Leaf, b: Leaf) -> Leaf:
        return Dataset.concat([made(Discrete(n=3, names=("mode",)), a), made(Discrete(n=4, names=("mode",)), b)]).spec.action

    named, plain = Box(shape=(2,), low=-1.0, high=1.0, names=("x", "y")), Box(shape=(2,), low=-1.0, high=1.0)
    assert both(named, plain) == both(plain, named) == named
    wider = named.model_copy(update={"high": 2.0, "taken_as": (1, 2)})
    assert both(wider, wider.model_copy(update={"low": -3.0})) == Box(shape=(2,), names=("x", "y"), taken_as=(1, 2))
    assert both(wider, named) == Box(shape=(2,), names=("x", "y"))
    assert both(MultiBinary(n=2, names=("x", "y")), MultiBinary(n=2, dtype="int8")) == MultiBinary(n=2, names=("x", "y"))


def test_names_fit_their_entries() -> None:
    spec = Spec(observation=Box(shape=(2,)), action=Discrete(n=3))
    assert spec.with_names({"observation": ("a",)}) == spec == spec.with_names({"observation": ("a", "a"), "speed": ("v",)})
    assert spec.with_names({"observation": ("\x1b[2Ja", "b" * 500)}).entry_names("observation", 2) == ["[2Ja", "b" * 80]
    with pytest.raises(ValidationError, match="observation has 2 entries and 3 names"):
        Spec(observation=Box(shape=(2,), names=("a", "b", "c")), action=Discrete(n=3))


def test_inspect_lists_columns_with_their_names_and_propensities_first(
    ingested: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("inspect", [str(tmp_path / "set")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  observation   2 float32, bounds not known (glucose, bmi)" in lines
    assert "  propensities  not recorded (their logarithms are the column log_prob, by which judging weighs)" in lines
    assert "  columns       observation float32 [2]: glucose, bmi" in lines
    assert any(line.startswith("observation bmi ") for line in lines)
    assert not any(line.startswith("observation 0") for line in lines)
    table = ingested.columns
    arrays = (table["observation"], table["action"], table["reward"], np.ones(len(table["action"]), bool))
    Dataset.from_arrays(*arrays, extra={"log_prob": -np.ones(len(arrays[0]))}).write(tmp_path / "logged")
    assert run_command("inspect", [str(tmp_path / "logged"), "format=json"]) == 0
    columns = json.loads(capsys.readouterr().out)["columns"]
    assert [one["name"] for one in columns][:2] == ["log_prob", "observation"]
    assert columns[1] == {"name": "observation", "dtype": "float32", "shape": [2], "names": None}
