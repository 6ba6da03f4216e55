"""The base of every config: frozen, checked, and explained in one sentence when something is wrong."""

from __future__ import annotations

import difflib
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from .errors import ConfigError, did_you_mean

_LONGEST = 200  # characters of what was written that a sentence about it repeats
_LARGEST = 2**63 - 1  # of any whole number
_MOST: Mapping[str, int] = {  # of settings by their names: far above any use, and below what would end for want of memory
    **dict.fromkeys(("batch_size", "memory"), 2**20),
    **dict.fromkeys(("hidden_units", "head_units", "units", "stream_units", "feature_size", "embed_size", "latent_size"), 2**16),
    **dict.fromkeys(("filters", "n_quantiles", "n_target_quantiles", "n_greedy_quantiles", "n_atoms", "screen_size"), 2**16),
    **dict.fromkeys(("context", "length", "burn_in", "frames", "td_steps", "horizon", "n_envs", "actors", "population"), 2**16),
    **dict.fromkeys(("n_action_samples", "n_random_actions", "n_target_samples", "n_mmd_action_samples"), 2**16),
    **dict.fromkeys(("n_critics", "n_layers", "n_heads", "expansion", "n_augmentations", "n_models", "members"), 1000),
    **dict.fromkeys(("episodes", "configurations", "max_concurrent", "retries", "keep"), 10**6),
    **dict.fromkeys(("n_steps", "n_steps_per_epoch", "every", "max_steps", "random_steps", "warmup_steps", "capacity"), 10**12),
}
_MOST_ENTRIES: Mapping[str, int] = {"seeds": 10_000, **dict.fromkeys(("hidden_units", "head_units", "filters"), 1000)}

Former = Mapping[str, Mapping[str, Any]]  # a former name of a setting, and what was written there for a value that it has now


def setting(
    default: Any, description: str, *, source: str = "", since: str = "", formerly: Former | None = None, **limits: Any
) -> Any:
    """A field of a config.

    Args:
        default: Its value, where none is given.
        description: What it means.
        source: The paper, table or file that the default comes from.
        since: The version of d3ray that it came with, where its config is older; see `recorded`.
        formerly: What it was called, and what was written there for each value that it could have; see `in_present_words`.
        **limits: As pydantic's `Field`.
    """
    about: Any = {name: said for name, said in (("source", source), ("since", since), ("formerly", formerly)) if said}
    return Field(default, description=description, json_schema_extra=about or None, **limits)


class Config(BaseModel):
    """Settings that do not change once made. Unknown keys are refused; `model_dump_json` and back is the saved format."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)
    title: ClassVar[str] = ""
    shorthand: ClassVar[str] = ""  # the entry that a bare string or number stands for; empty: it stands for none
    once: ClassVar[type[Config] | None] = None  # the config that it was, where that had settings of no effect; see `left_out`
    never: ClassVar[tuple[str, ...]] = ()  # those of `once` of which nothing but their default was ever taken

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, value: Any) -> Any:
        if isinstance(value, str | int | float) and cls.shorthand:
            return {cls.shorthand: value}
        return in_present_words(cls, value) if isinstance(value, dict) else value

    @field_validator("*")
    @classmethod
    def _of_a_size(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what no machine has room or time for, before anything of that size is made."""
        name, numbers = info.field_name or "", [value]
        if isinstance(value, tuple) and name in _MOST_ENTRIES:
            if len(value) > _MOST_ENTRIES[name]:
                raise ValueError(f"it must have at most {_MOST_ENTRIES[name]:,} entries")
            numbers = [one for entry in value for one in (entry if isinstance(entry, tuple) else (entry,))]
        if any(type(one) is int and abs(one) > _MOST.get(name, _LARGEST) for one in numbers):
            raise ValueError(f"it must be at most {_MOST.get(name, _LARGEST):,}")
        return value

    @classmethod
    def open_names(cls, given: Any) -> Iterable[str]:
        """List settings that a value has beside its fields, as an algorithm's stand beside its name."""
        return ()

    @classmethod
    def checked(cls, settings: Mapping[str, Any], *, title: str | None = None) -> Self:
        """Return the config of `settings`. Raises ConfigError of an unknown key (the nearest is named) or a value out of range."""
        try:
            return cls.model_validate(dict(settings))
        except ValidationError as error:
            raise ConfigError(explain(cls, error, title or cls.title or cls.__name__.removesuffix("Config"))) from None


@functools.cache
def left_out(config: type[BaseModel]) -> dict[str, Any]:
    """Settings that a config had once and has no more, for they changed nothing, with their defaults."""
    once = config.once if issubclass(config, Config) else None
    return {} if once is None else {name: value for name, value in once() if name not in config.model_fields}


def _leave_out(config: type[BaseModel], settings: dict[str, Any]) -> None:
    """Takes them out of what is set, and warns of those that were not at their defaults.

    Raises ConfigError of a value that could not be set then either, so that no earlier file has it.
    """
    if not issubclass(config, Config) or config.once is None:
        return
    owner = config.__name__.removesuffix("Config")
    for name, default in left_out(config).items():
        if name not in settings:
            continue
        given = settings.pop(name)
        if getattr(config.once.checked({name: given}, title=owner), name) == default:
            continue
        if name in config.never:
            raise ConfigError(f"{owner} has no setting {name!r}{did_you_mean(name, config.model_fields)}")
        warnings.warn(f"{owner} has no setting {name!r}, which changed nothing: {_short(given)} is left out.", stacklevel=3)


def in_present_words(config: type[BaseModel], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Put settings under the names that they have now, and leave out those that the config has no more.

    Raises ConfigError where a former name and the present one disagree.
    """
    found = dict(settings)
    _leave_out(config, found)
    for name, field in config.model_fields.items():
        for former, written in _formerly(field).items():
            if former not in found:
                continue
            value = found.pop(former)
            now = [one for one, was in written.items() if was == value]
            if not now:
                known = " or ".join(f"{one!r}, which was {was!r}" for one, was in written.items())
                raise ConfigError(f"{former} is {value!r}; it is called {name} now: write {known}.")
            if found.setdefault(name, now[0]) != now[0]:
                raise ConfigError(
                    f"{former} is {value!r}, which is called {name} {now[0]!r} now, and {name} is {found[name]!r}: say one of them."
                )
    return found


def former_names(config: type[BaseModel]) -> list[str]:
    """List the names that settings of a config once had."""
    return [former for field in config.model_fields.values() for former in _formerly(field)]


def _formerly(field: FieldInfo) -> Former:
    about = field.json_schema_extra
    return cast("Former", about.get("formerly", {})) if isinstance(about, dict) else {}


def recorded(config: Config) -> dict[str, Any]:
    """The settings as JSON, without those that came later than their config and have their defaults.

    So what was recorded before there was such a setting is the same as what is recorded now. A setting that was renamed since is
    recorded by its former name, where its value had a word there, and one that was left out since with its default.
    """
    found = config.model_dump(mode="json")
    if (once := type(config).once) is not None:
        found |= {name: value for name, value in recorded(once()).items() if name in left_out(type(config))}
    for name, field in type(config).model_fields.items():
        value, about = getattr(config, name), field.json_schema_extra
        if isinstance(about, dict) and "since" in about and value == field.default:
            del found[name]
        elif isinstance(value, Config):
            found[name] = recorded(value)
        for former, written in _formerly(field).items():
            if (word := str(value)) in written:
                del found[name]
                found[former] = written[word]
    return found


def by_name(kind: str, known: Iterable[type[BaseModel]]) -> Callable[[Any], Any]:
    """Return a validator that takes the name of a config, which is of this `kind`, for that config with its defaults."""
    names = [str(config.model_fields["name"].default) for config in known]

    def read(value: Any) -> Any:
        name = value.get("name") if isinstance(value, Mapping) else value
        if isinstance(name, str) and name not in names:
            raise ValueError(f"there is no such {kind}{did_you_mean(name, names)}")
        return {"name": name} if isinstance(value, str) else value

    return read


_INTEGER, _NUMBER, _LIST, _MAPPING = "it must be a whole number", "it must be a number", "it must be a list", "it must be a mapping"
_EXPECTED = {  # by pydantic's name of what went wrong, where its own words are a programmer's
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _INTEGER),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), _NUMBER),
    **dict.fromkeys(("bool_type", "bool_parsing"), "it must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), _LIST),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _MAPPING),
    "string_type": "it must be text",
}


def foremost(error: ValidationError) -> Any:
    """Pick the error to name first: an unknown key comes before a missing one, for it may be that one, misspelt."""
    return min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")


def explain(config: type[BaseModel], error: ValidationError, title: str, given: Mapping[str, Any] | None = None) -> str:
    """Say in one sentence what is foremost wrong: whose setting, which value, what was expected or meant."""
    return _explained(config, foremost(error), title, given or {})[1]


def explain_each(config: type[BaseModel], error: ValidationError, title: str) -> list[tuple[str, str]]:
    """Give, for each error, the setting's dotted name and a sentence."""
    return [_explained(config, one, title, {}) for one in error.errors()]


def _explained(config: type[BaseModel], first: Any, title: str, given: Mapping[str, Any]) -> tuple[str, str]:
    path, models = _walk(config, [str(part) for part in first["loc"]])
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        meant = _further_down(config, key, given) if len(path) == 1 else None
        near = f"; did you mean {meant!r}?" if meant else did_you_mean(path[-1], models[0].model_fields if models else [])
        return key, f"{title} has no setting {key!r}{near}"
    if first["type"] == "missing":
        return key, f"{title} needs {key!r}: {_describe(models, path[-1])}."
    message = _EXPECTED.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    if first["type"] in ("tuple_type", "list_type") and isinstance(first["input"], str | int | float):
        message += f", as [{first['input']}]"
    first_letter = message[:1] if message[1:2].isupper() else message[:1].lower()  # an algorithm's name stays as it is
    message = f"{first_letter}{message[1:]}{'' if message.endswith(('?', '.')) else '.'}"
    return key, f"{title}: {key} is {_short(first['input'])}; {message}" if key else f"{title}: {message}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _further_down(config: type[BaseModel], name: str, given: Mapping[str, Any]) -> str | None:
    """Find the full name of a setting of which only the last part was written: `algorithm.gamma` of `gamma`."""
    inner = [(top, model) for top, field in config.model_fields.items() for model in _models(field.annotation)]
    own = {setting: f"{top}.{setting}" for top, model in reversed(inner) for setting in model.model_fields}
    if name not in own and difflib.get_close_matches(name, config.model_fields, 1):
        return None
    if near := [name] if name in own else difflib.get_close_matches(name, own, 1):
        return own[near[0]]
    opened = ((top, model.open_names(given.get(top))) for top, model in inner if issubclass(model, Config))
    more = {setting: f"{top}.{setting}" for top, names in opened for setting in names}
    return next((more[near] for near in difflib.get_close_matches(name, more, 1)), None)


def _walk(config: type[BaseModel], path: list[str]) -> tuple[list[str], list[type[BaseModel]]]:
    """Return the path as a user writes it, without the tags of unions, and the models that may hold its last part."""
    written: list[str] = []
    holders, models = [config], [config]
    for part in path:
        if (field := next((m.model_fields[part] for m in models if part in m.model_fields), None)) is not None:
            written.append(part)
            holders, models = models, _models(field.annotation)
        elif member := [model for model in models if part in _tags(model)]:
            models = member
        else:
            written.append(part)
            holders = models
    return written, holders


def _tags(model: type[BaseModel]) -> list[Any]:
    return [model.model_fields[key].default for key in ("name", "kind") if key in model.model_fields]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """List every config in a type: members of unions, entries of lists and mappings, subclasses."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation, *(model for child in annotation.__subclasses__() for model in _models(child))]
    return [model for part in get_args(annotation) for model in _models(part)]


def _describe(models: list[type[BaseModel]], name: str) -> str:
    field = next((model.model_fields[name] for model in models if name in model.model_fields), None)
    return (field.description if field and field.description else "it has no default").rstrip(".")
