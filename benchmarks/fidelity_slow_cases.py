"""Rows of the fidelity table of algorithms that neither peer has, and what lies ahead of their batch: see `fidelity_cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from fidelity_cases import ACTOR_CRITIC, BATCH, NETS, Case

AHEAD = 4  # steps that AWR's returns look ahead
BEHAVIOUR: dict[str, Any] = {**ACTOR_CRITIC, "imitator_encoder": NETS}
SPOT: dict[str, Any] = {"name": "SPOT", **BEHAVIOUR, "warmup_steps": 0, "support_weight": 0.7, "beta": 0.3}
XQL: dict[str, Any] = {"name": "XQL", **ACTOR_CRITIC, "value_encoder": NETS, "actor_optimizer": "adam"}
VALUES = ("value_loss", "actor_loss", "critic_loss")
CRR_LOSSES = ("critic_loss", "actor_loss")
CRR: dict[str, Any] = {"name": "DiscreteCRR", **ACTOR_CRITIC, "n_critics": 2, "tau": 0.005, "target_update_interval": 1}
AWR: dict[str, Any] = {"name": "AWR", "actor_encoder": NETS, "value_encoder": NETS, "horizon": AHEAD, "value_scale": 10.0}
SLOW_AWR: dict[str, Any] = {"name": "AWR", "sgd": True, "horizon": AHEAD, "scale": 10.0, "beta": 1.0}


def slow(label: str, ours: dict[str, Any], theirs: dict[str, Any], losses: tuple[str, ...], **more: Any) -> Case:
    return Case(label, "slow", ours, theirs, losses={name: name for name in losses}, tape=lambda _: [], **more)


SLOW_CASES: tuple[Case, ...] = (
    slow(
        "SAC-N",
        {"name": "SACN", **ACTOR_CRITIC, "n_critics": 5},
        {"name": "SACN"},
        ("critic_loss", "actor_loss"),
    ),
    slow(
        "EDAC",
        {"name": "EDAC", **ACTOR_CRITIC, "n_critics": 5, "eta": 2.0},
        {"name": "EDAC", "eta": 2.0},
        ("critic_loss", "actor_loss"),
    ),
    slow(
        "MCQ",
        {"name": "MCQ", **BEHAVIOUR},
        {"name": "MCQ", "imitator_rate": 1e-3, "beta": 2.0, "lam": 0.7},
        ("imitation_loss", "critic_loss", "actor_loss"),
    ),
    slow(
        "SPOT, behaviour",
        {**SPOT, "warmup_steps": 100},
        {"name": "SPOT", "warming_up": True, "imitator_rate": 1e-3, "beta": 0.3},
        ("imitation_loss",),
    ),
    slow(
        "SPOT, three latents",
        {**SPOT, "n_density_samples": 3},
        {"name": "SPOT", "warming_up": False, "beta": 0.3, "weight": 0.7},
        ("critic_loss", "actor_loss"),
        step=1,
    ),
    slow(
        "XQL",
        XQL,
        {"name": "XQL", "gumbel_temp": 2.0, "max_clip": 7.0, "delta": 20.0},
        VALUES,
        difference="V has no layer norm here",
    ),
    slow(
        "XQL, with other actions, clipped",
        {**XQL, "gumbel_temp": 0.5, "max_clip": 1.0, "huber_delta": 0.5, "perturb_actions": True, "n_random_actions": 2},
        {"name": "XQL", "gumbel_temp": 0.5, "max_clip": 1.0, "delta": 0.5, "std": 0.1},
        VALUES,
    ),
    slow("DiscreteIQL", {**XQL, "name": "DiscreteIQL"}, {"name": "DiscreteIQL"}, VALUES, discrete=True),
    slow("DiscreteCRR", CRR, {"name": "DiscreteCRR", "kind": "mean", "binary": False}, CRR_LOSSES, discrete=True),
    slow(
        "DiscreteCRR, best of all, binary",
        {**CRR, "advantage_type": "max", "weight_type": "binary"},
        {"name": "DiscreteCRR", "kind": "max", "binary": True},
        CRR_LOSSES,
        discrete=True,
    ),
    slow("AWR, value", AWR, {**SLOW_AWR, "phase": "value"}, ("value_loss",)),
    slow("AWR, actor", AWR, {**SLOW_AWR, "phase": "actor"}, ("actor_loss",), step=200),
    slow(
        "DiscreteAWR, actor",
        {**AWR, "name": "DiscreteAWR"},
        {**SLOW_AWR, "name": "DiscreteAWR", "phase": "actor"},
        ("actor_loss",),
        step=200,
        discrete=True,
    ),
    slow(
        "AWR, actor, returns of the data",
        {**AWR, "horizon": None, "beta": 0.5},
        {**SLOW_AWR, "horizon": None, "phase": "actor", "beta": 0.5},
        ("actor_loss",),
        step=200,
    ),
)


def ahead(observation: int, terminated: np.ndarray, gamma: float) -> dict[str, np.ndarray]:
    """What the steps after each transition hold: up to `AHEAD` of them, which end by a terminal, a cut, or not at all."""
    rng = np.random.default_rng(8)
    left = np.where(terminated > 0, 0, rng.integers(0, AHEAD + 1, BATCH))
    steps = np.arange(AHEAD)
    mask = (steps < left[:, None]).astype(np.float32)
    ends = (steps == left[:, None] - 1) & (rng.random((BATCH, 1)) < 0.5)
    return {
        "ahead_reward": mask * rng.standard_normal((BATCH, AHEAD), np.float32),
        "ahead_discount": (gamma * ~ends).astype(np.float32),
        "ahead_mask": mask,
        "ahead_observation": rng.standard_normal((BATCH, AHEAD, observation), np.float32),
    }
