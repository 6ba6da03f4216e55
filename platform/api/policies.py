"""Policies of experiments: taken away, and made champions."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Literal

from ...data.errors import ConfigError
from ...data.spec import Environment
from ...data.storage.files import storage_errors
from ...data.uris import is_remote
from ..storage.targets import ending, is_there, written_to
from .told import Played, Policy, Promotion

Format = Literal["onnx", "torchscript", "torch.export", "package"]
_ENDINGS: dict[Format, str] = {"onnx": ".onnx", "torchscript": ".pt", "torch.export": ".pt2", "package": ""}
_FORMATS: dict[str, Format] = {ending: name for name, ending in _ENDINGS.items()}


def export(
    source: str,
    target: str | None = None,
    *,
    format: Format | None = None,
    seed: int | None = None,
    replace: bool = False,
    tracking: str | None = None,
    storage: str = "./d3ray_results",
) -> Policy:
    """Writes a policy: raw observations in, raw actions out, without d3ray.

    Args:
        source: A saved algorithm, checkpoint, trial or experiment folder (its best seed), policy package, or models:/NAME@ALIAS.
        target: A file ending in .onnx, .pt (TorchScript) or .pt2 (torch.export), or a folder for a policy package, as path or URI;
            None: beside the source, in the format that is said.
        format: None: by the target's ending.
        seed: Where the source has several; None: the best.
        replace: Write over what is there.
        tracking: MLflow's tracking URI for models:/…; None: MLFLOW_TRACKING_URI, else the database in the storage.
        storage: Folder or URI of all results, whose MLflow database has models:/….

    Raises:
        ConfigError: before any work: the target cannot be used; there is no such policy.
        StorageError: something cannot be read or written.
    """
    from ...algos.export.export import check_ending, save_portable
    from ...algos.export.graphs import portable
    from ...algos.export.package import copy_package, read_package
    from ...algos.export.packing import read_torch_policy
    from ..tracking.policies import open_policy

    where = _target(source, target, format)
    check_ending(f"policy{ending(where)}")
    if is_there(where) and not replace:
        raise ConfigError(f"There is {where} already: say --replace to write over it, or name another TARGET.")
    with open_policy(source, seed=seed, tracking=tracking, storage=storage) as found, written_to(where) as to:
        if found.algorithm is not None:
            found.algorithm.save_policy(to)
        elif found.package is not None:
            if to.suffix in ("", ".onnx"):
                read_package(found.package)  # acts as its golden actions say
            if not to.suffix:
                copy_package(found.package, to)
            elif to.suffix == ".onnx":
                with storage_errors("written", to):
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(found.package / "policy.onnx", to)
            else:
                save_portable(portable(read_torch_policy(found.package)), to)
    return Policy(target=where, kind=_FORMATS[ending(where)], source=found.what)


def _target(source: str, target: str | None, format: Format | None) -> str:
    """Where to: what is said, else beside the source, or in this folder for what has no place on this machine."""
    said = None if format is None else _ENDINGS[format]
    if target is not None:
        to = target if is_remote(target) else str(Path(target))
        if said is not None and ending(to) != said:
            raise ConfigError(f"TARGET is {to} and format is {format}, which ends in {said or 'nothing'}: leave one out.")
        return to
    if said is None:
        raise ConfigError("d3ray export needs TARGET or format: where to, or as what beside SOURCE.")
    if not (place := Path(source)).exists():
        named = source.partition("?")[0] if is_remote(source) else source
        return re.sub(r"[^\w.-]+", "-", named.rpartition(":")[2].strip("/")) + (said or "-policy")
    place = place if place.name not in ("", "..") else place.resolve()
    name = place.stem if place.is_file() else place.name
    return str(place.with_name(f"{name}{said or '-policy'}"))


def promote(
    name: str,
    *,
    by: Literal["play", "estimate"] = "play",
    environment: Environment | str | None = None,
    episodes: int = 100,
    seed: int = 0,
    tracking: str | None = None,
    storage: str = "./d3ray_results",
) -> Promotion:
    """Makes the candidate of a registered model its champion, where it passes the gate.

    Args:
        name: Of the model, which is its experiment's.
        by: What decides: episodes that both play, or the newest estimates from logs.
        environment: Where they play; None: the one that the candidate names.
        episodes: That each of the two plays, at least 20.
        seed: How these are reset.
        tracking: MLflow's tracking URI; None: MLFLOW_TRACKING_URI, else the database in the storage.
        storage: Folder of all results.

    Raises:
        ConfigError: there is no such model, too few episodes, or no environment.
        DataError: the champion cannot act in the candidate's environment.
        StorageError: the server does not answer, or a package is not whole.
    """
    from ..tracking.estimate_gate import promote_by_estimate
    from ..tracking.promotion import promote as play_for_it

    place: Any = {"tracking": tracking, "storage": storage}
    if by == "estimate":
        found = promote_by_estimate(name, **place)
    else:
        where = Environment(id=environment) if isinstance(environment, str) else environment
        found = play_for_it(name, episodes=episodes, seed=seed, environment=where, **place)
    played = [
        None if one is None else Played(version=one.version, mean=one.mean, lower=one.lower)
        for one in (found.candidate, found.champion)
    ]
    return Promotion(passed=found.passed, why=found.why, candidate=played[0], champion=played[1], above=found.above)
