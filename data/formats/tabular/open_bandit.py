"""Open Bandit Dataset's CSV, a row for each recommendation: `item_id, position, click, propensity_score, user_feature_0, …`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...config import setting
from ...errors import ConfigError, DataError
from ...spec import Box, Discrete, Spec
from ...storage.steps import steps_from_arrays
from ..arrays import Array, log_probability, typed_actions
from ..format import RENAME, Format, Imported
from ..untrusted.unpacking import unpacks
from .csv_cells import as_array, header, read_cells

REQUIRED = ("item_id", "position", "click", "propensity_score")
FEATURE, AFFINITY = "user_feature_", "user-item_affinity_"


class OpenBandit(Format):
    """Rows of a CSV file as episodes of one step that the task ended, in file order.

    The action is `item_id`, the reward `click`, and `log_prob` the logarithm of `propensity_score`: with what probability the
    policy that acted showed that item at that position. The observation is a vector: for each `user_feature_K`, and for
    `position`, a one for its category among zeros, then the `user-item_affinity_K`. There are as many actions as affinities, or up
    to the largest item. There is no final observation. What else there is, `timestamp` and row numbers, is left out.

    Source: Saito, Aihara, Matsutani, Narita: Open Bandit Dataset and Pipeline, 2021; `obp/dataset/real.py` (st-tech/zr-obp). There
    a feature's first category has no column, and positions stand beside the context.
    """

    name = "open_bandit"
    description = "Open Bandit Dataset's CSV: item_id, position, click, propensity_score, user_feature_0, …"
    rename: Mapping[str, str] = RENAME
    categories: Mapping[str, Sequence[Any]] | None = setting(
        None,
        "values of each user_feature_K and of position, in the order of their ones; null: those of this file, sorted, which are in "
        "its provenance, so that a second file, as of another policy, can be read like the first",
    )
    affinities: bool = setting(True, "observations have the affinities; Open Bandit Pipeline leaves them out")

    @classmethod
    def detect(cls, path: Path) -> bool:
        names = header(path)[0]
        return set(REQUIRED) <= set(names) and any(name.startswith(FEATURE) for name in names)

    def read(self, path: Path) -> Imported:
        source, given = str(path), self.categories or {}
        called, (names, separator) = {actual: usual for usual, actual in self.rename.items()}, header(path)
        names = [called.get(name, name) for name in names]
        if absent := [name for name in REQUIRED if name not in names]:
            raise DataError(f"{source} has no column {absent[0]!r}, only {', '.join(map(repr, names[:8]))}.")
        features = [name for name in names if name.startswith(FEATURE)]
        nearby = [name for name in names if name.startswith(AFFINITY)] if self.affinities else []
        text = {*features, "position"}
        if unknown := sorted(given.keys() - text):
            raise ConfigError(f"categories are given for {unknown[0]!r}; there are {', '.join(map(repr, sorted(text)))}.")
        kinds = {"item_id": None, "click": pa.float64(), "propensity_score": pa.float64(), **dict.fromkeys(nearby, pa.float64())}
        table = read_cells(path, names, separator, text=text, numbers=kinds)
        known, parts = dict[str, list[str]](), list[Array]()
        for name in (*features, "position"):
            known[name], one_hot = _ones(source, name, table[name], given.get(name))
            parts.append(one_hot)
        parts += [as_array(table[name]).astype(np.float32)[:, None] for name in nearby]
        ones = [f"{name}={value}" for name, values in known.items() for value in values]
        observations, items = np.concatenate(parts, 1), typed_actions(source, as_array(table["item_id"]), discrete=True)
        n_items = max(len([name for name in names if name.startswith(AFFINITY)]), int(items.max()) + 1)
        steps = steps_from_arrays(
            observations,
            items,
            as_array(table["click"]),
            np.ones(len(items), bool),
            extra={"log_prob": log_probability(source, "propensity_score", as_array(table["propensity_score"]), items)},
            source=source,
        )
        return Imported(
            steps,
            spec=Spec(observation=Box(shape=(observations.shape[1],)), action=Discrete(n=n_items)),
            names={"observation": (*ones, *nearby), "action": ("item_id",)},
            notes=[
                f"Every row is an episode of one step; observations are {', '.join(features)} and position as ones among zeros."
            ],
            provenance={"categories": known},
        )


def _ones(source: str, name: str, column: Any, given: Sequence[str] | None) -> tuple[list[str], Array]:
    """Encode a column of text as a one among zeros for each row, [N, categories] float32, after its categories."""
    coded = pc.utf8_trim_whitespace(column).combine_chunks().dictionary_encode()  # pyright: ignore[reportAttributeAccessIssue]
    there: list[str] = coded.dictionary.to_pylist()
    categories = sorted(there) if given is None else [str(value) for value in given]
    places = {value: k for k, value in enumerate(categories)}
    if missing := [value for value in there if value not in places]:
        row = int((coded.indices.to_numpy(zero_copy_only=False) == there.index(missing[0])).argmax())
        raise DataError(
            f"{source}: {name!r} is {missing[0]!r} in row {row}, which is none of the {len(categories)} categories given."
        )
    unpacks(source, len(column) * len(categories) * 5)  # a flag and a float32 for each
    code = np.array([places[value] for value in there])[coded.indices.to_numpy(zero_copy_only=False)]
    return categories, (code[:, None] == np.arange(len(categories))).astype(np.float32)
