"""What benchmarks ask of PFRL 0.4.0, in a process of its own and its own environment: see `workers.py`.

Its networks are its user's: affine layers, its own heads. PFRL learns online only: to learn from recorded data its agent's replay
buffer is filled with recorded transitions before anything is learned, and its own `update` is called on what that buffer draws, so
that nothing of it but acting in an environment is left out.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pfrl
import torch
from fidelity_side import Named, compare, layers
from pfrl import agents, explorers, policies, q_functions, replay_buffers
from pfrl.functions.lower_triangular_matrix import lower_triangular_matrix
from torch import nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform
from workers import serve

Experiences = list[list[dict[str, Any]]]
VALUES = ("DQN", "DoubleDQN", "AL", "PAL", "DoublePAL", "DPP", "CategoricalDQN", "CategoricalDoubleDQN", "IQN", "NAF")


# ---- networks


def perceptron(size: int, hidden: list[int], activation: type[nn.Module] = nn.ReLU) -> list[nn.Module]:
    return [part for a, b in itertools.pairwise([size, *hidden]) for part in (nn.Linear(a, b), activation())]


def gaussian(size: int) -> Any:
    """The head of a policy of continuous actions: a deviation that does not depend on the state."""
    return policies.GaussianHeadWithStateIndependentCovariance(size, "diagonal", lambda x: (2 * x).exp(), 0)


def perceptrons(env: AsGym, hidden: list[int]) -> tuple[nn.Module, nn.Module]:
    """A policy and a value function of the same layers, apart."""
    size, space = env.observation_space.shape[0], env.action_space
    discrete = isinstance(space, gymnasium.spaces.Discrete)
    n = space.n if discrete else space.shape[0]
    policy, value = ([*perceptron(size, hidden, nn.Tanh), nn.Linear(hidden[-1], out)] for out in (n, 1))
    return nn.Sequential(*policy, policies.SoftmaxCategoricalHead() if discrete else gaussian(n)), nn.Sequential(*value)


def categorical(size: int, hidden: list[int], actions: int, v_min: float, v_max: float, n_atoms: int) -> nn.Module:
    """C51's network."""
    atoms, head = np.linspace(v_min, v_max, n_atoms, dtype=np.float32), nn.Linear(hidden[-1], actions * n_atoms)
    shares = nn.Sequential(*perceptron(size, hidden), head, nn.Unflatten(1, (actions, n_atoms)), nn.Softmax(2))
    return q_functions.DistributionalSingleModelStateQFunctionWithDiscreteAction(shares, atoms)


class SquashedGaussian(nn.Module):
    """tanh of N(μ(s), σ(s)²), log σ clamped to [-20, 2]: the head of PFRL's own example, its two halves as two layers."""

    def __init__(self, size: int, hidden: list[int], actions: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*perceptron(size, hidden))
        self.mean, self.log_std = nn.Linear(hidden[-1], actions), nn.Linear(hidden[-1], actions)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.encoder(x)
        scale = self.log_std(x).clamp(-20, 2).exp()
        return TransformedDistribution(Independent(Normal(self.mean(x), scale), 1), [TanhTransform(cache_size=1)])


class Quadratic(nn.Module):
    """V(s) - (a - μ)ᵀ L Lᵀ (a - μ) / 2, as PFRL's class for users has it, with layers of the widths that are asked for."""

    def __init__(self, size: int, hidden: list[int], actions: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*perceptron(size, hidden))
        self.worth, self.best = nn.Linear(hidden[-1], 1), nn.Linear(hidden[-1], actions)
        self.diagonal, self.rest = nn.Linear(hidden[-1], actions), nn.Linear(hidden[-1], actions * (actions - 1) // 2)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.encoder(x)
        root = lower_triangular_matrix(self.diagonal(x).exp(), self.rest(x))
        return pfrl.action_value.QuadraticActionValue(self.best(x).tanh(), root @ root.mT, self.worth(x), -1.0, 1.0)


# ---- the learning table


def recorded(path: str) -> tuple[Any, int, int]:
    """A replay buffer of an .npz file's transitions, as `for_peer` in `tasks.py` writes it; sizes of observation and action."""
    with np.load(path) as arrays:
        observation, action = arrays["observations"], arrays["actions"].reshape(-1)
        reward, terminal, timeout = (arrays[name].reshape(-1) for name in ("rewards", "terminals", "timeouts"))
    buffer, last = replay_buffers.ReplayBuffer(len(action)), len(action) - 1
    for i in range(len(action)):
        if not timeout[i]:  # else this row is the observation that the truncated episode ended with
            after = {"next_state": observation[min(i + 1, last)], "is_state_terminal": bool(terminal[i])}
            buffer.append(observation[i], int(action[i]), float(reward[i]), **after)
        if timeout[i] or terminal[i]:
            buffer.stop_current_episode()
    return buffer, observation.shape[1], int(action.max()) + 1


def learn(
    dataset: str, name: str, settings: dict[str, Any], seed: int, n_steps: int, every: int, environment: str, reset_seeds: list[int]
) -> dict[str, Any]:
    """Trains and evaluates the greedy policy every so many gradient steps, in the same episodes each time."""
    curve = Curve(environment, reset_seeds)
    pfrl.utils.set_random_seed(seed)
    buffer, size, actions = recorded(dataset)
    network = categorical(size, [256, 256], actions, **settings["atoms"])  # as ours and d3rlpy's
    optimizer = torch.optim.Adam(network.parameters(), lr=settings["learning_rate"], eps=settings["epsilon"])
    sizes = dict.fromkeys(("minibatch_size", "replay_start_size"), settings["batch_size"])
    agent = getattr(agents, name)(network, optimizer, buffer, gamma=0.99, explorer=explorers.Greedy(), **sizes)
    for step in range(1, n_steps + 1):
        agent.update(buffer.sample(settings["batch_size"]))
        if step % settings["target_update_interval"] == 0:
            agent.sync_target_network()
        if step % every == 0:
            curve.add(agent, step, batches=False)
    return curve.answer()


def learn_online(
    agent: str, seed: int, environment: str, every: int, evaluations: int, reset_seeds: list[int], **how: Any
) -> dict[str, Any]:
    """The same of what learns while acting, as `Run` does, every so many steps of all environments together.

    With `falls_over` its rate falls in a straight line to 0 over that many steps.
    """
    run, curve = Run(), Curve(environment, reset_seeds)
    settings = {**how.pop("settings"), "act_deterministically": True}  # in evaluations
    falls_over = how.pop("falls_over", None)
    run.begin(agent, settings, environment, seed=seed, **how)
    for k in range(1, evaluations + 1):
        run.act(every // run.n_envs, falls_over)
        curve.add(run.agent, k * every)
    run.env.close()
    return curve.answer()


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
    env, curve = AsGym(environment, 0), Curve(environment, reset_seeds)
    policy, value = perceptrons(env, hidden)
    if agent == "ACER":
        critic: Any = perceptrons(env, hidden)[0]
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
            begin = lambda process, test, seeds=seeds: AsGym(environment, seeds[process])  # noqa: E731
            asked = {"steps": every, "eval_interval": None, "agent": made, "random_seeds": seeds}
            pfrl.experiments.train_agent_async(folder, processes, begin, **asked)
            made.sync_parameters()
            curve.add(made, (k + 1) * every, batches=False)
    return curve.answer()


class Curve:
    """What evaluations gave so far; seconds are from its making."""

    def __init__(self, environment: str, reset_seeds: list[int]) -> None:
        self.env, self.reset_seeds, self.begin = AsGym(environment, 0), reset_seeds, time.perf_counter()
        self.found: list[dict[str, float]] = []

    def add(self, agent: Any, step: int, *, batches: bool = True) -> None:
        """Plays an agent, which acts in batches or not, greedily."""
        with agent.eval_mode():
            returns = [self.play(agent, seed, batches=batches) for seed in self.reset_seeds]
        self.found.append({"step": step, "return": float(np.mean(returns)), "std": float(np.std(returns))})

    def play(self, agent: Any, seed: int, *, batches: bool) -> float:
        """The return of one episode."""
        observation, total, ended = self.env.reset(seed), 0.0, False
        while not ended:
            action = agent.batch_act([observation])[0] if batches else agent.act(observation)
            observation, reward, terminated, info = self.env.step(action)
            total, ended = total + reward, terminated or info["needs_reset"]
            if batches:
                agent.batch_observe([observation], [reward], [terminated], [info["needs_reset"]])
            else:
                agent.observe(observation, reward, terminated, info["needs_reset"])
        return total

    def answer(self) -> dict[str, Any]:
        return {"evaluations": self.found, "seconds": time.perf_counter() - self.begin}


class AsGym:
    """An environment with gym's four answers, as PFRL 0.4.0 takes it; continuous actions of [-1, 1] and cut off there."""

    def __init__(self, name: str, seed: int) -> None:
        self._env, self._seed = gymnasium.make(name), seed
        self.action_space, self.observation_space = self._env.action_space, self._env.observation_space

    def reset(self, seed: int | None = None) -> Any:
        observation, _ = self._env.reset(seed=self._seed if seed is None else seed)
        self._seed = None
        return np.asarray(observation, np.float32)

    def step(self, action: Any) -> Any:
        space: Any = self.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            action = space.low + (np.clip(action, -1.0, 1.0) + 1) / 2 * (space.high - space.low)
        observation, reward, terminated, truncated, _ = self._env.step(action)
        return np.asarray(observation, np.float32), float(reward), terminated, {"needs_reset": truncated}

    def close(self) -> None:
        self._env.close()


class Run:
    """An agent in environments that are stepped one after another in this process, as ours are."""

    agent: Any

    def begin(
        self,
        agent: str,
        settings: dict[str, Any],
        environment: str,
        n_envs: int,
        hidden: list[int],
        rate: float,
        seed: int = 0,
        optimizer: str = "adam",
        mujoco: bool = False,
    ) -> None:
        """A new one."""
        pfrl.utils.set_random_seed(seed)
        self.env = pfrl.envs.SerialVectorEnv([AsGym(environment, 1_000 * seed + k) for k in range(n_envs)])
        size, space = self.env.observation_space.shape[0], self.env.action_space
        policy, value = perceptrons(self.env, hidden)
        model = pfrl.nn.Branched(policy, value)
        stepped = value if agent == "TRPO" else model
        if mujoco:  # as examples/mujoco/reproduction/ppo/train_ppo.py begins
            for layer in (layer for layer in model.modules() if isinstance(layer, nn.Linear)):
                nn.init.orthogonal_(layer.weight, gain=1e-2 if layer.out_features == space.shape[0] else 1.0)
                nn.init.zeros_(layer.bias)
            settings = {**settings, "obs_normalizer": pfrl.nn.EmpiricalNormalization(size, clip_threshold=5)}
            made: Any = torch.optim.Adam(stepped.parameters(), lr=rate, eps=1e-5)
        elif optimizer == "adam":
            made = torch.optim.Adam(stepped.parameters(), lr=rate)
        else:
            made = pfrl.optimizers.RMSpropEpsInsideSqrt(stepped.parameters(), lr=rate, alpha=0.99, eps=1e-5)
            settings = {**settings, "max_grad_norm": 0.5}
        more = {"num_processes": n_envs} if agent == "A2C" else {}
        networks = (policy, value) if agent == "TRPO" else (model,)
        self.agent = getattr(agents, agent)(*networks, made, **settings, **more)
        self.seen, self.n_envs, self.rate, self.steps = self.env.reset(), n_envs, rate, 0

    def act(self, steps: int, falls_over: int | None = None) -> None:
        """So many steps of each environment, with the learning that they lead to.

        With `falls_over` the learning rate falls in a straight line to 0 over that many steps of all environments together.
        """
        for _ in range(steps):
            self.steps += self.n_envs
            if falls_over is not None:
                for group in self.agent.optimizer.param_groups:
                    group["lr"] = self.rate * max(0.0, 1 - self.steps / falls_over)
            self.seen, rewards, done, infos = self.env.step(self.agent.batch_act(self.seen))
            reset = [info["needs_reset"] for info in infos]
            self.agent.batch_observe(self.seen, rewards, done, reset)
            self.seen = self.env.reset(np.logical_not(np.logical_or(reset, done)))


# ---- the fidelity table: see `fidelity_side.py`


class Agent:
    """An agent of PFRL, its networks by our names, and what its update does besides `agent.update`."""

    def __init__(self, name: str, settings: Mapping[str, Any], observation: int, actions: int) -> None:
        hidden, rate = list(settings["hidden_units"]), settings["learning_rate"]
        optimizer = {"adam": torch.optim.Adam, "rmsprop": pfrl.optimizers.RMSpropEpsInsideSqrt}[settings["optimizer"]]
        self.name, self.last, self.discrete = name, str(2 * len(hidden)), name in VALUES  # last: of a network's layers
        common = {"replay_buffer": replay_buffers.ReplayBuffer(10), "gamma": 0.99, "replay_start_size": 1, "minibatch_size": 1}
        greedy = {**common, "explorer": explorers.Greedy()}

        def stepped(module: nn.Module) -> Any:
            return optimizer(module.parameters(), lr=rate, **settings.get("optimizer_settings", {}))

        def critic() -> nn.Module:
            return nn.Sequential(pfrl.nn.ConcatObsAndAction(), *perceptron(observation + actions, hidden), nn.Linear(hidden[-1], 1))

        def deterministic() -> nn.Module:
            head = nn.Linear(hidden[-1], actions), nn.Tanh(), policies.DeterministicHead()
            return nn.Sequential(*perceptron(observation, hidden), *head)

        if self.discrete:
            q = self.value(observation, hidden, actions)
            own = {key: settings[key] for key in ("alpha", "eta") if key in settings}
            own |= {f"quantile_thresholds_{which}": 32 for which in ("N", "N_prime", "K")} if name == "IQN" else {}
            self.agent: Any = getattr(agents, "DQN" if name == "NAF" else name)(q, stepped(q), **own, **greedy)
            self.live, self.target = {"critic/0": q}, {"critic/0": self.agent.target_model}
        elif name == "DDPG":
            policy, q = deterministic(), critic()
            soft = {"target_update_method": "soft", "soft_update_tau": settings["tau"]}
            self.agent = agents.DDPG(policy, q, stepped(policy), stepped(q), **soft, **greedy)
            self.live = {"policy/0": policy, "critic/0": q}
            self.target = {"policy/0": self.agent.target_policy, "critic/0": self.agent.target_q_function}
        else:
            policy = deterministic() if name == "TD3" else SquashedGaussian(observation, hidden, actions)
            q1, q2 = critic(), critic()
            networks = (policy, q1, q2, stepped(policy), stepped(q1), stepped(q2))
            if name == "TD3":
                self.agent = agents.TD3(*networks, soft_update_tau=settings["tau"], **greedy)
                self.agent.q_func_n_updates = settings["step"]
            else:
                own = {key: settings[key] for key in ("initial_temperature", "entropy_target", "temperature_optimizer_lr")}
                self.agent = agents.SoftActorCritic(*networks, soft_update_tau=settings["tau"], **common, **own)
            self.live = {"policy/0": policy, "critic/0": q1, "critic/1": q2}
            self.target = {"critic/0": self.agent.target_q_func1, "critic/1": self.agent.target_q_func2}
            if name == "TD3":
                self.target["policy/0"] = self.agent.target_policy
            elif self.agent.temperature_holder is not None:
                self.live["temperature/0"] = self.agent.temperature_holder

    def value(self, observation: int, hidden: list[int], actions: int) -> nn.Module:
        """The network of an agent of discrete actions: values, 11 atoms from -3 to 3 of each, or quantiles; or NAF's."""
        if self.name == "NAF":
            return Quadratic(observation, hidden, actions)
        if self.name.startswith("Categorical"):
            return categorical(observation, hidden, actions, -3, 3, 11)
        body, head = perceptron(observation, hidden), nn.Linear(hidden[-1], actions)
        if self.name == "IQN":
            embed = nn.Sequential(agents.iqn.CosineBasisLinear(64, hidden[-1]), nn.ReLU())
            return agents.iqn.ImplicitQuantileQFunction(nn.Sequential(*body), embed, head)
        return nn.Sequential(*body, head, q_functions.DiscreteActionValueHead())

    def update(self, experiences: Experiences) -> list[float]:
        """The losses whose gradients were taken, in order."""
        with recorded_losses() as losses:
            self.agent.update(experiences)
            if self.name == "DDPG":
                self.agent.sync_target_network()  # which it does when it observes a step
        return losses

    def named(self, networks: Mapping[str, nn.Module]) -> dict[str, Named]:
        found: dict[str, Named] = {}
        for network, module in networks.items():
            first = 1 if network.startswith("critic") and not self.discrete else 0
            names = {name: name for name in ("worth", "best", "diagonal", "rest", "mean", "log_std")}
            names |= {"phi.0.linear": "embed", "log_temperature": "log"}
            names |= dict.fromkeys(("f", f"model.{self.last}", str(int(self.last) + first)), "head")
            found[network] = layers(module, names)
        return found


@contextmanager
def recorded_losses() -> Iterator[list[float]]:
    """The values of all tensors whose gradient is taken within."""
    losses: list[float] = []
    backward = torch.Tensor.backward

    def watched(tensor: torch.Tensor, *arguments: Any, **named: Any) -> None:
        losses.append(float(tensor))
        backward(tensor, *arguments, **named)

    with mock.patch.object(torch.Tensor, "backward", watched):
        yield losses


def update(arrays: str, answer: str, algorithm: dict[str, Any], actions: int, step: int) -> None:
    """One update on the weights, the batch and the draws of a file; `algorithm["losses"]` names its losses in their order."""
    with np.load(arrays) as given:
        parts = {name.removeprefix("batch/"): given[name] for name in given if name.startswith("batch/")}
    names = {"state": "observation", "action": "action", "reward": "reward", "next_state": "next_observation"}
    names |= {"is_state_terminal": "terminated"}
    plain = {"reward": float, "is_state_terminal": bool}
    experiences: Experiences = [
        [{theirs: plain.get(theirs, lambda value: value)(parts[ours][k]) for theirs, ours in names.items()} | {"next_action": None}]
        for k in range(len(parts["reward"]))
    ]
    agent = Agent(algorithm["name"], {**algorithm, "step": step}, parts["observation"].shape[1], actions)

    def one_update() -> dict[str, float]:
        losses: dict[str, float] = {}
        for name, loss in zip(algorithm["losses"], agent.update(experiences), strict=True):
            losses[name] = losses.get(name, 0.0) + loss
        return losses

    compare(arrays, answer, agent.named(agent.live), agent.named(agent.target), one_update)


if __name__ == "__main__":
    serve({task.__name__: task for task in (learn, learn_online, learn_async, update)})
