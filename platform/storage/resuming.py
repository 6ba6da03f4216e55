"""What may go on as the experiment of a name, and what stands in its way: settings, data and steps that it was begun with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ...data.errors import ConfigError
from ...data.uris import without_secrets_in
from .folders import Folder
from .locks import Lock

REPLACED = "replaced.json"
KEPT = ("lock", REPLACED)  # what outlives an experiment that is deleted
Longer = Callable[[int], str]  # of the steps that were begun for: why training cannot go on to more, a clause; empty: it can
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")


def check_name(name: str) -> None:
    """Raises ConfigError where a name cannot be a folder's and a registered model's."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"The name {name!r} cannot be a folder's: use letters, digits, '-', '_', '.' and '+', a letter or digit first."
        )


def check_free(
    storage: str,
    name: str,
    configuration: Mapping[str, Any],
    dataset: Mapping[str, Any],
    longer: Longer | None = None,
    *,
    resume: bool,
    replace: bool,
) -> None:
    """Raises ConfigError where `Experiment.begin` would for what is there. Nothing is changed; another may come first."""
    folder = own_folder(storage, name)
    if (there := folder.read_json("experiment.json")) is None:
        return
    if not resume:
        lock = Lock(folder)
        if not lock.acquire(wait=False):
            raise is_running(storage, name, folder)
        lock.release()
    fitting(storage, name, there, configuration, dataset, longer, resume=resume, replace=replace)


def own_folder(storage: str, name: str) -> Folder:
    """The folder of a name. Raises ConfigError where it holds what `discard` and `replace` would delete and is not ours."""
    check_name(name)
    folder = Folder(storage) / name
    strange = [entry for entry in folder.names() if entry not in KEPT and not entry.startswith(".")]
    if strange and folder.read("experiment.json") is None:
        raise ConfigError(f"{folder} holds {strange[0]!r} and is no experiment: say another name or storage.")
    return folder


def fitting(
    storage: str,
    name: str,
    there: Mapping[str, Any] | None,
    configuration: Mapping[str, Any],
    dataset: Mapping[str, Any],
    longer: Longer | None,
    *,
    resume: bool,
    replace: bool,
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Configuration and dataset as they are kept. Raises ConfigError where what is there is in the way, or was begun otherwise."""
    configuration, dataset = without_secrets_in(configuration), without_secrets_in(dataset)
    if there is not None and not (resume or replace):
        further = ", also to a larger n_steps" if longer is not None else ""
        raise ConfigError(
            f"There is an experiment {name!r} in {storage} already: say --resume to go on with it{further}, --replace to delete "
            "it, or another name."
        )
    if there is not None and resume:
        _check_same(name, there, configuration, dataset, longer)
    return configuration, dataset


def is_running(storage: str, name: str, folder: Folder) -> ConfigError:
    return ConfigError(f"The experiment {name!r} in {storage} is running: {_holder(folder)}. Wait for it, or stop it first.")


def _holder(folder: Folder) -> str:
    state = folder.read_json("state.json") or {}
    return f"process {state['pid']} on {state['host']}" if "pid" in state else "another command has just begun it"


def _check_same(
    name: str, there: Mapping[str, Any], configuration: Mapping[str, Any], dataset: Mapping[str, Any], longer: Longer | None
) -> None:
    """Raises ConfigError naming the first setting in which an experiment was begun differently, or why it cannot be longer."""
    before = without_secrets_in(there["configuration"])
    steps, first = configuration.get("n_steps", 0), there.get("first_n_steps", before.get("n_steps", 0))
    grown = longer is not None and steps != first and steps >= before["n_steps"]
    apart = {"budget": None, **({"n_steps": None} if grown else {})}  # which may be raised
    check_settings(name, {**before, **apart}, {**configuration, **apart})
    if there["dataset"]["fingerprint"] != dataset["fingerprint"]:
        raise ConfigError(
            f"The experiment {name!r} was begun with other data: the dataset {there['dataset']['name']!r} had another fingerprint "
            f"than {dataset['name']!r} has now."
        )
    if longer is not None and grown:
        check_longer(name, first, steps, longer)


def check_longer(name: str, first: int, n_steps: int, longer: Longer) -> None:
    """Raises ConfigError where an experiment that was begun for `first` gradient steps cannot go on to `n_steps`."""
    if why := longer(first):
        raise ConfigError(
            f"The experiment {name!r} was begun for {first:,} gradient steps and cannot go on to {n_steps:,}, for {why}. To train "
            f"{n_steps:,} from the start, say another name, or --replace."
        )


def check_settings(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises ConfigError naming the first setting that an experiment was begun with another value of."""
    was, is_now = dict(flatten(before)), dict(flatten(now))
    for key in [*was, *(key for key in is_now if key not in was)]:
        if was.get(key) != is_now.get(key):
            raise ConfigError(
                f"The experiment {name!r} was begun with {key} {was.get(key)!r}, and now {key} is {is_now.get(key)!r}: "
                "say the earlier value, --replace, or another name."
            )


def flatten(value: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """The values of a nested mapping by dotted name."""
    found: list[tuple[str, Any]] = []
    for key, entry in value.items():
        found += flatten(entry, f"{above}{key}.") if isinstance(entry, Mapping) and entry else [(f"{above}{key}", entry)]
    return found
