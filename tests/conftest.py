"""What every test gets: quiet libraries, a cache of its own, recorded data of other projects where there are some."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

# Before torch, ray and mlflow are imported: threads are read once, and nothing here looks up a host.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("MPLBACKEND", "agg")

import hypothesis
import pytest

hypothesis.settings.register_profile("d3ray", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("d3ray")

# A run in a script's background ignores Ctrl-C, and so would every command that a test starts to press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows the logs of what it talked to, where its fixtures know them."""
    report = yield
    for name, value in getattr(item, "funcargs", {}).items():
        if report.failed and hasattr(value, "logs"):
            report.sections.append((f"logs of {name}", value.logs()))
    return report


WITHOUT_RAY = {
    "test_checkpoints_in_stores",
    "test_cluster_file",
    "test_doctor_page",
    "test_kuberay",
    "test_launcher",
    "test_many_runs",
    "test_metric_files",
    "test_objective",
    "test_outbox",
    "test_promotion",
    "test_recipes",
    "test_recipes_killed",
    "test_published",
    "test_report",
    "test_report_seen",
    "test_search_space",
    "test_searchers",
    "test_statistics",
    "test_status",
    "test_suite",
    "test_storage",
    "test_suite_statistics",
    "test_sweep",
    "test_tracking",
    "test_tracking_tags",
    "test_datasets_job",
    "test_export_job",
    "test_live_view",
    "test_make_job",
    "test_options",
    "test_report_job",
}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that may start Ray share one worker process, so that no two clusters compete for the machine."""
    for item in items:
        floor = item.path.relative_to(Path(__file__).parent).parts[0]
        may_start = floor in ("platform", "jobs") and item.path.stem not in WITHOUT_RAY
        if may_start and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("ray"))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Node maps and the like go to a folder of the test run, not to the user's cache."""
    os.environ["D3RAY_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _no_tracking_server() -> None:
    """MLflow leaves the address that was last set globally in the environment; the next test would take it for the user's."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of recorded data that `D3RAY_TEST_DATA` names; the test skips without."""
    folder = os.environ.get("D3RAY_TEST_DATA")
    if not folder:
        pytest.skip("D3RAY_TEST_DATA names no folder of recorded data")
    return Path(folder)
