"""Files that mean harm, uploaded as anybody would: each ends in one sentence, and leaves the server as it was."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from d3ray.experiments import datasets
from d3ray.platform.record.datasets import DatasetStatus

from .site_server import Served

TABLE = "episode,observation:0,action:0,reward\n" + "".join(f"0,{k}.png,{k % 2},1\n" for k in range(4))


def brought_in(served: Served, *files: tuple[str, bytes]) -> DatasetStatus:
    """What became of files; the page that tells it can be read."""
    uploads = [("upload", served.upload(name, content)) for name, content in files]
    served.post("/datasets", [("name", "bad"), *uploads])
    found = datasets.open("bad", folder=served.site.datasets).wait(120)
    page = served.get("/datasets/bad")
    assert page.status_code == 200
    assert "Traceback" not in page.text
    return found


def png(width: int, height: int) -> bytes:
    """A PNG that says it is so large, of a few bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size + b"\x08\x02\0\0\0") + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


def archive(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return out.getvalue()


def test_a_zip_that_unpacks_to_more_than_it_is(served: Served) -> None:
    bomb = archive({f"{k}.png": b"\0" * (300 << 20) if k == 0 else png(4, 4) for k in range(4)})
    assert len(bomb) < 1 << 20
    found = brought_in(served, ("bad.csv", TABLE.encode()), ("bad.zip", bomb))
    assert found.state == "FAILED"
    assert "'0.png' has 314,572,800 bytes, too many for an image" in found.reason
    page = served.get("/datasets/bad").text
    assert "bad.zip: " in page
    assert str(served.site.home) not in page  # where the server keeps it is nobody's business


def test_a_file_that_declares_more_than_it_stores(served: Served, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "bad.h5", "w") as file:
        for name, shape in (("observations", (100_000_000, 11)), ("actions", (100_000_000, 1)), ("rewards", (100_000_000,))):
            file.create_dataset(name, shape, np.float32, chunks=(1000, *shape[1:]))
        file.create_dataset("terminals", (100_000_000,), bool, chunks=(1000,))
    found = brought_in(served, ("bad.h5", (tmp_path / "bad.h5").read_bytes()))
    assert found.state == "FAILED"
    assert "bad.h5: 'terminals' unpacks to 1.7 GB or more, and 2.22 kB are stored" in found.reason
    page = served.get("/datasets/bad").text
    assert "unpacks to 1.7 GB or more" in page
    assert str(served.site.home) not in page


def test_an_image_of_a_trillion_pixels(served: Served) -> None:
    found = brought_in(
        served, ("bad.csv", TABLE.encode()), ("bad.zip", archive({f"{k}.png": png(1 << 20, 1 << 20) for k in range(4)}))
    )
    assert found.state == "FAILED"
    assert "it is too large" in found.reason


def test_members_that_lead_elsewhere(served: Served, tmp_path: Path) -> None:
    table = TABLE.replace("0.png", "../../../../etc/hostname")
    members = {"../../../../etc/hostname": b"x", **{f"{k}.png": png(4, 4) for k in range(4)}}
    before = sorted(path for path in tmp_path.rglob("*") if "state" not in path.parts and "web" not in path.parts)
    found = brought_in(served, ("bad.csv", table.encode()), ("bad.zip", archive(members)))
    assert found.state == "FAILED"
    after = sorted(path for path in tmp_path.rglob("*") if "state" not in path.parts and "web" not in path.parts)
    assert [path for path in after if path not in before and path.name not in ("datasets", "results")] == []


def test_hdf5_that_reads_other_files_of_the_server(served: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["rewards"] = np.full(20, 42.0, np.float32)
    raw = tmp_path / "secret.bin"
    raw.write_bytes(np.full(20, 42.0, np.float32).tobytes())
    for k in range(4):  # the last one is sound, so that the others fail for what they are
        bad = tmp_path / f"bad{k}.h5"
        with h5py.File(bad, "w") as file:
            file["observations"], file["actions"] = np.zeros((20, 2), np.float32), np.zeros((20, 1), np.float32)
            file["terminals"] = np.arange(20) == 19
            if k == 0:
                file["rewards"] = h5py.ExternalLink(str(secret), "rewards")
            elif k == 1:
                file.create_dataset("rewards", (20,), np.float32, external=[(str(raw), 0, h5py.h5f.UNLIMITED)])
            elif k == 2:
                file["elsewhere"] = h5py.ExternalLink(str(secret), "/")
                file["rewards"] = h5py.SoftLink("/elsewhere/rewards")
            else:
                file["rewards"] = np.zeros(20, np.float32)
        found = brought_in(served, ("bad.h5", bad.read_bytes()))
        assert found.state == ("READY" if k == 3 else "FAILED"), k
        served.post("/datasets/bad/delete", {"typed": "bad"})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bad.csv", b"episode,observation:0,action:0,reward\n0,=cmd|'/C calc'!A0,1,1\n"),
        ("bad.csv", b"\xff\xfe\x00bad"),
        ("bad.csv", b"episode,observation:0,action:0,reward\n" + b"0," * 200_000),
        ("bad.npz", b"PK\x03\x04broken"),
        ("bad.h5", b"\x89HDF\r\n\x1a\n" + b"\0" * 100),
        ("bad.pkl", b"cos\nsystem\n(S'touch /tmp/d3ray-was-here'\ntR."),
        ("bad.parquet", b"PAR1" + b"\0" * 100 + b"PAR1"),
    ],
)
def test_files_that_are_broken_or_no_data(served: Served, name: str, content: bytes) -> None:
    found = brought_in(served, (name, content))
    assert found.state == "FAILED"
    assert found.reason
    assert "Traceback" not in found.reason
    assert not Path("/tmp/d3ray-was-here").exists()
