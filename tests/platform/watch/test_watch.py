"""A log that is watched: what is counted, what is an alarm, and who is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.errors import ConfigError, StorageError
from d3ray.jobs.command.running import run_command
from d3ray.platform.record.watch import Watched
from d3ray.platform.service.alarms import Alarms
from d3ray.platform.watch.keeping import RECORD, read_watched, watch
from d3ray.platform.watch.page import FILE
from d3ray.platform.watch.settings import AlarmSettings, WatchSettings

from .logs import recorded, serve


@pytest.fixture
def reference(tmp_path: Path) -> str:
    recorded().write(tmp_path / "recorded")
    return str(tmp_path / "recorded")


def watched(log: Path, **settings: Any) -> Watched:
    return watch(WatchSettings(log=str(log), **settings))[0]


class Hook(BaseHTTPRequestHandler):
    """Takes what is posted, and answers with a status."""

    posted: list[dict[str, Any]]
    status = 200

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[tuple[str, type[Hook]]]:
    kind = type("OwnHook", (Hook,), {"posted": []})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/alarms", kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_log_is_counted_and_its_returns_are_those_of_its_episodes(tmp_path: Path, reference: str) -> None:
    log = tmp_path / "log"
    serve(log, 30, version="1")
    serve(log, 30, version="2", seed=2, begin=10_000)
    serve(log, 5, version="3", seed=3, role="shadow")
    found = watched(log, reference=reference, windows=4)
    assert found.policy == "shop"
    counted = {(one.version, one.role): (one.decisions, one.episodes) for one in found.traffic}
    assert counted == {("1", "champion"): (90, 30), ("2", "champion"): (90, 30), ("3", "shadow"): (15, 5)}
    assert [(one.version, one.episodes) for one in found.returns] == [("1", 15), ("1", 15), ("2", 15), ("2", 15)]
    assert found.returns[0].begin == 0
    assert found.returns[-1].end == 10_000 + 29 * 60
    # nine times of ten the second number is taken where it pays, else its opposite: 0.9 · E[max(x, 0)] - 0.1 · E[max(-x, 0)]
    expected = 3 * 0.8 / np.sqrt(2 * np.pi)
    assert np.mean([one.mean for one in found.returns]) == pytest.approx(expected, abs=0.25)
    assert (found.waiting, found.alarms) == (0, ())


def test_a_world_that_moved_is_an_alarm_that_names_what_moved(tmp_path: Path, reference: str) -> None:
    log = tmp_path / "log"
    serve(log, 60, shift=1.5)
    found = watched(log, reference=reference)
    assert [one.kind for one in found.alarms] == ["drift"]
    assert "first observation[0]" in found.alarms[0].why
    assert "observation[1]" not in found.alarms[0].why
    page = (log / "watch" / FILE).read_text()
    assert "first observation[0]" in page
    assert read_watched_again(log) == found


def read_watched_again(log: Path) -> Watched | None:
    from d3ray.platform.storage.folders import Folder

    return read_watched(Folder(str(log / "watch")))


def test_a_log_in_a_bucket_is_watched_and_has_no_place_for_an_alarm(tmp_path: Path, reference: str) -> None:
    log, out = f"fsspec+memory://{tmp_path.name}/log", str(tmp_path / "out")
    serve(log, 60, shift=1.5, spool=tmp_path / "spool")
    found = watch(WatchSettings(log=log, reference=reference, out=out))[0]
    assert [one.kind for one in found.alarms] == ["drift"]
    assert sum(one.episodes for one in found.returns) == 60
    with pytest.raises(ConfigError, match="set_alarm writes a file"):
        watch(WatchSettings(log=log, out=out, set_alarm=True))
    with pytest.raises(ConfigError, match="first observation"):
        WatchSettings.checked({"log": log, "alarms": {"groups": ["first observations"]}})


def test_a_fallback_that_acts_often_is_an_alarm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    serve(log, 18)
    serve(log, 2, seed=2, role="fallback")
    found = watched(log)
    assert [one.why for one in found.alarms] == ["The fallback made 6 of 60 decisions, 10%."]
    assert found.reasons == {"late": 6}
    assert watched(log, alarms=AlarmSettings(fallback=0.1)).alarms == ()


def test_an_alarm_lets_the_fallback_of_that_policy_act_until_a_look_finds_none(tmp_path: Path, reference: str) -> None:
    log = tmp_path / "log" / "shop"  # one of several policies
    serve(log, 60, shift=1.5)
    alarms = Alarms(tmp_path / "log")
    watched(log, reference=reference)
    assert alarms.of("shop") is None
    watched(log, reference=reference, set_alarm=True)
    assert "first observation[0]" in (Alarms(tmp_path / "log").of("shop") or "")
    assert Alarms(tmp_path / "log").of("arm") is None
    watched(log, reference=reference, set_alarm=True, alarms=AlarmSettings(distance=1.0, outside=1.0))
    assert Alarms(tmp_path / "log").of("shop") is None


def test_low_returns_are_an_alarm_once_the_whole_interval_is_low(tmp_path: Path) -> None:
    log = tmp_path / "log"
    serve(log, 40)
    newest = watched(log, windows=1).returns[-1]
    assert newest.interval is not None
    low, high = newest.interval
    for least, is_alarmed in ((low, False), ((low + high) / 2, False), (high + 0.01, True)):
        found = watched(log, windows=1, alarms=AlarmSettings(returns=least))
        assert bool(found.alarms) is is_alarmed


def test_new_alarms_are_posted_once_and_kept_where_nobody_takes_them(tmp_path: Path, reference: str, hook: Any) -> None:
    address, server = hook
    log = tmp_path / "log"
    serve(log, 60, shift=1.5)
    server.status = 500
    with pytest.raises(StorageError, match=r"webhook of 127\.0\.0\.1 answered 500"):
        watched(log, reference=reference, webhook=address)
    assert read_watched_again(log) is not None
    (log / "watch" / RECORD).unlink()
    server.status = 200
    watched(log, reference=reference, webhook=address)
    watched(log, reference=reference, webhook=address)
    assert [[one["kind"] for one in told["alarms"]] for told in server.posted] == [["drift"], ["drift"]]
    with pytest.raises(ConfigError, match="webhook is no address"):
        watched(log, webhook="alarms.example.com/secret")


def test_the_command_says_it_with_its_status(tmp_path: Path, reference: str, capsys: pytest.CaptureFixture[str]) -> None:
    quiet, loud = tmp_path / "quiet", tmp_path / "loud"
    serve(quiet, 40)
    serve(loud, 60, shift=1.5)
    assert run_command("watch", [str(quiet), f"reference={reference}"]) == 0
    assert "No alarm: 40 of the newest episodes compared with 100 episodes of recorded." in capsys.readouterr().out
    assert run_command("watch", [str(loud), f"reference={reference}"]) == 3
    assert "Changed since the data were recorded: first observation[0]" in capsys.readouterr().out
    assert run_command("watch", [str(tmp_path)]) == 2
