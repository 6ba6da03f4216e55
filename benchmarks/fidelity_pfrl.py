"""PFRL's side of the fidelity table: see `fidelity_side.py`. Its networks are its user's: affine layers, ReLU, its own heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

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


def perceptron(size: int, hidden: list[int]) -> list[nn.Module]:
    found: list[nn.Module] = []
    for width in hidden:
        found += [nn.Linear(size, width), nn.ReLU()]
        size = width
    return found


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


VALUES = ("DQN", "DoubleDQN", "AL", "PAL", "DoublePAL", "DPP", "CategoricalDQN", "CategoricalDoubleDQN", "IQN", "NAF")


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


def value(name: str, observation: int, hidden: list[int], actions: int) -> nn.Module:
    """The network of an agent of discrete actions: values, 11 atoms from -3 to 3 of each, or quantiles."""
    body = perceptron(observation, hidden)
    if name == "NAF":
        return Quadratic(observation, hidden, actions)
    if name == "IQN":
        embed = nn.Sequential(pfrl.agents.iqn.CosineBasisLinear(64, hidden[-1]), nn.ReLU())
        return pfrl.agents.iqn.ImplicitQuantileQFunction(nn.Sequential(*body), embed, nn.Linear(hidden[-1], actions))
    if not name.startswith("Categorical"):
        return nn.Sequential(*body, nn.Linear(hidden[-1], actions), q_functions.DiscreteActionValueHead())
    atoms = np.linspace(-3, 3, 11, dtype=np.float32)
    head = nn.Linear(hidden[-1], actions * len(atoms))
    shares = nn.Sequential(*body, head, nn.Unflatten(1, (actions, len(atoms))), nn.Softmax(2))
    return q_functions.DistributionalSingleModelStateQFunctionWithDiscreteAction(shares, atoms)


class Agent:
    """An agent of PFRL, its networks by our names, and what its update does besides `agent.update`."""

    def __init__(self, name: str, settings: Mapping[str, Any], observation: int, actions: int) -> None:
        hidden, rate = list(settings["hidden_units"]), settings["learning_rate"]
        optimizer = {"adam": torch.optim.Adam, "rmsprop": pfrl.optimizers.RMSpropEpsInsideSqrt}[settings["optimizer"]]
        self.last = str(2 * len(hidden))  # of a network's layers
        common = {"replay_buffer": replay_buffers.ReplayBuffer(10), "gamma": 0.99, "replay_start_size": 1, "minibatch_size": 1}

        def stepped(module: nn.Module) -> Any:
            return optimizer(module.parameters(), lr=rate, **settings.get("optimizer_settings", {}))

        def critic() -> nn.Module:
            return nn.Sequential(pfrl.nn.ConcatObsAndAction(), *perceptron(observation + actions, hidden), nn.Linear(hidden[-1], 1))

        def deterministic() -> nn.Module:
            return nn.Sequential(
                *perceptron(observation, hidden), nn.Linear(hidden[-1], actions), nn.Tanh(), policies.DeterministicHead()
            )

        self.discrete = name in VALUES
        if self.discrete:
            q = value(name, observation, hidden, actions)
            own = {key: settings[key] for key in ("alpha", "eta") if key in settings}
            own |= (
                dict.fromkeys(("quantile_thresholds_N", "quantile_thresholds_N_prime", "quantile_thresholds_K"), 32)
                if name == "IQN"
                else {}
            )
            self.agent: Any = getattr(agents, "DQN" if name == "NAF" else name)(
                q, stepped(q), explorer=explorers.Greedy(), **own, **common
            )
            self.live, self.target = {"critic/0": q}, {"critic/0": self.agent.target_model}
        elif name == "DDPG":
            policy, q = deterministic(), critic()
            soft = {"target_update_method": "soft", "soft_update_tau": settings["tau"]}
            self.agent = agents.DDPG(policy, q, stepped(policy), stepped(q), explorer=explorers.Greedy(), **soft, **common)
            self.live = {"policy/0": policy, "critic/0": q}
            self.target = {"policy/0": self.agent.target_policy, "critic/0": self.agent.target_q_function}
        else:
            policy = deterministic() if name == "TD3" else SquashedGaussian(observation, hidden, actions)
            q1, q2 = critic(), critic()
            networks = (policy, q1, q2, stepped(policy), stepped(q1), stepped(q2))
            own = {"soft_update_tau": settings["tau"]}
            if name == "TD3":
                self.agent = agents.TD3(*networks, explorer=explorers.Greedy(), **own, **common)
                self.agent.q_func_n_updates = settings["step"]
            else:
                temperature = {key: settings[key] for key in ("initial_temperature", "entropy_target", "temperature_optimizer_lr")}
                self.agent = agents.SoftActorCritic(*networks, **own, **common, **temperature)
            self.live = {"policy/0": policy, "critic/0": q1, "critic/1": q2}
            self.target = {"critic/0": self.agent.target_q_func1, "critic/1": self.agent.target_q_func2}
            if name == "TD3":
                self.target["policy/0"] = self.agent.target_policy
            elif self.agent.temperature_holder is not None:
                self.live["temperature/0"] = self.agent.temperature_holder
        self.name = name

    def update(self, experiences: Experiences) -> list[float]:
        """The losses whose gradients were taken, in order."""
        with recorded() as losses:
            self.agent.update(experiences)
            if self.name == "DDPG":
                self.agent.sync_target_network()  # which it does when it observes a step
        return losses

    def named(self, networks: Mapping[str, nn.Module]) -> dict[str, Named]:
        found: dict[str, Named] = {}
        for network, module in networks.items():
            first = 1 if network.startswith("critic") and not self.discrete else 0
            names = {
                **{name: name for name in ("worth", "best", "diagonal", "rest")},
                "phi.0.linear": "embed",
                "f": "head",
                f"model.{self.last}": "head",
                str(int(self.last) + first): "head",
                "mean": "mean",
                "log_std": "log_std",
                "log_temperature": "log",
            }
            found[network] = layers(module, names)
        return found


@contextmanager
def recorded() -> Iterator[list[float]]:
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
    experiences = [
        [
            {
                "state": parts["observation"][k],
                "action": parts["action"][k],
                "reward": float(parts["reward"][k]),
                "next_state": parts["next_observation"][k],
                "next_action": None,
                "is_state_terminal": bool(parts["terminated"][k]),
            }
        ]
        for k in range(len(parts["reward"]))
    ]
    names = algorithm["losses"]
    agent = Agent(algorithm["name"], {**algorithm, "step": step}, parts["observation"].shape[1], actions)

    def one() -> dict[str, float]:
        losses: dict[str, float] = {}
        for name, loss in zip(names, agent.update(experiences), strict=True):
            losses[name] = losses.get(name, 0.0) + loss
        return losses

    compare(arrays, answer, agent.named(agent.live), agent.named(agent.target), one)


if __name__ == "__main__":
    serve({"update": update})
