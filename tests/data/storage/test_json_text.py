"""JSON that nests deeper than Python's parser can follow: a sentence wherever d3ray reads what others wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d3ray
from d3ray.algos.export.package import read_package
from d3ray.data.errors import D3rayError
from d3ray.data.storage.json_text import TooDeepError, parse_json
from d3ray.data.storage.manifest import MANIFEST
from d3ray.platform.storage.folders import Folder

DEEP = b"[" * 200_000 + b"]" * 200_000
ROOT = Path(d3ray.__file__).parent


def test_what_nests_too_deep_is_a_value_error() -> None:
    with pytest.raises(TooDeepError, match="nests too deep"):
        parse_json(DEEP)
    assert parse_json(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="Expecting"):
        parse_json("nothing")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(20, 2)), rng.uniform(-1, 1, (20, 1)), np.ones(20), np.arange(20) % 10 == 9
    d3ray.Dataset.from_arrays(*arrays).write(tmp_path / "data")
    return tmp_path / "data"


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "dataset": (MANIFEST, d3ray.Dataset.open),
    "policy package": ("manifest.json", read_package),
    "saved algorithm": ("manifest.json", d3ray.load),
    "params.json": ("params.json", lambda folder: d3ray.BC.from_params(folder / "params.json")),
    "experiment": ("state.json", lambda folder: Folder(folder).read_json("state.json")),
}


@pytest.mark.parametrize("reader", READERS)
def test_files_that_nest_too_deep_are_refused_in_a_sentence(reader: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    (tmp_path / name).write_bytes(DEEP)
    with pytest.raises(D3rayError) as refused:
        read(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_manifest_says_that_it_nests_too_deep(data: Path) -> None:
    whole = (data / MANIFEST).read_bytes()
    for content in (DEEP, re.sub(rb'"provenance": \{[^}]*\}', b'"provenance": {"a": ' + DEEP + b"}", whole)):
        (data / MANIFEST).write_bytes(content)
        with pytest.raises(D3rayError, match=r"dataset\.json is damaged: it nests too deep\."):
            d3ray.Dataset.open(data)


def test_folders_of_users_are_read_by_the_one_function() -> None:
    """`json.loads` ends in a RecursionError: what reads files of others calls `parse_json`."""
    own = {"data/storage/json_text.py", "data/catalog/references.py"}  # the function, and a file of d3ray's own
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("data", "algos", "facades", "platform/storage", "platform/results", "platform/tracking")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"json\.loads?\(", path.read_text("utf-8"))
    }
    assert found - own == set()
