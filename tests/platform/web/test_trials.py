"""Trials of a sweep that was begun from the page: one is stopped, then all, and one alone goes on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from d3ray import experiments
from d3ray.platform.record.status import Status

from .site_server import Served

STEPS = 6000


@pytest.mark.long
@pytest.mark.timeout(600)
def test_one_trial_is_stopped_and_goes_on(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    served.post("/datasets/shipped", {"name": "cartpole-replay"})
    served.until("/datasets", "ready")
    form = {"dataset": "cartpole-replay", "algorithm": "DiscreteBC", "algorithm.learning_rate": "0.001 | 0.01", "name": "rates"}
    form |= {"n_steps": str(STEPS), "n_steps_per_epoch": "200", "seeds": "0", "holdout": "0.1", "metric": "holdout/action_match"}
    answer = served.post("/experiments", form)
    assert answer.url.endswith("/experiments/rates"), answer.text
    handle = experiments.open("rates", storage=served.site.storage)

    def until(what: Callable[[Status], bool]) -> Status:
        end = time.monotonic() + 240
        while not what(now := handle.status()):
            assert time.monotonic() < end, now
            assert not now.is_over, handle.logs()
            time.sleep(0.1)
        return now

    first, second = (one.identity for one in until(lambda now: [one.step > 0 for one in now.trials] == [True, True]).trials)
    served.post("/experiments/rates/cancel", {"trial": first})
    until(lambda now: now.trials[0].state == "KILLED")
    assert "Go on with it" not in served.get("/experiments/rates/state").text  # while the other runs
    served.post("/experiments/rates/cancel")
    stopped = until(lambda now: now.is_over)
    assert [one.state for one in stopped.trials] == ["KILLED", "KILLED"]
    page = served.get("/experiments/rates").text
    assert re.findall(r'/resume"><button name="trial" value="([^"]+)"[^>]*>Go on with it<', page) == [first, second]

    assert served.post("/experiments/rates/resume", {"trial": "nobody"}).status_code == 404
    assert served.post("/experiments/rates/resume", {"trial": first}).url.endswith("/experiments/rates")
    ended = until(lambda now: now.is_over)
    assert [(one.state, one.step) for one in ended.trials] == [("FINISHED", STEPS), ("KILLED", stopped.trials[1].step)]
    page = served.get("/experiments/rates").text
    assert re.findall(r'<button name="trial" value="([^"]+)"[^>]*>Go on with it<', page) == [second]
