"""From logs to a policy and back: rounds that train, judge, try out, promote and go back, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.loop.registering import CANARY, champion_of
from d3ray.platform.loop.run import run_round, watch_over
from d3ray.platform.loop.settings import LoopSettings
from d3ray.platform.loop.state import FILE, folder_of, held
from d3ray.platform.tracking.registered import registry, tracking_uri

from ..service.packages import serving
from .shop import recorded, settings, sold, visit

MINUTES = pytest.mark.long


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    recorded().write(tmp_path / "recorded")
    return tmp_path


def loop(folder: Path, **more: Any) -> LoopSettings:
    return LoopSettings.checked(settings(folder, **more))


def canary_of(folder: Path) -> str | None:
    with registry(tracking_uri(None, str(folder / "results"))) as client:
        version = client.get_registered_model("shop").aliases.get(CANARY)
    return None if version is None else str(version)


@MINUTES
def test_rounds_lead_from_data_to_a_champion_and_to_a_better_one(shop: Path) -> None:
    log, results = shop / "log", shop / "results"
    config = loop(shop, ingest={"least": 50}, canary={"episodes": 60})
    first = run_round(config).rounds[-1]
    assert (first.number, first.ended, first.version) == (1, "promoted", "1")
    assert champion_of(str(results), "shop") == "1"

    bought = visit(log, results, "1", 400, seed=1)
    assert bought > 0.7  # of what is offered at random half is bought; 0.85 is what the best offer gets with ε = 0.3

    waits = run_round(config)  # the champion of round 1 has no equal in round 2 but by chance, so either way is right
    if waits.step == "canary":
        assert canary_of(shop) == "2"
        visit(log, results, "2", 80, seed=2, role="canary", begin=time.time() + 1)
        visit(log, results, "1", 300, seed=3, begin=time.time() + 1)
        ended = run_round(config).rounds[-1]
        assert ended.ended in ("promoted", "not promoted")
        assert canary_of(shop) is None
    else:
        assert waits.rounds[-1].ended == "not promoted"
    assert run_round(config).rounds[-1].ended in ("nothing new", "promoted", "not promoted")


@MINUTES
def test_a_service_follows_the_loop_and_the_loop_its_log(shop: Path) -> None:
    """Visitors ask a service over HTTP; the loop's versions act there, first in a share of the episodes."""
    log, results = shop / "log", shop / "results"
    config = loop(shop, ingest={"least": 50}, canary={"episodes": 40})
    assert run_round(config).rounds[-1].ended == "promoted"
    told = {"explore": {"name": "epsilon", "epsilon": 0.3}, "canary": "models:/shop@canary", "canary_share": 0.3}
    with serving("models:/shop@champion", log=str(log), storage=str(results), **told) as (client, service):
        (policy,) = service.policies.values()

        def served(visitors: int, seed: int) -> dict[str, int]:
            rng, by = np.random.default_rng(seed), dict[str, int]()
            for k in range(visitors):
                seen = rng.standard_normal((1, 2)).astype(np.float32)
                reply = client.act(seen[0].tolist(), episode=f"visitor-{seed}-{k}", step=0)
                bought = float(sold(seen, np.array([reply["action"]]))[0])
                answer = client.ask("/outcome", {"decision": reply["id"], "reward": bought, "terminated": True})[1]
                assert answer["answer"] == "recorded"
                by[reply["role"]] = by.get(reply["role"], 0) + 1
            return by

        assert served(120, seed=1) == {"champion": 120}
        state = run_round(config)
        assert len(state.rounds) + (state.step == "canary") == 2
        if state.step == "canary":
            policy.look()
            assert served(250, seed=2)["canary"] >= 40
            state = run_round(config)
        assert state.rounds[-1].version == "2"
        policy.look()
        acting = champion_of(str(results), "shop")
        assert policy.champion.label == acting == ("2" if state.rounds[-1].ended == "promoted" else "1")
        assert set(served(20, seed=3)) == {"champion"}


@MINUTES
def test_tastes_that_change_are_noticed_and_learned(shop: Path) -> None:
    log, results = shop / "log", shop / "results"
    alarms = {"returns": 0.6, "groups": ["reward"]}
    config = loop(shop, ingest={"least": 50}, base=None, watch={"alarms": alarms, "last": 400, "windows": 2})
    begun = loop(shop, ingest={"least": 50})
    assert run_round(begun).rounds[-1].ended == "promoted"
    visit(log, results, "1", 1500, seed=1, taste=-1.0)
    found, gone = watch_over(config.model_copy(update={"base": begun.base}))
    assert found is not None
    assert "returns" in {one.kind for one in found.alarms}
    assert gone is None  # nobody asked for it
    ended = run_round(config).rounds[-1]
    assert ended.ended == "promoted"
    assert visit(log, results, ended.version or "", 300, seed=2, taste=-1.0) > 0.7


@MINUTES
def test_an_alarm_after_a_promotion_gives_the_champion_before_back(shop: Path) -> None:
    log, results = shop / "log", shop / "results"
    config = loop(shop, ingest={"least": 50}, watch={"alarms": {"returns": 0.95}, "windows": 1}, roll_back_on=["returns"])
    assert run_round(config).rounds[-1].ended == "promoted"
    visit(log, results, "1", 100, seed=1)
    found, gone = watch_over(config)
    assert found is not None
    assert [one.kind for one in found.alarms] == ["returns"]
    assert gone is not None
    assert gone.version is None  # it is the only champion that there was
    assert champion_of(str(results), "shop") == "1"


@MINUTES
def test_a_loop_that_is_killed_at_each_step_comes_to_the_same_end(shop: Path, tmp_path: Path) -> None:
    config_file = tmp_path / "loop.json"
    config_file.write_text(json.dumps(settings(shop)))
    state_file = folder_of(str(shop / "results"), "shop") / FILE
    command = [sys.executable, "-m", "d3ray.jobs", "loop", "--config", str(config_file)]
    killed = list[str]()
    for step in ("train", "register", "judge"):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        until = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:
            if state_file.exists() and json.loads(state_file.read_text())["step"] == step:
                os.killpg(process.pid, signal.SIGKILL)
                killed.append(step)
                break
            time.sleep(0.01)
        process.wait()
    assert {"train", "judge"} <= set(killed)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Round 1: promoted." in done.stdout
    with registry(tracking_uri(None, str(shop / "results"))) as client:
        assert [str(one.version) for one in client.search_model_versions("name = 'shop'")] == ["1"]


def test_settings_that_cannot_be_are_refused_before_any_work(tmp_path: Path) -> None:
    for more, said in (
        ({"sweep": {}}, "train and sweep are two ways to a policy"),
        ({"stop_on": ["no_rewards"]}, "he doctor finds nothing called 'no_rewards'"),
        ({"judge": {"dataset": "x"}}, "judge.dataset is the loop's own"),
        ({"name": "a/b"}, "ame is 'a/b'"),
        ({"train": {"algorithm": "DiscreteIQQ"}}, "DiscreteIQL"),
    ):
        with pytest.raises(ConfigError, match=f"(?i){said}"):
            LoopSettings.checked({**settings(tmp_path), **more})
    assert not (tmp_path / "results").exists()


def test_a_loop_runs_once(tmp_path: Path) -> None:
    folder = folder_of(str(tmp_path), "shop")
    with held(folder), pytest.raises(ConfigError, match="The loop 'shop' runs already"), held(folder):
        pass
