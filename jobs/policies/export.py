"""`d3ray export SOURCE TARGET`: a trained policy as ONNX, TorchScript or a torch.export program, or as a policy package."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ...data.errors import ConfigError
from ...data.storage.files import storage_errors
from ..command.base import JobConfig, Result, option


class ExportConfig(JobConfig):
    """What is exported, and where to."""

    source: str = option(
        ...,
        "saved algorithm, checkpoint, trial or experiment folder (its best seed), policy package, or models:/NAME@ALIAS",
        operand=True,
        example="d3ray_results/hopper-first",
    )
    target: str = option(
        ...,
        "where to: a file ending in .onnx, .pt (TorchScript) or .pt2 (torch.export), or a folder for a policy package",
        operand=True,
        example="policy.onnx",
    )
    seed: int | None = option(None, "which seed, where SOURCE holds several; null: the best of a trial or an experiment")
    replace: bool = option(False, "write over an earlier TARGET")
    tracking: str | None = option(
        None, "MLflow's tracking URI for models:/…; null: MLFLOW_TRACKING_URI, else the database in storage"
    )
    storage: str = option("./d3ray_results", "results folder whose MLflow database holds models:/…")


@dataclass(frozen=True, kw_only=True)
class ExportResult(Result):
    """What was written."""

    target: Path
    source: str
    """Which policy it is, in words."""


def run(config: ExportConfig) -> ExportResult:
    """Writes the policy of `source` at `target`. Raises ConfigError before any work: the ending or the target cannot be used."""
    from ...algos.export.export import check_ending, save_portable
    from ...algos.export.graphs import portable
    from ...algos.export.package import copy_package, read_package
    from ...algos.export.packing import read_torch_policy
    from ...platform.tracking.policies import open_policy

    target = Path(config.target)
    check_ending(target)
    if target.exists() and not config.replace:
        raise ConfigError(f"There is {target} already: say --replace to write over it, or name another TARGET.")
    with open_policy(config.source, seed=config.seed, tracking=config.tracking, storage=config.storage) as found:
        if found.algorithm is not None:
            found.algorithm.save_policy(target)
        elif found.package is not None:
            if target.suffix in ("", ".onnx"):
                read_package(found.package)  # acts as its golden actions say
            if not target.suffix:
                copy_package(found.package, target)
            elif target.suffix == ".onnx":
                with storage_errors("written", target):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(found.package / "policy.onnx", target)
            else:
                save_portable(portable(read_torch_policy(found.package)), target)
    kind = {"": "a policy package", ".onnx": "an ONNX graph", ".pt": "a TorchScript module", ".pt2": "a torch.export program"}[
        target.suffix
    ]
    look = {"policy": str(target)}
    if not target.suffix:
        look["try it"] = f"d3ray evaluate {target} environment=ID"
    return ExportResult(made=f"Wrote {kind}: the policy of {found.what}.", look=look, target=target, source=found.what)
