"""`d3ray export SOURCE TARGET`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...platform.words import POLICY
from ..command.base import JobConfig, Result, option

_KINDS = {
    "onnx": "an ONNX graph",
    "torchscript": "a TorchScript module",
    "torch.export": "a torch.export program",
    "package": "a package",
}


class ExportConfig(JobConfig):
    """Policy to export, and where to."""

    source: str = option(
        ...,
        POLICY,
        operand=True,
        example="d3ray_results/hopper-first",
    )
    target: str | None = option(
        None,
        "where to: a file ending in .onnx, .pt (TorchScript) or .pt2 (torch.export), or a folder for a package; or such a URI; "
        "null: beside SOURCE, in the format that is said",
        operand=True,
        example="policy.onnx",
        also="out",
    )
    format: Literal["onnx", "torchscript", "torch.export", "package"] | None = option(None, "null: by TARGET's ending")
    seed: int | None = option(
        None, "which seed, where SOURCE holds several; null: the best of a trial or an experiment", also="policy_seed"
    )
    replace: bool = option(False, "write over an earlier TARGET")
    tracking: str | None = option(
        None, "MLflow's tracking URI for models:/…; null: MLFLOW_TRACKING_URI, else the database in storage"
    )
    storage: str = option("./d3ray_results", "results folder whose experiments may be named alone, and its MLflow database")


@dataclass(frozen=True, kw_only=True)
class ExportResult(Result):
    target: Path | str
    """A URI as it was given."""
    source: str
    """Which policy it is, in words."""


def run(config: ExportConfig) -> ExportResult:
    """Writes the policy of `source` at `target`. Raises ConfigError before any work: the ending or the target cannot be used."""
    from ...platform.api.policies import export

    about: dict[str, Any] = {"seed": config.seed, "replace": config.replace, "tracking": config.tracking, "storage": config.storage}
    made = export(config.source, config.target, format=config.format, **about)
    look = {made.noun: made.target}
    if made.kind == "package" and made.noun == "policy":
        look["try it"] = f"d3ray evaluate {made.target} environment=ID"
    told = f"Wrote {_KINDS[made.kind]}: the {made.noun} of {made.source}."
    return ExportResult(made=told, look=look, target=made.target if "://" in made.target else Path(made.target), source=made.source)
