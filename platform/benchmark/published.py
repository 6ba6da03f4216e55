"""What others have published on D4RL's datasets, to stand beside a benchmark's own: `suites/published.csv`, and by whom.

Numbers are as printed, D4RL-normalised; d3rlpy's have the raw return that it prints too. An algorithm is called as it is here;
`10% BC` is BC on the best tenth of the data, of its episodes in CORL. Two scores of a run are told apart: that of its last
evaluation, and the best of all its evaluations, which was picked by the score itself.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

Selection = Literal["last", "best"]


@dataclass(frozen=True)
class Source:
    """Who published, and by what protocol."""

    name: str
    seeds: int | str  # how many, or in words that it is not said
    where: str
    protocol: str
    spread: str  # what ± is


SOURCES = {
    one.name: one
    for one in (
        Source(
            "d3rlpy",
            3,
            "Seno and Imai 2021: d3rlpy, tables 2 (last) and 3 (best), with the returns of tables 5 and 6, from which nine scores "
            "differ: CRR on walker2d-medium-expert is 60.0 in table 2 and 51.0 by table 5, the others are within 0.5",
            "500,000 gradient steps, 10 episodes every 5,000; how “best” combines seeds is not said",
            "no spread is printed",
        ),
        Source(
            "d3rlpy's references",
            "an unstated number of",
            "Seno and Imai 2021, table 7, as it repeats others' scores: AWAC, PLAS, PLAS with perturbation and TD3+BC from their "
            "papers, BCQ and BEAR from D4RL's, CQL by its authors' code",
            "those papers' own, which the table does not say; PLAS with perturbation is the best of several settings",
            "no spread is printed",
        ),
        Source(
            "CORL",
            4,
            "README of github.com/corl-team/CORL at eeeeef2; the number of seeds from its results/runs_tables/offline_urls.csv",
            "1,000,000 gradient steps (SAC-N, EDAC 3,000,000; Decision Transformer 100,000), 10 episodes an evaluation "
            "(100 in AntMaze and for Decision Transformer)",
            "± is the standard deviation over seeds",
        ),
        Source(
            "OfflineRL-Kit",
            4,
            "README of github.com/yihaosun1124/OfflineRL-Kit at e3ce697",
            "1,000,000 gradient steps (EDAC 3,000,000), 10 episodes every 1,000, by its example scripts, whose trainer returns the "
            "mean of the last ten evaluations; the README does not say whether that, or the last one, is the score",
            "what ± is, is not said",
        ),
        Source(
            "JAX-CORL",
            5,
            "README of github.com/nissymori/JAX-CORL at d747dd8",
            "1,000,000 gradient steps (Decision Transformer 20,000), 5 episodes every 100,000 (2,000), by its scripts",
            "± is the standard deviation over seeds",
        ),
    )
}


@dataclass(frozen=True)
class Published:
    """A score as printed; `spread`, and `returned`, which is the raw return, are empty where there is none."""

    score: str
    spread: str
    returned: str = ""


@functools.cache
def published() -> Mapping[tuple[str, str], dict[tuple[str, Selection], Published]]:
    """Scores by (D4RL dataset, algorithm), and there by (source, selection)."""
    text = files(__name__.rpartition(".")[0]).joinpath("suites/published.csv").read_text("utf-8")
    found: dict[tuple[str, str], dict[tuple[str, Selection], Published]] = {}
    for line in csv.DictReader(text.splitlines()):
        selection: Selection = "best" if line["selection"] == "best" else "last"
        by_source = found.setdefault((line["dataset"], line["algorithm"]), {})
        by_source[line["source"], selection] = Published(line["score"], line["spread"], line["return"])
    return found


def known_as(algorithm: str, settings: Mapping[str, str]) -> str:
    """Return the name in published tables of an algorithm with these MLflow parameters."""
    return "10% BC" if algorithm == "BC" and settings.get("algorithm.sampler.by") == "top" else algorithm


def d4rl_names(dataset: str) -> list[str]:
    """The D4RL datasets of which published scores stand beside those of a dataset.

    For `d4rl/hopper-medium-v2` that dataset itself. For a dataset made here by D4RL's procedure and of its size, as
    `d3ray-mujoco/hopper-medium-v4`, all versions of D4RL's of that kind: other data, of the same making.
    """
    group, _, name = dataset.rpartition("/")
    names = list(dict.fromkeys(name for name, _ in published()))
    if group != "d3ray-mujoco":
        return [one for one in names if one == name]
    kind = re.sub(r"-v\d+$", "", name)
    return [one for one in names if re.sub(r"-v\d+$", "", one) == kind]
