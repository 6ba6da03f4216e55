"""One tiny valid file (or folder) for each importer, and ways to damage it: what the fuzz test feeds to ingest."""

from __future__ import annotations

import base64
import gzip
import io
import json
import pickle
import shutil
import zipfile
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import lz4.frame
import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from d3ray.data.dataset import Dataset
from d3ray.data.decision_log import DecisionRows, DecisionWriter, Outcome, OutcomeLedger
from d3ray.data.exporters.registry import EXPORTERS, export
from d3ray.data.spec import Box, Discrete, Spec

from . import tianshou_files as tianshou
from .minari_folders import BOX, TWO, arrow_folder, episode_of, metadata
from .tfrecords import FLAGS, image, mapping, tensor, write_rlds

N = 9
LENGTHS = (4, 2, 3)
EXPORTED = {"d4rl": "file.hdf5", "d3rlpy": "file.h5", "npz": "file.npz", "parquet": "file.parquet", "minari": "folder"}


def tiny_files(folder: Path) -> dict[str, Path]:
    """Writes into `folder`, and gives by name what `ingest` takes. A name begins with the key of the format's importer."""
    assert EXPORTED.keys() >= EXPORTERS.keys()  # so that a new format comes here too
    made = {name: _exported(folder / f"{name} exported", name) for name in EXPORTED}
    for name, write in WRITERS.items():
        (folder / name).mkdir()
        made[name] = write(folder / name)
    return made


def _columns() -> dict[str, np.ndarray]:
    """Three episodes back to back: terminated, truncated, terminated."""
    rng = np.random.default_rng(0)
    last = np.cumsum(LENGTHS) - 1
    terminated, truncated = np.zeros(N, bool), np.zeros(N, bool)
    terminated[last[[0, 2]]], truncated[last[1]] = True, True
    seen = [rng.normal(size=(n + 1, 3)).astype(np.float32) for n in LENGTHS]
    return {
        "observations": np.concatenate([part[:-1] for part in seen]),
        "next_observations": np.concatenate([part[1:] for part in seen]),
        "actions": rng.uniform(-1, 1, (N, 2)).astype(np.float32),
        "rewards": rng.normal(size=N).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
    }


def _exported(target: Path, format: str) -> Path:
    columns = _columns()
    final = columns["next_observations"][np.cumsum(LENGTHS) - 1]
    dataset = Dataset.from_arrays(
        *(columns[key] for key in ("observations", "actions", "rewards", "terminated", "truncated")),
        final_observations=final,
        name="tiny/test-v0",
    )
    target.mkdir()
    export(dataset, target / EXPORTED[format], format)
    return target / EXPORTED[format]


def _d3rlpy_2020(folder: Path) -> Path:
    columns = _columns()
    with h5py.File(folder / "file.h5", "w") as file:
        for name in ("observations", "actions"):
            file[name] = columns[name]
        file["rewards"] = np.array([0, 1, 2, 3, 0, 1, 0, 1, 2], np.float32)
        file["terminals"], file["episode_terminals"] = columns["terminated"], columns["terminated"] | columns["truncated"]
        file["discrete_action"], file["create_mask"] = False, False
    return folder / "file.h5"


def _imitation(folder: Path) -> Path:
    columns = _columns()
    ends = np.cumsum(LENGTHS)
    final = columns["next_observations"][ends - 1]
    observations = np.insert(columns["observations"], ends, final, axis=0)
    np.savez_compressed(
        folder / "file.npz",
        obs=observations,
        acts=np.arange(N) % 2,
        rews=columns["rewards"],
        terminal=np.ones(3, bool),
        indices=ends[:-1],
    )
    return folder / "file.npz"


def _pfrl(folder: Path) -> Path:
    c = _columns()
    state = {"state": c["observations"], "next_state": c["next_observations"], "is_state_terminal": c["terminated"]}
    np.savez(folder / "file.npz", action=np.arange(N) % 3, reward=c["rewards"], env_id=np.repeat([0, 1], [6, 3]), **state)
    return folder / "file.npz"


def _dreamer(folder: Path) -> Path:
    c, first = _columns(), np.arange(N) == 0
    flags = {"is_first": first, "is_last": np.arange(N) == N - 1, "is_terminal": np.zeros(N, bool), "discount": np.ones(N)}
    action = np.where(first[:, None], 0, np.ones((N, 2)))
    np.savez(folder / "file.npz", observation=c["observations"], action=action, reward=c["rewards"], **flags)
    return folder / "file.npz"


def _ogbench(folder: Path) -> Path:
    rng, ends = np.random.default_rng(0), np.array([0, 0, 0, 1, 0, 0, 1], np.float32)
    arrays = {"observations": rng.normal(size=(7, 3)), "actions": rng.normal(size=(7, 2)), "qpos": rng.normal(size=(7, 2))}
    np.savez(folder / "file.npz", terminals=ends, **arrays)
    return folder / "file.npz"


def _paths() -> list[dict[str, np.ndarray]]:
    columns, ends = _columns(), np.cumsum((0, *LENGTHS))
    columns["terminals"] = columns.pop("terminated")
    return [{key: column[a:b] for key, column in columns.items()} for a, b in pairwise(ends.tolist())]


def _pickle(folder: Path) -> Path:
    (folder / "file.pkl").write_bytes(pickle.dumps(_paths(), 4))
    return folder / "file.pkl"


def _pickle_gzip(folder: Path) -> Path:
    (folder / "file.pkl.gz").write_bytes(gzip.compress(pickle.dumps(_paths(), 2)))
    return folder / "file.pkl.gz"


def _tianshou(folder: Path) -> Path:
    return tianshou.write_hdf5(folder / "file.hdf5", tianshou.held(tianshou.rows(14), 10))


def _tianshou_pickle(folder: Path) -> Path:
    return tianshou.write_pickle(folder / "file.pkl", tianshou.held(tianshou.rows(14), 10))


def _batches() -> list[dict[str, Any]]:
    batches: list[dict[str, Any]] = []
    for k, path in enumerate(_paths()):
        n = len(path["rewards"])
        columns = {"obs": path["observations"], "new_obs": path["next_observations"], "actions": path["actions"]}
        columns |= {"rewards": path["rewards"], "terminateds": path["terminals"], "truncateds": path["truncated"]}
        batches.append(columns | {"t": np.arange(n), "eps_id": np.full(n, 70 + k), "action_logp": np.full(n, -1.5)})
    return batches


def _packed(array: np.ndarray) -> str:
    return base64.b64encode(lz4.frame.compress(pickle.dumps(array, 5))).decode()


def _rllib_json(folder: Path) -> Path:
    lines = [
        json.dumps({"type": "SampleBatch"} | {k: _packed(v) if "obs" in k else v.tolist() for k, v in batch.items()})
        for batch in _batches()
    ]
    (folder / "file.json").write_text("\n".join(lines))
    return folder / "file.json"


def _rllib_json_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "file.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("file.json", _rllib_json(folder).read_text())
    return folder / "file.zip"


def _rllib_parquet(folder: Path) -> Path:
    whole = {k: np.concatenate([batch[k] for batch in _batches()]) for k in _batches()[0]}
    (folder / "run").mkdir()
    for k, rows in enumerate((slice(0, 5), slice(5, 9))):  # an episode goes over both files
        table = pa.table({name: pa.array(column[rows].tolist()) for name, column in whole.items()})
        pq.write_table(table, folder / "run" / f"{k}.parquet")
    return folder / "run"


def _rllib_episodes(folder: Path) -> Path:
    def array(value: Any) -> Any:
        return {b"nd": True, b"type": value.dtype.str, b"kind": b"", b"shape": value.shape, b"data": value.tobytes()}

    items: list[bytes] = []
    for k, path in enumerate(_paths()):
        seen = np.concatenate([path["observations"], path["next_observations"][-1:]])
        buffers = {"observations": list(seen), "actions": list(path["actions"]), "rewards": path["rewards"].tolist()}
        state: dict[str, Any] = {"id_": f"episode {k}", "agent_id": None}
        state |= {name: {"data": data, "lookback": 0, "finalized": False, "space": None} for name, data in buffers.items()}
        state |= {"is_terminated": bool(path["terminals"][-1]), "is_truncated": bool(path["truncated"][-1]), "t_started": 0}
        items.append(msgpack.packb(state, default=array))
    pq.write_table(pa.table({"item": items}), folder / "file.parquet", compression="none")
    return folder / "file.parquet"


def _dqn_replay(folder: Path) -> Path:
    frames = np.random.default_rng(0).integers(1, 9, (12, 6, 6), dtype=np.uint8)
    frames[[0, 1, 2]] = 0
    zero = frames.any((1, 2))
    arrays = {"$store$_observation": frames, "$store$_action": zero * (np.arange(12) % 3), "$store$_reward": zero * np.ones(12)}
    arrays |= {"$store$_terminal": np.arange(12) == 6, "add_count": np.array(11)}
    for name, values in arrays.items():
        data = io.BytesIO()
        np.save(data, values)
        (folder / f"{name}_ckpt.0.gz").write_bytes(gzip.compress(data.getvalue()))
    return folder


def _csv(folder: Path) -> Path:
    columns = _columns()
    episode = np.repeat(np.arange(3), LENGTHS)
    lines = ["episode,observation:0,observation:1,observation:2,action:0,action:1,reward"]
    numbers = np.column_stack([columns["observations"], columns["actions"], columns["rewards"]])
    lines += [f"{e},{','.join(map(str, row))}" for e, row in zip(episode.tolist(), numbers.tolist(), strict=True)]
    (folder / "file.csv").write_text("\n".join(lines) + "\n")
    return folder / "file.csv"


def _open_bandit(folder: Path) -> Path:
    rows = "".join(f"{k},2019-11-24 00:00:0{k}+00:00,{k % 3},{k % 3 + 1},{k % 2},0.5,a{k % 2},b,0.{k},1,2\n" for k in range(N))
    names = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1"
    (folder / "file.csv").write_text(f"{names},user-item_affinity_0,user-item_affinity_1,user-item_affinity_2\n{rows}")
    return folder / "file.csv"


def _csv_images(folder: Path) -> Path:
    (folder / "data").mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (3, 5, 5, 3), dtype=np.uint8)
    with zipfile.ZipFile(folder / "data" / "images.zip", "w") as file:
        for k, one in enumerate(pixels):
            data = io.BytesIO()
            Image.fromarray(one).save(data, "PNG")
            file.writestr(f"{k}.png", data.getvalue())
    rows = "".join(f"0,{k}.png,{k % 2},1.5\n" for k in range(3))
    (folder / "data" / "file.csv").write_text("episode,observation:0,action:0,reward\n" + rows)
    return folder / "data" / "file.csv"


def _rlds(folder: Path) -> Path:
    episodes: list[dict[str, Any]] = []
    for n in (3, 2):
        rng = np.random.default_rng(n)
        flags = {"is_first": [1] + [0] * (n - 1), "is_last": [0] * (n - 1) + [1], "is_terminal": [0] * (n - 1) + [n % 2]}
        floats = {"observation": rng.normal(size=3 * n), "action": rng.normal(size=2 * n), "reward": [*rng.normal(size=n - 1), 0.0]}
        found = {f"steps/{name}": np.asarray(values, np.float32) for name, values in floats.items()}
        episodes.append(found | {f"steps/{name}": values for name, values in flags.items()})
    write_rlds(folder / "toy", {"observation": tensor([3]), "action": tensor([2]), "reward": tensor(), **FLAGS}, episodes)
    return folder / "toy"


def _rlds_images(folder: Path) -> Path:
    rng, n = np.random.default_rng(0), 3
    pixels, depth, pictures = (
        rng.integers(0, 256, (n, 4, 5, 3), dtype=np.uint8),
        rng.normal(size=(n, 2)),
        [io.BytesIO() for _ in range(n)],
    )
    for one, data in zip(pixels, pictures, strict=True):
        Image.fromarray(one).save(data, "PNG")
    episode: dict[str, Any] = {"steps/is_first": [1, 0, 0], "steps/is_last": [0, 0, 1], "steps/is_terminal": [0, 0, 1]}
    episode |= {"steps/observation/eye": [data.getvalue() for data in pictures], "steps/action": [2, 0, 1]}
    episode |= {"steps/observation/depth": [zlib.compress(one.tobytes()) for one in depth]}
    seen = mapping({"eye": image([4, 5, 3]), "depth": tensor([2], "float64", "zlib")})
    write_rlds(folder / "toy", {"observation": seen, "action": tensor(dtype="int64"), **FLAGS}, [episode])
    return folder / "toy"


def _minari_arrow(folder: Path) -> Path:
    episodes = [episode_of(n, n, terminated=True) | {"infos/x": np.arange(n + 1.0)} for n in LENGTHS]
    return arrow_folder(folder / "toy", episodes, metadata(BOX, TWO, len(LENGTHS)), "arrow")


def _lerobot(folder: Path) -> Path:
    columns, frame = _columns(), np.concatenate([np.arange(n) for n in LENGTHS])
    flat = {"episode_index": np.repeat(np.arange(3), LENGTHS), "frame_index": frame, "index": np.arange(N)}
    flat |= {"task_index": np.zeros(N, int), "timestamp": frame / 10, "next.reward": columns["rewards"]}
    table = pa.table({k: pa.array(v) for k, v in flat.items()})
    for name, key in (("observation.state", "observations"), ("action", "actions")):
        table = table.append_column(name, pa.array(columns[key].tolist()))
    shapes = {name: [1] for name in flat} | {"observation.state": [3], "action": [2]}
    kinds = {name: "float32" if name in ("timestamp", "next.reward", "observation.state", "action") else "int64" for name in shapes}
    features = {name: {"dtype": kinds[name], "shape": shape} for name, shape in shapes.items()}
    for part in ("meta", "data/chunk-000"):
        (folder / "arm" / part).mkdir(parents=True)
    info = {"codebase_version": "v3.0", "fps": 10, "features": features}
    (folder / "arm" / "meta" / "info.json").write_text(json.dumps(info))
    pq.write_table(table, folder / "arm" / "data" / "chunk-000" / "file-000.parquet")
    pq.write_table(pa.table({"task_index": [0], "task": ["push"]}), folder / "arm" / "meta" / "tasks.parquet")
    return folder / "arm"


def _decisions(folder: Path) -> Path:
    spec = Spec(observation=Box(shape=(3,)), action=Discrete(n=3))
    with DecisionWriter(folder / "log", spec, policy="p") as writer, OutcomeLedger(folder / "log") as ledger:
        for k, n in enumerate(LENGTHS):
            shown, steps = np.random.default_rng(k).normal(size=(n, 3)), np.arange(n)
            ids = writer.append(DecisionRows("1", "champion", [f"{k}"] * n, steps, shown, steps % 3, np.zeros(n)))
            ledger.record([Outcome(1.0, decision=id, terminated=id == ids[-1]) for id in ids])
    return folder / "log"


WRITERS = {
    "decisions": _decisions,
    "d3rlpy 2020": _d3rlpy_2020,
    "npz imitation": _imitation,
    "pfrl": _pfrl,
    "dreamer": _dreamer,
    "ogbench": _ogbench,
    "pickled_paths": _pickle,
    "pickled_paths gzip": _pickle_gzip,
    "tianshou": _tianshou,
    "tianshou pickle": _tianshou_pickle,
    "rllib_json": _rllib_json,
    "rllib_json zip": _rllib_json_zip,
    "rllib_parquet": _rllib_parquet,
    "rllib_parquet episodes": _rllib_episodes,
    "dqn_replay": _dqn_replay,
    "csv": _csv,
    "csv images": _csv_images,
    "open_bandit": _open_bandit,
    "rlds": _rlds,
    "rlds images": _rlds_images,
    "minari arrow": _minari_arrow,
    "lerobot": _lerobot,
}


def damage(source: Path, target: Path, rng: np.random.Generator) -> str:
    """A copy of `source` at `target` of which one file is damaged, in a way that is drawn; gives what was done, in words."""
    if source.is_dir():
        shutil.copytree(source, target)
        files = sorted(path for path in target.rglob("*") if path.is_file())
        file = files[rng.integers(len(files))]
    else:
        shutil.copytree(source.parent, target)  # what lies beside the file may belong to it
        file = target / source.name
        beside = sorted(path for path in target.rglob("*") if path.is_file())
        if len(beside) > 1 and rng.random() < 0.5:
            file = beside[rng.integers(len(beside))]
    data, inner = file.read_bytes(), bool(rng.random() < 0.6)
    packing = _packing(data) if inner else "plain"
    done = ""
    if packing == "zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = list(members)[rng.integers(len(members))]
        members[name], done = _mutated(members[name], rng)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        data, done = out.getvalue(), f"in {name}: {done}"
    elif packing == "gzip":
        data, done = _mutated(gzip.decompress(data), rng)
        data, done = gzip.compress(data), f"inside gzip: {done}"
    else:
        data, done = _mutated(data, rng)
    file.write_bytes(data)
    return f"{file.name}: {done}"


def _packing(data: bytes) -> str:
    return "zip" if data[:2] == b"PK" else "gzip" if data[:2] == b"\x1f\x8b" else "plain"


NUMBERS = (b"NaN", b"1e999", b"-1", b"1e30", b"99999999999999999999", b'"x"', b"null", b"[]", b"{}", b"", b"0", b"\xff\xfe")
EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def _mutated(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """Bytes with one to three changes; most of them where formats keep their headers."""
    done: list[str] = []
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if not out:
            break
        n = len(out)
        near = int(rng.choice([64, 512, n, n]))
        at = int(rng.integers(min(near, n)))
        at = n - 1 - at if rng.random() < 0.3 else at
        kind = int(rng.integers(8))
        length = int(rng.integers(1, max(2, min(64, n // 4))))
        if kind == 0:
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            out[at] = int(rng.choice(EDGES))
        elif kind == 2:
            out[at : at + length] = rng.bytes(length)
        elif kind == 3:
            out[at : at + length] = bytes(length) if rng.random() < 0.5 else b"\xff" * length
        elif kind == 4:
            del out[at : at + length]
        elif kind == 5:
            out[at:at] = out[at : at + length] * int(rng.integers(1, 4))
        elif kind == 6:
            del out[at:]
        else:  # a number in text, or where text would have one
            stop = at
            while stop < n and out[stop : stop + 1] in b"0123456789.eE-+":
                stop += 1
            out[at:stop] = NUMBERS[int(rng.integers(len(NUMBERS)))]
        done.append(f"change {kind} at {at} of {n}")
    return bytes(out), ", ".join(done)
