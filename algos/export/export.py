"""A policy for use without d3ray, in the form that a path's ending names: one file, or a policy package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...data.errors import ConfigError
from ...data.spec import Environment
from ...data.storage.files import storage_errors, write_atomically
from ..acting.fitted import policy
from ..learning.estimator import Estimator
from ..saving.parts import check_free
from .graphs import WRITERS, Portable, portable
from .model_packing import portable_model, write_model_package
from .packing import data_record, told, write_package


def export(algorithm: Estimator, path: str | Path, *, overwrite: bool = False) -> None:
    """Export an algorithm for use without d3ray, its policy or the model that it is; arguments as `save_policy`'s."""
    (export_model if algorithm.models_dynamics else save_policy)(algorithm, path, overwrite=overwrite)


def export_model(algorithm: Estimator, path: str | Path, *, overwrite: bool = False) -> None:
    """The model of a trained `ProbabilisticEnsemble`: see `ProbabilisticEnsemble.export`."""
    _free(path, overwrite)
    if Path(path).suffix:
        save_portable(_told_of(portable_model(algorithm), algorithm), Path(path))
    else:
        write_model_package(algorithm, path)


def save_policy(algorithm: Estimator, path: str | Path, *, overwrite: bool = False) -> None:
    """The greedy policy of a trained algorithm, raw observations to raw actions, for use without d3ray.

    The path's ending chooses: `.onnx` (opset 20, one file, any batch size), `.pt` (TorchScript), `.pt2` (torch.export); without an
    ending, a policy package (see `package.write_package`). ONNX inputs are `observation`, or one `observation/KEY` for each key of
    a dict, in the data's type; the output is `action`. Its metadata (`metadata_props`) say what it is: `d3ray.algorithm`,
    `d3ray.spaces` (JSON, with names and bounds), `d3ray.environment` and so on.

    Args:
        algorithm: Trained.
        path: Where to.
        overwrite: Replace what is there.

    Raises:
        ConfigError: the ending is another one, the place is taken and `overwrite` not said, or the algorithm has not been trained.
        StorageError: the place cannot be written.
    """
    _free(path, overwrite)
    if Path(path).suffix:
        save_portable(_told_of(portable(policy(algorithm.fitted)), algorithm), Path(path))
    else:
        write_package(algorithm, path)


def _told_of(made: Portable, algorithm: Estimator) -> Portable:
    data = algorithm.fitted.sources.data
    place = Environment(id=named) if isinstance(named := data.get("environment"), str) else None
    return replace(made, about=told(algorithm.seed, algorithm.step, data_record(data), place))


def _free(path: str | Path, overwrite: bool) -> None:
    check_ending(path)
    check_free(Path(path), overwrite)


def check_ending(path: str | Path) -> None:
    if (ending := Path(path).suffix) and ending not in WRITERS:
        known = ", ".join(WRITERS)
        raise ConfigError(
            f"{path} ends in {ending!r}, which no form of a policy does; choose from {known}, or no ending: a package."
        )


def save_portable(policy: Portable, path: Path) -> None:
    """One file, in the form of its ending. Arguments and errors as for `save_policy`."""
    check_ending(path)
    content = WRITERS[path.suffix](policy)
    with storage_errors("written", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
