"""`d3ray export SOURCE TARGET`: a trained policy as ONNX, TorchScript or a torch.export program, or as a policy package."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...data.errors import ConfigError
from ...data.storage.files import storage_errors
from ..command.base import JobConfig, Result, option

_ENDINGS = {"onnx": ".onnx", "torchscript": ".pt", "torch.export": ".pt2", "package": ""}


class ExportConfig(JobConfig):
    """What is exported, and where to."""

    source: str = option(
        ...,
        "saved algorithm, checkpoint, trial or experiment folder (its best seed), policy package, or models:/NAME@ALIAS",
        operand=True,
        example="d3ray_results/hopper-first",
    )
    target: str | None = option(
        None,
        "where to: a file ending in .onnx, .pt (TorchScript) or .pt2 (torch.export), or a folder for a policy package; "
        "null: beside SOURCE, in the format that is said",
        operand=True,
        example="policy.onnx",
        also="out",
    )
    format: Literal["onnx", "torchscript", "torch.export", "package"] | None = option(None, "null: by TARGET's ending")
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

    target = _target(config)
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
    kind = {"": "a policy package", ".onnx": "an ONNX graph", ".pt": "a TorchScript module", ".pt2": "a torch.export program"}
    look = {"policy": str(target)}
    if not target.suffix:
        look["try it"] = f"d3ray evaluate {target} environment=ID"
    return ExportResult(
        made=f"Wrote {kind[target.suffix]}: the policy of {found.what}.", look=look, target=target, source=found.what
    )


def _target(config: ExportConfig) -> Path:
    """Where to: what is said, else beside the source, or in this folder for what has no place on this machine."""
    ending = None if config.format is None else _ENDINGS[config.format]
    if config.target is not None:
        target = Path(config.target)
        if ending is not None and target.suffix != ending:
            raise ConfigError(
                f"TARGET is {target} and format is {config.format}, which ends in {ending or 'nothing'}: leave one out."
            )
        return target
    if ending is None:
        raise ConfigError("d3ray export needs TARGET or format: where to, or as what beside SOURCE.")
    if not (source := Path(config.source)).exists():
        return Path(re.sub(r"[^\w.-]+", "-", config.source.rpartition(":")[2].strip("/")) + (ending or "-policy"))
    source = source if source.name not in ("", "..") else source.resolve()
    name = source.stem if source.is_file() else source.name
    return source.with_name(f"{name}{ending or '-policy'}")
