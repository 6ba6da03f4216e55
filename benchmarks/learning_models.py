"""The learning table's studies of algorithms in a learned model, beside the same ones without it: Pendulum, three kinds of data."""

from __future__ import annotations

from typing import Any

from learning_study import FIVE, Comparison, Study

KINDS = {
    "replay": ("d3rlpy/pendulum_replay.h5", "36,000 steps of a replay buffer."),
    "small": ("d3rlpy/pendulum_small", "5,000 steps of the same, every seventh episode."),
    "random": ("random/Pendulum-v1", "100,000 steps of uniform random actions, played by 10 environments."),
}
SCALED: dict[str, Any] = {"action_scaler": "min_max"}
LAYERS: dict[str, Any] = {key: {"hidden_units": [64, 64]} for key in ("actor_encoder", "critic_encoder")}
MODEL: dict[str, Any] = {**SCALED, "encoder": {"name": "vector", "hidden_units": [64, 64], "activation": "silu"}, "n_steps": 5_000}
ROUNDS: dict[str, Any] = {"horizon": 5, "n_transitions": 2_000, "interval": 250}
CAUTIOUS = {**ROUNDS, "real": 0.2, "penalty": "aleatoric", "lam": 1.0}
PLAIN = {**ROUNDS, "real": 0.5, "penalty": "none", "lam": 0.0}
ALGORITHMS: dict[str, tuple[dict[str, Any], str]] = {
    "sac": ({"name": "SAC"}, "Without a model."),
    "mopo": ({"name": "MOPO", "model": MODEL, "rollouts": CAUTIOUS}, "λ = 1, a fifth of each batch is data."),
    "mobile": ({"name": "MOBILE", "model": MODEL, "rollouts": {**PLAIN, "real": 0.2}, "lowest_goal": None}, "λ = 1, as MOPO."),
    "rambo": (
        {"name": "RAMBO", "model": MODEL, "rollouts": {**PLAIN, "real": 0.2}, "actor_learning_rate": 3e-4},
        "λ = 3e-4, as MOPO; the policy's rate is SAC's.",
    ),
    "cql": ({"name": "CQL", "conservative_weight": 0.5}, "ω = 0.5, without a model."),
    "combo": (
        {"name": "COMBO", "model": MODEL, "rollouts": PLAIN, "conservative_weight": 0.5},
        "ω = 0.5, half of each batch is data.",
    ),
}
TOLD = (
    "Two layers of 64; a model of each seed's own, trained for 5,000 steps. Settings but MOBILE's were tried with seeds from 1000 "
    "on, on d3ray/pendulum-replay and on random steps."
)

MODELS = tuple(
    Study(
        name=f"model-{kind}-{name}",
        data=data,
        environment="Pendulum-v1",
        algorithm={**algorithm, **SCALED, **LAYERS},
        peer=None,
        n_steps=10_000,
        every=2_000,
        at_least=None,
        note=f"{about} {note} {TOLD}",
        seeds=FIVE,
    )
    for kind, (data, about) in KINDS.items()
    for name, (algorithm, note) in ALGORITHMS.items()
    if kind == "replay" or name != "mobile"  # whose steps take ten times SAC's
)
_ONLINE: dict[str, Any] = {
    **SCALED,
    **LAYERS,
    "batch_size": 128,
    **dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "temp_learning_rate"), 1e-3),
}
_OWN: dict[str, Any] = {
    "model_encoder": MODEL["encoder"],
    "model_warmup_steps": 1_000,
    "rollouts": {
        "horizon": 1,
        "n_transitions": 2_000,
        "interval": 500,
        "real": 0.05,
        "capacity": None,
        "penalty": "none",
        "lam": 0.0,
    },
}
MODELS += tuple(
    Study(
        name=f"online-{label}",
        data=None,
        environment="Pendulum-v1",
        algorithm={"name": name, **_ONLINE, **own},
        peer=None,
        n_steps=10_000,
        every=2_500,
        at_least=least,
        note=f"1,500 steps of the environment, 500 of them random, and 10 updates after each of the others. {about} Settings were "
        "tried with seed 1000.",
        seeds=FIVE,
        online={"n_updates": 10, "update_start_step": 500, "random_steps": 500},
    )
    for label, name, own, least, about in (
        ("mbpo", "MBPO", _OWN, -250.0, "The model's first 1,000 updates are its alone."),
        ("sac-as-mbpo", "SAC", {}, None, "MBPO's settings, without a model."),
    )
)
MODEL_COMPARISONS = (
    *(
        Comparison(family, (f"model-{kind}-{a}", "d3ray"), (f"model-{kind}-{b}", "d3ray"))
        for family, pairs in (
            ("without a model beside with one", (("sac", "mopo"), ("sac", "rambo"), ("cql", "combo"))),
            ("with a model beside without one", (("mopo", "sac"), ("rambo", "sac"), ("combo", "cql"))),
        )
        for kind in KINDS
        for a, b in pairs
    ),
    Comparison("online, without a model beside with one", ("online-sac-as-mbpo", "d3ray"), ("online-mbpo", "d3ray")),
)
