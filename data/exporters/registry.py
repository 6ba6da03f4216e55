"""Which exporters there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..dataset import Dataset
from ..errors import ConfigError, did_you_mean
from .blocks import Advance, left_out, silent
from .d3rlpy_hdf5 import write_d3rlpy
from .d4rl import write_d4rl
from .flat_parquet import write_parquet
from .minari import write_minari
from .npz import write_npz


@dataclass(frozen=True)
class Exporter:
    """One format that datasets are written in: `write(dataset, target, *, overwrite=False, advance=silent) -> notes`.

    `names` says whether it has a place for what entries of observations and actions are called.
    """

    name: str
    description: str
    write: Callable[..., list[str]]
    names: bool = False


EXPORTERS: dict[str, Exporter] = {
    e.name: e
    for e in (
        Exporter("d4rl", "D4RL's HDF5 file", write_d4rl),
        Exporter("d3rlpy", "the HDF5 file of d3rlpy 2.x", write_d3rlpy),
        Exporter("minari", "Minari's folder with HDF5 storage", write_minari),
        Exporter("parquet", "one Parquet file with a row a step", write_parquet, names=True),
        Exporter("npz", "NumPy's .npz with flat arrays", write_npz),
    )
}


def export(
    dataset: Dataset,
    target: str | Path,
    format: str,
    *,
    overwrite: bool = False,
    advance: Advance = silent,
    **options: Any,
) -> list[str]:
    """Write a dataset for another program, all of it or nothing, and say what the format could not carry.

    Arguments, returns and raises as for `write_d4rl`; `format` is a key of `EXPORTERS`, and `options` are its own.
    """
    if format not in EXPORTERS:
        raise ConfigError(f"There is no exporter {format!r}{did_you_mean(format, EXPORTERS)}")
    notes = EXPORTERS[format].write(dataset, target, overwrite=overwrite, advance=advance, **options)
    named = any(leaf.names is not None for leaf in dataset.spec.leaves().values())
    return [*notes, *left_out(["what entries are called"] if named and not EXPORTERS[format].names else [])]
