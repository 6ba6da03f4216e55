"""Data-driven (offline) deep RL on Ray: ingest logs, train over seeds, compare runs, take a policy away.

Importing this package is cheap: its names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import algos, data
from .algos.registry import read_foreign_by
from .algos.spellings import known_as
from .data.lazy import lazily
from .data.version import __version__ as __version__

if TYPE_CHECKING:
    from .algos import *  # noqa: F403
    from .data import *  # noqa: F403
    from .facades.mdp_dataset import MDPDataset as MDPDataset
    from .platform.datasets.map_batches import map_batches as map_batches
    from .platform.ray_data import ShardSink as ShardSink
    from .platform.ray_data import from_ray as from_ray
    from .platform.ray_data import to_ray as to_ray
    from .platform.report.notebook import plot as plot
    from .platform.tracking.logger import MLflowLogger as MLflowLogger
    from .platform.worker.actors import RayActors as RayActors

__path__.append(str(Path(__file__).parent / "facades"))  # what stands there is imported as `d3ray.d3rlpy`  # noqa: F405
_FACADES = ("context", "d3rlpy", "datasets", "experiments", "gpu", "metrics", "ope", "pfrl")
DOORS = {
    "MDPDataset": ".mdp_dataset",
    "MLflowLogger": ".platform.tracking.logger",
    "RayActors": ".platform.worker.actors",
    "ShardSink": ".platform.ray_data",
    "from_ray": ".platform.ray_data",
    "map_batches": ".platform.datasets.map_batches",
    "plot": ".platform.report.notebook",
    "to_ray": ".platform.ray_data",
}
_own, _doors = lazily(__name__, DOORS)
__all__ = algos.__all__ + data.__all__ + _doors + ["datasets"]  # noqa: F405, PLE0605 # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _FACADES:  # as d3ray.metrics.td_error_scorer is written where nobody has imported the module
        return importlib.import_module(f"{__name__}.{name}")
    floor = algos if name in algos.__all__ else data
    if name not in __all__ and (meant := known_as(name, algos.__all__)):
        raise AttributeError(f"module 'd3ray' has no attribute {name!r}; did you mean {meant!r}?", name=meant)
    if name not in __all__:
        raise AttributeError(f"module 'd3ray' has no attribute {name!r}")
    if name in _doors:
        return _own(name)
    return floor.__getattr__(name)  # not by getattr: of `doctor` there is a package, too


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _read_foreign(path: Path, device: Any) -> Any:
    return importlib.import_module(f"{__name__}.d3rlpy.files").load_d3(path, device)


read_foreign_by(_read_foreign)
