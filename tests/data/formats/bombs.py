"""Small files that unpack to what fills a memory, one of each kind that a format allows; each writes one and gives its path."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from .tfrecords import FLAGS, image, tensor, write_rlds


class Calls:
    """Pickles to a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def png(pixels: np.ndarray, mode: str | None = None, kind: str = "PNG") -> bytes:
    out = BytesIO()
    (Image.fromarray(pixels) if mode is None else Image.fromarray(pixels).convert(mode)).save(out, kind)
    return out.getvalue()


def png_of(side: int) -> bytes:
    """A PNG of side x side pixels, in its header."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b""))


N = 100_000_000  # rows that are declared
GIB = 1 << 30


def zeros_in_zip(path: Path, members: dict[str, bytes], size: int) -> Path:
    """An archive of members that begin as they are given and go on with zeros up to a size each."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, start in members.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(start)
                for _ in range(size >> 24):
                    member.write(bytes(1 << 24))
    return path


def npy_head(dtype: str, shape: tuple[int, ...]) -> bytes:
    out = BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue()


def hdf5_without_a_chunk(folder: Path) -> Path:
    with h5py.File(folder / "bomb.h5", "w") as file:
        for name, shape, kind in (("observations", (N, 11), "f4"), ("actions", (N, 3), "f4"), ("rewards", (N,), "f4")):
            file.create_dataset(name, shape, kind, chunks=(1000, *shape[1:]))
        file.create_dataset("terminals", (N,), "?", chunks=(1000,))
    return folder / "bomb.h5"


def hdf5_with_a_fill(folder: Path) -> Path:
    with h5py.File(folder / "bomb.h5", "w") as file:
        for name, shape in (
            ("observations", (1000, 1_000_000)),
            ("actions", (1000, 1)),
            ("rewards", (1000,)),
            ("terminals", (1000,)),
        ):
            file.create_dataset(name, shape, "f4", fillvalue=1.0)
    return folder / "bomb.h5"


def hdf5_squeezed(folder: Path) -> Path:
    """Twenty chunks of zeros by gzip, of 64 MiB each."""
    with h5py.File(folder / "bomb.h5", "w") as file:
        for name, shape in (("observations", (320, 1 << 20)), ("actions", (320, 1)), ("rewards", (320,)), ("terminals", (320,))):
            file.create_dataset(name, shape, "f4", chunks=(16, *shape[1:]), compression="gzip")
        packed = zlib.compress(bytes(1 << 26), 9)
        for k in range(20):
            file["observations"].id.write_direct_chunk((16 * k, 0), packed)
    return folder / "bomb.h5"


def hdf5_with_a_lying_chunk(folder: Path) -> Path:
    """A chunk of 4 kB by its header, which inflates to 640 MiB."""
    with h5py.File(folder / "bomb.h5", "w") as file:
        for name in ("observations", "actions", "rewards", "terminals"):
            file.create_dataset(name, (1000,), "f4", chunks=(1000,), compression="gzip", data=np.zeros(1000, np.float32))
        deflate = zlib.compressobj(1)
        packed = b"".join(deflate.compress(bytes(1 << 24)) for _ in range(40)) + deflate.flush()
        file["rewards"].id.write_direct_chunk((0,), packed)
    return folder / "bomb.h5"


def hdf5_of_one_array_often(folder: Path) -> Path:
    """d3rlpy's layout of 1,000 episodes, which are all the same arrays of zeros."""
    with h5py.File(folder / "bomb.h5", "w") as file:
        file["columns"], file["num_episodes"], file["version"] = "observations", 1000, "2.8.1"
        for name, shape in (("observations", (100_000, 100)), ("actions", (100_000, 1)), ("rewards", (100_000, 1))):
            file.create_dataset(f"{name}_0", shape, "f4")
        file["terminated_0"] = True
        for k in range(1, 1000):
            for name in ("observations", "actions", "rewards", "terminated"):
                file[f"{name}_{k}"] = file[f"{name}_0"]
    return folder / "bomb.h5"


def hdf5_of_a_billion_episodes(folder: Path) -> Path:
    with h5py.File(folder / "bomb.h5", "w") as file:
        file["columns"], file["num_episodes"], file["version"] = "observations", 10**12, "2.8.1"
        for name, shape in (("observations", (3, 1)), ("actions", (3, 1)), ("rewards", (3, 1))):
            file[f"{name}_0"] = np.zeros(shape, np.float32)
        file["terminated_0"] = True
    return folder / "bomb.h5"


def npz_of_zeros(folder: Path) -> Path:
    n = GIB // 16
    heads = {"observations": (n, 1), "actions": (n, 1), "rewards": (n,), "terminals": (n,)}
    members = {f"{name}.npy": npy_head("<f4", shape) for name, shape in heads.items()}
    return zeros_in_zip(folder / "bomb.npz", members, size=GIB // 4)


def npz_that_says_more(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "bomb.npz", "w") as archive:
        for name, shape in (("observations", (N, 1000)), ("actions", (N, 1)), ("rewards", (N,)), ("terminals", (N,))):
            archive.writestr(f"{name}.npy", npy_head("<f4", shape) + bytes(100))
    return folder / "bomb.npz"


def zip_in_a_zip(folder: Path) -> Path:
    inner = zeros_in_zip(folder / "inner", {"observations.npy": npy_head("<f4", (GIB, 1))}, GIB // 8)
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for k in range(10):
            archive.write(inner, f"{k}.zip")
    inner.unlink()
    return folder / "bomb.zip"


def gzip_of_cells(folder: Path) -> Path:
    names = ",".join(["episode", "action:0", "reward", *(f"observation:{k}" for k in range(1000))])
    with gzip.open(folder / "bomb.csv.gz", "wb", compresslevel=1) as file:
        file.write(f"{names}\n".encode())
        for _ in range(12):
            file.write((b"0" + b",0" * 1002 + b"\n") * 10_000)
    return folder / "bomb.csv.gz"


def json_in_gzip(folder: Path) -> Path:
    """A line of 600 MB with lists that hold nothing."""
    with gzip.open(folder / "bomb.json.gz", "wb", compresslevel=1) as file:
        file.write(b'{"type": "SampleBatch", "actions": [1], "obs": [')
        for _ in range(200):
            file.write(b"[]," * 1_000_000)
        file.write(b"[]]}\n")
    return folder / "bomb.json.gz"


def json_that_nests(folder: Path) -> Path:
    path = folder / "bomb.json"
    path.write_text('{"type": "SampleBatch", "actions": [1], "obs": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}\n")
    return path


def json_of_packed_text(folder: Path) -> Path:
    """RLlib's packed arrays: zeros by LZ4, again and again."""
    packed = base64.b64encode(lz4.frame.compress(pickle.dumps(np.zeros((1000, 100_000), np.float32)), compression_level=3)).decode()
    batch = {"type": "SampleBatch", "obs": packed, "new_obs": packed, "actions": [0] * 1000, "rewards": [0.0] * 1000}
    with gzip.open(folder / "bomb.json.gz", "wt") as file:
        file.write((json.dumps({**batch, "dones": [False] * 1000}) + "\n") * 20)
    return folder / "bomb.json.gz"


def pickle_of_lists(folder: Path) -> Path:
    with gzip.open(folder / "bomb.pkl.gz", "wb", compresslevel=1) as file:
        file.write(b"\x80\x04](")
        for _ in range(60):
            file.write(b"]" * 1_000_000)
        file.write(b"e.")
    return folder / "bomb.pkl.gz"


def parquet(folder: Path, columns: dict[str, Any], groups: int, **options: Any) -> Path:
    table = pa.table(columns)
    with pq.ParquetWriter(folder / "bomb.parquet", table.schema, **options) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return folder / "bomb.parquet"


def flat(n: int, observation: Any) -> dict[str, Any]:
    numbers = pa.array(np.zeros(n, np.int64))
    return {"observation": observation, "action": numbers, "reward": numbers, "terminated": pa.array(np.zeros(n, bool))}


def parquet_of_runs(folder: Path) -> Path:
    return parquet(folder, flat(1_000_000, pa.array(np.zeros(1_000_000))), 100, compression="zstd")


def parquet_of_lists(folder: Path) -> Path:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(10_000_000, np.float32)), 100_000)
    return parquet(folder, flat(100, vectors), 8, compression="zstd")


def parquet_of_one_word(folder: Path) -> Path:
    """A dictionary of one image of 10 MB, which every row is."""
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array([bytes(10_000_000)], pa.binary()))
    return parquet(folder, flat(1000, words), 1, compression="zstd", store_schema=False)


def arrow_of_zeros(folder: Path) -> Path:
    """Minari's Arrow storage, with buffers that unpack to a gibibyte each."""
    data = folder / "toy" / "data"
    (data / "0").mkdir(parents=True)
    (data / "metadata.json").write_text(json.dumps({"data_format": "arrow", "total_episodes": 1, "total_steps": 1}))
    n = 1 << 27
    table = pa.table({name: pa.array(np.zeros(n)) for name in ("observations", "actions", "rewards")})
    with pa.ipc.new_file(str(data / "0" / "0.arrow"), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return folder / "toy"


def minari_without_a_chunk(folder: Path) -> Path:
    shapes = {"observations": (N + 1, 3), "actions": (N, 1), "rewards": (N,), "terminations": (N,), "truncations": (N,)}
    with h5py.File(folder / "bomb.h5", "w") as file:
        for name, shape in shapes.items():
            file.create_dataset(f"episode_0/{name}", shape, "f8", chunks=(1000, *shape[1:]))
    return folder / "bomb.h5"


def minari_of_itself(folder: Path) -> Path:
    """Groups that hold themselves, twenty times each."""
    with h5py.File(folder / "bomb.h5", "w") as file:
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            file[f"episode_0/{name}"] = np.zeros(3)
        inside = file.create_group("episode_0/infos")
        for k in range(20):
            inside[f"part{k}"] = inside
    return folder / "bomb.h5"


def minari_of_episode_a_trillion(folder: Path) -> Path:
    with h5py.File(folder / "bomb.h5", "w") as file:
        for number in (0, 10**12):
            for name in ("observations", "actions", "rewards", "terminations", "truncations"):
                file[f"episode_{number}/{name}"] = np.zeros(3)
    return folder / "bomb.h5"


def rlds(folder: Path, observation: dict[str, Any], packed: bytes, n: int) -> Path:
    flags = {"steps/is_first": [1, *[0] * (n - 1)], "steps/is_last": [*[0] * (n - 1), 1], "steps/is_terminal": [0] * n}
    steps = flags | {"steps/observation": [packed] * n, "steps/action": np.zeros(n, np.float32)}
    return write_rlds(folder / "toy", {"observation": observation, "action": tensor(), **FLAGS}, [steps])


def rlds_of_images(folder: Path) -> Path:
    """Pictures of 12 million pixels in black."""
    return rlds(folder, image([3000, 4000, 3]), png(np.zeros((3000, 4000, 3), np.uint8)), 20)


def rlds_of_zlib(folder: Path) -> Path:
    return rlds(folder, tensor([-1], "uint8", "zlib"), zlib.compress(bytes(1 << 27), 9), 6)


def csv_of_distant_columns(folder: Path) -> Path:
    (folder / "bomb.csv").write_text(f"episode,observation:{10**12},action:0,reward\n0,1,1,1\n")
    return folder / "bomb.csv"


def csv_of_categories(folder: Path) -> Path:
    rows = "".join(f"{k},1,0,0.5,u{k}\n" for k in range(50_000))
    (folder / "bomb.csv").write_text("item_id,position,click,propensity_score,user_feature_0\n" + rows)
    return folder / "bomb.csv"


def csv_of_one_image(folder: Path) -> Path:
    """A table that names a picture of 16 million pixels 1,000 times."""
    (folder / "a.png").write_bytes(png(np.zeros((4096, 4096, 3), np.uint8)))
    (folder / "bomb.csv").write_text("episode,observation:0,action:0,reward\n" + "0,a.png,1,1\n" * 1000)
    return folder / "bomb.csv"


def dqn_replay_of_zeros(folder: Path) -> Path:
    n = 1_000_000
    for name, kind in (("action", "<i4"), ("reward", "<f4"), ("terminal", "|u1"), ("observation", "|u1")):
        shape = (n, 84, 84) if name == "observation" else (n,)
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        with gzip.open(folder / f"$store$_{name}_ckpt.0.gz", "wb", compresslevel=1) as file:
            file.write(npy_head(kind, shape))
            for _ in range(0 if name == "observation" else (size >> 20) + 1):
                file.write(bytes(1 << 20))
    return folder / "$store$_observation_ckpt.0.gz"


Bomb = Callable[[Path], Path]
# What hardly has bytes is refused for that; the others have as many as honest files that hold little but zeros.
HOLLOW: list[Bomb] = [
    hdf5_without_a_chunk,
    hdf5_with_a_fill,
    minari_without_a_chunk,
    parquet_of_lists,
    parquet_of_one_word,
    csv_of_one_image,
    dqn_replay_of_zeros,
]
SQUEEZED: list[Bomb] = [
    hdf5_squeezed,
    hdf5_of_one_array_often,
    npz_of_zeros,
    gzip_of_cells,
    json_in_gzip,
    json_of_packed_text,
    pickle_of_lists,
    parquet_of_runs,
    arrow_of_zeros,
    rlds_of_images,
    rlds_of_zlib,
    csv_of_categories,
]
LYING: list[Bomb] = [
    hdf5_with_a_lying_chunk,
    hdf5_of_a_billion_episodes,
    npz_that_says_more,
    zip_in_a_zip,
    json_that_nests,
    minari_of_itself,
    minari_of_episode_a_trillion,
    csv_of_distant_columns,
]
