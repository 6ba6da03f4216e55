"""`to_ray` gives every transition once, beside the row that follows it, from folders, splits and memory."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import ray
import ray.data

from d3ray.data.dataset import Dataset
from d3ray.platform.cluster.session import quiet_ray_data
from d3ray.platform.datasets.ingest import ingest
from d3ray.platform.ray_data import to_ray


@pytest.fixture(scope="module", autouse=True)
def session(local_ray: Path) -> Generator[None]:
    quiet_ray_data()
    options = ray.data.DataContext.get_current().execution_options
    before, options.preserve_order = options.preserve_order, True
    yield
    options.preserve_order = before


@pytest.fixture
def dataset() -> Dataset:
    """Episodes of 1 to 7 steps, the last one without its final observation."""
    random = np.random.default_rng(0)
    terminated = np.zeros(300, bool)
    terminated[np.cumsum(random.integers(1, 8, 60))] = True
    observations = {"image": random.integers(0, 255, (300, 4, 5), dtype=np.uint8), "speed": random.normal(size=(300, 2))}
    return Dataset.from_arrays(
        observations, random.integers(0, 3, 300), random.normal(size=300), terminated, extra={"log_prob": -random.random(300)}
    )


def by_hand(dataset: Dataset) -> dict[str, np.ndarray]:
    """Transition by transition, with a loop."""
    rows: list[dict[str, object]] = []
    for number, episode in enumerate(dataset.episodes):
        for t in range(len(episode)):
            row: dict[str, object] = {"episode": number, "step": t}
            row |= {name: column[t] for name, column in episode.columns.items() if name != "closing"}
            row |= {f"next_{name}": c[t + 1] for name, c in episode.columns.items() if name.startswith("observation")}
            rows.append(row | {"next_recorded": episode.final_recorded or t + 1 < len(episode)})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def by_ray(data: ray.data.Dataset) -> dict[str, np.ndarray]:
    batches = list(data.iter_batches(batch_size=None, batch_format="numpy"))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def check(dataset: Dataset, data: ray.data.Dataset) -> None:
    expected, found = by_hand(dataset), by_ray(data)
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column, err_msg=name)
        if name not in ("episode", "step"):
            assert found[name].dtype == column.dtype, name


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_folder_is_read_shard_by_shard(dataset: Dataset, tmp_path: Path, compression: None) -> None:
    folder = dataset.write(tmp_path / "set", n_shards=3, compression=compression)
    check(folder, to_ray(folder))
    check(folder, to_ray(folder, override_num_blocks=10))
    train, test = folder.split(0.3)
    check(test, to_ray(test))
    assert to_ray(train).count() == train.n_transitions


def test_what_is_derived_is_worked_out_by_the_tasks(dataset: Dataset, tmp_path: Path) -> None:
    folder = dataset.write(tmp_path / "set", n_shards=3)
    derived = Dataset.concat([folder.filter("steps > 2"), folder.relabel("reward - 1").top(0.5)])
    check(derived, to_ray(derived))
    check(derived, to_ray(derived, override_num_blocks=7))
    shuffled = folder.shuffle(1)
    check(shuffled, to_ray(shuffled, override_num_blocks=4))


def test_a_dataset_in_memory_is_copied(dataset: Dataset) -> None:
    check(dataset, to_ray(dataset))
    check(dataset.split(0.3)[0], to_ray(dataset.split(0.3)[0]))


def test_rows_that_ray_shuffled_and_wrote_as_parquet_are_imported_as_they_were(dataset: Dataset, tmp_path: Path) -> None:
    to_ray(dataset).repartition(3).random_shuffle(seed=0).write_parquet(str(tmp_path / "rows"))
    imported = ingest(tmp_path / "rows", tmp_path / "set", parallel=False)
    assert imported.dataset.fingerprint == dataset.fingerprint
    assert "Rows were put in order, by their episodes and steps." in imported.notes


@pytest.mark.long
def test_it_can_be_read_while_trials_hold_every_cpu(dataset: Dataset, tmp_path: Path) -> None:
    folder = dataset.write(tmp_path / "set", n_shards=3)

    @ray.remote(num_cpus=1)
    class Trial:
        pass

    trials = [Trial.remote() for _ in range(2)]
    ray.wait([trial.__ray_ready__.remote() for trial in trials], num_returns=2)
    assert ray.available_resources().get("CPU", 0) == 0
    check(folder, to_ray(folder, num_cpus=0))
