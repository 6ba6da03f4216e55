"""Saved algorithms: the folder of a checkpoint, opened by `d3ray.load`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checkpoint import read_checkpoint, write_checkpoint
from .registry import algorithm_class

if TYPE_CHECKING:
    from .base import Algorithm


def save(algorithm: Algorithm, path: str | Path) -> None:
    """Writes everything that training goes on from. Raises StorageError; nothing is left half-written."""
    tensors, meta = algorithm.state()
    settings = {**meta, "seed": algorithm.seed}
    write_checkpoint(Path(path), tensors, settings)


def load(path: str | Path, device: str | None = None) -> Any:
    """The algorithm that `save` wrote, ready to predict or to be trained further.

    Raises:
        StorageError: the folder is not a whole checkpoint.
        ConfigError: it is of an algorithm that is not known here.
    """
    tensors, meta, _ = read_checkpoint(Path(path))
    cls = algorithm_class(meta["algorithm"])
    config = cls.Config.check(meta["config"], title=cls.__name__)
    settings = {name: getattr(config, name) for name in cls.Config.model_fields}
    algorithm = cls(**settings, seed=meta.get("seed", meta["seeds"][0]), device=device, dtype=meta["dtype"])
    return algorithm.load_state(tensors, meta)
