"""A store that remembers gives what the store has, of a folder that nobody else changes, and asks for it once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from d3ray.data.storage.stores.arrow_fs import open_arrow
from d3ray.data.storage.stores.base import side_by_side
from d3ray.data.storage.stores.remembering import Remembering
from d3ray.platform.storage.folders import Folder

from ..object_store import ObjectStore, object_store
from .bucket import register_bucket


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


def test_whatever_is_written_and_deleted_it_has_what_the_store_has(tmp_path: Path) -> None:
    """Four hundred random changes through it, in and out of the folder, each compared with a look at the store itself."""
    register_bucket()
    plain, root = open_arrow(f"fsspec+bucket://{tmp_path.name}/root")
    store, rng = Remembering(plain), random.Random(0)
    keys = [f"{root}/{a}/{b}/{c}" for a in "xy" for b in ("one", "two") for c in ("a.json", "b.json", "c.jsonl")] + [f"{root}/top"]
    for key in keys[:5]:
        plain.write(key, b"0")
    store.remember(root)
    for turn in range(400):
        key, content = rng.choice(keys), str(turn).encode()
        match rng.randrange(6):
            case 0:
                store.write(key, content)
            case 1:
                store.create(key, content)
            case 2:
                (tmp_path / "file").write_bytes(content)
                store.upload(tmp_path / "file", key)
            case 3:
                store.delete([key, f"{root}/none"])
            case 4:
                store.delete_folder(key.rpartition("/")[0] if key != f"{root}/top" else f"{root}/none")
            case _:
                if (there := store.look([key])[0]) is not None and there.size:
                    store.replace(key, content, store.read_versioned(key)[1])
        plain_walk = sorted(one.key for one in plain.walk(root))
        assert sorted(one.key for one in store.walk(root)) == plain_walk
        assert {key: store.read(key) for key in plain_walk} == {key: plain.read(key) for key in plain_walk}
        assert [one and one.size for one in store.look(keys)] == [one and one.size for one in plain.look(keys)]
        for folder in {key.rpartition("/")[0] for key in plain_walk}:
            assert sorted(store.list(folder)[0]) == sorted(plain.list(folder)[0])
            assert sorted(one.key for one in store.list(folder)[1]) == sorted(one.key for one in plain.list(folder)[1])


def test_many_small_files_are_a_listing_and_one_round(store: ObjectStore) -> None:
    """What another writes in the meantime is seen again once it may be."""
    written = Folder(store.uri("many"))
    for k in range(20):
        written.write_json(f"trials/{k}/trial.json", k)
    folder = Folder(store.uri("many"))
    folder.remember()
    store.requests.clear()
    trials = folder / "trials"
    found = side_by_side(lambda name: (trials / name).read_json("trial.json"), trials.names())  # those who ask at once too
    assert sorted(found) == list(range(20))
    assert all((trials / str(k)).read_json("status.json") is None for k in range(20))
    assert [(trials / "3").names(), (trials / "none").names(), folder.names()] == [["trial.json"], [], ["trials"]]
    assert len(store.requests) == 20
    (trials / "3").write_json("trial.json", "new")
    assert (trials / "3").read_json("trial.json") == "new"
    written.write_json("trials/3/trial.json", "newer")
    assert (trials / "3").read_json("trial.json") == "new"
    folder.forget([trials / "3"])
    written.write_json("trials/4/trial.json", "newer")
    assert ((trials / "3").read_json("trial.json"), (trials / "4").read_json("trial.json")) == ("new", "newer")
    folder.forget()
    assert (trials / "3").read_json("trial.json") == "newer"
    store.requests.clear()
    folder.remember()
    assert [(trials / str(k)).read_json("trial.json") for k in range(5)] == [0, 1, 2, "newer", "newer"]
    assert len(store.requests) == 3  # the listing, and what others have written since
