"""A policy for use without d3ray, in the form that a path's ending names: one file, or a policy package."""

from __future__ import annotations

from pathlib import Path

from ...data.errors import ConfigError
from ...data.storage.files import storage_errors, write_atomically
from ..acting.fitted import policy
from ..learning.estimator import Estimator
from ..saving.parts import check_free
from .graphs import WRITERS, Portable, portable
from .model_packing import portable_model, write_model_package
from .packing import write_package


def export(algorithm: Estimator, path: str | Path, *, overwrite: bool = False) -> None:
    """What an algorithm leaves for use without d3ray, its policy or the model that it is; arguments as `save_policy`'s."""
    (export_model if algorithm.models_dynamics else save_policy)(algorithm, path, overwrite=overwrite)


def export_model(algorithm: Estimator, path: str | Path, *, overwrite: bool = False) -> None:
    """The model of a trained `ProbabilisticEnsemble`: see `ProbabilisticEnsemble.export`."""
    _free(path, overwrite)
    if Path(path).suffix:
        save_portable(portable_model(algorithm), Path(path))
    else:
        write_model_package(algorithm, path)


def save_policy(algorithm: Estimator, path: str | Path, *, overwrite: bool = False) -> None:
    """The greedy policy of a trained algorithm, raw observations to raw actions, for use without d3ray.

    The path's ending chooses: `.onnx` (opset 20, one file, any batch size), `.pt` (TorchScript), `.pt2` (torch.export); without an
    ending, a policy package (see `package.write_package`). ONNX inputs are `observation`, or one `observation/KEY` for each key of
    a dict, in the data's type; the output is `action`.

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
        save_portable(portable(policy(algorithm.fitted)), Path(path))
    else:
        write_package(algorithm, path)


def _free(path: str | Path, overwrite: bool) -> None:
    check_ending(path)
    check_free(Path(path), overwrite)


def check_ending(path: str | Path) -> None:
    """Raises ConfigError for an ending that names no form."""
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
