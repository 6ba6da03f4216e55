"""results/ope.md from the cells of results/ope.json."""

from __future__ import annotations

import textwrap
from typing import Any

KINDS = ("bootstrap", "bca", "student", "bernstein", "hoeffding")
WHAT = {
    "bandit": "Bandit: twenty kinds of user, four items, clicks of 0 or 1, values off by 0.1 (standard deviation)",
    "cartpole": "CartPole-v1: its first 50 steps, γ = 0.97, values of 20 wherever it is, the truth from 200,000 episodes",
    "mdp": "MDP: six states, two actions, episodes of 6.7 steps on average, γ = 0.97, values off by 0.3",
}


def page(cells: dict[str, Any]) -> str:
    """The page, of cells in the order in which they are shown."""
    groups = {begin: {k: cell for k, cell in cells.items() if k.startswith(begin)} for begin in ("peers/", "coverage/", "floor/")}
    parts = [
        "# Estimates from logs\n\n`python benchmarks/ope.py` writes this page.\n",
        _peers(groups["peers/"]),
        _coverages(groups["coverage/"]),
        _floor(list(groups["floor/"].values())),
        _marginalised(cells.get("marginalised")),
        _choosing(cells.get("choosing")),
    ]
    return "\n".join(part for part in parts if part)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _said(*sentences: str) -> str:
    return textwrap.fill(" ".join(sentences), 130, break_on_hyphens=False) + "\n\n"


def _peers(cells: dict[str, Any]) -> str:
    if not cells:
        return ""
    names = list(dict.fromkeys(name for cell in cells.values() for name in cell["worst"]))
    rows = [[name, *(_tiny(cell["worst"].get(name)) for cell in cells.values())] for name in names]
    said = _said(
        "Largest relative difference over three recordings: 1,000 rounds of the bandit below, or the first five steps of episodes",
        "of the MDP. SCOPE-RL adds 1e-10 to what it divides by. Switch-DR is at τ = 1.5, DRos at λ = 2. No peer here has MAGIC.",
    )
    versions = [f"{name.partition('/')[2]} {cell['version']}" for name, cell in cells.items()]
    return "## Beside peers\n\n" + said + _table(["", *versions], rows)


def _tiny(number: float | None) -> str:
    return "" if number is None else f"{number:.0e}" if number else "0"


def _coverages(cells: dict[str, Any]) -> str:
    if not cells:
        return ""
    draws = next(iter(cells.values()))["draws"]
    said = _said(
        f"How often the truth was within, in percent of {draws:,} recordings: 95 % has a standard error of",
        f"{100 * (0.95 * 0.05 / draws) ** 0.5:.1f} %. In brackets: outside 93 to 97 %.",
        "DM, MAGIC, Switch-DR and DRos take over what the values that they are given are off by, and no interval holds that: the",
        "more episodes, the less often it holds the truth. Their errors are smaller all the same.",
        "Bernstein's and Hoeffding's are bounds: they always held, and are several times as wide. Weights of the bandit are",
        "bounded, and these bounds were given; those of the MDP are not.",
        "IS and WIS have the weights of whole episodes, for which 400 episodes are few.",
    )
    return "## Coverage of 95 % intervals\n\n" + said + "\n".join(_coverage(name, cell) for name, cell in cells.items())


def _coverage(name: str, cell: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for estimator, found in cell["estimators"].items():
        shares = [_share(found["coverage"].get(kind)) for kind in KINDS]
        widths = [
            f"{found['width'][kind]:.3g}" if kind in found["width"] else "" for kind in ("bootstrap", "bernstein", "hoeffding")
        ]
        ess = "" if found["ess"] is None else f"{found['ess']:.0f}"
        rows.append([estimator, f"{found['bias']:+.4f}", f"{found['rmse']:.4f}", ess, *shares, *widths])
    what = WHAT[name.split("/")[1]]
    said = _said(f"{what}. The truth is {cell['truth']:.4f}.")
    header = ["", "bias", "RMSE", "ESS", *KINDS, "width: bootstrap", "bernstein", "hoeffding"]
    return f"### {what.partition(':')[0]}, {cell['n']} episodes\n\n" + said + _table(header, rows)


def _share(share: float | None) -> str:
    if share is None:
        return ""
    text = f"{100 * share:.1f}"
    return text if 0.93 <= share <= 0.97 else f"({text})"


def _floor(cells: list[dict[str, Any]]) -> str:
    if not cells:
        return ""
    pairs = [(name, kind) for name in cells[0]["estimators"] for kind in ("bootstrap", "student")]
    rows = [
        [
            f"{cell['n']}",
            f"{next(iter(cell['estimators'].values()))['ess']:.0f}",
            *(_share(cell["estimators"][name]["coverage"][kind]) for name, kind in pairs),
        ]
        for cell in cells
    ]
    said = _said(
        "Coverage where the judged policy is farther and farther from the behaviour;",
        f"{cells[0]['draws']} recordings each. Where less than half of the episodes count, intervals hold less often than said,",
        "and `estimate` says so; below 30 it refuses.",
    )
    return (
        "## Fewer effective episodes\n\n" + said + _table(["episodes", "ESS", *(f"{name}, {kind}" for name, kind in pairs)], rows)
    )


def _marginalised(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    said = _said(
        f"Root mean square errors from {cell['n']} episodes of the MDP, {cell['draws']} recordings; the truth is",
        f"{cell['truth']:.3f}. A tabular DualDICE and fitted Q evaluation with the same table differ by",
        f"{cell['largest_difference']:.0e} at most: of one linear class they are the same estimate. So d3ray has no DualDICE: it",
        "would train a second network against the first, and give nothing more where FQE has the class.",
    )
    return "## A marginalised estimator\n\n" + said + _table(["", "RMSE"], [[k, f"{v:.4f}"] for k, v in cell["rmse"].items()])


def _choosing(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    said = _said(
        "Spearman's rank correlation with the true values of 20 policies of the MDP, from 200 episodes of one behaviour; mean and",
        "smallest of 20 recordings. The values given are off by the same amounts for every policy, which flatters DM and MAGIC.",
    )
    rows = [[name, f"{found['mean']:.3f}", f"{found['least']:.3f}"] for name, found in cell.items()]
    return "## Choosing among policies\n\n" + said + _table(["", "mean", "smallest"], rows)
