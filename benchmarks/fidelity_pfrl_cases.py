"""Rows of the fidelity table beside PFRL 0.4.0: see `fidelity_cases.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fidelity_cases import ACTOR_CRITIC, IMPLICIT, NETS, NEXT, Case, Draws, greedy_first

ATOMS = {"name": "categorical", "v_min": -3.0, "v_max": 3.0, "n_atoms": 11}
ENDED = "at s' of terminated steps the gap is 0 here, that of the network there: no step of this batch is terminated"


def pfrl(label: str, ours: dict[str, Any], theirs: dict[str, Any], losses: list[str], **more: Any) -> Case:
    """`losses` are ours, in the order in which PFRL takes their gradients; one that comes twice is a sum."""
    theirs = {"optimizer": "adam", "learning_rate": 3e-4, "tau": 0.005, **NETS, **theirs, "losses": losses}
    return Case(label, "pfrl", ours, theirs, losses={name: name for name in losses}, **more)


def live_first(n: int) -> Callable[[Draws], list[np.ndarray]]:
    """PFRL's IQN draws its own fractions, those that it chooses by, and its target's."""

    def tape(draws: Draws) -> list[np.ndarray]:
        chosen, target, live = greedy_first(n)(draws)
        return [live, chosen, target]

    return tape


def value_based(name: str, ours: dict[str, Any] | None = None, *, difference: str = "", **more: Any) -> Case:
    """An agent of DQN's family beside PFRL's, with Adam as it comes; its own setting is the same on both sides."""
    same = {key: more.pop(key) for key in ("alpha", "eta") if key in more}
    settings = {"name": name, "encoder": NETS, "learning_rate": 3e-4, "optimizer": "adam", **(ours or {}), **same}
    return pfrl(name, settings, {"name": name, **same}, ["critic_loss"], discrete=True, difference=difference, **more)


PFRL_CASES = (
    pfrl("DDPG", {"name": "DDPG", "preset": "d3rlpy", **ACTOR_CRITIC}, {"name": "DDPG"}, ["critic_loss", "actor_loss"]),
    pfrl(
        "SAC, temperature learnt",
        {"name": "SAC", **ACTOR_CRITIC, "critic_optimizer": {"name": "adam", "epsilon": 2e-8}},
        {"name": "SAC", "initial_temperature": 1.0, "entropy_target": -3.0, "temperature_optimizer_lr": 3e-4},
        ["critic_loss", "critic_loss", "actor_loss", "actor_loss"],
        factor={"critic_loss": 2, "critic": 2},
        difference="2 × their L_Q: PFRL halves squared errors, as the paper does; so Adam's ε is 2e-8 here for its 1e-8",
    ),
    pfrl(
        "TD3",
        {"name": "TD3", **ACTOR_CRITIC},
        {"name": "TD3"},
        ["critic_loss", "critic_loss", "actor_loss"],
        step=1,
        their_step=1,
    ),
    pfrl(
        "DQN",
        {"name": "DQN", "preset": "d3rlpy", "encoder": NETS, "learning_rate": 3e-4},
        {"name": "DQN"},
        ["critic_loss"],
        discrete=True,
    ),
    value_based("DoubleDQN"),
    value_based("AL", alpha=0.7),
    value_based("PAL", difference=ENDED, unending=True, alpha=0.7),
    value_based("DoublePAL", difference=ENDED, unending=True, alpha=0.7),
    value_based("DPP", eta=2.0),
    value_based("CategoricalDQN", {"q_function": ATOMS}),
    value_based("CategoricalDoubleDQN", {"q_function": ATOMS}),
    value_based("IQN", {"q_function": IMPLICIT}, tape=live_first(32), difference=NEXT),
    pfrl(
        "NAF",
        {"name": "NAF", "encoder": NETS, "learning_rate": 3e-4, "tau": 1.0, "target_update_interval": 100},
        {"name": "NAF"},
        ["critic_loss"],
    ),
    pfrl(
        "DQN, RMSprop with ε inside the root",
        {
            "name": "DQN",
            "encoder": NETS,
            "learning_rate": 2.5e-4,
            "optimizer": {"name": "rmsprop", "alpha": 0.95, "epsilon": 1e-2, "epsilon_inside": True, "centered": True},
        },
        {
            "name": "DQN",
            "learning_rate": 2.5e-4,
            "optimizer": "rmsprop",
            "optimizer_settings": {"alpha": 0.95, "eps": 1e-2, "centered": True},
        },
        ["critic_loss"],
        discrete=True,
    ),
)
