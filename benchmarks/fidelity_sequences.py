"""Rows of the fidelity table of algorithms over stretches of episodes, and their batch: see `fidelity_cases.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fidelity_cases import BATCH, NETS, Case, d3rlpy

from d3ray.data.batch import Sequences

T, ACTION = 4, 3  # steps of a stretch, and entries of hopper_like's actions
LENGTHS = T - np.arange(BATCH) % T  # of each stretch; all else is padding
STEPS = int(LENGTHS.sum())
FACTOR = BATCH * T / (ACTION * STEPS)
STILL = {"attention_dropout": 0.0, "residual_dropout": 0.0, "embedding_dropout": 0.0, "norm_epsilon": 3e-3}
THEIRS: dict[str, Any] = {
    "name": "DecisionTransformer",
    "context_size": T,
    "max_timestep": 99,
    "attn_dropout": 0.0,
    "resid_dropout": 0.0,
    "embed_dropout": 0.0,
}
OURS: dict[str, Any] = {
    "name": "DecisionTransformer",
    "preset": "d3rlpy",
    "encoder": NETS,
    "context": T,
    "max_timestep": 101,
    "optimizer": {"name": "adam", "epsilon": 1e-8 * FACTOR},
}
KEYS = tuple(f"{kind}/policy/0/body.transformer.blocks.{k}.attention.key/bias" for kind in ("gradient", "live") for k in range(6))


def transformer(label: str, ours: dict[str, Any], theirs: dict[str, Any], difference: str = "") -> Case:
    return d3rlpy(
        label,
        {**OURS, "transformer": {**STILL, **ours}},
        {**THEIRS, **theirs},
        losses={"imitation_loss": "loss"},
        factor={"imitation_loss": FACTOR, "policy": FACTOR},
        skip=KEYS,
        difference=difference,
    )


def discrete(label: str, ours: dict[str, Any], theirs: dict[str, Any], difference: str = "") -> Case:
    blocks = {**STILL, "n_layers": 6, "n_heads": 8, "activation": "gelu"}
    return d3rlpy(
        label,
        {**OURS, "name": "DiscreteDecisionTransformer", "optimizer": "adam", "transformer": blocks, **ours},
        {**THEIRS, "name": "DiscreteDecisionTransformer", **theirs},
        losses={"imitation_loss": "loss"},
        skip=KEYS,
        discrete=True,
        difference=difference,
    )


SEQUENCE_CASES: tuple[Case, ...] = (
    transformer(
        "Decision Transformer",
        {},
        {},
        "B T / (A Σ mask) × their loss, which sums over A and divides by padding too; so Adam's ε is scaled. Dropout is off on "
        "both sides; a key's bias moves no attention, so its gradient is rounding and is not compared",
    ),
    transformer(
        "Decision Transformer, four layers of four heads, GELU",
        {"n_layers": 4, "n_heads": 4, "activation": "gelu"},
        {"num_layers": 4, "num_heads": 4, "activation_type": "gelu"},
    ),
    discrete(
        "Discrete Decision Transformer",
        {},
        {},
        "the mean over steps that are there here, over padding too there: no stretch is padded. Dropout is off on both sides; a "
        "key's bias moves no attention, so its gradient is rounding and is not compared",
    ),
    discrete(
        "Discrete Decision Transformer, simple positions, ReLU",
        {"position_encoding": "simple", "embed_activation": "relu"},
        {"position_encoding_type": "simple", "embed_activation_type": "relu"},
    ),
)


def stretches(observation: int, action: int | None) -> dict[str, np.ndarray]:
    """Noise; with continuous actions padded in front."""
    rng = np.random.default_rng(7)
    mask = (np.arange(T) >= T - LENGTHS[:, None]) | (action is None)
    found = {
        "observation": rng.standard_normal((BATCH, T, observation), np.float32),
        "action": rng.integers(0, 2, (BATCH, T)) if action is None else rng.uniform(-1, 1, (BATCH, T, action)).astype(np.float32),
        "reward": rng.standard_normal((BATCH, T), np.float32),
        "return_to_go": rng.standard_normal((BATCH, T), np.float32),
        "timestep": rng.integers(0, 90, (BATCH, 1)) + np.arange(T),
        "mask": mask,
    }
    return {name: part * mask.reshape(BATCH, T, *[1] * (part.ndim - 2)) for name, part in found.items()}


def as_sequences(columns: dict[str, np.ndarray]) -> Sequences:
    """The same as losses read it."""
    tensors = {name: torch.from_numpy(column) for name, column in columns.items()}
    return Sequences(**tensors, discount=torch.ones(BATCH, T), index=torch.arange(BATCH))
