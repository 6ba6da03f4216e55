"""Reference scores: the undiscounted returns that are 0 and 100 of a normalised score, in `references.json` beside this file.

Those of D4RL (Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", arXiv:2004.07219, appendix; figures
from the repository's `d4rl/infos.py`), and, measured by d3ray, those of tasks for whose datasets it has recipes and D4RL has none.
"""

from __future__ import annotations

import functools
import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypedDict


class Measured(TypedDict):
    """Mean returns of random actions and of a recipe's greedy expert in an environment, for what is trained on its datasets."""

    environment: str
    returns: tuple[float, float]


class References(TypedDict):
    """Least and greatest return by a D4RL dataset's name, and by the name of a MuJoCo environment without its version.

    `made` are those of datasets that recipes make, by the pattern of their names.
    """

    datasets: dict[str, tuple[float, float]]
    environments: dict[str, tuple[float, float]]
    made: dict[str, Measured]


@functools.cache
def references() -> References:
    return json.loads((Path(__file__).parent / "references.json").read_text("utf-8"))


def measured(dataset: str) -> Measured | None:
    """Return the references that d3ray measured for a dataset made by a recipe; None where it did not."""
    return next((found for pattern, found in references()["made"].items() if fnmatchcase(dataset, pattern)), None)
