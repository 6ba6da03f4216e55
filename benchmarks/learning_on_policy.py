"""The learning table's studies of on-policy algorithms, beside PFRL's with the same networks, settings and steps."""

from __future__ import annotations

from typing import Any

from learning_study import FIVE, Comparison, Study

TANH = {"hidden_units": [64, 64], "activation": "tanh"}
BOTH: dict[str, Any] = {"policy_encoder": TANH, "value_encoder": TANH}
NOTE = (
    "{steps:,} steps of {n_envs} environments together. Settings are {whose}{but}; PFRL's agent "
    "has the same, and separate networks of the same layers."
)
# how PFRL names what both sides have
NAMES = {
    "PPO": {
        "update_interval": "update_interval",
        "batch_size": "minibatch_size",
        "n_passes": "epochs",
        "gamma": "gamma",
        "lam": "lambd",
        "clip": "clip_eps",
        "entropy_weight": "entropy_coef",
        "value_weight": "value_func_coef",
    },
    "A2C": {"gamma": "gamma", "value_weight": "v_loss_coef", "entropy_weight": "entropy_coeff"},
    "TRPO": {
        "update_interval": "update_interval",
        "batch_size": "vf_batch_size",
        "n_passes": "vf_epochs",
        "gamma": "gamma",
        "lam": "lambd",
        "max_kl": "max_kl",
        "damping": "conjugate_gradient_damping",
        "entropy_weight": "entropy_coef",
    },
}


def updates(algorithm: dict[str, Any]) -> int:
    """Gradient steps of a rollout."""
    if algorithm["name"] == "A2C":
        return 1
    return (algorithm["name"] == "TRPO") + algorithm["n_passes"] * -(-algorithm["update_interval"] // algorithm["batch_size"])


def _beside(
    environment: str,
    algorithm: dict[str, Any],
    *,
    n_envs: int,
    steps: int,
    at_least: float | None,
    whose: str = "RL Baselines3 Zoo's for this environment",
    but: str = "",
    falls: bool = False,
    theirs: dict[str, Any] | None = None,
    evaluations: int = 5,
) -> Study:
    """An algorithm and PFRL's agent of that name, evaluated after the same steps of the environments."""
    name, interval = algorithm["name"], algorithm["update_interval"]
    every = steps // evaluations // interval  # rollouts
    settings = {other: algorithm[mine] for mine, other in NAMES[name].items() if mine in algorithm}
    settings |= {"update_steps": interval // n_envs} if name == "A2C" else {}
    told = {"settings": settings, "rate": algorithm["learning_rate"], "n_envs": n_envs, "every": every * interval, **(theirs or {})}
    n_steps = updates(algorithm) * every * evaluations
    if falls:
        told["falls_over"] = every * interval * evaluations
        algorithm = {**algorithm, "optimizer": {"name": "adam", "schedule": {"name": "linear", "duration": n_steps}}}
    scaled = {} if environment == "CartPole-v1" else {"action_scaler": "min_max"}
    return Study(
        name=f"on-policy-{environment.partition('-')[0].lower()}-{name.lower()}",
        data=None,
        environment=environment,
        algorithm={**algorithm, **({} if "preset" in algorithm else BOTH), **scaled},
        peer=(name, {**told, "evaluations": evaluations, "hidden": TANH["hidden_units"]}),
        n_steps=n_steps,
        every=updates(algorithm) * every,
        at_least=at_least,
        note=NOTE.format(steps=every * evaluations * interval, n_envs=n_envs, whose=whose, but=but),
        seeds=FIVE,
        episodes=20,
        online={"n_envs": n_envs},
        rival="pfrl",
    )


CARTPOLE = {"n_envs": 8, "steps": 100_000}
PPO_CARTPOLE = {"update_interval": 256, "batch_size": 256, "n_passes": 20, "gamma": 0.98, "lam": 0.8, "learning_rate": 1e-3}
A2C_CARTPOLE = {"update_interval": 40, "gamma": 0.99, "learning_rate": 7e-4, "value_weight": 0.5, "entropy_weight": 0.0}
TRPO_CARTPOLE = {"update_interval": 1_024, "batch_size": 512, "n_passes": 20, "gamma": 0.99, "lam": 0.98, "learning_rate": 1e-3}
PENDULUM = {"n_envs": 4, "steps": 300_000, "at_least": -250.0}
PPO_PENDULUM = {"update_interval": 4_096, "batch_size": 64, "n_passes": 10, "gamma": 0.9, "lam": 0.95, "learning_rate": 1e-3}
TRPO_PENDULUM = {"update_interval": 2_048, "batch_size": 128, "n_passes": 15, "gamma": 0.9, "lam": 0.95, "learning_rate": 1e-3}
HOPPER = {"gamma": 0.995, "lam": 0.97, "learning_rate": 3e-4}
FALLS = {"name": "adam", "schedule": {"name": "linear", "duration": 200}}
NONE = {"entropy_weight": 0.0}

WORKERS: dict[str, Any] = {"hidden": TANH["hidden_units"], "processes": 2, "every": 20_000, "evaluations": 5}


ON_POLICY = (
    _beside(
        "CartPole-v1",
        {"name": "PPO", **PPO_CARTPOLE, **NONE},
        **CARTPOLE,
        at_least=475.0,
        falls=True,
        but=" but for clipping that falls as the rate does; with a rate that stays, four seeds had ended at 500, the fourth at 186",
    ),
    _beside(
        "CartPole-v1",
        {"name": "A2C", **A2C_CARTPOLE},
        **CARTPOLE,
        at_least=None,
        but=" but for a fifth of the steps, and a rate that stays",
        theirs={"optimizer": "rmsprop"},
    ),
    _beside("CartPole-v1", {"name": "TRPO", **TRPO_CARTPOLE, "damping": 1e-3, **NONE}, **CARTPOLE, at_least=475.0),
    _beside(
        "Pendulum-v1",
        {"name": "PPO", **PPO_PENDULUM, **NONE},
        **PENDULUM,
        falls=True,
        but=" but for noise that is drawn anew at each step, and a rate that falls",
    ),
    _beside(
        "Pendulum-v1",
        {"name": "TRPO", **TRPO_PENDULUM, "damping": 0.1, **NONE},
        **PENDULUM,
        but=" but for noise that is drawn anew at each step",
    ),
    _beside(
        "Hopper-v4",
        {"name": "PPO", "preset": "pfrl-mujoco", "update_interval": 2_048, "batch_size": 64, "n_passes": 10, **HOPPER, **NONE},
        n_envs=1,
        steps=200_000,
        at_least=None,
        whose="PFRL's own, of its reproduction of MuJoCo, initial weights included",
        theirs={"mujoco": True},
    ),
    Study(
        name="on-policy-cartpole-a3c",
        data=None,
        environment="CartPole-v1",
        algorithm={"name": "A2C", **A2C_CARTPOLE, "update_interval": 10, **BOTH},
        peer=(
            "A3C",
            {
                "settings": {
                    "t_max": 5,
                    "beta": 0.0,
                    "v_loss_coef": 1.0,
                    "max_grad_norm": 0.5,
                    "normalize_grad_by_t_max": True,
                    "gamma": 0.99,
                },
                "rate": A2C_CARTPOLE["learning_rate"],
                "epsilon": 1e-5,
                **WORKERS,
            },
        ),
        n_steps=10_000,
        every=2_000,
        at_least=None,
        note="100,000 steps of 2 environments together, each with a worker of its own: ours are actors of A2C, which act by the "
        "same weights; PFRL's are A3C, which step shared weights when they are done, and so twice as often, on half as many rows.",
        seeds=FIVE,
        episodes=20,
        online={"n_envs": 2, "actors": 2},
        rival="pfrl",
    ),
    Study(
        name="on-policy-cartpole-acer",
        data=None,
        environment="CartPole-v1",
        algorithm={"name": "ACER", "preset": "small", **BOTH},
        peer=(
            "ACER",
            {
                "settings": {"t_max": 5, "n_times_replay": 4, "replay_start_size": 500, "max_grad_norm": 40, "gamma": 0.99},
                "rate": 7e-4,
                "epsilon": 4e-3,
                "capacity": 50_000,
                **WORKERS,
            },
        ),
        n_steps=49_600,
        every=9_920,
        at_least=None,
        note="100,000 steps of 2 environments together, four older segments for each new one. Settings are those of "
        "PFRL's example but for where replay begins; PFRL's two workers step shared weights on 5 rows each, ours on 10.",
        seeds=FIVE,
        episodes=20,
        online={"n_envs": 2, "capacity": 50_000},
        rival="pfrl",
    ),
    Study(
        name="on-policy-cartpole-reinforce",
        data=None,
        environment="CartPole-v1",
        algorithm={"name": "REINFORCE", "n_episodes": 10, "gamma": 0.99, "policy_encoder": TANH, "optimizer": FALLS},
        peer=None,
        n_steps=200,
        every=40,
        at_least=195.0,
        note="A gradient step after ten episodes, PFRL's rate, which falls; PFRL's own leaves the first reward out, adds the last "
        "twice, and is not run. With a rate of 3e-3 that stayed seeds had ended at 165, 500, 130, 500 and 500 after 100 steps.",
        seeds=FIVE,
        episodes=20,
        online={"n_envs": 1},
    ),
)
FAMILY = "on-policy, ours beside PFRL's"
ON_POLICY_COMPARISONS = tuple(
    Comparison(FAMILY, (study.name, "d3ray"), (study.name, "pfrl")) for study in ON_POLICY if study.peer is not None
)
