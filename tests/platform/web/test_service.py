"""The page of services shows what the watch found, and where loops stand."""

from __future__ import annotations

from pathlib import Path

from d3ray.platform.loop.state import folder_of, write_state
from d3ray.platform.record.loop import LoopState, RoundEnd
from d3ray.platform.watch.keeping import watch
from d3ray.platform.watch.settings import WatchSettings

from ..watch.logs import recorded, serve
from .site_server import Served


def test_what_the_watch_found_is_shown(served: Served, tmp_path: Path) -> None:
    assert "No service is shown here" in served.get("/service").text
    log = tmp_path / "log"
    object.__setattr__(served.site, "services", (str(log),))
    assert "Nobody has looked at this log yet" in served.get("/service").text
    serve(log, 60, shift=1.5)
    recorded().write(tmp_path / "recorded")
    watch(WatchSettings(log=str(log), reference=str(tmp_path / "recorded")))
    page = served.get("/service").text
    assert "Changed since the data were recorded: first observation[0]" in page
    assert "<td>champion</td>" in page
    whole = served.get("/service/0/page")
    assert "Mean return of the episodes" in whole.text
    assert "default-src 'none'" in whole.headers["Content-Security-Policy"]
    for absent, status in (("1", 404), ("-1", 404), ("9" * 40, 404), ("one", 404), ("%00", 404)):
        assert served.get(f"/service/{absent}/page").status_code in (status, 400, 422), absent


def test_where_a_loop_stands_is_shown_and_its_words_are_no_markup(served: Served) -> None:
    hostile = "<script>alert(1)</script>"
    end = RoundEnd(number=1, ended="not promoted", why=hostile, episodes=5, fingerprint="f", version="1", begun=0.0, time=1.0)
    folder = folder_of(served.site.storage, "shop")
    folder.mkdir(parents=True)
    write_state(folder, LoopState(name="shop", number=2, step="canary", begun=2.0, rounds=(end,)))
    page = served.get("/service").text
    assert "Round 2, next step: canary." in page
    assert "not promoted" in page
    assert hostile not in page
    assert "&lt;script&gt;" in page
