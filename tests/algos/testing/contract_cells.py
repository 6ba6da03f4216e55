"""Settings that an algorithm offers, by kind, and cells of them: what config fields can be is read from their types."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

from d3ray.algos import testing
from d3ray.algos.registry import algorithm_class
from d3ray.data.errors import ConfigError, DataError

from .pairwise import Cell, covering

DEFAULT = "default value"
MORE_ENCODERS = {
    "batch norm, dropout": {"hidden_units": [16, 16], "normalization": "batch", "dropout_rate": 0.2},
    "layer norm, spectral norm": {"hidden_units": [16, 16], "normalization": "layer", "spectral_norm": True, "activation": "tanh"},
}


@cache
def factors(name: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Factor, level, and the settings that make it; only those that go with the tiny data. All encoders are one factor."""
    make, found = testing.maker(algorithm_class(name)), dict[str, dict[str, dict[str, Any]]]()
    plain = make().check_settings()
    for field in type(plain).model_fields:
        group = next((g for g in ("encoder", "optimizer") if field.endswith(g) and field != "share_encoder"), field)
        values: dict[str, Any] = {DEFAULT: getattr(plain, field)}
        values |= {
            _kind(other): other for other in reversed(list(testing.alternatives(make, field))) if _is_kind(other, values[DEFAULT])
        }
        if group == "encoder":  # those with layers that can be made narrow
            values = {level: value for level, value in values.items() if hasattr(value, "hidden_units")} | MORE_ENCODERS
        if len(values) > 1:
            for level, value in values.items():
                found.setdefault(group, {}).setdefault(level, {})[field] = _small(value)
    dataset = testing.data_for(make)
    for group, levels in found.items():
        found[group] = {level: settings for level, settings in levels.items() if _goes(make, dataset, settings)}
    return found


def cells(name: str, most: int | None = None) -> list[Cell]:
    """Cells that cover every pair of levels beside the defaults' own; with `most` the pairs that so many cells can."""
    levels = {factor: list(values) for factor, values in factors(name).items()}
    return covering(levels, most, [dict.fromkeys(levels, DEFAULT)])


def cell_settings(name: str, cell: Cell) -> dict[str, Any]:
    """The settings of a cell."""
    return {field: value for factor, level in cell.items() for field, value in factors(name)[factor][level].items()}


def _is_kind(other: Any, value: Any) -> bool:
    """Whether it is another kind of thing: another config, choice or count, not another number or another setting of a config."""
    if isinstance(other, tuple):
        return len(other) == 1 and isinstance(other[0], BaseModel)
    return isinstance(other, bool | str | int) or other is None or (isinstance(other, BaseModel) and type(other) is not type(value))


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return _kind(value[0])
    if isinstance(value, int) and not isinstance(value, bool):
        return "another"  # one other count is enough
    return str(getattr(value, "name", value))


def _small(value: Any) -> Any:
    """Encoders with narrow layers."""
    return value.model_copy(update={"hidden_units": (16, 16)}) if hasattr(value, "hidden_units") else value


def _goes(make: testing.Make, dataset: Any, settings: dict[str, Any]) -> bool:
    try:
        make(**settings).fit(dataset, int("sampler" in settings))  # what a sampler lacks an update alone may show
    except (ConfigError, DataError):
        return False
    return True
