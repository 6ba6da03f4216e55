"""From a service to a dataset: what was decided and what came of it is ingested with its probabilities."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from d3ray import Dataset
from d3ray.jobs.command.running import run_command

from .packages import serving


def test_decisions_and_outcomes_become_a_dataset(discrete: Path, other: Path, tmp_path: Path) -> None:
    """Three episodes of four steps and two decisions of no episode; a shadow beside them is left out."""
    log, seen = tmp_path / "log", np.random.default_rng(1).normal(size=(3, 4, 5)).astype(np.float32)
    settings = {"explore": {"name": "epsilon", "epsilon": 0.4}, "shadow": str(other), "log": str(log)}
    found: dict[tuple[str, int], tuple[int, float]] = {}
    with serving(discrete, **settings) as (client, _):
        for episode in range(3):
            for step in range(4):
                reply = client.act(seen[episode, step].tolist(), episode=f"e{episode}", step=step)
                found[f"e{episode}", step] = reply["action"], reply["log_prob"]
                outcome = {"episode": f"e{episode}", "step": step, "reward": episode + step / 4, "terminated": step == 3}
                assert client.ask("/outcome", outcome)[1]["answer"] == "recorded"
        for reward in (5.0, 6.0):
            reply = client.act(seen[0, 0].tolist())
            assert (reply["episode"], reply["state"]) == (reply["id"], None)
            assert client.ask("/outcome", {"decision": reply["id"], "reward": reward})[0] == 200
    assert run_command("ingest", [str(log), str(tmp_path / "data")]) == 0
    dataset = Dataset.open(tmp_path / "data")
    assert (dataset.n_episodes, dataset.n_transitions) == (5, 14)
    acted = ~np.asarray(dataset.columns["closing"], bool)
    action, log_prob = (np.asarray(dataset.columns[name])[acted] for name in ("action", "log_prob"))
    wanted = [found[f"e{episode}", step] for episode in range(3) for step in range(4)]
    in_order = {
        round(float(r), 3): (int(a), float(p))
        for r, a, p in zip(np.asarray(dataset.columns["reward"])[acted], action, log_prob, strict=True)
    }
    for k, (one, probability) in enumerate(wanted):
        assert in_order[round(k // 4 + k % 4 / 4, 3)] == (one, np.float32(probability))
    assert {round(math.exp(p), 3) for p in log_prob} <= {round(0.4 / 3, 3), round(0.6 + 0.4 / 3, 3)}
