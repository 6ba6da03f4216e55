"""Open Bandit Dataset's CSV, a row for each recommendation: `item_id, position, click, propensity_score, user_feature_0, …`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ConfigError, DataError
from ...spec import Box, Discrete, Spec
from ...storage.steps import steps_from_arrays
from ..imported import Array, Imported, log_probability, typed_actions
from ..untrusted.unpacking import unpacks
from .csv_cells import as_array, header, read_cells

REQUIRED = ("item_id", "position", "click", "propensity_score")
FEATURE, AFFINITY = "user_feature_", "user-item_affinity_"


def is_open_bandit(path: Path) -> bool:
    """Whether the first line names an item, its position, a click, a propensity score, and a feature of the user."""
    names = header(path)[0]
    return set(REQUIRED) <= set(names) and any(name.startswith(FEATURE) for name in names)


def read_open_bandit(
    path: Path | str,
    *,
    rename: Mapping[str, str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    affinities: bool = True,
) -> Imported:
    """Rows of a CSV file as episodes of one step that the task ended, in file order; none is dropped.

    The action is `item_id`, the reward `click`, and `log_prob` the logarithm of `propensity_score`: with what probability the
    policy that acted showed that item at that position. The observation is a vector: for each `user_feature_K`, and for
    `position`, a one for its category among zeros, then the `user-item_affinity_K`. There are as many actions as affinities, or up
    to the largest item. There is no final observation. What else there is, `timestamp` and row numbers, is left out.

    Args:
        path: the file.
        rename: what this file calls a column, by its usual name: `{"item_id": "action"}`.
        categories: values of each `user_feature_K` and of `position`, in the order of their ones. None: those of this file, sorted;
            they are in its provenance, so that a second file, as of another policy, can be read like the first.
        affinities: whether observations have the affinities; Open Bandit Pipeline leaves them out.

    Raises:
        DataError: a column is missing, a cell is no number, a probability is not above 0 and at most 1, a value is not among the
            categories given, or an item is below 0; the column and the row are named.
        ConfigError: categories are given for a column that is not there.

    Source: Saito, Aihara, Matsutani, Narita: Open Bandit Dataset and Pipeline, 2021; `obp/dataset/real.py` (st-tech/zr-obp). There
    a feature's first category has no column, and positions stand beside the context.
    """
    path, source = Path(path), str(path)
    called, (names, separator) = {actual: usual for usual, actual in (rename or {}).items()}, header(path)
    names = [called.get(name, name) for name in names]
    if absent := [name for name in REQUIRED if name not in names]:
        raise DataError(f"{source} has no column {absent[0]!r}, only {', '.join(map(repr, names[:8]))}.")
    features = [name for name in names if name.startswith(FEATURE)]
    nearby = [name for name in names if name.startswith(AFFINITY)] if affinities else []
    text = {*features, "position"}
    if unknown := sorted(set(categories or ()) - text):
        raise ConfigError(f"categories are given for {unknown[0]!r}; there are {', '.join(map(repr, sorted(text)))}.")
    kinds = {"item_id": None, "click": pa.float64(), "propensity_score": pa.float64(), **dict.fromkeys(nearby, pa.float64())}
    table = read_cells(path, names, separator, text=text, numbers=kinds)
    known, parts = dict[str, list[str]](), list[Array]()
    for name in (*features, "position"):
        known[name], one_hot = _ones(source, name, table[name], (categories or {}).get(name))
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
        notes=[f"Every row is an episode of one step; observations are {', '.join(features)} and position as ones among zeros."],
        provenance={"format": "open_bandit", "file": path.name, "categories": known},
    )


def _ones(source: str, name: str, column: Any, given: Sequence[str] | None) -> tuple[list[str], Array]:
    """The categories of a column of text, and a one among zeros for each row: [N, categories] float32."""
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
