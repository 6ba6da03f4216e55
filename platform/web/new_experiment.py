"""The form of a new experiment: what it shows, and the settings that it says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ...data.errors import ConfigError, D3rayError, did_you_mean
from .. import api as d3ray
from ..record.datasets import Inspected
from ..record.jobs import JobName
from ..record.settings import AlgorithmAbout
from ..yaml_text import parse_value, to_block
from .compare import flat
from .datasets import environment_id
from .forms import Field, as_text, differing, fields, grouped, label_of, nested
from .site import Site

_TOP: Mapping[str, Any] = {  # what the form asks beside the algorithm's own settings, and begins with
    "name": "",
    "dataset": "",
    "n_steps": 20_000,
    "n_steps_per_epoch": 1000,
    "seeds": "0, 1, 2",
    "environment": "",
    "holdout": 0.1,
    "metric": "",
    "configurations": "",
    "system_metrics": False,
    "cpu": 1,
    "gpu": 0,
}
LABELS: Mapping[str, str] = {  # of these fields, which are named as settings are, but for those of `_FIELDS`
    "dataset": "Dataset",
    "n_steps": "Gradient steps",
    "n_steps_per_epoch": "Steps of an epoch",
    "seeds": "Seeds",
    "environment": "Play in",
    "holdout": "Held out",
    "configurations": "Configurations",
    "metric": "Best by",
    "gpu": "GPUs of a trial",
    "cpu": "CPUs of a trial",
    "system_metrics": "System metrics",
    "name": "Name",
}
_FIELDS: Mapping[str, str] = {  # of settings that lie deeper
    "evaluation.environment": "environment",
    "evaluation.holdout": "holdout",
    "objective.metric": "metric",
    "budget.configurations": "configurations",
    "resources.gpu": "gpu",
    "resources.cpu": "cpu",
}
_TAKEN = (  # of a config that is pasted
    *("dataset", "algorithm", "n_steps", "n_steps_per_epoch", "seeds", "seeds_per_trial", "evaluation", "resources", "name"),
    *("search", "objective", "budget", "system_metrics"),
)
_JUDGED = "algo"  # a setting that names a policy by its path: who judges one is begun from the policy's page
_MINE = ("name", "dataset", "storage", "seeds_per_trial")  # which the page decides
_NUMBERS = ("n_steps", "n_steps_per_epoch", "holdout", "configurations", "cpu", "gpu")
_RANGE = re.compile(r"(\S+)\s*\.\.\s*(\S+)")
_MOST_YAML = 50_000  # characters
_LOGARITHMIC = 50  # times that the end of a range is larger than its beginning, from which on its logarithm is searched evenly


class MistypedError(ConfigError):
    """Report unreadable form fields.

    Args:
        wrong: Sentences by field.
    """

    def __init__(self, wrong: Mapping[str, str]) -> None:
        super().__init__(" ".join(wrong.values()))
        self.wrong = wrong


def shown(
    site: Site,
    dataset: str,
    chosen: Mapping[str, Any],
    top: Mapping[str, Any],
    search: Mapping[str, Any] | None = None,
    *,
    advised: bool = False,
    looks: Future[Inspected] | None = None,
) -> dict[str, Any]:
    """Return the new-experiment page's data.

    Args:
        site: The page.
        dataset: The chosen one's name; empty: the first.
        chosen: The algorithm, with its settings beside its name.
        top: What the fields beside the algorithm's hold.
        search: Spaces of settings, as a sweep has them.
        advised: Whether to take over what the doctor advises for the dataset.
        looks: The doctor's look that was waited for; None: a new one.
    """
    ready = [one for one in site.watch.datasets() if one.state == "READY"]
    data = next((one for one in ready if one.name == dataset), ready[0] if ready else None)
    names = fitting(data.actions if data else "continuous")
    name = str(chosen.get("name") or "")
    name = name if name in names else names[0]
    about, preset = d3ray.algorithm(name), str(chosen.get("preset") or "")
    preset = preset if preset in about.presets else ""
    start = beginning(about, preset)
    own = {key: value for key, value in chosen.items() if key not in ("name", "preset")}
    own = own if chosen.get("name") in (name, "", None) else {}
    unknown = sorted(own.keys() - start.keys())
    doctor, still = _doctor(looks or site.watch.inspected(data.name)) if advised and data else (None, False)
    taken = {key: found for key, found in (doctor.advice if doctor else {}).items() if key in start and key not in own}
    own = {**{key: value for key, (value, _) in taken.items()}, **own}
    if data and (data.action_reach or 0) > 1 and "action_scaler" in start and not chosen.get("action_scaler"):
        own = {"action_scaler": start["action_scaler"] or {"name": "min_max"}, **own}  # policies act in [-1, 1]
    found = fields(about.settings, {**start, **own}, start, "algorithm.")
    for one in found:
        if one.path in (search or {}):
            one.value = spelled((search or {})[one.path])
        if preset and one.path.partition(".")[2] in about.presets[preset]:
            one.source = f"preset {preset}: {about.preset_sources[preset]}"
        if (why := taken.get(one.path.partition(".")[2])) is not None:
            one.source += f". The doctor advises {as_text(why[0]).replace('_', ' ')}: {why[1]}"
    begun = {**_TOP, **top, "dataset": data.name if data else ""}
    if data and data.environment and not begun["environment"]:
        begun["environment"] = data.environment
    pairs = [*((key, str(value)) for key, value in begun.items()), ("algorithm", name), ("preset", preset), *_pairs(found)]
    return {
        "datasets": ready,
        "algorithms": names,
        "about": about,
        "preset": preset,
        "groups": grouped(found),
        "top": begun,
        "labels": LABELS,
        "advice": [f"{label_of(key)} {as_text(value).replace('_', ' ')} ({why})" for key, (value, why) in taken.items()],
        "doctor_looks": still,
        "pairs": pairs,
        "projects": site.records.projects(),
        "lost": [f"algorithm.{key}" for key in unknown],
    }


def _doctor(looks: Future[Inspected]) -> tuple[Inspected | None, bool]:
    """Return the doctor's result, and True while it still looks; a damaged dataset gives None, and still has a form."""
    try:
        return (looks.result(), False) if looks.done() else (None, True)
    except D3rayError:
        return None, False


def fitting(actions: str) -> list[str]:
    """Algorithms that learn from a dataset of such actions, the best known first."""
    first = ("TD3PlusBC", "IQL", "CQL", "DiscreteCQL", "DQN", "BC", "DiscreteBC")
    own = d3ray.offline_algorithms(actions)
    return [*(name for name in first if name in own), *(name for name in own if name not in first)]


def beginning(about: AlgorithmAbout, preset: str) -> dict[str, Any]:
    defaults = {name: raw.get("default") for name, raw in about.settings["properties"].items()}
    return {**defaults, **about.presets.get(preset, {})}


def _pairs(found: list[Field]) -> list[tuple[str, str]]:
    return [pair for one in found for pair in [(one.path, one.text), *_pairs(one.children)]]


def config_of(site: Site, said: list[tuple[str, str]]) -> tuple[JobName, dict[str, Any]]:
    """The job and the settings that a form says, short: only what differs from the preset or the defaults.

    A field of the algorithm's that holds several values is searched: `0.1 | 0.3` tries both, `0.001 .. 0.1` what lies between.
    Names of places and of code are not a form's to say: a storage, a plugin, a module, a path.

    Raises ConfigError.
    """
    search, numbers = _read(said)
    said = [pair for pair in said if pair[0] not in search]
    one = dict(said)
    about, preset = d3ray.algorithm(one.get("algorithm", "")), one.get("preset", "")
    if _JUDGED in about.settings["properties"]:
        raise ConfigError(f"{about.name} judges a policy: ask for that on the policy's page.")
    start = beginning(about, preset)
    given = nested([(key.removeprefix("algorithm."), value) for key, value in said if key.startswith("algorithm.")])
    own = differing(fields(about.settings, {**start, **given}, start), given)
    config: dict[str, Any] = {"dataset": _dataset_folder(site, one.get("dataset", ""))}
    config["algorithm"] = {"name": about.name, **({"preset": preset} if preset else {}), **own}
    config |= {key: numbers[key] for key in ("n_steps", "n_steps_per_epoch") if key in numbers}
    config["seeds"] = numbers["seeds"]
    evaluation: dict[str, Any] = {}
    if environment := one.get("environment", "").strip():
        evaluation["environment"] = environment_id(environment)
    if share := numbers.get("holdout"):
        evaluation["holdout"] = share
    if evaluation:
        config["evaluation"] = evaluation
    if search:
        config["search"] = search
        metric = one.get("metric", "").strip() or ("evaluation/return" if environment else "holdout/td_error")
        config["objective"] = {"metric": metric}
        if "configurations" in numbers:
            config["budget"] = {"configurations": numbers["configurations"]}
    elif len(config["seeds"]) > 1:  # a sweep stacks all of a configuration by itself
        config["seeds_per_trial"] = len(config["seeds"])
    resources = {key: numbers[key] for key in ("cpu", "gpu") if numbers.get(key, _TOP[key]) != _TOP[key]}
    if resources:
        config["resources"] = resources
    if one.get("system_metrics") == "true":
        config["system_metrics"] = True
    if name := one.get("name", "").strip():
        config["name"] = name
    return "sweep" if search else "train", {**config, "storage": site.storage}


def _read(said: list[tuple[str, str]]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Spaces of the algorithm's settings, and the other fields' numbers. Raises MistypedError: all that is none, by field."""
    search, numbers, wrong = dict[str, dict[str, Any]](), dict[str, Any]({"seeds": [0]}), dict[str, str]()
    for key, text in said:
        try:
            if key.startswith("algorithm.") and (space := searched(key, text)) is not None:
                search[key] = space
            elif key == "seeds":
                numbers[key] = [_number(key, part) for part in text.replace(",", " ").split()]
            elif key in _NUMBERS and text.strip():
                numbers[key] = _number(key, text)
            elif key == "environment" and text.strip():
                environment_id(text.strip())
        except ConfigError as error:
            wrong[key] = str(error)
    if wrong:
        raise MistypedError(wrong)
    return search, numbers


def searched(name: str, text: str) -> dict[str, Any] | None:
    """The space that a field spells; None: it is one value. Raises ConfigError."""
    if " | " in text:
        return {"choice": [value for _, value in nested([(str(k), part) for k, part in enumerate(text.split("|"))]).items()]}
    if (found := _RANGE.fullmatch(text.strip())) is None:
        return None
    low, high = (_number(name, part) for part in found.groups())
    if not low < high:
        raise ConfigError(f"{_label(name)} is {text!r}: the smaller number comes first.")
    if isinstance(low, int) and isinstance(high, int):
        return {"integers": [low, high]}
    return {"loguniform" if low > 0 and high / low >= _LOGARITHMIC else "uniform": [low, high]}


def spelled(space: Mapping[str, Any]) -> str:
    """A space as a field spells it."""
    kind, values = next((kind, values) for kind, values in space.items() if isinstance(values, list))
    return (" | " if kind in ("choice", "grid") else " .. ").join(map(as_text, values))


def from_yaml(site: Site, text: str) -> dict[str, Any]:
    """Return the new-experiment page's data for a config that somebody pasted.

    Raises ConfigError: it is no config, or says what is not a form's to say.
    """
    if len(text) > _MOST_YAML:
        raise ConfigError(
            f"This config has {len(text):,} characters, and the page reads {_MOST_YAML:,} at most: run it by the command."
        )
    config = parse_value(text, "the config")
    if not isinstance(config, dict) or not config.get("algorithm"):
        raise ConfigError("This is no config of an experiment: write lines as algorithm: IQL and n_steps: 10000.")
    if foreign := [name for name in config if name not in _TAKEN]:
        raise ConfigError(f"The page takes no {foreign[0]!r}: run it by the command, or leave it out.")
    return from_config(site, config)


def from_config(site: Site, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new-experiment page's data for a config, and under `lost` settings without a field.

    Raises ConfigError: it cannot be used, or its algorithm does not learn from its dataset.
    """
    plain = {name: value for name, value in config.items() if name in _TAKEN}
    job: JobName = "sweep" if plain.get("search") else "train"
    whole = d3ray.check(plain, job=job).config  # short forms are written out
    said = dataset_name(site, whole["dataset"])
    told = shown(site, said, whole["algorithm"], top_of(whole), whole.get("search"))
    if told["about"].name != (name := whole["algorithm"]["name"]):
        raise ConfigError(f"There is no algorithm {name!r} for this dataset{did_you_mean(name, told['algorithms'])}")
    again, made = config_of(site, told["pairs"])
    kept = flat(d3ray.check({key: value for key, value in made.items() if key != "storage"}, job=again).config)
    before = {name for name, value in flat(whole).items() if kept.get(name) != value} | (config.keys() - plain.keys())
    lost = {name for name in before if name not in _MINE} | ({"dataset"} if not said else set())
    told["lost"] = sorted(lost)
    return told


def _number(name: str, text: str) -> float | int:
    try:
        return int(text) if text.strip().lstrip("-").isdecimal() else float(text)
    except ValueError:
        raise ConfigError(f"{_label(name)} is {text!r}; write a number.") from None


def _label(field: str) -> str:
    return LABELS.get(field) or label_of(field)


def _at_field(setting: str, sentence: str) -> tuple[str, str]:
    """The field of a setting, and what is wrong with it by the field's label."""
    path = setting.removeprefix("search.")
    field = _FIELDS.get(path) or (path if path.startswith("algorithm.") else path.partition(".")[0])
    _, found, rest = sentence.partition(f"{setting.removeprefix('algorithm.')} is ")
    return field, f"{_label(field)} is {rest}" if found else sentence


def planned(site: Site, said: list[tuple[str, str]]) -> dict[str, Any]:
    """Return what would run, and its problems, a sentence each by setting."""
    try:
        job, config = config_of(site, said)
        wrong = [_at_field(one.setting, one.sentence) for one in d3ray.problems(config, job=job)]
    except MistypedError as error:
        return {"wrong": [*error.wrong.items()], "yaml": "", "n_seeds": 0}
    except ConfigError as error:
        return {"wrong": [("", str(error))], "yaml": "", "n_seeds": 0}
    expected = None if wrong else d3ray.expected(config, job=job, among=site.watch.all())
    storage = config.pop("storage")
    return {
        "expected": expected,
        "wrong": wrong,
        "yaml": to_block(config),
        "n_seeds": len(config["seeds"]),
        "storage": storage,
        "job": job,
        "caution": d3ray.caution(config["objective"]["metric"]) if job == "sweep" else "",
    }


def _dataset_folder(site: Site, name: str) -> str:
    if not name:
        raise ConfigError("There is no dataset yet: bring one in first.")
    return str(site.watch.dataset(name).folder)


def dataset_name(site: Site, place: str | None) -> str:
    """Return the page's name of a config's dataset; empty: it has none."""
    if place is None:
        return ""
    last, known = place.rstrip("/").rpartition("/")[2], site.watch.datasets()
    there = [one.name for one in known if Path(one.folder) == Path(place)] if "/" in place else []
    return next(iter([*there, *(one.name for one in known if one.name == last)]), "")


def top_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page's fields, except the algorithm's, for a checked config."""
    evaluation, resources = config.get("evaluation") or {}, config.get("resources") or {}
    environment = evaluation.get("environment") or ""
    return {
        "n_steps": config.get("n_steps", _TOP["n_steps"]),
        "n_steps_per_epoch": config.get("n_steps_per_epoch", _TOP["n_steps_per_epoch"]),
        "seeds": ", ".join(map(str, config.get("seeds", [0]))),
        "name": "",
        "system_metrics": config.get("system_metrics", False),
        "metric": (config.get("objective") or {}).get("metric", ""),
        "configurations": (config.get("budget") or {}).get("configurations", ""),
        "environment": environment if isinstance(environment, str) else environment.get("id", ""),
        "holdout": evaluation.get("holdout", 0),
        "cpu": resources.get("cpu", 1),
        "gpu": resources.get("gpu", 0),
    }
