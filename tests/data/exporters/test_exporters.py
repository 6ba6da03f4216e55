"""Exporters: what they write comes back with the same fingerprint where the format has a place for it, and others read it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, StorageError
from d3ray.data.exporters import blocks as blocks_module
from d3ray.data.exporters.registry import EXPORTERS, export
from d3ray.data.formats.registry import parts_of, read
from d3ray.data.spec import Discrete, Environment, Spec

TARGET = {"d4rl": "out.hdf5", "d3rlpy": "out.h5", "minari": "out", "parquet": "out.parquet", "npz": "out.npz"}
LENGTHS = [1, 4, 2, 5, 1, 3]


def dataset_of(kind: str = "vector", finals: str = "all", *, extra: bool = False, actions: str = "box") -> Dataset:
    """Six episodes, of which every other is terminated; `finals`: of all, none, some truncated, or the truncated ones only."""
    rng, n, e = np.random.default_rng(7), sum(LENGTHS), len(LENGTHS)
    last = np.cumsum(LENGTHS) - 1
    terminated, truncated = np.zeros(n, bool), np.zeros(n, bool)
    terminated[last[::2]], truncated[last[1::2]] = True, True

    def seen(rows: int) -> Any:
        match kind:
            case "vector":
                return rng.normal(size=(rows, 3)).astype(np.float32)
            case "image":
                return rng.integers(0, 256, (rows, 3, 8, 8), dtype=np.uint8)
            case "dict":
                return {"eye": rng.integers(0, 256, (rows, 4, 4, 3), dtype=np.uint8), "arm": {"q": rng.normal(size=(rows, 2))}}
            case _:
                return rng.normal(size=(rows, 2)), rng.integers(0, 5, rows), rng.normal(size=(rows, 2, 2)).astype(np.float16)

    taken = {
        "box": rng.normal(size=(n, 2)),
        "discrete": rng.integers(0, 4, n),
        "multi-discrete": rng.integers(0, 4, (n, 3)),
        "binary": rng.integers(0, 2, (n, 3)).astype(bool),
    }[actions]
    more = {
        "log_prob": rng.normal(size=n),
        "cost": rng.random(n).astype(np.float32),
        "info/goal": rng.normal(size=(n, 2)),
        "info/hit": rng.random(n) < 0.5,
        "info/a/b": last[0] + np.arange(n),
    }
    dataset = Dataset.from_arrays(
        seen(n),
        taken,
        rng.normal(size=n),
        terminated,
        truncated,
        final_observations=None if finals == "none" else seen(e),
        extra=more if extra else None,
        environment=Environment(id="CartPole-v1"),
        name="toy set!",
    )
    table = dataset.to_steps()
    if finals in ("some", "truncated"):
        missing = [1, 2] if finals == "some" else [0, 2, 4]
        table.final_recorded[missing] = False
        closing = (table.first_row + table.steps)[missing]
        for name in [name for name in table.columns if name.startswith("observation")]:
            table.columns[name] = column = table.columns[name].copy()
            column[closing] = column[closing - 1]
    return Dataset.from_steps(table, name="toy set!", spec=dataset.spec, environment=dataset.environment)


def back(target: Path, **options: Any) -> Dataset:
    (part,) = parts_of(target) if target.is_dir() else [target]
    imported = read(part, **options)
    return Dataset.from_steps(imported.steps, name="back", spec=imported.spec)


@pytest.fixture(params=[False, True], ids=["one block", "a block an episode"])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(blocks_module, "plan_shards", lambda rows, *_, **__: [(k, k + 1) for k in range(len(rows))])


CARRIED = [
    *(("d4rl", {"kind": kind, "finals": finals, "extra": True}) for kind in ("vector", "image") for finals in ("all", "none")),
    *(("d4rl", {"actions": kind}) for kind in ("discrete", "binary")),
    *(("d3rlpy", {"kind": kind, "finals": "none", "actions": "discrete"}) for kind in ("vector", "image", "tuple")),
    ("d3rlpy", {"finals": "none"}),
    *(("minari", {"kind": kind, "finals": "all", "extra": True}) for kind in ("vector", "image", "dict", "tuple")),
    *(("minari", {"finals": finals}) for finals in ("none", "some", "truncated")),
    *(("minari", {"actions": kind}) for kind in ("discrete", "multi-discrete", "binary")),
    *(("parquet", {"kind": kind, "finals": "some", "extra": True}) for kind in ("vector", "image", "dict", "tuple")),
    *(("parquet", {"finals": finals}) for finals in ("all", "none")),
    *((format, {"actions": kind}) for format in ("parquet", "npz") for kind in ("multi-discrete", "binary")),
    *(("npz", {"kind": kind, "finals": "all", "extra": True}) for kind in ("vector", "image", "dict", "tuple")),
    ("npz", {"finals": "none", "actions": "discrete"}),
]


@pytest.mark.parametrize(("format", "about"), CARRIED, ids=[f"{f}-{'-'.join(map(str, a.values()))}" for f, a in CARRIED])
@pytest.mark.usefixtures("_blocks")
def test_what_a_format_can_carry_comes_back_with_the_same_fingerprint(tmp_path: Path, format: str, about: dict[str, Any]) -> None:
    dataset, target = dataset_of(**about), tmp_path / TARGET[format]
    notes = export(dataset, target, format)
    again = back(target)
    assert again.fingerprint == dataset.fingerprint
    assert again.spec.action.kind == dataset.spec.action.kind
    if format != "minari":
        assert notes == []


def counted_from(start: int) -> Dataset:
    """Twelve steps whose actions and observations are numbers from `start` on."""
    spec = Spec(observation=Discrete(n=3, start=start), action=Discrete(n=3, start=start))
    kinds = np.arange(12) % 3
    seen, mask = kinds + start, np.eye(3, dtype=bool)[kinds]
    return Dataset.from_arrays(
        seen, seen, np.ones(12), kinds == 2, final_observations=seen[:4], action_mask=mask, spec=spec, name="counted"
    )


@pytest.mark.parametrize("start", [1, -1, -7])
@pytest.mark.parametrize("format", ["d4rl", "minari", "parquet", "npz"])
def test_kinds_that_do_not_begin_at_0_come_back(tmp_path: Path, format: str, start: int) -> None:
    dataset = counted_from(start)
    export(dataset, tmp_path / TARGET[format], format)
    imported = read(tmp_path / TARGET[format], **({} if format == "minari" else {"spec": dataset.spec}))
    again = Dataset.from_steps(imported.steps, name="counted", spec=imported.spec or dataset.spec)
    assert (again.spec, again.fingerprint) == (dataset.spec, dataset.fingerprint)


def test_d4rl_has_to_be_told_of_multi_discrete_actions(tmp_path: Path) -> None:
    dataset, target = dataset_of(actions="multi-discrete"), tmp_path / TARGET["d4rl"]
    (note,) = export(dataset, target, "d4rl")
    assert note.endswith("say discrete_action=true to read them again.")
    assert back(target).spec.action.kind == "box"
    assert back(target, discrete_action=True).fingerprint == dataset.fingerprint


@pytest.mark.parametrize("format", ["d4rl", "npz"])
def test_final_observations_of_some_are_none_and_repeated_ones_are_never_bootstrapped_from(tmp_path: Path, format: str) -> None:
    dataset = dataset_of(finals="some")
    assert export(dataset, tmp_path / TARGET[format], format) == [
        "1 of 3 truncated episodes have no final observation, so those of 4 others are left out."
    ]
    assert not back(tmp_path / TARGET[format]).episodes.final_recorded.any()
    notes = export(dataset_of(finals="truncated"), tmp_path / f"2{TARGET[format]}", format)
    assert notes == ["3 terminated episodes have no final observation; the last one is written again in its place."]
    again = back(tmp_path / f"2{TARGET[format]}").episodes
    assert again.final_recorded.all()
    np.testing.assert_array_equal(again[0].observations[-1], again[0].observations[-2])


def test_what_a_format_cannot_carry_is_said(tmp_path: Path) -> None:
    dataset = dataset_of(extra=True)
    assert export(dataset, tmp_path / "a.h5", "d3rlpy") == [
        "Left out, having no place in the format: cost, info/a/b, info/goal, info/hit, log_prob.",
        "The final observations of 6 episodes are left out, for which d3rlpy has no place; of the 3 truncated episodes it draws "
        "one step fewer.",
    ]
    assert not back(tmp_path / "a.h5").episodes.final_recorded.any()
    assert export(dataset_of(finals="none"), tmp_path / "m", "minari") == [
        "6 episodes have no final observation (3 of them truncated): the last one is repeated, which d3ray knows when it reads the "
        "folder and Minari does not."
    ]
    table = dataset.to_steps()
    table.columns["phase"] = np.zeros(table.n_rows)
    for format, target in TARGET.items():
        notes = export(Dataset.from_steps(table, name="x"), tmp_path / "other" / target, format)
        assert "phase" in notes[0]
    for format, kind in (("d4rl", "dict"), ("d4rl", "tuple"), ("d3rlpy", "dict")):
        with pytest.raises(ConfigError, match=r"say format=minari, or parquet"):
            export(dataset_of(kind), tmp_path / "refused", format)
    assert not (tmp_path / "refused").exists()
    with pytest.raises(ConfigError, match=r"There is no exporter 'mineri'; did you mean 'minari'\?"):
        export(dataset, tmp_path / "refused", "mineri")


def test_float64_is_in_the_file_and_has_to_be_asked_for(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends = np.arange(9) == 8
    dataset = Dataset.from_arrays(rng.normal(size=(9, 2)), rng.normal(size=9), np.ones(9), ends, keep_float64=True)
    for format, target in TARGET.items():
        export(dataset, tmp_path / target, format)
        assert back(tmp_path / target).columns["observation"].dtype == np.float32
        assert back(tmp_path / target, keep_float64=True).fingerprint == dataset.fingerprint


def test_what_is_derived_is_exported_as_it_is_seen(tmp_path: Path) -> None:
    dataset = dataset_of(extra=True)
    for name, derived in (("part", dataset.split(0.5, seed=1)[1]), ("other", dataset.relabel("reward - 1").filter("steps > 1"))):
        for format in ("parquet", "minari"):
            target = tmp_path / name / TARGET[format]
            export(derived, target, format)
            assert back(target).fingerprint == derived.fingerprint


@pytest.mark.parametrize("format", EXPORTERS)
def test_no_more_than_a_block_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    dataset, asked = dataset_of(finals="none"), [0]

    class Counted:
        """Rows that tell how many of them were ever asked for at once."""

        def __init__(self, rows: Any) -> None:
            self.rows, self.n = rows, rows.n

        def names(self) -> list[str]:
            return self.rows.names()

        def read(self, name: str, start: int, stop: int) -> np.ndarray:
            asked[0] = max(asked[0], stop - start)
            return self.rows.read(name, start, stop)

    rows = Counted(dataset.rows())
    monkeypatch.setattr(dataset, "rows", lambda: rows)
    monkeypatch.setattr(blocks_module, "plan_shards", lambda rows, *_, **__: [(k, k + 1) for k in range(len(rows))])
    export(dataset, tmp_path / TARGET[format], format)
    assert asked[0] == max(LENGTHS) + 1


def test_layouts_are_those_that_others_read(tmp_path: Path) -> None:
    dataset = dataset_of(extra=True)
    export(dataset, tmp_path / "a.hdf5", "d4rl")
    with h5py.File(tmp_path / "a.hdf5") as file:
        names: list[str] = []
        file.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None)
        infos = ["infos/a/b", "infos/action_log_probs", "infos/goal", "infos/hit"]
        assert sorted(names) == [
            "actions",
            "costs",
            *infos,
            "next_observations",
            "observations",
            "rewards",
            "terminals",
            "timeouts",
        ]
        assert file["timeouts"][:].tolist() == dataset.columns["truncated"][~dataset.columns["closing"]].tolist()  # pyright: ignore
    export(dataset, tmp_path / "a.npz", "npz")
    with np.load(tmp_path / "a.npz") as archive:
        assert archive["observations"].shape == (16, 3)
        assert archive["final_observations"].shape == (6, 3)
    image = dataset_of("image")
    export(image, tmp_path / "a.parquet", "parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.field("observation").type == pa.binary(3 * 8 * 8)  # lists of uint8 take some 30 times as long
    assert table.schema.field("observation").metadata[b"shape"] == b"3,8,8"
    assert table.column("step").to_pylist()[:7] == [0, 1, 0, 1, 2, 3, 4]


def test_uris_are_targets_too(tmp_path: Path) -> None:
    dataset = dataset_of()
    for format in ("npz", "d4rl"):
        export(dataset, f"file://{tmp_path}/{TARGET[format]}", format)
        assert back(tmp_path / TARGET[format]).fingerprint == dataset.fingerprint


@pytest.mark.parametrize("format", EXPORTERS)
def test_a_target_that_is_taken_is_refused_and_replaced_when_asked(tmp_path: Path, format: str) -> None:
    target = tmp_path / TARGET[format]
    export(dataset_of(finals="none"), target, format)
    with pytest.raises(StorageError, match="already; say overwrite=true to replace it"):
        export(dataset_of(), target, format)
    other = dataset_of(finals="none", actions="discrete")
    export(other, target, format, overwrite=True)
    assert back(target).fingerprint == other.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    kind = "a folder that holds something else" if format == "minari" else "is a folder"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(StorageError, match=kind):
        export(other, tmp_path / "mine", format, overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("format", EXPORTERS)
def test_a_disk_without_room_leaves_nothing(tmp_path: Path, format: str) -> None:
    rng, n = np.random.default_rng(0), 40_000
    dataset = Dataset.from_arrays(rng.normal(size=(n, 8)), rng.normal(size=(n, 2)), np.ones(n), np.arange(n) % 1000 == 999)
    # A limit on the size of a file stands for the disk: a signal would end the process, so it is ignored.
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, before[1]))
        with pytest.raises(StorageError, match=r"cannot be written: the file would be larger than is allowed here\.") as caught:
            export(dataset, tmp_path / TARGET[format], format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


FILL = """
import resource, signal, sys
import numpy as np
from d3ray.data.dataset import Dataset
from d3ray.data.errors import StorageError
from d3ray.data.exporters.registry import export
n = 4000
dataset = Dataset.from_arrays(np.zeros((n, 8)), np.zeros((n, 2)), np.ones(n), np.arange(n) % 100 == 99)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 13, resource.RLIM_INFINITY))
for format in ("d4rl", "d3rlpy", "minari"):
    try:
        export(dataset, f"{sys.argv[1]}/{format}", format)
    except StorageError:
        continue
    sys.exit(f"{format} found room")
"""


def test_a_process_outlives_hdf5_on_a_disk_without_room(tmp_path: Path) -> None:
    # libhdf5 that was told of a failed write crashes at a later close, the latest when the process ends.
    assert subprocess.run([sys.executable, "-c", FILL, str(tmp_path)], check=False).returncode == 0


READ = """
import importlib.util, sys
kind, path = sys.argv[1:]
if importlib.util.find_spec(kind) is None:
    sys.exit(3)
if kind == "d3rlpy":
    from d3rlpy.dataset import InfiniteBuffer, ReplayBuffer
    with open(path, "rb") as file:
        buffer = ReplayBuffer.load(file, InfiniteBuffer())
    found, steps = [(e.rewards, e.terminated) for e in buffer.episodes], buffer.transition_count
else:
    import minari
    data = minari.MinariDataset(path + "/data")
    found, steps = [(e.rewards, e.terminations[-1]) for e in data.iterate_episodes()], data.total_steps
print([len(r) for r, _ in found], [bool(t) for _, t in found], [round(float(r.sum()), 3) for r, _ in found], steps)
"""


@pytest.mark.parametrize("format", ["d3rlpy", "minari"])
def test_its_own_program_reads_it(tmp_path: Path, format: str) -> None:
    peer = os.environ.get("D3RAY_PEER_PYTHON")
    dataset, target = dataset_of(kind="dict" if format == "minari" else "vector", actions="discrete"), tmp_path / TARGET[format]
    export(dataset, target, format)
    done = subprocess.run([peer, "-c", READ, format, str(target)], capture_output=True, text=True, check=False) if peer else None
    if done is None or done.returncode == 3:
        pytest.skip(f"D3RAY_PEER_PYTHON names no interpreter that has {format}")
    assert done.returncode == 0, done.stderr
    returns = [round(float(e.rewards.sum()), 3) for e in dataset.episodes]
    terminated = dataset.episodes.terminated.tolist()
    # d3rlpy draws no last step of a truncated episode.
    steps = dataset.n_transitions - (terminated.count(False) if format == "d3rlpy" else 0)
    assert done.stdout.splitlines()[-1] == f"{LENGTHS} {terminated} {returns} {steps}"
