"""Presets of single tasks and datasets: tables beside the pages, read when a preset is asked for.

A folder of pages has them in `presets.yaml`, under the algorithm's name and in groups of one source:

    XQL:
      - source: "authors' code dff09af, offline/reproduce/mujoco"      {task} in it is the preset's name without "d4rl-"
        base: paper                                                    what all of the group have: may be left out
        presets:
          d4rl-hopper-medium: {gumbel_temp: 5.0, batch_size: 1024}
          d4rl-hopper-medium-replay: {gumbel_temp: 2.0}

The base is the name of a preset that the page writes, or settings. Values are written as in a user's own YAML.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from ..data.errors import ConfigError, did_you_mean
from .config import Preset, TrainedConfig


class TaskPresets(Mapping[str, Preset]):
    """An algorithm's presets of tasks; `general | TaskPresets(…)` is what a page writes, and after that those.

    Args:
        page: The page's `__file__`.
        config: The algorithm's config: `XQLConfig`, where the table has `XQL`.
        general: What the page writes, which serves any task.

    A preset is read where one is asked for: ConfigError where the table has none of the algorithm.
    """

    def __init__(self, page: str, config: type[TrainedConfig], general: Mapping[str, Preset] = MappingProxyType({})) -> None:
        self._page, self._config, self._general = page, config, general

    def __ror__(self, general: Mapping[str, Preset]) -> TaskPresets:
        return TaskPresets(self._page, self._config, general)

    def __getitem__(self, name: str) -> Preset:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> dict[str, Preset]:
        file, algorithm = Path(self._page).with_name("presets.yaml"), self._config.__name__.removesuffix("Config")
        if algorithm not in (table := _read(file)):
            raise ConfigError(f"{file} has no presets of {algorithm!r}{did_you_mean(algorithm, table)}")
        return {**self._general, **{name: self._of_task(name, group) for group in table[algorithm] for name in group["presets"]}}

    def _of_task(self, name: str, group: Mapping[str, Any]) -> Preset:
        base = group.get("base", {})
        shared = self._general[base].settings if isinstance(base, str) else self._as_written_here(base)
        source = group["source"].replace("{task}", name.removeprefix("d4rl-"))
        return Preset(source, {**shared, **self._as_written_here(group["presets"][name])})

    def _as_written_here(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Reads settings of a table: a mapping that stands for a config, such as an encoder's, becomes one, and a list a tuple."""
        fields, made = self._config.model_fields, dict[str, Any]()
        for name, value in settings.items():
            if isinstance(value, dict) and isinstance(fields[name].default, BaseModel):
                made[name] = getattr(self._config.checked({name: value}), name)
            else:
                made[name] = tuple(value) if isinstance(value, list) else value
        return made


@cache
def _read(table: Path) -> dict[str, Any]:
    """A table in YAML 1.2: groups by algorithm."""
    from ruamel.yaml import YAML  # here, for who asks for no preset need not wait for it

    return YAML(typ="safe", pure=True).load(table.read_text("utf-8"))
