"""PFRL's side of `on_policy.py`, in a process of its own and its own environment: see `workers.py`."""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium
import numpy as np
import pfrl
import torch
from pfrl import agents
from pfrl.policies import GaussianHeadWithStateIndependentCovariance, SoftmaxCategoricalHead
from torch import nn
from workers import serve


def layers(arrays: Any, network: str) -> list[nn.Module]:
    """Affine layers with tanh between them, of the weights `NETWORK/K/weight` [in, out] and `NETWORK/K/bias`."""
    made: list[nn.Module] = []
    for k in itertools.takewhile(lambda k: f"{network}/{k}/weight" in arrays, itertools.count()):
        weight, bias = (torch.from_numpy(arrays[f"{network}/{k}/{part}"]) for part in ("weight", "bias"))
        affine = nn.Linear(*weight.shape)
        affine.weight.data, affine.bias.data = weight.T.contiguous(), bias.clone()
        made += [affine, nn.Tanh()]
    return made[:-1]


def policy_of(arrays: Any) -> nn.Module:
    """The policy of a file's weights."""
    body = layers(arrays, "policy")
    if "log_std" not in arrays:
        return nn.Sequential(*body, SoftmaxCategoricalHead())
    size = len(arrays["log_std"])
    head = GaussianHeadWithStateIndependentCovariance(size, "diagonal", lambda x: (2 * x).exp(), 0)
    head.var_param.data = torch.from_numpy(arrays["log_std"]).clone()
    return nn.Sequential(*body, head)


def gradients(name: str, module: nn.Module) -> dict[str, np.ndarray]:
    """Of the affine layers, as our side names and turns them."""
    affine = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    found = {f"{name}/{k}/weight": layer.weight.grad.T.numpy() for k, layer in enumerate(affine)}
    found |= {f"{name}/{k}/bias": layer.bias.grad.numpy() for k, layer in enumerate(affine)}
    for head in (layer for layer in module.modules() if hasattr(layer, "var_param")):
        found["log_std"] = head.var_param.grad.numpy()
    return found


def differentiate(arrays: str, answer: str, agent: str, settings: dict[str, Any]) -> None:
    """The gradients that an agent takes on a rollout, and for TRPO its policy's new weights."""
    with np.load(arrays) as file:
        given = dict(file)
        policy, value = policy_of(given), nn.Sequential(*layers(given, "value"))
    parts = {name: torch.from_numpy(part) for name, part in given.items() if name.startswith("batch/")}
    column = {name.removeprefix("batch/"): part for name, part in parts.items()}
    model = pfrl.nn.Branched(policy, value)
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    match agent:
        case "PPO":
            made = agents.PPO(model, still, **settings)
            distribution, seen = model(column["observation"])
            columns = {name: column[name][:, None] for name in ("value", "goal")}
            made._lossfun(
                distribution.entropy(),
                seen,
                distribution.log_prob(column["action"]),
                vs_pred_old=columns["value"],
                log_probs_old=column["log_prob"],
                advs=column["advantage"],
                vs_teacher=columns["goal"],
            ).backward()
            found = {**gradients("policy", policy), **gradients("value", value)}
        case "A2C":
            steps, n = given["rollout/reward"].shape
            made = agents.A2C(model, still, num_processes=n, update_steps=steps, **settings)
            seen = torch.from_numpy(given["rollout/observation"])
            action = torch.from_numpy(given["rollout/action"])
            made._flush_storage(seen.shape[1:], action[0])
            made.states[:-1], made.states[-1] = seen, torch.from_numpy(given["rollout/next_observation"][-1])
            made.actions[:], made.rewards[:] = action, torch.from_numpy(given["rollout/reward"])
            made.masks[:] = torch.from_numpy(given["rollout/live"])
            with torch.no_grad():
                made.value_preds[:-1] = model(seen.flatten(0, 1))[1][:, 0].unflatten(0, (steps, n))
            made.update()
            found = {**gradients("policy", policy), **gradients("value", value)}
        case "TRPO":
            made = agents.TRPO(policy, value, still, **settings)
            names = {"state": "observation", "action": "action", "adv": "advantage", "log_prob": "log_prob"}
            rows = {theirs: column[ours].numpy() for theirs, ours in names.items()}
            made._update_policy([{name: rows[name][k] for name in rows} for k in range(len(rows["adv"]))])
            affine = [layer for layer in policy.modules() if isinstance(layer, nn.Linear)]
            found = {f"policy/{k}/weight": layer.weight.detach().T.numpy() for k, layer in enumerate(affine)}
            found |= {f"policy/{k}/bias": layer.bias.detach().numpy() for k, layer in enumerate(affine)}
        case "ACER":
            q = nn.Sequential(*layers(given, "critic"), pfrl.q_functions.DiscreteActionValueHead())
            made = agents.ACER(pfrl.agents.acer.ACERDiscreteActionHead(policy, q), still, t_max=16, replay_buffer=None, **settings)
            model, steps = made.model, range(len(column["reward"]))
            seen = [model(column["observation"][t : t + 1]) for t in steps]
            with torch.no_grad():
                after = model(column["next_observation"][-1:])[2]
            mu, average = (
                {t: torch.distributions.Categorical(logits=column[name][t : t + 1]) for t in steps}
                for name in ("behaviour", "average")
            )
            made.compute_loss(
                t_start=0,
                t_stop=len(steps),
                R=float(after * column["live"][-1]),
                actions={t: column["action"][t] for t in steps},
                rewards={t: float(column["reward"][t]) for t in steps},
                values={t: seen[t][2] for t in steps},
                action_values={t: seen[t][1] for t in steps},
                action_distribs={t: seen[t][0] for t in steps},
                action_distribs_mu=mu,
                avg_action_distribs=average,
            ).squeeze().backward()
            found = {**gradients("policy", model.pi), **gradients("critic", model.q)}
        case _:
            raise ValueError(agent)
    np.savez(answer, **found)


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
        observation, reward, terminated, truncated, _ = self._env.step(self._scaled(action))
        return np.asarray(observation, np.float32), float(reward), terminated, {"needs_reset": truncated}

    def _scaled(self, action: Any) -> Any:
        space: Any = self.action_space
        if isinstance(space, gymnasium.spaces.Discrete):
            return action
        return space.low + (np.clip(action, -1.0, 1.0) + 1) / 2 * (space.high - space.low)

    def close(self) -> None:
        self._env.close()


def perceptrons(env: AsGym, hidden: list[int]) -> tuple[nn.Module, nn.Module]:
    """A policy and a value function of the same layers, apart."""
    size, space = env.observation_space.shape[0], env.action_space

    def body(out: int) -> list[nn.Module]:
        sizes = [size, *hidden, out]
        parts = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
        return parts[:-1]

    if isinstance(space, gymnasium.spaces.Discrete):
        return nn.Sequential(*body(space.n), SoftmaxCategoricalHead()), nn.Sequential(*body(1))
    head = GaussianHeadWithStateIndependentCovariance(space.shape[0], "diagonal", lambda x: (2 * x).exp(), 0)
    return nn.Sequential(*body(space.shape[0]), head), nn.Sequential(*body(1))


class Run:
    """An agent in environments that are stepped one after another in this process, as ours are."""

    def __init__(self) -> None:
        self.agent: Any = None

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

    def act(self, steps: int, falls_over: int | None = None) -> float:
        """Seconds that so many steps of each environment take, with the learning that they lead to.

        With `falls_over` the learning rate falls in a straight line to 0 over that many steps of all environments together.
        """
        begun = time.perf_counter()
        for _ in range(steps):
            self.steps += self.n_envs
            if falls_over is not None:
                for group in self.agent.optimizer.param_groups:
                    group["lr"] = self.rate * max(0.0, 1 - self.steps / falls_over)
            self.seen, rewards, done, infos = self.env.step(self.agent.batch_act(self.seen))
            reset = [info["needs_reset"] for info in infos]
            self.agent.batch_observe(self.seen, rewards, done, reset)
            ended = np.logical_or(reset, done)
            self.seen = self.env.reset(np.logical_not(ended))
        return time.perf_counter() - begun

    def close(self) -> None:
        """Closes its environments."""
        self.env.close()


if __name__ == "__main__":
    run = Run()
    serve({"differentiate": differentiate, "begin": run.begin, "act": run.act})
