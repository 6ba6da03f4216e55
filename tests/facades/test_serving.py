"""`d3ray.serving.app`: the service's application in a program of one's own."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI

import d3ray.serving
from d3ray.data.decision_log import read_log

from ..platform.service.packages import Client, server, write_policy


def test_it_is_mounted_in_an_application_that_is_there(tmp_path: Path) -> None:
    write_policy("DQN", tmp_path / "p")
    outer = FastAPI()
    outer.mount("/robot", d3ray.serving.app(str(tmp_path / "p"), token="t", explore="epsilon", log=str(tmp_path / "log")))
    with server(outer) as address:
        client = Client(f"{address}/robot", "t")
        reply = client.act(episode="e")
        assert client.ask("/outcome", {"episode": "e", "step": 0, "reward": 1.0})[1]["answer"] == "recorded"
        assert Client(f"{address}/robot", None).ask("/health")[0] == 200
        assert Client(f"{address}/robot", None).ask("/status")[0] == 401
    assert read_log(tmp_path / "log", "decisions").to_pylist()[0]["id"] == reply["id"]
