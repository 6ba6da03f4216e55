"""Suites: files that name datasets, algorithms with their settings, seeds, steps and how policies are scored.

A suite that comes with d3ray is `suites/NAME.yaml` beside this file; one of your own is a YAML file with the same keys, which are
those of `SuiteConfig`. An algorithm of it on one of its datasets is a *cell*: an ordinary experiment with the suite's seeds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, field_serializer, model_serializer, model_validator

from ...algos.spellings import did_you_mean_algorithm
from ...data.catalog import catalog
from ...data.catalog.local import nearest
from ...data.config import Config, recorded, setting
from ...data.errors import ConfigError, did_you_mean
from ...data.spec import Environment
from ...data.uris import without_password
from ..settings.config import AlgorithmChoice, Conditions, EvaluationConfig, ExperimentConfig, Limits, all_seeds_together
from ..settings.online import OnlineConfig
from ..settings.plugins import located
from ..yaml_text import Key, read_yaml

SUITES = Path(__file__).parent / "suites"
_MOST = 5000  # characters of a tag in MLflow
_GLOB = set("*?[")
_OWN = ("name", "label", "only", "on")  # what an entry is, whatever the dataset


def _several(said: Any) -> Any:
    """One pattern as several are said."""
    return (said,) if isinstance(said, str) else said


class _Listed(Config):
    """Describe an entry of a suite; serialised without what its name alone implies."""

    @model_serializer(mode="wrap")
    def _said(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        said: dict[str, Any] = handler(self)
        left_out = dict.fromkeys(("preset", "n_steps", "environment", "only")) | {"on": {}, "settings": {}, "label": said["name"]}
        return {name: value for name, value in said.items() if name not in left_out or value != left_out[name]}


class DatasetChoice(_Listed):
    """A dataset of a suite. `datasets: [d4rl/hopper-medium-v2]` is short for its name."""

    shorthand: ClassVar[str] = "name"

    name: str = setting(..., "dataset folder, URI or catalog name")
    environment: str | Environment | None = setting(None, "where its policies are scored; null: the evaluation's, or its own")
    settings: dict[str, Any] = Field(default_factory=dict, description="of every algorithm on it that does not say otherwise")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if own := [name for name in (*_OWN, "preset", "n_steps") if name in self.settings]:  # what would be ignored, or worse
            raise ConfigError(f"datasets: {self.label}: settings has {own[0]!r}, which is for `algorithms`.")
        return self

    @property
    def label(self) -> str:
        """The name in results: a catalog name as it is, the last part of a folder or URI."""
        place = without_password(self.name).rstrip("/")
        is_place = "://" in place or place.startswith((".", "/", "~")) or Path(place).exists()
        return place.rpartition("/")[2].removesuffix(".d3ray") if is_place else place

    @property
    def task(self) -> str:
        """The label without group and version, as presets are called after it: `hopper-medium` of `d4rl/hopper-medium-v2`."""
        head, dash, version = self.label.rpartition("/")[2].rpartition("-v")
        return head if dash and version.isdigit() else self.label.rpartition("/")[2]


class Entry(_Listed, AlgorithmChoice):
    """An algorithm of a suite, perhaps with a preset, and its settings beside them.

    `{task}` in a preset stands for the dataset's name without group and version.
    """

    label: str = setting("", "what it is called in results, once in a suite; left out: its name")
    n_steps: int | None = setting(None, "gradient steps of a seed; null: the suite's", gt=0)
    only: Annotated[tuple[str, ...] | None, BeforeValidator(_several)] = setting(
        None, "pattern, or patterns, of the names of datasets that it is trained on; null: all of them"
    )
    on: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="patterns of dataset names, with settings, preset or n_steps that hold there; the last counts",
    )

    @field_serializer("only")
    def _as_said(self, only: tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        """One pattern stands alone, as it did in bands and in folders before there could be several."""
        return only[0] if only is not None and len(only) == 1 else only

    def is_for(self, dataset: str) -> bool:
        return is_for(dataset, self.only)

    @model_validator(mode="before")
    @classmethod
    def _labelled(cls, value: Any) -> Any:
        said = {"name": value} if isinstance(value, str) else value
        return {"label": said["name"], **said} if isinstance(said, dict) and "name" in said else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        for pattern, more in self.on.items():
            if own := [name for name in _OWN if name in more]:
                raise ConfigError(
                    f"algorithms: {self.label}: on {pattern!r} has {own[0]!r}, which is no setting: list another algorithm, with "
                    f"only: {pattern!r}."
                )
        return self


@dataclass(frozen=True)
class Cell:
    """An algorithm of a suite on one of its datasets."""

    dataset: str  # label
    label: str  # of the algorithm
    config: ExperimentConfig


class _Head(Config):
    """Define a suite's parts; pydantic lists the fields of a last base first."""

    suite: str = Field(
        description="name of a suite that comes with d3ray, or a YAML file; its keys are the defaults of what follows",
        json_schema_extra={"operand": True, "example": "micro"},
    )
    name: str | None = setting(None, "the experiment's name, also its folder's; null: the suite's")
    about: str = setting("", "one line")
    source: str = setting("", "where the protocol comes from")
    also: tuple[str, ...] = setting((), "other names of the same runs")
    needs: str = setting("", "what its environments need that d3ray does not bring; said where gymnasium does not know them")
    datasets: tuple[DatasetChoice, ...] = Field(
        description="names, or {name: …, environment: …}; names and patterns of the suite's own choose among them",
        min_length=1,
        json_schema_extra={"example": ["d3ray/pendulum-replay"]},
    )
    algorithms: tuple[Entry, ...] = Field(
        description="names, or {name: …, preset: …, label: …, on: {…}, settings …}; labels and patterns of the suite's own choose "
        "among them",
        min_length=1,
        json_schema_extra={"example": ["TD3PlusBC"]},
    )


class SuiteConfig(Conditions, _Head):
    title: ClassVar[str] = "benchmark"

    seeds_per_trial: int = all_seeds_together()
    online: OnlineConfig | None = setting(
        None, "learn while acting too, see d3ray train; a number: of environments. An algorithm's own `online` goes before"
    )
    evaluation: EvaluationConfig | None = Field(
        default_factory=EvaluationConfig, description="how policies are scored; null: losses only"
    )
    budget: Limits = Field(default_factory=Limits, description="when to begin nothing new; --resume with a larger one goes on")

    @model_validator(mode="before")
    @classmethod
    def _of_suite(cls, value: Any) -> Any:
        """Fill unset fields from the suite, and look up names and patterns of datasets and algorithms in it."""
        if not isinstance(value, dict) or not isinstance(value.get("suite"), str):
            return value
        try:
            name, document, _ = read_suite(value["suite"])
        except ConfigError:
            if set(value) - set(cls.model_fields):  # which is to be said first
                return value
            raise
        said = {**document, **value}
        if name in suite_names():  # where another of its names was said
            said["suite"] = name
        for field, known in (("datasets", _is_dataset), ("algorithms", _is_algorithm)):
            if isinstance(listed := document.get(field), list):
                said[field] = _chosen(field, said[field], listed, known, name)
        _check_patterns(said, document)
        return said

    @model_validator(mode="after")
    def _check(self) -> Self:
        for what, labels in (
            ("datasets", [one.label for one in self.datasets]),
            ("algorithms", [entry.label for entry in self.algorithms]),
        ):
            if twice := [label for label in labels if labels.count(label) > 1]:
                more = "" if what == "datasets" else ": give one a label"
                raise ConfigError(f"{what} has {twice[0]!r} twice{more}.")
        self.cells()
        return self

    @property
    def suite_name(self) -> str:
        return Path(self.suite).stem if is_file(self.suite) else self.suite

    @property
    def experiment(self) -> str:
        return self.name or self.suite_name

    def cells(self) -> list[Cell]:
        """Every algorithm on every dataset that it is for.

        Raises ConfigError: it cannot have its settings, or there is no such pair.
        """
        pairs = [(data, entry) for data in self.datasets for entry in self.algorithms if entry.is_for(data.label)]
        if not pairs:
            raise ConfigError("None of the algorithms is for any of the datasets; see `only` in the suite.")
        return [Cell(data.label, entry.label, self._config(data, entry)) for data, entry in pairs]

    def _config(self, dataset: DatasetChoice, entry: Entry) -> ExperimentConfig:
        said: dict[str, Any] = {
            **dataset.settings,
            "preset": entry.preset,
            "n_steps": entry.n_steps or self.n_steps,
            **entry.settings,
        }
        for pattern, more in entry.on.items():
            if fits(dataset.label, pattern):
                said |= more
        if said["preset"]:
            said["preset"] = str(said["preset"]).replace("{task}", dataset.task)
        n_steps, evaluation = said.pop("n_steps"), self.evaluation
        online = said.pop("online", {})
        if isinstance(online, dict):  # else a number of environments, or none
            online = {**(self.online.model_dump(exclude_unset=True) if self.online else {}), **online} or None
        if evaluation is not None and dataset.environment is not None:
            evaluation = evaluation.model_copy(update={"environment": dataset.environment})
        shared = {name: getattr(self, name) for name in Conditions.model_fields}
        own = {"name": self.experiment, "dataset": dataset.name, "algorithm": {"name": entry.name, **said}}
        document = {**shared, **own, "online": online, "n_steps": n_steps, "evaluation": evaluation}
        return ExperimentConfig.checked(document, title=f"{entry.label} on {dataset.label}")

    def protocol(self) -> dict[str, Any]:
        """Return, as JSON, what all cells share; a resumed benchmark may change only `budget` of it."""
        return {
            "suite": self.suite_name,
            "n_steps": self.n_steps,
            "n_steps_per_epoch": self.n_steps_per_epoch,
            "evaluation": recorded(self.evaluation) if self.evaluation else None,
            **({"online": recorded(self.online)} if self.online else {}),
            "best": self.checkpoint.best,
            "seeds": list(self.seeds),
            "seeds_per_trial": self.seeds_per_trial,
            "budget": self.budget.model_dump(mode="json"),
        }

    def described(self) -> dict[str, Any]:
        """The suite as JSON: the protocol, `datasets` by label, what they say (`on_datasets`), and `algorithms` with settings."""
        about = {name: value for name, value in self.protocol().items() if name != "budget"}
        about |= {"source": self.source, "datasets": [one.label for one in self.datasets]}
        said = {one.label: one.model_dump(mode="json", exclude_defaults=True) for one in self.datasets}
        own = {label: {name: value for name, value in more.items() if name != "name"} for label, more in said.items()}
        about |= {"on_datasets": {label: more for label, more in own.items() if more}} if any(own.values()) else {}
        entries = [{"label": one.label, **one.model_dump(mode="json", exclude_defaults=True)} for one in self.algorithms]
        return {**about, "algorithms": entries}

    def definition(self) -> str:
        """Return `described` as JSON; beyond 5,000 characters without settings and `on_datasets`."""
        whole = self.described()
        labels = [{"label": one.label, "only": one.only} if one.only else one.label for one in self.algorithms]
        short = {name: value for name, value in whole.items() if name != "on_datasets"} | {"algorithms": labels}
        text = json.dumps(whole)
        return text if len(text) <= _MOST else json.dumps(short)


# ---- files


def suite_names() -> list[str]:
    return sorted(file.stem for file in SUITES.glob("*.yaml"))


def suite_of(name: str) -> str:
    """The suite of which a name is a further one, as `paper-table-3` of `paper-table-2`; else the name itself."""
    names = suite_names()
    return name if name in names else next((suite for suite in names if name in _shipped(suite)[0].get("also", ())), name)


def is_file(suite: str) -> bool:
    return suite.endswith((".yaml", ".yml")) or "/" in suite


def read_suite(suite: str) -> tuple[str, dict[str, Any], dict[Key, str]]:
    """A suite by name or path: its name, what it says, and the place of each of its keys. Raises ConfigError."""
    if is_file(suite):
        document, lines = read_yaml(suite)
        if "suite" in document:
            raise ConfigError(f"{suite}:{lines['suite',]}: a suite has no base; give this file to --config in place of SUITE.")
        if isinstance(plugins := document.get("plugins"), list):
            document["plugins"] = list(located(map(str, plugins), Path(suite).parent))
        return Path(suite).stem, document, {key: f"{suite}:{line}" for key, line in lines.items()}
    names, suite = suite_names(), suite_of(suite)
    if suite not in names:
        others = [other for name in names for other in _shipped(name)[0].get("also", ())]
        raise ConfigError(f"There is no suite {suite!r}{did_you_mean(suite, [*names, *others])}")
    document, lines = _shipped(suite)
    return suite, document, dict.fromkeys(lines, f"suite {suite}")


@functools.cache
def _shipped(name: str) -> tuple[dict[str, Any], dict[Key, int]]:
    return read_yaml(SUITES / f"{name}.yaml")


# ---- choosing


def fits(label: str, pattern: str) -> bool:
    """Test a label, or its last part, against a pattern or name: `hopper-*` fits `d4rl/hopper-medium-v2`."""
    return fnmatchcase(label, pattern) or fnmatchcase(label.rpartition("/")[2], pattern)


def is_for(label: str, only: Any) -> bool:
    """Tell whether what is trained `only` on datasets of a pattern, or of several, is trained on this one; None: on all of them."""
    return only is None or any(fits(label, pattern) for pattern in _several(only))


def _chosen(field: str, given: Any, listed: list[Any], known: Any, suite: str) -> Any:
    """Replace names and patterns in `given` by the suite's entries, and keep the rest as it is."""
    given = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(given, list | tuple):
        return given
    labels = [_label(field, entry) for entry in listed]
    found: list[Any] = []
    for one in given:
        entries = [entry for entry, label in zip(listed, labels, strict=True) if isinstance(one, str) and fits(label, one)]
        if not entries and isinstance(one, str) and not known(one):
            named = "pattern" if _GLOB & set(one) else "name"
            raise ConfigError(f"{field}: nothing of the suite {suite} has the {named} {one!r}{_near(field, one, labels)}")
        found += [entry for entry in entries or [one] if entry not in found]
    return found


def _near(field: str, one: str, labels: list[str]) -> str:
    """The end of a sentence on what a suite has not: what is near in it, or else among all that there is."""
    short = [name for label in labels for name in (label, label.rpartition("/")[2])]
    near = (did_you_mean if field == "datasets" else did_you_mean_algorithm)(one, dict.fromkeys(short))
    if near.startswith("; did"):
        return near
    near = nearest(one, catalog()) if field == "datasets" else did_you_mean_algorithm(one, _algorithm_names())
    return near if near.startswith("; did") else did_you_mean(one, labels)


def _label(field: str, entry: Any) -> str:
    if isinstance(entry, Mapping):
        entry = entry.get("label") or entry.get("name", "")
    return DatasetChoice(name=str(entry)).label if field == "datasets" else str(entry)


def _is_dataset(name: str) -> bool:
    return "://" in name or Path(name).expanduser().exists() or catalog().find(name) is not None


def _is_algorithm(name: str) -> bool:
    return name in _algorithm_names()


def _algorithm_names() -> list[str]:
    from ..subjects.kind import subject_names

    return list(subject_names())


def _check_patterns(said: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    """Raises ConfigError for the first pattern of `on` that no dataset has, of the suite or of what is said now."""
    labels = [_label("datasets", one) for where in (document, said) for one in _listed(where.get("datasets"))]
    for entry in _listed(said.get("algorithms")):
        said_there = {name: entry.get(name) for name in ("on", "only")} if isinstance(entry, Mapping) else {}
        for field, patterns in said_there.items():
            for pattern in (
                (patterns,) if isinstance(patterns, str) else patterns if isinstance(patterns, Mapping | list | tuple) else ()
            ):
                if not any(fits(label, str(pattern)) for label in labels):
                    near = did_you_mean(str(pattern), labels)
                    raise ConfigError(f"algorithms: {_label('', entry)}: {field} has {pattern!r}, which is no dataset{near}")


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()
