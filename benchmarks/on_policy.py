"""On-policy algorithms beside PFRL 0.4.0: gradients on the same rollout and weights, and steps of eight CartPoles a second.

`python benchmarks/on_policy.py` takes some minutes, wants two quiet cores, and writes `results/on_policy.json` and `.md`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from workers import Worker, control, keep, page, table

import d3ray
from d3ray.algos.learning.fit import Fit
from d3ray.algos.learning.trust_region import Limits
from d3ray.algos.on_policy.estimators import advantages
from d3ray.algos.on_policy.rollouts import as_batch, flattened
from d3ray.algos.online.run import OnlineRun
from d3ray.data.batch import Batch
from d3ray.data.spec import Box, Discrete, Spec

HIDDEN, STEPS, N_ENVS = [64, 48], 16, 8
ENCODER = {"hidden_units": HIDDEN, "activation": "tanh"}
BOTH: dict[str, Any] = {"policy_encoder": ENCODER, "value_encoder": ENCODER, "device": "cpu"}
CLOSE = 1e-5
Arrays = dict[str, np.ndarray]
PPO = {"entropy_weight": 0.02, "value_weight": 0.7, "clip": 0.15}
CLIPPED = {"entropy_coef": 0.02, "value_func_coef": 0.7, "clip_eps": 0.15}
ACER: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (  # label, ours, theirs
    ("ACER", {}, {}),
    ("ACER, near the average", {"max_divergence": 1e-3}, {"trust_region_delta": 1e-3}),
    ("ACER, no trust region", {"use_trust_region": False}, {"use_trust_region": False}),
    ("ACER, returns not weighed", {"use_q_opc": True}, {"use_Q_opc": True}),
    ("ACER, cut off at 1.5", {"truncation": 1.5}, {"truncation_threshold": 1.5}),
)
STEP = {"entropy_coef": 0.0, "conjugate_gradient_damping": 0.01, "standardize_advantages": False}
ROWS: tuple[tuple[str, Any, dict[str, Any], bool], ...] = (  # label, ours, theirs, whether actions are discrete
    ("PPO", d3ray.PPO(**BOTH, **PPO), CLIPPED, True),
    ("PPO, continuous", d3ray.PPO(**BOTH, **PPO), CLIPPED, False),
    ("PPO, values clipped", d3ray.PPO(**BOTH, **PPO, value_clip=0.3), {**CLIPPED, "clip_eps_vf": 0.3}, True),
    ("A2C", d3ray.A2C(**BOTH), {"gamma": 0.99}, True),
    ("A2C, GAE", d3ray.A2C(**BOTH, lam=0.95), {"gamma": 0.99, "use_gae": True}, True),
    ("TRPO", d3ray.TRPO(**BOTH, damping=0.01), STEP, True),
    ("TRPO, continuous", d3ray.TRPO(**BOTH, damping=0.01), STEP, False),
)


def rollout(*, discrete: bool) -> Arrays:
    """Random steps [T, n] with ends of the MDP, and estimates that are not those of any network."""
    rng = np.random.default_rng(0)
    shape = STEPS, N_ENVS
    action = rng.integers(0, 3, shape) if discrete else rng.uniform(-0.9, 0.9, (*shape, 2)).astype("f4")
    numbers = {name: rng.normal(size=shape).astype("f4") for name in ("reward", "advantage", "goal", "value")}
    observation = rng.normal(size=(STEPS + 1, N_ENVS, 5)).astype("f4")
    live = (rng.random(shape) > 0.1).astype("f4")
    return {"observation": observation[:-1], "next_observation": observation[1:], "action": action, "live": live, **numbers}


def weights(algorithm: Any, *networks: str) -> Arrays:
    """Affine layers by network and place, and the policy's deviation."""
    live = algorithm.fit_.learner.live
    return {_place(name, key): _shaped(key, tensor).copy() for name in networks for key, tensor in live[name].items()}


def gradients(algorithm: Any, batch: Batch, losses: dict[str, Any]) -> Arrays:
    """Of a loss for each network, by the same names."""
    learner, found = algorithm.fit_.learner, Arrays()
    for network, loss in losses.items():
        given = learner.gradients(loss, (network,), batch, learner.address(loss))[0]
        pairs = zip(learner.live[network], given, strict=True)
        found |= {_place(network, key): _shaped(key, gradient) for key, gradient in pairs}
    return found


def _place(network: str, path: str) -> str:
    """`encoder.layers.2.weight` of the policy is `policy/1/weight`."""
    if path.endswith("log_std"):
        return "log_std"
    layer, _, part = path.rpartition(".")
    return f"{network}/{len(HIDDEN) if layer == 'head' else int(layer.rpartition('.')[2]) // 2}/{part}"


def _shaped(key: str, tensor: torch.Tensor) -> np.ndarray:
    """Without the axis of members, of which there is one."""
    return tensor.detach().reshape(tensor.shape[-2:] if key.endswith("weight") else (-1,)).numpy()


def verdict(label: str, mine: Arrays, wanted: Arrays, bound: float, moved: float = 0.0) -> dict[str, Any]:
    """The largest difference over the largest of each, or over what they moved."""
    assert mine.keys() == wanted.keys()
    apart = max(float(np.abs(mine[key] - value).max() / (moved or np.abs(value).max())) for key, value in wanted.items())
    return {"label": label, "apart": apart, "close": apart <= bound}


def asked(peer: Worker, agent: str, settings: dict[str, Any], arrays: Arrays) -> Arrays:
    """What PFRL's agent makes of them."""
    with tempfile.TemporaryDirectory() as folder:
        given, answer = str(Path(folder) / "arrays.npz"), str(Path(folder) / "answer.npz")
        np.savez(given, **arrays)
        peer("differentiate", arrays=given, answer=answer, agent=agent, settings=settings)
        with np.load(answer) as found:
            return dict(found)


def compared(peer: Worker, label: str, algorithm: Any, theirs: dict[str, Any], *, discrete: bool) -> dict[str, Any]:
    """The largest difference of any gradient, of TRPO of any new weight, over the largest of them."""
    torch.manual_seed(0)
    space = Discrete(n=3) if discrete else Box(shape=(2,), low=(-1.0, -1.0), high=(1.0, 1.0))
    algorithm.fit_ = Fit.start_online(algorithm, Spec(observation=Box(shape=(5,)), action=space), "the rollout")
    learner, data = algorithm.fit_.learner, rollout(discrete=discrete)
    flat = {name: torch.from_numpy(part.reshape(-1, *part.shape[2:])) for name, part in data.items()}
    nets = algorithm.fit_.nets()
    with torch.no_grad():
        policy = nets.policy(flat["observation"])
        acted = policy.log_prob(flat["action"])
        flat["log_prob"] = acted + (0.0 if label.startswith("TRPO") else 0.3 * torch.randn(len(acted)))
        flat["old"] = policy.parameters()
    name = label.partition(",")[0]
    if name == "A2C":
        with torch.no_grad():
            value, after = (nets.value(flat[part]).unflatten(0, (STEPS, N_ENVS)) for part in ("observation", "next_observation"))
        live = torch.from_numpy(data["live"])
        ends = live == 0
        ends[-1] = True
        reward = torch.from_numpy(data["reward"])
        flat["advantage"] = advantages(reward, value, after, 0.99 * live, ends, 0.99 * algorithm.lam).flatten()
        flat["goal"] = flat["advantage"] + value.flatten()
    extra = {key: flat[key] for key in ("advantage", "goal", "value", "log_prob", "old")}
    index = torch.arange(len(flat["reward"]))
    batch = Batch(flat["observation"], flat["action"], flat["reward"], flat["next_observation"], flat["live"], index, extra=extra)
    before = weights(algorithm, "policy", "value")
    sent = {f"batch/{key}": value.numpy() for key, value in flat.items()} | {f"rollout/{key}": part for key, part in data.items()}
    wanted = asked(peer, name, theirs, sent | before)
    if name != "TRPO":
        losses = {"policy": algorithm.policy_loss, "value": algorithm.value_loss}
        return verdict(label, gradients(algorithm, batch, losses), wanted, CLOSE)
    learner.constrain(algorithm.policy_loss, algorithm.divergence, "policy", batch, Limits(0.01, 0.01, 10, 10))
    mine = {key: value for key, value in weights(algorithm, "policy").items() if key in wanted}
    return verdict(label, mine, wanted, 1e-3, max(float(np.abs(value - before[key]).max()) for key, value in mine.items()))


def compared_acer(peer: Worker, label: str, algorithm: Any, theirs: dict[str, Any], *, ends: bool) -> dict[str, Any]:
    """The largest difference of any gradient over the largest of them, on a segment of one environment that others acted in."""
    torch.manual_seed(0)
    spec = Spec(observation=Box(shape=(5,)), action=Discrete(n=3))
    algorithm.fit_ = Fit.start_online(algorithm, spec, "the segment")
    learner = algorithm.fit_.learner
    segment = {name: torch.from_numpy(part[:, :1]) for name, part in rollout(discrete=True).items()}
    segment["live"] = torch.ones(STEPS, 1)
    segment["live"][-1] = not ends
    segment["behaviour"] = torch.randn(STEPS, 1, 3).log_softmax(-1)
    segment |= {"ends": torch.arange(STEPS)[:, None] == STEPS - 1, "discount": 0.99 * segment["live"]}
    for tensor in learner.target["policy"].values():
        tensor.add_(0.1 * torch.randn_like(tensor))
    segment |= learner.look(algorithm.complete, segment)
    columns = flattened(segment)
    batch = as_batch({**columns, "index": torch.arange(STEPS)})
    mine = gradients(algorithm, batch, {"policy": algorithm.policy_loss, "critic": algorithm.critic_loss})
    sent = {f"batch/{key}": value.numpy() for key, value in columns.items() if key != "log_prob"}
    wanted = asked(peer, "ACER", theirs, sent | weights(algorithm, "policy", "critic"))
    return verdict(label, mine, wanted, CLOSE)


SPEED: tuple[tuple[str, Any, dict[str, Any], int, float], ...] = (  # ours, theirs, steps of each environment in a round, rate
    (
        "PPO",
        {"update_interval": 1024, "batch_size": 64, "n_passes": 10},
        {"update_interval": 1024, "minibatch_size": 64, "epochs": 10},
        256,
        3e-4,
    ),
    ("A2C", {"update_interval": 40, "optimizer": "adam"}, {"gamma": 0.99, "update_steps": 5}, 250, 7e-4),
)


def timed(
    peer: Worker, name: str, ours: dict[str, Any], theirs: dict[str, Any], steps: int, rate: float, rounds: int
) -> dict[str, Any]:
    """Steps of all environments a second, side by side in turn; of rounds the median of ratios."""
    agent, _, how = name.partition(", ")
    algorithm = getattr(d3ray, agent)(**BOTH, **ours, learning_rate=rate, compile_graph=bool(how))
    peer("begin", agent=agent, settings=theirs, environment="CartPole-v1", n_envs=N_ENVS, hidden=HIDDEN, rate=rate)
    mine, others, controls = list[float](), list[float](), list[float]()
    with OnlineRun(algorithm, "CartPole-v1", n_envs=N_ENVS) as run:
        for k in range(rounds + 1):
            begun = time.perf_counter()
            for _ in range(steps):
                run.step()
            seconds, their_seconds = time.perf_counter() - begun, peer("act", steps=steps)
            if k:  # the first is to warm up
                mine.append(steps * N_ENVS / seconds)
                others.append(steps * N_ENVS / their_seconds)
                controls.append(control())
    ratios = [a / b for a, b in zip(mine, others, strict=True)]
    return {
        "label": name,
        "ours": statistics.median(mine),
        "theirs": statistics.median(others),
        "ratio": statistics.median(ratios),
        "lower": min(ratios),
        "upper": max(ratios),
        "control": [min(controls), max(controls)],
        "load": os.getloadavg()[0],
    }


def overhead(rounds: int, calls: int = 2000) -> list[dict[str, Any]]:
    """Microseconds of a call of the policy of eight CartPoles, and of its network alone, in turn; medians."""
    found = list[dict[str, Any]]()
    for name in ("PPO", "DQN"):
        algorithm = getattr(d3ray, name)(**(BOTH if name == "PPO" else {"encoder": ENCODER, "device": "cpu"}))
        with OnlineRun(algorithm, "CartPole-v1", n_envs=N_ENVS, **({} if name == "PPO" else {"random_steps": 0})) as run:
            run.act()
            policy, shown = run.policy, run.rollout.observation
            (network,) = (policy.module.networks[part] for part in ("policy", "critic") if part in policy.module.networks)
            seen, what = torch.from_numpy(shown), "draw" if name == "PPO" else "action"
            whole, bare = list[float](), list[float]()
            for _ in range(rounds):
                begun = time.perf_counter()
                for step in range(calls):
                    policy.propose(what, None, shown, step=step, seed=0)
                middle = time.perf_counter()
                with torch.no_grad():
                    for _ in range(calls):
                        network(seen)
                whole.append((middle - begun) / calls * 1e6)
                bare.append((time.perf_counter() - middle) / calls * 1e6)
        call, alone = statistics.median(whole), statistics.median(bare)
        found.append({"label": name, "call": call, "network": alone, "beyond": call - alone, "load": os.getloadavg()[0]})
    return found


def markdown(found: dict[str, Any]) -> str:
    gradients: list[list[str]] = []
    for row in found["fidelity"]:
        most = "1e-3 of the step" if row["label"].startswith("TRPO") else "1e-5 of the largest"
        gradients.append([row["label"], f"{row['apart']:.1e}", f"{most}: {'met' if row['close'] else 'NOT met'}"])
    speed: list[list[str]] = []
    for row in found["speed"]:
        noise = f"{row['control'][0]:.3f} to {row['control'][1]:.3f}, load {row['load']:.1f}"
        ratio = f"{row['ratio']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"
        speed.append([row["label"], f"{row['ours']:,.0f}", f"{row['theirs']:,.0f}", ratio, noise])
    acting = [[row["label"], *(f"{row[key]:.0f}" for key in ("call", "network", "beyond"))] for row in found["acting"]]
    return page(
        "on_policy",
        n_envs=N_ENVS,
        gradients=table(["", "largest difference", "at most"], gradients),
        speed=table(["", "d3ray", "PFRL", "ratio", "control loop, s"], speed),
        acting=table(["", "call", "network alone", "beyond it"], acting),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="of the timings")
    parser.add_argument("--gradients", action="store_true", help="compare gradients alone, and write nothing")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    log = Path(tempfile.gettempdir()) / "d3ray-on-policy.log"
    with Worker("pfrl_side.py", given.threads, log) as peer:
        found: dict[str, Any] = {"versions": peer("versions")}
        found["fidelity"] = [compared(peer, label, ours, theirs, discrete=discrete) for label, ours, theirs, discrete in ROWS]
        found["fidelity"] += [
            compared_acer(peer, label, d3ray.ACER(**BOTH, **ours), {"gamma": 0.99, "beta": 0.01, **theirs}, ends=k % 2 == 0)
            for k, (label, ours, theirs) in enumerate(ACER)
        ]
        if given.gradients:
            print(markdown({**found, "speed": [], "acting": []}))
            return
        compiled = [(f"{name}, compiled", *row) for name, *row in SPEED]
        found["speed"] = [timed(peer, *row, rounds=given.rounds) for row in (*SPEED, *compiled)]
    found["acting"] = overhead(given.rounds)
    keep("on_policy", found, markdown(found))
    print(markdown(found))


if __name__ == "__main__":
    main()
