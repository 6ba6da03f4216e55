r"""An algorithm of your own in one file: python examples/own_algorithm.py [N_STEPS].

Imitation of what went better than expected. The data's actions are weighed by their one-step advantage:

    value    L_V = E[ (r + γ V'(s') - V(s))² ]                                        `BetterBC.value_loss`
    policy   L_π = E[ sigmoid(A / β) (a - π(s))² ],    A = r + γ V'(s') - V(s)        `BetterBC.policy_loss`

Symbols   β = `temperature`, τ = `tau`; ' marks the target network.
Source    This page, in place of a paper. With exp in place of the sigmoid: Wang et al. 2018, Peng et al. 2019.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import torch
from torch import Tensor

from d3ray import Dataset
from d3ray.algos.base import Algorithm
from d3ray.algos.config import ContinuousConfig, Preset
from d3ray.algos.definition import LossValue, Network, Verbs, loss
from d3ray.algos.nets import Hyper, Nets
from d3ray.algos.networks.encoders import DefaultEncoder, Encoder
from d3ray.algos.networks.perceptrons import DeterministicPolicy, ValueFunction
from d3ray.algos.optimizers import Adam, Optimizer
from d3ray.algos.ports import Tensors
from d3ray.algos.registry import register_algorithm
from d3ray.algos.testing import check_algorithm
from d3ray.data.batch import Batch
from d3ray.data.config import setting
from d3ray.data.spec import Spec


class BetterBCConfig(ContinuousConfig):
    """Settings of `BetterBC`."""

    learning_rate: float = setting(1e-3, "of both networks", gt=0)
    optimizer: Optimizer = setting(Adam(), "what steps both networks")
    encoder: Encoder = setting(DefaultEncoder(), "hidden layers of both networks")
    temperature: float = setting(1.0, "β: how large an advantage counts, in units of the reward", gt=0)
    tau: float = setting(0.005, "τ: share of the value that enters its target in a gradient step", gt=0, le=1)


@register_algorithm
class BetterBC(Algorithm):
    """Imitation of what went better than expected. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = BetterBCConfig
    actions: ClassVar = "continuous"
    presets: ClassVar = {"sharp": Preset("this page", {"temperature": 0.1})}

    def networks(self, spec: Spec, config: BetterBCConfig) -> dict[str, Network]:
        policy = DeterministicPolicy(config.encoder, spec.observation, spec.action.shape[0])
        value = ValueFunction(config.encoder, spec.observation)
        return {
            "policy": Network(policy, "learning_rate", optimizer=config.optimizer),
            "state_value": Network(value, "learning_rate", target=True, optimizer=config.optimizer),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("learn",)

    def learn(self, learner: Verbs, batch: Batch) -> None:
        """The only kind of update."""
        learner.minimise(self.value_loss, "state_value", batch)
        learner.minimise(self.policy_loss, "policy", batch)
        learner.track("state_value", rate="tau")

    @loss("sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_V of each sample, [B]."""
        error = self.goal(nets, batch) - nets.state_value(batch.observation)
        return error.square(), {"td_error": error.abs()}

    @loss("sample")
    def policy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]."""
        with torch.no_grad():
            advantage = self.goal(nets, batch) - nets.state_value(batch.observation)
            weight = (advantage / h.temperature).sigmoid()
        imitation = (nets.policy(batch.observation) - batch.action).square().mean(-1)
        return weight * imitation, {"imitation": imitation, "weight": weight}

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch) -> Tensor:
        """What V(s) is to become: r + γ V'(s'), [B]."""
        return batch.reward + batch.discount * nets.target.state_value(batch.next_observation)

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return nets.policy(observation), state


if __name__ == "__main__":
    n_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    check_algorithm(BetterBC)
    print("BetterBC keeps the contract.")
    dataset = Dataset.open("d3ray/pendulum-replay")
    settings = {"observation_scaler": "standard", "action_scaler": "min_max", "reward_scaler": "standard"}
    for epoch, metrics in BetterBC.from_preset("sharp", **settings).fitter(dataset, n_steps, max(1, n_steps // 2)):
        print(f"epoch {epoch}: {metrics['train/imitation']:.3f} from the data's actions, TD error {metrics['train/td_error']:.3f}")
