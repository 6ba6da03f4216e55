"""Reference scores: the undiscounted returns that are 0 and 100 of a normalised score.

Those of D4RL (Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", arXiv:2004.07219, appendix; figures
from the repository's `d4rl/infos.py`), in `references.json` beside this file.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TypedDict


class References(TypedDict):
    """Least and greatest return by a D4RL dataset's name, and by the name of a MuJoCo environment without its version."""

    datasets: dict[str, tuple[float, float]]
    environments: dict[str, tuple[float, float]]


@functools.cache
def references() -> References:
    """All of them."""
    return json.loads((Path(__file__).parent / "references.json").read_text("utf-8"))
