"""What every test gets: quiet libraries, a cache of its own, recorded data of other projects where there are some."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

# Before torch, ray and mlflow are imported: threads are read once, and nothing here looks up a host.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("MPLBACKEND", "agg")

import hypothesis
import pytest

hypothesis.settings.register_profile("d3ray", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("d3ray")


def no_sync(descriptor: int) -> None:
    """No test cuts the power, and what is killed leaves to the system what it wrote; a sync waits for all that others write."""


os.fsync = no_sync

gc.set_threshold(50_000)  # a tenth of the run's time; what a test says of garbage it collects itself

# A run in a script's background ignores Ctrl-C, and so would every command that a test starts to press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """The checkout's folder is the package by whose name tests import each other."""
    checkout = Path(__file__).parents[1]
    if not checkout.name.isidentifier():
        raise pytest.UsageError(
            f"The folder {checkout} is the package that the tests are in, and {checkout.name!r} is no name of a module: call it "
            f"{checkout.name.replace('-', '_')!r}."
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows the logs of what it talked to, where its fixtures know them."""
    report = yield
    for name, value in getattr(item, "funcargs", {}).items():
        if report.failed and hasattr(value, "logs"):
            report.sections.append((f"logs of {name}", value.logs()))
    return report


FIRST = (  # what takes long, so that both worker processes end together
    ("tests/algos/testing/test_contract.py",),
    ("tests/house/test_docs.py",),
    ("tests/jobs/test_submit_job.py",),
    ("tests/platform/experiment/test_resume.py",),
    ("tests/faults/",),
    ("tests/platform/", "tests/jobs/"),
    ("tests/house/",),
    ("tests/algos/",),
)
TOGETHER = "tests/faults/"  # these share a cluster


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A test module goes to one worker process as a whole, in the order of collection, so that its fixtures are made once.

    Marks of `xdist_group` have no effect where pytest lets nobody change a test's id.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByModule(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER if nodeid.startswith(TOGETHER) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return ByModule(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long modules come first, and those that share a Ray next to each other. What needs a GPU skips without one."""

    def place(item: pytest.Item) -> tuple[int, bool]:
        at = next((i for i, starts in enumerate(FIRST) if item.nodeid.startswith(starts)), len(FIRST))
        return at, not asks_for_ray[item.path]

    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            for item in items:
                if item.get_closest_marker("gpu"):
                    item.add_marker(pytest.mark.skip(reason="there is no GPU here that torch can use"))
    asks_for_ray: defaultdict[Path, bool] = defaultdict(bool)
    for item in items:
        asks_for_ray[item.path] |= "local_ray" in getattr(item, "fixturenames", ())
    items.sort(key=place)


class LocalRay:
    """A Ray of two CPUs for the tests of this process, from when one asks for it.

    Attributes:
        folder: Its workers can import what lies there, and so can this process.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open = ExitStack()

    def start(self) -> None:
        """Once."""
        import ray

        from d3ray.platform.cluster.session import ray_session
        from d3ray.platform.driver.trials import prepare_environment

        if str(self.folder) not in sys.path:  # a module's own patch of the path, which was there first, may have taken it back
            sys.path.insert(0, str(self.folder))
        if ray.is_initialized():
            return
        (self.folder / "sitecustomize.py").write_text(
            "import gc, os\nos.fsync = lambda descriptor: None\ngc.set_threshold(50_000)\n"
        )  # as in this process
        patch = self._open.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PYTHONPATH", os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")]))
        prepare_environment()
        self._open.enter_context(ray_session(address="local", num_cpus=2))

    def end(self) -> None:
        """Until the next one asks."""
        self._open.close()
        with suppress(ValueError):
            sys.path.remove(str(self.folder))


@pytest.fixture(scope="session")
def _local_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRay]:
    ray = LocalRay(tmp_path_factory.mktemp("plugins"))
    yield ray
    ray.end()


@pytest.fixture(scope="module")
def local_ray(_local_ray: LocalRay) -> Path:
    """A Ray of two CPUs is there, which tests share: to start one takes longer than most of them.

    Gives a folder for modules that workers are to import, each under a name that no other test uses. Variables of the environment
    that a test sets do not reach the workers.
    """
    _local_ray.start()
    return _local_ray.folder


@pytest.fixture(scope="module", autouse=True)
def _no_ray(request: pytest.FixtureRequest, _local_ray: LocalRay) -> None:
    """A module of which no test asks for `local_ray` finds no Ray, whatever ran before it."""
    if not any("local_ray" in getattr(item, "fixturenames", ()) for item in request.session.items if item.path == request.path):
        _local_ray.end()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Node maps, logs of jobs and the like go to folders of the test run, not to the user's."""
    os.environ["D3RAY_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


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
