"""Policies of experiments: taken away, and made champions."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...data.dataset import Dataset
from ...data.errors import ConfigError, D3rayError, DataError, reason
from ...data.spec import Box, Environment, Leaf
from ...data.storage.claims import scratch_names
from ...data.storage.files import storage_errors
from ...data.uris import is_remote
from ..record.datasets import DatasetStatus
from ..record.policies import Policy, PolicyAbout, Promotion, Rollback, Video
from ..storage.folders import Folder
from ..storage.targets import ending, is_there, written_to
from ..tracking.policies import located
from ..tracking.registered import is_registered
from ..words import count, space_text
from .processes import Processes

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
    """Writes a policy: raw observations in, raw actions out, without d3ray; or a model of the dynamics: what follows them out.

    Args:
        source: As `platform.tracking.policies.open_policy` takes it.
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
    from ...algos.export.export import export as export_algorithm
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
            export_algorithm(found.algorithm, to, overwrite=replace)
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
        is_model = found.algorithm is not None and found.algorithm.models_dynamics
    return Policy(target=where, kind=_FORMATS[ending(where)], source=found.what, noun="model" if is_model else "policy")


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
    cost_limit: float | None = None,
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
        cost_limit: What an episode may cost where they play; of estimates it is the judgement's. None: costs are not looked at.
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
    name = _model(name, "candidate", storage)
    if by == "estimate":
        if cost_limit is not None:
            raise ConfigError("cost_limit is of playing: of estimates the limit is the judgement's, d3ray judge … cost_limit=")
        return promote_by_estimate(name, **place)
    where = Environment(id=environment) if isinstance(environment, str) else environment
    return play_for_it(name, episodes=episodes, seed=seed, environment=where, cost_limit=cost_limit, **place)


def _model(named: str, alias: str, storage: str) -> str:
    """A registered model's name, however it or its experiment is named. Raises ConfigError: another of its versions is."""
    if not is_registered(named):
        folder = Folder(located(named, storage)[0])
        return folder.label if folder.read("experiment.json") is not None else named
    name, *which = re.split("[@/]", named.removeprefix("models:").strip("/"), maxsplit=1)
    if which not in ([], [alias]):
        raise ConfigError(f"{named} is one version, and what moves is the {alias} of a model: write {name}.")
    return name


def rollback(name: str, *, tracking: str | None = None, storage: str = "./d3ray_results") -> Rollback:
    """Gives a registered model's champion back to the version that was it before.

    Raises ConfigError: there is no such model; StorageError: the server does not answer.
    """
    from ..tracking.promotion import rollback as give_back

    return give_back(_model(name, "champion", storage), tracking=tracking, storage=storage)


@contextmanager
def _packaged(source: str, seed: int | None, storage: str) -> Generator[tuple[Path, str]]:
    from ..tracking.policies import open_policy

    with open_policy(source, seed=seed, storage=storage) as found:
        if found.package is not None:
            yield found.package, found.what
            return
        assert found.algorithm is not None
        with tempfile.TemporaryDirectory(prefix=scratch_names("policy")) as folder:
            found.algorithm.save_policy(package := Path(folder) / "policy")
            yield package, found.what


def about(source: str, *, seed: int | None = None, storage: str = "./d3ray_results") -> PolicyAbout:
    """Describe a policy's inputs and outputs. Arguments and errors as `export`'s."""
    from ...algos.export.package import read_record

    with _packaged(source, seed, storage) as (package, what):
        record = read_record(package)
    seen = record.spaces.observation
    return PolicyAbout(
        what=what,
        algorithm=record.algorithm,
        seed=record.seed,
        step=record.step,
        observation=space_text(seen),
        action=space_text(record.spaces.action),
        size=seen.size if isinstance(seen, Box) else None,
        names=seen.names if isinstance(seen, Box) else None,
        remembers=bool(record.state_inputs or record.noise_inputs),
        environment=record.environment.id if record.environment else None,
        fingerprint=record.data.fingerprint if record.data else None,
    )


def judges(
    source: str, among: Sequence[DatasetStatus], *, seed: int | None = None, storage: str = "./d3ray_results"
) -> list[DatasetStatus]:
    """Of datasets those whose logs can judge a policy: of its spaces, with two episodes or more.

    Those of its environment come first, and last of them what it learned from. Sources, arguments and errors as `export`'s.
    """
    from ...algos.environments.spaces import check_spaces
    from ...algos.export.package import read_record
    from ...data.frames import stacked_spec

    with _packaged(source, seed, storage) as (package, _):
        record = read_record(package)

    def fits(one: DatasetStatus) -> bool:
        try:
            spec = stacked_spec(Dataset.open(one.folder).spec, record.frames)
            check_spaces(spec, record.spaces, one.name, "the policy", fewer_actions="fitted")
        except D3rayError:
            return False
        return one.n_episodes > 1

    found, data = [one for one in among if one.state == "READY" and fits(one)], record.data and record.data.fingerprint
    learned_in = next((one.environment for one in found if one.fingerprint == data), None)
    environment = record.environment.id if record.environment else learned_in
    return sorted(found, key=lambda one: (one.environment != environment, one.fingerprint == data))


def act(source: str, observation: Any, *, seed: int | None = None, storage: str = "./d3ray_results") -> Any:
    """Compute a policy's action for one observation with onnxruntime, as numbers in the data's units.

    Sources and other arguments as `export`'s; an observation is nested as its space is, or a flat list of entries.

    Raises:
        ConfigError: there is no such policy, or it has a memory, so that one observation does not tell what it does.
        DataError: the observation has another shape, or a number that is not finite.
    """
    from ...algos.export.package import read_package

    with _packaged(source, seed, storage) as (package, _):
        policy = read_package(package)
    if policy.about.get("state_inputs") or policy.about.get("noise_inputs"):
        raise ConfigError("This policy has a memory or draws its actions: what it does at one observation alone is not settled.")
    space = policy.spec.observation
    try:
        seen = np.asarray(observation, np.dtype(space.dtype) if isinstance(space, Box) else None)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"An observation is numbers, and these are none: {reason(error)}.") from None
    if isinstance(space, Leaf):
        if seen.size != space.size:
            raise DataError(f"An observation is {count(space.size, 'number')}, and here there are {seen.size:,}.")
        seen = seen.reshape(space.shape)
    return np.asarray(policy.predict(seen)).tolist()


def record(
    source: str,
    file: str,
    *,
    environment: str | None = None,
    episodes: int = 1,
    seed: int | None = None,
    storage: str = "./d3ray_results",
) -> Video:
    """Plays episodes and draws them into a .gif or .mp4, in a process of its own; returns the file and what was said of it.

    `source`, `seed` and `storage` are as `export`'s. `environment` None: the one that the policy names. Raises ConfigError: there
    is no such policy, no environment is named, it cannot be drawn, or the file is there already.
    """
    named = {"environment": environment, "policy_seed": seed}
    told = [f"{key}={value}" for key, value in named.items() if value is not None]
    said = Processes().ask("record", [source, f"output={file}", f"episodes={episodes}", f"storage={storage}", *told])
    return Video(file=file, said=said.strip().partition("\n")[0])
