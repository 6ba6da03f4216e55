"""The node map of a Ray of this machine's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import ray

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.platform.driver.node_maps import prepare_node_maps


@pytest.mark.usefixtures("local_ray")
def test_it_is_built_here_and_waits_for_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    ends = np.arange(1, 101) % 10 == 0
    data = Dataset.from_arrays(np.zeros((100, 2)), np.zeros(100, int), np.zeros(100), ends)
    data.write(tmp_path / "set", n_shards=2)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a task")

    monkeypatch.setattr(ray, "remote", refused)
    (made,) = prepare_node_maps(tmp_path / "set", resources={"CPU": 1})
    assert made.fingerprint == data.fingerprint
    assert made.node == ray.get_runtime_context().get_node_id()
    assert list((tmp_path / "cache").glob(f"node_maps/{data.fingerprint}/*.raw"))
    with pytest.raises(DataError, match="There is no dataset folder"):
        prepare_node_maps(tmp_path / "nothing")
