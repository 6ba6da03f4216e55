"""Who acts beside the champion and in its place: canary, shadow, and the fallback with each of its reasons."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.service.recording import Unkept

from .packages import OBSERVATION, serving, until, write_policy


def episodes(n: int) -> list[dict[str, Any]]:
    return [{"observation": OBSERVATION, "episode": f"e{k}"} for k in range(n)]


def test_a_canary_has_its_share_of_episodes_and_keeps_them(discrete: Path, other: Path) -> None:
    with serving(discrete, canary=str(other), canary_share=0.3) as (client, service):
        replies = client.ask("/act", {"decisions": episodes(250)})[1]["decisions"]
        again = client.ask("/act", {"decisions": [{**one, "step": 1} for one in episodes(250)]})[1]["decisions"]
        (policy,) = service.policies.values()
        label = policy.status()["canary"]["version"]
    roles = [reply["role"] for reply in replies]
    assert roles == [reply["role"] for reply in again], "sticky"
    assert roles.count("canary") == pytest.approx(75, abs=25)
    assert {reply["version"] for reply in replies if reply["role"] == "canary"} == {label}


def test_a_shadow_is_logged_and_changes_nothing(looks_back: Path, folder: Path) -> None:
    """It remembers the episode too, by the same state: what is logged is what it would answer itself."""
    shadow = write_policy("DecisionTransformer", folder / "shadow", seed=3)
    kept = Unkept(keep=True)
    with (
        serving(looks_back, shadow=str(shadow), record=lambda name, version: kept) as (client, _),
        serving(looks_back) as (plain, _),
        serving(shadow) as (alone, _),
    ):
        states: list[Any] = [{"episode": "e"}] * 3
        for step in range(3):
            found = [one.act(**about) for one, about in zip((client, plain, alone), states, strict=True)]
            states = [{"state": reply["state"], "reward": 0.5} for reply in found]
            assert found[0]["action"] == found[1]["action"]
            acted, beside = kept.rows[-2:]
            assert (acted.role, beside.role, beside.step) == ("champion", "shadow", step)
            np.testing.assert_allclose(acted.action, found[0]["action"])
            np.testing.assert_allclose(beside.action, found[2]["action"], atol=1e-6)
            states[2]["executed"] = found[0]["action"]  # what was done is the champion's, and the shadow knows


def test_the_fallback_acts_on_alarm(discrete: Path, tmp_path: Path) -> None:
    with serving(discrete, fallback="1", log=str(tmp_path / "log")) as (client, _):
        before = client.act()
        assert client.ask("/alarm", {"on": True, "why": "drift"})[0] == 200
        during = client.act(episode="e")
        assert client.ask("/status")[1]["alarm"] == "drift"
        (tmp_path / "log" / "alarm.json").unlink()
        until(lambda: client.act()["role"] == "champion")
        (tmp_path / "log" / "alarm.json").write_text('{"on": true, "why": "a watcher wrote this", "policy": "dqn"}')
        until(lambda: client.act()["role"] == "fallback")
        client.ask("/alarm", {"on": False, "policy": "dqn"})
        after = client.act()
    assert [reply["role"] for reply in (before, during, after)] == ["champion", "fallback", "champion"]
    assert (during["action"], during["reason"], during["version"]) == (1, "alarm: drift", "rule")


def rule(observation: np.ndarray, legal: np.ndarray | None) -> int:
    return int(legal is not None and not legal[0]) * 2


def broken(observation: np.ndarray, legal: np.ndarray | None) -> int:
    raise RuntimeError("it broke")


def test_the_fallback_acts_where_a_policy_fails_or_is_late(discrete: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Unkept(keep=True)
    function = f"{__name__}:rule"
    with serving(discrete, fallback=function, bounds={"seconds": 0.2}, record=lambda *_: kept) as (client, service):
        (policy,) = service.policies.values()
        session = policy.champion.policy._session

        class Failing:
            def run(self, *_: Any) -> Any:
                raise RuntimeError("out of memory")

        class Slow:
            def run(self, *given: Any) -> Any:
                gate.wait(30)
                return session.run(*given)

        gate = threading.Event()
        policy.champion.policy._session = Failing()
        failed = client.act(action_mask=[False, True, True])
        policy.champion.policy._session = Slow()
        late = client.act(episode="late")
        gate.set()
        policy.champion.policy._session = session
        until(lambda: client.act()["role"] == "champion")
    assert (failed["action"], failed["reason"], failed["version"]) == (2, "failed: out of memory", function)
    assert (late["action"], late["reason"]) == (0, "late")
    assert [row.role for row in kept.rows if row.episode == "late"] == ["fallback"], "what came too late is not logged as done"


def test_a_failing_policy_without_a_fallback(discrete: Path) -> None:
    with serving(discrete) as (client, service):
        (policy,) = service.policies.values()
        policy.champion.policy._session = None
        status, sentence = client.refused({"observation": OBSERVATION})
    assert status == 503
    assert "dqn cannot act here: failed" in sentence


def test_a_fallback_that_cannot_be(discrete: Path, continuous: Path, draws: Path) -> None:
    for said, part in (
        ("7", "no action here"),
        ("[1, 2]", "no action here"),
        ("no.module:rule", "cannot be imported"),
        (f"{__name__}:rul", "did you mean 'rule'"),
        (str(continuous), "other spaces"),
        ("nowhere", "nothing is there"),
    ):
        with pytest.raises(ConfigError, match=part), serving(discrete, fallback=said):
            pass
    with pytest.raises(ConfigError, match="or draws"), serving(continuous, fallback=str(draws)):
        pass
    with serving(discrete, fallback=f"{__name__}:broken") as (client, service):
        (policy,) = service.policies.values()
        policy.champion.policy._session = None
        assert "failed: it broke" in client.refused({"observation": OBSERVATION})[1]


def test_out_of_the_range_of_the_data_the_fallback_acts(tmp_path: Path) -> None:
    """Data in [-1, 1] and [0, 4]: (1.5, 5) is a quarter of a width beyond in both, and its nearest is measured by hand."""
    from d3ray.data.dataset import Dataset

    seen = np.float32([[-1, 0], [1, 4], [0, 2], [0, 2]])
    data = Dataset.from_arrays(seen, np.zeros(4, int), np.zeros(4), np.array([False, False, False, True]), name="small")
    data.write(tmp_path / "data")
    wide = Dataset.from_arrays(
        np.float32(np.random.default_rng(0).normal(size=(60, 2))), np.arange(60) % 2, np.ones(60), np.arange(60) % 9 == 8
    )
    policy = write_policy("DQN", tmp_path / "p", dataset=wide)
    about: dict[str, Any] = {"reference": str(tmp_path / "data"), "fallback": "0"}
    with serving(policy, outside=0.25, **about) as (client, _), serving(policy, outside=0.24, **about) as (strict, _):
        reply = client.act([1.5, 5.0], explain=True)
        other = strict.act([1.5, 5.0])
        within = strict.act([1.0, 4.0], explain=True)
    assert (reply["role"], other["role"], within["role"]) == ("champion", "fallback", "champion")
    assert other["reason"] == "outside: 0.25 widths beyond the reference's range"
    sigma = seen.astype(np.float64).std(0)
    assert reply["explain"]["nearest"] == pytest.approx(np.sqrt((((np.array([0.5, 1.0])) / sigma) ** 2).mean()), rel=1e-6)
    assert within["explain"]["nearest"] == 0
