"""Rows of the fidelity table: what is set on both sides so that they compute the same, and what differs all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

HIDDEN = [64, 48]
NETS: dict[str, Any] = {"hidden_units": HIDDEN}
ACTOR_CRITIC: dict[str, Any] = {"actor_encoder": NETS, "critic_encoder": NETS}
Draws = list[tuple[str, np.ndarray]]  # ours, in order: where each was drawn, and the numbers


@dataclass(frozen=True)
class Case:
    """One algorithm with one kind of critic, beside one peer.

    Attributes:
        label: First cell of the row.
        peer: "d3rlpy" or "pfrl".
        ours: Name and settings of our side.
        theirs: Of the peer's.
        step: Gradient step, from 0, that our side does.
        their_step: The one that the peer does.
        losses: What the peer calls our losses.
        factor: Our loss, or our gradient of a network, over the peer's, where the peer has the same up to a factor.
        discrete: Whether actions are.
        tape: The numbers that the peer draws, in its order, out of those that ours drew.
        difference: What differs, as an equation or a setting.
    """

    label: str
    peer: str
    ours: Mapping[str, Any]
    theirs: Mapping[str, Any]
    step: int = 0
    their_step: int = 0
    losses: Mapping[str, str] = field(default_factory=dict)
    factor: Mapping[str, float] = field(default_factory=dict)
    discrete: bool = False
    tape: Callable[[Draws], list[np.ndarray]] = lambda draws: [numbers for _, numbers in draws]
    difference: str = ""


def d3rlpy(label: str, ours: dict[str, Any], theirs: dict[str, Any], **more: Any) -> Case:
    return Case(label, "d3rlpy", ours, {**theirs, **NETS}, **more)


def pfrl(label: str, ours: dict[str, Any], theirs: dict[str, Any], losses: list[str], **more: Any) -> Case:
    """`losses` are ours, in the order in which PFRL takes their gradients; one that comes twice is a sum."""
    theirs = {"optimizer": "adam", "learning_rate": 3e-4, "tau": 0.005, **NETS, **theirs, "losses": losses}
    return Case(label, "pfrl", ours, theirs, losses={name: name for name in losses}, **more)


ACTOR_LOSSES = {"critic_loss": "critic_loss", "actor_loss": "actor_loss"}
PHASE = "delayed updates on steps d, 2d, … here (d - 1, … counted from 0), on 0, d, … there"
CASES = (
    d3rlpy("TD3", {"name": "TD3", **ACTOR_CRITIC}, {"name": "TD3"}, step=1, losses=ACTOR_LOSSES, difference=PHASE),
    d3rlpy(
        "TD3+BC",
        {"name": "TD3PlusBC", **ACTOR_CRITIC},
        {"name": "TD3PlusBC"},
        step=1,
        losses=ACTOR_LOSSES,
        difference=PHASE,
    ),
    d3rlpy("BC, deterministic", {"name": "BC", "encoder": NETS}, {"name": "BC"}, losses={"imitation_loss": "loss"}),
    d3rlpy(
        "DQN",
        {"name": "DQN", "preset": "d3rlpy", "encoder": NETS},
        {"name": "DQN"},
        their_step=1,
        losses={"critic_loss": "loss"},
        discrete=True,
        difference="copies after steps C, 2C, … here, after steps 1, C + 1, … there",
    ),
    d3rlpy(
        "DQN, two critics, target copied",
        {"name": "DQN", "preset": "d3rlpy", "encoder": NETS, "n_critics": 2, "target_update_interval": 1},
        {"name": "DQN", "n_critics": 2, "target_update_interval": 1},
        losses={"critic_loss": "loss"},
        discrete=True,
    ),
    d3rlpy(
        "DiscreteBC",
        {"name": "DiscreteBC", "encoder": NETS},
        {"name": "DiscreteBC"},
        losses={"imitation_loss": "loss"},
        discrete=True,
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
