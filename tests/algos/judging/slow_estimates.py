"""Estimators of off-policy evaluation as their papers write them: loops over episodes and steps, products of ratios."""

from __future__ import annotations

from typing import Any

import numpy as np

from d3ray.algos.judging.logs import Logs


def random_logs(seed: int, lengths: list[int], *, never: float = 0.0, final: bool = False, gamma: float = 0.9) -> Logs:
    """Logs of so many steps with made-up numbers; a share of the actions, `never`, the judged policy does not take."""
    rng, n = np.random.default_rng(seed), sum(lengths)
    judged = rng.uniform(0.2, 0.9, n)
    judged[rng.uniform(size=n) < never] = 0.0
    with np.errstate(divide="ignore"):
        judged = np.log(judged)
    return Logs(
        rng.normal(1, 1, n),
        np.array(lengths),
        np.log(rng.uniform(0.3, 0.9, n)),
        judged,
        gamma=gamma,
        q_value=rng.normal(3, 1, n),
        value=rng.normal(3, 1, n),
        final_value=rng.normal(3, 1, len(lengths)) if final else None,
    )


def episodes(logs: Logs) -> list[dict[str, Any]]:
    """Of each episode its rewards, ratios, Q(s, a), V(s) and the V of what came after every step, as lists."""
    found, at = [], 0
    assert logs.log_prob is not None
    assert logs.policy_log_prob is not None
    for i, length in enumerate(logs.steps):
        rows = slice(at, at + int(length))
        episode: dict[str, Any] = {"r": logs.reward[rows], "rho": np.exp(logs.policy_log_prob[rows]) / np.exp(logs.log_prob[rows])}
        if logs.value is not None and logs.q_value is not None:
            last = 0.0 if logs.final_value is None else logs.final_value[i]
            episode |= {"q": logs.q_value[rows], "v": logs.value[rows], "v_next": [*logs.value[rows][1:], last]}
        found.append(episode)
        at += int(length)
    return found


def weights(episode: dict[str, Any], width: int) -> list[float]:
    """w_t for t < width; after the end it stays."""
    product, found = 1.0, []
    for t in range(width):
        product *= episode["rho"][t] if t < len(episode["rho"]) else 1.0
        found.append(product)
    return found


def slow(logs: Logs) -> dict[str, float]:
    """Every estimate but MAGIC's and those whose setting is chosen; `Switch-DR` at τ = 1.5, `DRos` at λ = 2, `CIPS` at M = 1.2."""
    all_of, gamma, n = episodes(logs), logs.gamma, len(logs.steps)
    width = int(logs.steps.max())
    w = [weights(e, width) for e in all_of]
    of = dict.fromkeys(("IS", "WIS", "PDIS", "WPDIS", "DM", "DR", "WDR", "Switch-DR", "DRos", "CIPS"), 0.0)
    for i, e in enumerate(all_of):
        total = sum(gamma**t * r for t, r in enumerate(e["r"]))
        whole = w[i][len(e["r"]) - 1]
        of["IS"] += whole * total / n
        of["CIPS"] += min(whole, 1.2) * total / n
        of["WIS"] += whole * total / sum(w[j][len(all_of[j]["r"]) - 1] for j in range(n))
        for name in ("DM", "DR", "WDR", "Switch-DR", "DRos"):
            of[name] += e["v"][0] / n
        recursive = 0.0  # Jiang and Li's form of DR
        for t in reversed(range(len(e["r"]))):
            after = recursive if t < len(e["r"]) - 1 else e["v_next"][t]
            recursive = e["v"][t] + e["rho"][t] * (e["r"][t] + gamma * after - e["q"][t])
        of["DR"] += (recursive - e["v"][0]) / n
        for t, r in enumerate(e["r"]):
            delta = gamma**t * (r + gamma * e["v_next"][t] - e["q"][t])
            share = sum(w[j][t] for j in range(n))
            of["PDIS"] += gamma**t * w[i][t] * r / n
            if share > 0:
                of["WPDIS"] += gamma**t * w[i][t] / share * r
                of["WDR"] += w[i][t] / share * delta
            of["Switch-DR"] += (w[i][t] if w[i][t] <= 1.5 else 0.0) * delta / n
            of["DRos"] += 2 * w[i][t] / (w[i][t] ** 2 + 2) * delta / n
    return of
