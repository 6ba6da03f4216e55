"""Two ways around an obstacle, and what policies make of them: python examples/two_ways.py [PICTURE.png], some two minutes.

Somebody walks from (x, -1), x in [-0.3, 0.3], past a waypoint to (0, 1). A disc of radius 0.35 stands at (0, 0). The recorded
waypoints, which are the actions, lie left or right of it, half of them each: their mean is in the disc. In one recording both ways
are worth the same, in the other the right one alone is worth something.

It prints for each policy how many of its walks touch the disc and how many go to the right of it, and draws some of them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from d3ray import Dataset
from d3ray.algos.registry import make_algorithm
from d3ray.data.spec import Box, Spec

RADIUS = 0.35
SPEC = Spec(observation=Box(shape=(1,)), action=Box(shape=(2,), low=-1.0, high=1.0))
POLICIES: dict[str, dict[str, Any]] = {
    "BC": {"name": "BC"},
    "TD3PlusBC": {"name": "TD3PlusBC"},
    "IQL": {"name": "IQL"},
    "FBC": {"name": "FBC"},
    "FQL, α = 10": {"name": "FQL", "alpha": 10.0},
    "FQL, α = 1": {"name": "FQL", "alpha": 1.0},
    "FQL, α = 0.3": {"name": "FQL", "alpha": 0.3},
    "IFQL": {"name": "IFQL"},
}


def recorded(*, right_is_better: bool, n: int = 2_000, seed: int = 0) -> Dataset:
    """`n` walks, each an episode of one step."""
    rng = np.random.default_rng(seed)
    side = rng.choice([-1.0, 1.0], n)
    waypoint = np.stack([0.65 * side, np.zeros(n)], 1) + 0.06 * rng.standard_normal((n, 2))
    worth = np.where(side > 0, 1.0, 0.0 if right_is_better else 1.0)
    start = rng.uniform(-0.3, 0.3, (n, 1)).astype(np.float32)
    return Dataset.from_arrays(
        start, waypoint.astype(np.float32), worth.astype(np.float32), np.ones(n, bool), spec=SPEC, name="walks"
    )


def touches(start: np.ndarray, waypoint: np.ndarray) -> np.ndarray:
    """Whether each walk comes within the disc."""

    def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Of the line from a to b from (0, 0)."""
        along = np.clip((-a * (b - a)).sum(1) / np.square(b - a).sum(1), 0, 1)[:, None]
        return np.linalg.norm(a + along * (b - a), axis=1)

    begin = np.concatenate([start, np.full_like(start, -1)], 1)
    end = np.broadcast_to(np.array([0.0, 1.0]), begin.shape)
    return np.minimum(distance(begin, waypoint), distance(waypoint, end)) < RADIUS


def trained(label: str, data: Dataset, n_steps: int, seed: int = 0) -> Any:
    """One of `POLICIES`, with small layers."""
    algorithm = make_algorithm(POLICIES[label], seed=seed, device="cpu")
    names = [name for name in algorithm.get_params() if name != "share_encoder"]
    small = {name: {"hidden_units": [64, 64]} for name in names if name.endswith("encoder")}
    rates = {name: 1e-3 for name in names if name.endswith("learning_rate")}
    return algorithm.set_params(**small, **rates).fit(data, n_steps, show_progress=False)


def walked(policy: Any, n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Starts, and the waypoints that a policy gives."""
    start = np.linspace(-0.3, 0.3, n, dtype=np.float32)[:, None]
    return start, policy.predict(start)


def drawn(panels: dict[str, tuple[np.ndarray, np.ndarray]], path: str) -> None:
    """Each panel's walks, those that touch the disc in red."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    figure, axes = plt.subplots(1, len(panels), figsize=(2.6 * len(panels), 3.1), layout="constrained")
    for axis, (title, (start, waypoint)) in zip(axes, panels.items(), strict=True):
        hit = touches(start, waypoint)
        for (x,), (a, b), bad in zip(start[::10], waypoint[::10], hit[::10], strict=True):
            axis.plot([x, a, 0], [-1, b, 1], color="#c0392b" if bad else "#7f8c8d", alpha=0.4, lw=0.6)
        axis.scatter(*waypoint.T, s=4, c=np.where(hit, "#c0392b", "#1f618d"), zorder=3)
        axis.add_patch(plt.Circle((0, 0), RADIUS, color="#b7b7b7"))
        axis.set_title(f"{title}: {hit.mean():.0%} touch", fontsize=10)
        axis.set(xlim=(-1, 1), ylim=(-1.05, 1.05), aspect="equal", xticks=[], yticks=[])
    figure.savefig(path, dpi=90)
    Image.open(path).convert("RGB").quantize(48).save(path, optimize=True)  # a third of the bytes


def main(picture: str | None = None, n_steps: int = 3_000) -> None:
    walks = {}
    for right_is_better in (False, True):
        data = recorded(right_is_better=right_is_better)
        print("The right way alone is worth something:" if right_is_better else "Both ways are worth the same:")
        for label in POLICIES:
            start, waypoint = walks[label, right_is_better] = walked(trained(label, data, n_steps))
            hit, right = touches(start, waypoint).mean(), (waypoint[:, 0] > 0).mean()
            print(f"  {label:13} {hit:5.0%} touch the disc, {right:5.0%} go right")
    if picture:
        known = data.columns["observation"][:1000:2], data.columns["action"][:1000:2]  # a walk is a row, and one that closes it
        better = walks["FQL, α = 0.3", True]
        drawn({"data": known, "BC": walks["BC", False], "FBC": walks["FBC", False], "FQL, right is better": better}, picture)


if __name__ == "__main__":
    main(*sys.argv[1:2])
