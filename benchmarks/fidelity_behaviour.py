"""Rows of the fidelity table of algorithms with a behaviour model: see `fidelity_cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from fidelity_cases import ACTOR_CRITIC, ACTOR_LOSSES, NETS, SAC_LOSSES, STILL, Case, Draws, d3rlpy

TANH = "D(s, z) ends in tanh here and has none there, where `with_squash` does the reverse of what it says: theirs was given ours"
BEHAVIOUR: dict[str, Any] = {**ACTOR_CRITIC, "imitator_encoder": NETS}
LOSSES = {**ACTOR_LOSSES, "imitation_loss": "vae_loss"}
PLAS: dict[str, Any] = {"name": "PLAS", **BEHAVIOUR}
BEAR: dict[str, Any] = {"name": "BEAR", **BEHAVIOUR, "temp_learning_rate": STILL, "alpha_learning_rate": 1e-4}
THEIR_BEAR: dict[str, Any] = {"name": "BEAR", "temp_learning_rate": STILL}
BEARS: dict[str, Any] = {
    "losses": {**SAC_LOSSES, "imitation_loss": "imitator_loss"},
    "skip": ("loss/actor_loss",),
}
RAW = "M is of actions before tanh here, of the behaviour's after it there, for `with_squash` as in BCQ: theirs was given ours"
CANCELS = (
    "in their actor's gradient α's step leaves -∇ α M, which cancels the loss's +∇ α M: α's step was kept from it. The actor's "
    "loss is not compared, for L_α is in ours; the temperature's rate is 1e-12, for theirs is stepped before the actor's loss"
)


def by_state(draws: Draws) -> list[np.ndarray]:
    """d3rlpy's BCQ draws n latents of each state as [B · n, Z] where ours has [n, B, Z]."""
    return [numbers.swapaxes(0, 1).reshape(-1, numbers.shape[-1]) if numbers.ndim == 3 else numbers for _, numbers in draws]


BEHAVIOUR_CASES: tuple[Case, ...] = (
    d3rlpy(
        "BCQ",
        {"name": "BCQ", **BEHAVIOUR},
        {"name": "BCQ", "n_action_samples": 10},
        losses=LOSSES,
        tape=by_state,
        difference=TANH,
    ),
    d3rlpy(
        "BCQ, QR, far from the behaviour",
        {"name": "BCQ", **BEHAVIOUR, "q_function": "qr", "action_flexibility": 0.5, "lam": 0.4, "beta": 0.1},
        {"name": "BCQ", "n_action_samples": 10, "q_function": {"name": "qr"}, "action_flexibility": 0.5, "lam": 0.4, "beta": 0.1},
        losses=LOSSES,
        tape=by_state,
        difference=TANH,
    ),
    d3rlpy("PLAS, behaviour", PLAS, {"name": "PLAS"}, losses={"imitation_loss": "vae_loss"}, difference=TANH),
    d3rlpy("PLAS", {**PLAS, "warmup_steps": 0}, {"name": "PLAS", "warmup_steps": 0}, losses=ACTOR_LOSSES, difference=TANH),
    d3rlpy(
        "PLAS, QR",
        {**PLAS, "warmup_steps": 0, "q_function": "qr", "lam": 0.4},
        {"name": "PLAS", "warmup_steps": 0, "q_function": {"name": "qr"}, "lam": 0.4},
        losses=ACTOR_LOSSES,
        difference=TANH,
    ),
    d3rlpy(
        "PLAS with perturbation",
        {**PLAS, "name": "PLASWithPerturbation", "warmup_steps": 0, "action_flexibility": 0.3},
        {"name": "PLASWithPerturbation", "warmup_steps": 0, "action_flexibility": 0.3},
        losses=ACTOR_LOSSES,
        difference=TANH,
    ),
    d3rlpy(
        "BEAR, warm-up",
        BEAR,
        {"name": "BEAR"},
        losses={"critic_loss": "critic_loss", "imitation_loss": "imitator_loss", "matching_loss": "actor_loss"},
        difference=RAW,
    ),
    d3rlpy("BEAR", {**BEAR, "warmup_steps": 0}, {**THEIR_BEAR, "warmup_steps": 0}, difference=CANCELS, **BEARS),
    d3rlpy(
        "BEAR, Gaussian, QR",
        {**BEAR, "warmup_steps": 0, "mmd_kernel": "gaussian", "mmd_sigma": 0.7, "q_function": "qr", "alpha_threshold": 0.4},
        {
            **THEIR_BEAR,
            "warmup_steps": 0,
            "mmd_kernel": "gaussian",
            "mmd_sigma": 0.7,
            "q_function": {"name": "qr"},
            "alpha_threshold": 0.4,
        },
        **BEARS,
    ),
)
