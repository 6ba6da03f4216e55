"""Rows of the fidelity table: what is set on both sides so that they compute the same, and what differs all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BATCH = 32
HIDDEN = [64, 48]
NETS: dict[str, Any] = {"hidden_units": HIDDEN}
ACTOR_CRITIC: dict[str, Any] = {"actor_encoder": NETS, "critic_encoder": NETS}
Draws = list[tuple[str, np.ndarray]]  # ours, in order: the loss that drew them and what for, and the numbers
Reparameterised = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Case:
    """One algorithm with one kind of critic, beside one peer.

    Attributes:
        label: First cell of the row.
        peer: "d3rlpy", "pfrl" or "slow".
        ours: Name and settings of our side.
        theirs: Of the peer's.
        step: Gradient step, from 0, that our side does.
        their_step: The one that the peer does.
        losses: What the peer calls our losses; "a + b" is the sum of two of its.
        factor: Our loss, or our gradient of a network, over the peer's, where the peer has the same up to a factor.
        skip: Beginnings of tensors' names that are not compared; `difference` says why.
        slope: By a parameter's name, the peer's for ours, and the slope of ours in the peer's: functions of ours. Gradients are
            compared through it, new values are not.
        discrete: Whether actions are.
        unending: Whether no step of the batch is terminated.
        tape: The numbers that the peer draws, in its order, out of those that ours drew.
        cancels: By a tensor's name, of one that is what two terms leave of each other: how many times larger these are. Float32
            rounds them by up to 1.2e-7, so that is how far the sides may be apart, times so many.
        difference: What differs, as an equation or a setting.
        dtype: Of both sides; "float64" beside d3rlpy only.
    """

    label: str
    peer: str
    ours: Mapping[str, Any]
    theirs: Mapping[str, Any]
    step: int = 0
    their_step: int = 0
    losses: Mapping[str, str] = field(default_factory=dict)
    factor: Mapping[str, float] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    slope: Mapping[str, tuple[Reparameterised, Reparameterised]] = field(default_factory=dict)
    discrete: bool = False
    unending: bool = False
    tape: Callable[[Draws], list[np.ndarray]] = lambda draws: [numbers for _, numbers in draws]
    cancels: Mapping[str, float] = field(default_factory=dict)
    difference: str = ""
    dtype: str = "float32"


def d3rlpy(label: str, ours: dict[str, Any], theirs: dict[str, Any], **more: Any) -> Case:
    return Case(label, "d3rlpy", ours, {**theirs, **NETS}, **more)


def fractions(members: int) -> Callable[[Draws], list[np.ndarray]]:
    """What d3rlpy draws where members of our ensemble share fractions [1, B, N]: each its own [B, N], so each gets ours."""

    def tape(draws: Draws) -> list[np.ndarray]:
        return [part for _, numbers in draws for part in ([numbers[0]] * members if numbers.ndim == 3 else [numbers])]

    return tape


def of_three_kinds(draws: Draws) -> list[np.ndarray]:
    """d3rlpy's CQL draws its uniform actions after the policy's, as [B · N, A] where ours has [N, B, A]."""
    at = next(k for k, (_, numbers) in enumerate(draws) if numbers.ndim == 3 and numbers.min() > 0 and numbers.max() < 1)
    anywhere = draws[at][1].swapaxes(0, 1).reshape(-1, draws[at][1].shape[-1])
    rest = [numbers for _, numbers in draws[:at] + draws[at + 1 :]]
    return [*rest[: at + 2], anywhere, *rest[at + 2 :]]


def greedy_first(n: int) -> Callable[[Draws], list[np.ndarray]]:
    """d3rlpy's DQN draws fractions to choose the next action by, where ours takes midpoints."""

    def tape(draws: Draws) -> list[np.ndarray]:
        drawn = fractions(1)(draws)
        midpoints = (np.arange(n, dtype=np.float32) + 0.5) / n
        return [np.broadcast_to(midpoints, drawn[0].shape).copy(), *drawn]

    return tape


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def through_sigmoid(low: float, high: float) -> tuple[Reparameterised, Reparameterised]:
    """Where log σ = low + (high - low) sigmoid(p): p and d log σ / dp as functions of log σ."""

    def share(x: np.ndarray) -> np.ndarray:
        return (x.astype(np.float64) - low) / (high - low)

    return (lambda x: np.log(share(x) / (1 - share(x)))), (lambda x: (high - low) * share(x) * (1 - share(x)))


ACTOR_LOSSES = {"critic_loss": "critic_loss", "actor_loss": "actor_loss"}
PHASE = "delayed updates on steps d, 2d, … here (d - 1, … counted from 0), on 0, d, … there"
IMPLICIT = {"name": "iqn", "n_quantiles": 32, "n_target_quantiles": 32, "n_greedy_quantiles": 32}
THEIR_IMPLICIT = {"name": "iqn", "n_quantiles": 32, "n_greedy_quantiles": 32}
FRACTIONS = (
    "members share their fractions here and draw their own there; expected values take midpoints (k - 1/2) / K here, "
    "(k - 1) / (K - 1) there: midpoints were given to both"
)
NEXT = "the next action is chosen by K midpoints here, by N fractions of its own there, which were given the midpoints"
FIXED = {"learn_temperature": False, "initial_temperature": 0.2}
LOG_STD = "log σ = p here, clipped; log σ = -5 + 7 sigmoid(p) there: gradients compared through d log σ / dp, new p not"
IQL_LOSSES = {"value_loss": "v_loss", "critic_loss": "q_loss", "actor_loss": "actor_loss"}
IQL: dict[str, Any] = {"name": "IQL", **ACTOR_CRITIC, "value_encoder": NETS, "actor_optimizer": "adam"}
AWAC: dict[str, Any] = {"name": "AWAC", **ACTOR_CRITIC, "actor_optimizer": {"name": "adam", "epsilon": 1e-8 / BATCH}}
SAC_LOSSES = {"critic_loss": "critic_loss", "actor_loss": "actor_loss + temp_loss"}
STEPPED = "critic and actor see α and the temperature before their steps here, after them there: their rates are 1e-12 or 0"
ONE_LOSS = "L_π and L_α are one loss here, and L_α is not told there: their gradients are compared"
STILL = 1e-12  # a learning rate that leaves float32 weights where they are
CQL: dict[str, Any] = {"name": "CQL", **ACTOR_CRITIC, "temp_learning_rate": STILL}
THEIR_CQL: dict[str, Any] = {"name": "CQL", "temp_learning_rate": STILL, "alpha_learning_rate": 0.0, "alpha_threshold": 0.0}


CASES = (
    d3rlpy("DDPG", {"name": "DDPG", "preset": "d3rlpy", **ACTOR_CRITIC}, {"name": "DDPG"}, losses=ACTOR_LOSSES),
    d3rlpy("TD3", {"name": "TD3", **ACTOR_CRITIC}, {"name": "TD3"}, step=1, losses=ACTOR_LOSSES, difference=PHASE),
    d3rlpy(
        "TD3+BC",
        {"name": "TD3PlusBC", **ACTOR_CRITIC},
        {"name": "TD3PlusBC"},
        step=1,
        losses=ACTOR_LOSSES,
        difference=PHASE,
    ),
    d3rlpy("ReBRAC", {"name": "ReBRAC", **ACTOR_CRITIC}, {"name": "ReBRAC"}, step=1, losses=ACTOR_LOSSES, difference=PHASE),
    d3rlpy(
        "ReBRAC, QR, heavy penalties",
        {"name": "ReBRAC", **ACTOR_CRITIC, "q_function": "qr", "actor_beta": 0.5, "critic_beta": 0.7},
        {"name": "ReBRAC", "q_function": {"name": "qr"}, "actor_beta": 0.5, "critic_beta": 0.7},
        step=1,
        losses=ACTOR_LOSSES,
        difference=PHASE,
    ),
    d3rlpy("BC, deterministic", {"name": "BC", "encoder": NETS}, {"name": "BC"}, losses={"imitation_loss": "loss"}),
    d3rlpy(
        "BC, stochastic",
        {"name": "BC", "encoder": NETS, "policy_type": "stochastic"},
        {"name": "BC", "policy_type": "stochastic", "likelihood": True},
        losses={"imitation_loss": "loss"},
        difference="L = -log π(a|s) here, (a - clip(μ + σ ε, ±1))² there: their policy was given ours",
    ),
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
        "FQE",
        {"name": "FQE", "encoder": NETS, "learning_rate": 3e-4},
        {"name": "FQE", "learning_rate": 3e-4},
        their_step=1,
        losses={"critic_loss": "loss"},
        difference="what the judged policy does is given to both; copies after steps C, 2C, … here, after C + 1, … there",
    ),
    d3rlpy(
        "DiscreteFQE, QR, target copied",
        {"name": "DiscreteFQE", "encoder": NETS, "q_function": "qr", "target_update_interval": 1},
        {"name": "DiscreteFQE", "q_function": {"name": "qr"}, "target_update_interval": 1},
        losses={"critic_loss": "loss"},
        discrete=True,
    ),
    d3rlpy(
        "DoubleDQN, two critics",
        {"name": "DoubleDQN", "optimizer": "adam", "encoder": NETS, "n_critics": 2},
        {"name": "DoubleDQN", "n_critics": 2},
        their_step=1,
        losses={"critic_loss": "loss"},
        discrete=True,
    ),
    d3rlpy(
        "DiscreteBCQ",
        {"name": "DiscreteBCQ", "preset": "d3rlpy", "encoder": NETS, "action_flexibility": 0.95},
        {"name": "DiscreteBCQ", "action_flexibility": 0.95},
        their_step=1,
        losses={"critic_loss": "loss"},
        discrete=True,
    ),
    d3rlpy(
        "DiscreteBCQ, two critics, QR, imitator apart",
        {
            "name": "DiscreteBCQ",
            "preset": "d3rlpy",
            "encoder": NETS,
            "imitator_encoder": NETS,
            "n_critics": 2,
            "q_function": "qr",
            "action_flexibility": 0.95,
        },
        {"name": "DiscreteBCQ", "share_encoder": False, "n_critics": 2, "q_function": {"name": "qr"}, "action_flexibility": 0.95},
        their_step=1,
        losses={"critic_loss": "loss"},
        discrete=True,
    ),
    d3rlpy(
        "DiscreteCQL",
        {"name": "DiscreteCQL", "preset": "d3rlpy", "encoder": NETS, "alpha": 0.7},
        {"name": "DiscreteCQL", "alpha": 0.7},
        their_step=1,
        losses={"critic_loss": "loss"},
        discrete=True,
    ),
    d3rlpy(
        "DiscreteCQL, QR",
        {"name": "DiscreteCQL", "preset": "d3rlpy", "encoder": NETS, "q_function": "qr"},
        {"name": "DiscreteCQL", "q_function": {"name": "qr"}},
        their_step=1,
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
    d3rlpy(
        "DiscreteSAC, temperature learnt, rate 1e-12",
        {"name": "DiscreteSAC", **ACTOR_CRITIC, "temp_learning_rate": STILL},
        {"name": "DiscreteSAC", "temp_learning_rate": STILL},
        their_step=1,
        losses={"critic_loss": "critic_loss"},
        skip=("loss/actor_loss",),
        discrete=True,
        cancels={"gradient/temperature/0/log": 100},
        difference=f"{ONE_LOSS}. L_α's gradient is α (H(π) - 0.98 log 2), a hundredth of either term: float32 rounds the terms by "
        "1.2e-7, a hundredfold of which may be left in the difference; the next row is the same in float64",
    ),
    d3rlpy(
        "DiscreteSAC, the same in float64",
        {"name": "DiscreteSAC", **ACTOR_CRITIC, "temp_learning_rate": STILL},
        {"name": "DiscreteSAC", "temp_learning_rate": STILL},
        their_step=1,
        losses={"critic_loss": "critic_loss"},
        skip=("loss/actor_loss",),
        discrete=True,
        difference=f"{ONE_LOSS}; d3rlpy's ensembles keep the values of their members in float32 all the same",
        dtype="float64",
    ),
    d3rlpy(
        "DiscreteSAC, temperature fixed",
        {"name": "DiscreteSAC", **ACTOR_CRITIC, **FIXED},
        {"name": "DiscreteSAC", "initial_temperature": 0.2, "temp_learning_rate": 0.0},
        their_step=1,
        losses=ACTOR_LOSSES,
        skip=("live/temperature",),
        discrete=True,
    ),
    d3rlpy(
        "NFQ",
        {"name": "NFQ", "preset": "d3rlpy", "encoder": NETS},
        {"name": "NFQ"},
        losses={"critic_loss": "loss"},
        discrete=True,
        difference="no target network here, a copy after every step there: the copy was made the network itself",
    ),
    d3rlpy(
        "NFQ, two critics, QR",
        {"name": "NFQ", "preset": "d3rlpy", "encoder": NETS, "n_critics": 2, "q_function": "qr"},
        {"name": "NFQ", "n_critics": 2, "q_function": {"name": "qr"}},
        losses={"critic_loss": "loss"},
        discrete=True,
    ),
    d3rlpy(
        "TD3, QR",
        {"name": "TD3", **ACTOR_CRITIC, "q_function": "qr"},
        {"name": "TD3", "q_function": {"name": "qr"}},
        step=1,
        losses=ACTOR_LOSSES,
        difference=PHASE,
    ),
    d3rlpy(
        "TD3, IQN",
        {"name": "TD3", **ACTOR_CRITIC, "q_function": IMPLICIT},
        {"name": "TD3", "q_function": THEIR_IMPLICIT, "midpoints": True},
        step=1,
        losses=ACTOR_LOSSES,
        tape=fractions(2),
        difference=FRACTIONS,
    ),
    d3rlpy(
        "SAC, temperature fixed",
        {"name": "SAC", **ACTOR_CRITIC, **FIXED},
        {"name": "SAC", "initial_temperature": 0.2, "temp_learning_rate": 0.0},
        losses=ACTOR_LOSSES,
        skip=("live/temperature",),
    ),
    d3rlpy(
        "SAC, QR, temperature fixed",
        {"name": "SAC", **ACTOR_CRITIC, **FIXED, "q_function": "qr"},
        {"name": "SAC", "initial_temperature": 0.2, "temp_learning_rate": 0.0, "q_function": {"name": "qr"}},
        losses=ACTOR_LOSSES,
        skip=("live/temperature",),
    ),
    d3rlpy(
        "SAC, IQN, temperature fixed",
        {"name": "SAC", **ACTOR_CRITIC, **FIXED, "q_function": IMPLICIT},
        {"name": "SAC", "initial_temperature": 0.2, "temp_learning_rate": 0.0, "q_function": THEIR_IMPLICIT, "midpoints": True},
        losses=ACTOR_LOSSES,
        skip=("live/temperature",),
        tape=fractions(2),
        difference=FRACTIONS,
    ),
    d3rlpy(
        "SAC, temperature learnt, rate 1e-12",
        {"name": "SAC", **ACTOR_CRITIC, "temp_learning_rate": STILL},
        {"name": "SAC", "temp_learning_rate": STILL},
        losses={"critic_loss": "critic_loss", "actor_loss": "actor_loss + temp_loss"},
    ),
    d3rlpy(
        "SAC, temperature learnt",
        {"name": "SAC", **ACTOR_CRITIC},
        {"name": "SAC"},
        losses={"critic_loss": "critic_loss"},
        skip=("loss/actor_loss", "gradient/policy", "live/policy"),
        difference="the actor's α is the one before its step here, after it there: the actor is compared in "
        "*SAC, temperature learnt, rate 1e-12*",
    ),
    d3rlpy(
        "IQL",
        IQL,
        {"name": "IQL"},
        losses=IQL_LOSSES,
        skip=("loss/critic_loss", "gradient/critic", "live/critic", "target/critic"),
        slope={"policy/0/log_std": through_sigmoid(-5, 2)},
        difference="L_Q aims at r + γ V(s') with V after its step here, before it there: critics are compared in "
        "*IQL, rates of V and Q 1e-12*. " + LOG_STD,
    ),
    d3rlpy(
        "IQL, rates of V and Q 1e-12",
        {**IQL, "value_learning_rate": STILL, "critic_learning_rate": STILL},
        {"name": "IQL", "critic_learning_rate": STILL},
        losses=IQL_LOSSES,
        slope={"policy/0/log_std": through_sigmoid(-5, 2)},
        difference=LOG_STD,
    ),
    d3rlpy(
        "AWAC",
        AWAC,
        {"name": "AWAC", "normal_target": True},
        losses=ACTOR_LOSSES,
        factor={"actor_loss": 1 / BATCH, "policy": 1 / BATCH},
        difference="L_π / B: d3rlpy sums over a batch what it has multiplied by B already; so Adam's ε is 1e-8 / B here. a' ~ "
        "N(tanh μ, σ) and no entropy in L_Q here, a' = tanh N(μ, σ) and SAC's entropy there: their target was given ours",
    ),
    d3rlpy(
        "AWAC, three actions",
        {**AWAC, "n_action_samples": 3, "lam": 0.5},
        {"name": "AWAC", "n_action_samples": 3, "lam": 0.5, "normal_target": True},
        losses=ACTOR_LOSSES,
        factor={"actor_loss": 1 / BATCH, "policy": 1 / BATCH},
    ),
    d3rlpy(
        "CRR",
        {"name": "CRR", **ACTOR_CRITIC, "n_critics": 2, "tau": 0.005, "target_update_interval": 1},
        {"name": "CRR", "n_critics": 2, "target_update_type": "soft"},
        losses=ACTOR_LOSSES,
    ),
    d3rlpy(
        "CRR, best of four, binary, copied",
        {"name": "CRR", **ACTOR_CRITIC, "advantage_type": "max", "weight_type": "binary", "target_update_interval": 1},
        {"name": "CRR", "advantage_type": "max", "weight_type": "binary", "target_update_interval": 1},
        losses=ACTOR_LOSSES,
    ),
    d3rlpy("CQL", {**CQL, "backup": "mode"}, THEIR_CQL, losses=SAC_LOSSES, tape=of_three_kinds, difference=STEPPED),
    d3rlpy(
        "CQL, goal with entropy",
        {**CQL, "backup": "soft"},
        {**THEIR_CQL, "soft_q_backup": True},
        losses=SAC_LOSSES,
        tape=of_three_kinds,
    ),
    d3rlpy(
        "CQL, goal of the best of ten",
        {**CQL, "backup": "max"},
        {**THEIR_CQL, "max_q_backup": True},
        losses=SAC_LOSSES,
        tape=of_three_kinds,
    ),
    d3rlpy(
        "CQL, α learnt, rate 1e-12",
        {**CQL, "backup": "mode", "learn_alpha": True, "alpha_learning_rate": STILL, "alpha_threshold": 2.0},
        {**THEIR_CQL, "alpha_learning_rate": STILL, "alpha_threshold": 2.0},
        losses=SAC_LOSSES,
        skip=("loss/critic_loss",),
        tape=of_three_kinds,
        difference="L_Q and L_α are one loss here; " + STEPPED,
    ),
    d3rlpy(
        "CalQL",
        {**CQL, "name": "CalQL", "backup": "mode"},
        {**THEIR_CQL, "name": "CalQL"},
        losses=SAC_LOSSES,
        tape=of_three_kinds,
        difference=STEPPED,
    ),
    d3rlpy(
        "CalQL, α learnt, rate 1e-12",
        {**CQL, "name": "CalQL", "backup": "mode", "learn_alpha": True, "alpha_learning_rate": STILL, "alpha_threshold": 2.0},
        {**THEIR_CQL, "name": "CalQL", "alpha_learning_rate": STILL, "alpha_threshold": 2.0},
        losses=SAC_LOSSES,
        skip=("loss/critic_loss",),
        tape=of_three_kinds,
        difference="L_Q and L_α are one loss here; " + STEPPED,
    ),
    d3rlpy(
        "DQN, QR",
        {"name": "DQN", "preset": "d3rlpy", "encoder": NETS, "q_function": "qr"},
        {"name": "DQN", "q_function": {"name": "qr"}},
        their_step=1,
        losses={"critic_loss": "loss"},
        discrete=True,
    ),
    d3rlpy(
        "DQN, IQN",
        {"name": "DQN", "preset": "d3rlpy", "encoder": NETS, "q_function": IMPLICIT},
        {"name": "DQN", "q_function": THEIR_IMPLICIT},
        their_step=1,
        losses={"critic_loss": "loss"},
        discrete=True,
        tape=greedy_first(32),
        difference=NEXT,
    ),
)
