"""What the learning table asks of PFRL 0.4.0, in a process of its own and its own environment: see `workers.py`.

PFRL learns online only. Here its agent's replay buffer is filled with recorded transitions before anything is learned, and its own
`update` is called on what that buffer draws, so that nothing of it but acting in an environment is left out.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import gymnasium
import numpy as np
import pfrl
import torch
from fidelity_pfrl import perceptron
from on_policy_pfrl import AsGym, Run, perceptrons
from pfrl import agents, explorers, q_functions, replay_buffers
from torch import nn
from workers import serve


def recorded(path: str) -> tuple[Any, int, int]:
    """A replay buffer of an .npz file's transitions, which `for_peer` in `arrays.py` wrote; sizes of observation and action."""
    with np.load(path) as arrays:
        observation, action = arrays["observations"], arrays["actions"].reshape(-1)
        reward, terminal, timeout = (arrays[name].reshape(-1) for name in ("rewards", "terminals", "timeouts"))
    buffer = replay_buffers.ReplayBuffer(len(action))
    last = len(action) - 1
    for i in range(len(action)):
        if timeout[i]:  # this row is the observation that the truncated episode ended with
            buffer.stop_current_episode()
            continue
        ended = bool(terminal[i])
        buffer.append(
            observation[i], int(action[i]), float(reward[i]), next_state=observation[min(i + 1, last)], is_state_terminal=ended
        )
        if ended:
            buffer.stop_current_episode()
    return buffer, observation.shape[1], int(action.max()) + 1


def categorical(size: int, actions: int, v_min: float, v_max: float, n_atoms: int) -> nn.Module:
    """C51's network: two layers of 256, as ours and d3rlpy's."""
    atoms = np.linspace(v_min, v_max, n_atoms, dtype=np.float32)
    head = nn.Linear(256, actions * n_atoms)
    shares = nn.Sequential(*perceptron(size, [256, 256]), head, nn.Unflatten(1, (actions, n_atoms)), nn.Softmax(2))
    return q_functions.DistributionalSingleModelStateQFunctionWithDiscreteAction(shares, atoms)


def learn(
    dataset: str,
    name: str,
    settings: dict[str, Any],
    seed: int,
    n_steps: int,
    every: int,
    environment: str,
    reset_seeds: list[int],
) -> dict[str, Any]:
    """Trains and evaluates the greedy policy every so many gradient steps, in the same episodes each time."""
    env, begin = gymnasium.make(environment), time.perf_counter()
    pfrl.utils.set_random_seed(seed)
    buffer, size, actions = recorded(dataset)
    network = categorical(size, actions, **settings["atoms"])
    agent = getattr(agents, name)(
        network,
        torch.optim.Adam(network.parameters(), lr=settings["learning_rate"], eps=settings["epsilon"]),
        buffer,
        gamma=0.99,
        explorer=explorers.Greedy(),
        minibatch_size=settings["batch_size"],
        replay_start_size=settings["batch_size"],
    )
    evaluations = []
    for step in range(1, n_steps + 1):
        agent.update(buffer.sample(settings["batch_size"]))
        if step % settings["target_update_interval"] == 0:
            agent.sync_target_network()
        if step % every == 0:
            with agent.eval_mode():
                returns = [play(agent, env, reset_seed) for reset_seed in reset_seeds]
            evaluations.append({"step": step, "return": float(np.mean(returns)), "std": float(np.std(returns))})
    return {"evaluations": evaluations, "seconds": time.perf_counter() - begin}


def learn_online(
    agent: str,
    settings: dict[str, Any],
    seed: int,
    environment: str,
    n_envs: int,
    hidden: list[int],
    rate: float,
    every: int,
    evaluations: int,
    reset_seeds: list[int],
    optimizer: str = "adam",
    falls_over: int | None = None,
    mujoco: bool = False,
) -> dict[str, Any]:
    """The same of what learns while acting, every so many steps of all environments together.

    With `falls_over` its rate falls in a straight line to 0 over that many steps.
    """
    run, begin, found = Run(), time.perf_counter(), []
    asked = {**settings, "act_deterministically": True}  # in evaluations
    run.begin(agent, asked, environment, n_envs, hidden, rate, seed, optimizer, mujoco)
    for k in range(1, evaluations + 1):
        run.act(every // n_envs, falls_over)
        env = AsGym(environment, 0)
        with run.agent.eval_mode():
            returns = [play_greedily(run.agent, env, reset_seed) for reset_seed in reset_seeds]
        env.close()
        found.append({"step": k * every, "return": float(np.mean(returns)), "std": float(np.std(returns))})
    run.close()
    return {"evaluations": found, "seconds": time.perf_counter() - begin}


def learn_async(
    agent: str,
    settings: dict[str, Any],
    seed: int,
    environment: str,
    hidden: list[int],
    rate: float,
    processes: int,
    every: int,
    evaluations: int,
    reset_seeds: list[int],
    epsilon: float,
    capacity: int = 0,
) -> dict[str, Any]:
    """The same of A3C and ACER, whose processes all step the same weights; they begin anew after each evaluation, with those."""
    pfrl.utils.set_random_seed(seed)
    env, begin, found = AsGym(environment, 0), time.perf_counter(), []
    policy, value = perceptrons(env, hidden)
    if agent == "ACER":
        critic, _ = perceptrons(env, hidden)
        critic[-1] = q_functions.DiscreteActionValueHead()
        model: Any = agents.acer.ACERDiscreteActionHead(policy, critic)
        settings = {**settings, "replay_buffer": replay_buffers.EpisodicReplayBuffer(capacity // processes)}
    else:
        model = pfrl.nn.Branched(policy, value)
    optimizer = pfrl.optimizers.SharedRMSpropEpsInsideSqrt(model.parameters(), lr=rate, alpha=0.99, eps=epsilon)
    made = getattr(agents, agent)(model, optimizer, act_deterministically=True, **settings)
    with tempfile.TemporaryDirectory() as folder:
        for k in range(evaluations):
            seeds = [10_000 * seed + 100 * k + process for process in range(processes)]
            pfrl.experiments.train_agent_async(
                folder,
                processes,
                lambda process, test, seeds=seeds: AsGym(environment, seeds[process]),
                steps=every,
                eval_interval=None,
                agent=made,
                random_seeds=seeds,
            )
            made.sync_parameters()
            with made.eval_mode():
                returns = [play_greedily(made, env, reset_seed, batches=False) for reset_seed in reset_seeds]
            found.append({"step": (k + 1) * every, "return": float(np.mean(returns)), "std": float(np.std(returns))})
    return {"evaluations": found, "seconds": time.perf_counter() - begin}


def play_greedily(agent: Any, env: AsGym, seed: int, *, batches: bool = True) -> float:
    """The return of one episode of an agent, which acts in batches or not."""
    observation, total, ended = env.reset(seed), 0.0, False
    while not ended:
        observation, reward, terminated, info = env.step(agent.batch_act([observation])[0] if batches else agent.act(observation))
        total, ended = total + reward, terminated or info["needs_reset"]
        if batches:
            agent.batch_observe([observation], [reward], [terminated], [info["needs_reset"]])
        else:
            agent.observe(observation, reward, terminated, info["needs_reset"])
    return total


def play(agent: Any, env: Any, seed: int) -> float:
    """The return of one episode."""
    observation, _ = env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(agent.act(np.asarray(observation, np.float32)))
        total, ended = total + float(reward), terminated or truncated
        agent.observe(observation, reward, terminated, truncated)
    return total


if __name__ == "__main__":
    serve({"learn": learn, "learn_online": learn_online, "learn_async": learn_async})
