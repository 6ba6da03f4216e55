"""Rows of the fidelity table of algorithms with a behaviour model: see `fidelity_cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from fidelity_cases import ACTOR_CRITIC, ACTOR_LOSSES, NETS, Case, Draws, d3rlpy

TANH = "D(s, z) ends in tanh here and has none there, where `with_squash` does the reverse of what it says: theirs was given ours"
BEHAVIOUR: dict[str, Any] = {**ACTOR_CRITIC, "imitator_encoder": NETS}
LOSSES = {**ACTOR_LOSSES, "imitation_loss": "vae_loss"}


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
    ),
)
