r"""Deep Q-network (DQN): Q-learning with a target network that is copied now and then.

    L(θ) = E[ Σ_i huber(r + γ min_j Q'_j(s', a*) - Q_i(s, a)) ],    a* = argmax_a' mean_j Q'_j(s', a')        `DQN.critic_loss`

Without an ensemble that is r + γ max_a' Q'(s', a'). Q' moves towards Q by the share `tau` every `target_update_interval` gradient
steps; τ = 1 copies it, as the paper does.

Symbols   Q' = target critic, i and j number the ensemble.
When      Discrete actions online. Offline where the data cover what the policy would do, as a replay buffer does; else a
          baseline.
Paper     Mnih et al.: Human-level control through deep reinforcement learning, Nature 518, 2015.
Choices   1. The Huber loss with its corner at 1 is the paper's clipping of the error to [-1, 1].
          2. The copy is made after steps C, 2C, …; d3rlpy 2.8.1 also makes one after the first step.
          3. Ensembles are reduced as in d3rlpy 2.8.1: the mean to choose an action, the least to value it, the sum of the losses.
          4. Adam in place of the paper's RMSprop, with the rate and epsilon of Rainbow (Hessel et al. 2018, Table 1), as d3rlpy's
             manual has it. On small problems learn faster with `learning_rate=1e-3, target_update_interval=100`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import AlgorithmConfig, Preset, sourced
from ..critics import DiscreteCritics, GeneratedConfig, QConfig, TargetsConfig, critic_network
from ..definition import LossValue, Network, due, loss
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.noisy import noise_size
from ..networks.q_functions import QR, Values, picked, reduced, td_loss
from ..networks.training import drawing_by
from ..optimizers import Adam, Optimizer, RMSprop
from ..ports import Noise, Ports, Tensors

MANUAL = "d3rlpy's manual of October 2020"
MNIH = "Mnih et al. 2015, Extended Data Table 1"
REPRODUCTIONS = "d3rlpy, reproductions"
SCREENS: dict[str, Any] = {  # what Mnih et al. 2015 make of Atari's screens and scores
    "observation_scaler": "pixel",
    "reward_scaler": {"name": "clip"},
    "sampler": {"name": "uniform", "frames": 4},
}
SQUARES = RMSprop(alpha=0.95, epsilon=1e-2 / 32**2, epsilon_inside=True, centered=True)
QUANTILES: dict[str, Any] = {"q_function": QR(n_quantiles=200), "learning_rate": 5e-5, "optimizer": Adam(epsilon=1e-2 / 32)}
OFFLINE_ATARI: dict[str, Any] = {**QUANTILES, "target_update_interval": 2_000, **SCREENS}  # 8,000 steps at an update in four


@sourced(MANUAL, "share_encoder")
@sourced(MNIH, "gamma")
class ValuesConfig(AlgorithmConfig, QConfig, GeneratedConfig):
    """Settings of `DQN`, but for those of its target."""

    learning_rate: float = setting(6.25e-5, "Adam", source=f"{MANUAL}; Rainbow, Table 1", gt=0)
    optimizer: Optimizer = setting(Adam(epsilon=1.5e-4), "what steps the critic", source=f"{MANUAL}; Rainbow, Table 1")
    batch_size: int = setting(32, "transitions in a gradient step", source=MNIH, gt=0)
    n_critics: int = setting(1, "size of the ensemble", source=MANUAL, gt=0)
    encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the critic")


class DQNConfig(ValuesConfig, TargetsConfig):
    target_update_interval: int = setting(  # pyright: ignore[reportIncompatibleVariableOverride]  # configs are frozen
        8000, "C: gradient steps from one move of the target to the next", source=MANUAL, gt=0
    )
    tau: float = setting(1.0, "τ: share of the critic that enters its target when it moves; 1 copies it", gt=0, le=1)


class DQN(DiscreteCritics):
    """Deep Q-network, offline or online. Data: discrete actions."""

    Config: ClassVar = DQNConfig
    actions: ClassVar = "discrete"
    recurrent: ClassVar = ("critic",)
    presets: ClassVar = {
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/dqn.py and optimizers.py", {"optimizer": "adam"}),
        "d3rlpy-2020": Preset(MANUAL, {}),
        "atari": Preset(
            f"{MNIH}; PFRL 0.4.0, examples/atari/reproduction/dqn, where gradients of a batch are added up: ε is divided by 32²",
            {"learning_rate": 2.5e-4, "optimizer": SQUARES, "target_update_interval": 2_500, **SCREENS},
        ),
        "atari-qr": Preset(
            f"QR-DQN: Dabney et al. 2018, arXiv:1710.10044, as {REPRODUCTIONS}/online/qr_dqn.py",
            {**QUANTILES, "target_update_interval": 2_500, **SCREENS},
        ),
        "atari-qr-offline": Preset(f"QR-DQN on DQN Replay: {REPRODUCTIONS}/offline/qr_dqn.py", OFFLINE_ATARI),
        "small": Preset("tried on CartPole", {"learning_rate": 1e-3, "target_update_interval": 100}),
    }

    def networks(self, spec: Spec, config: ValuesConfig) -> dict[str, Network]:
        return {"critic": critic_network(spec, config, settings="")}

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, critic=1, targets=self.config_.target_update_interval)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return td_loss(nets.critic, batch, self.goal(nets, batch, h))

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        """Gives the target of Q, [N, B]."""
        return self.following(nets, batch, h) * batch.discount + batch.reward

    def following(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        """min_j Q'_j(s', a*), [N, B]."""
        return reduced(nets.target.critic.distribution(batch.next_observation, best), "min")

    def ports(self, spec: Spec, config: DQNConfig) -> Ports:
        """Of noisy layers the numbers that explore."""
        with torch.device("meta"):
            size = noise_size(self.networks(spec, config)["critic"].module)
        return {"weights": Noise((size,))} if size else {}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        with drawing_by(noise["weights"]) if noise else nullcontext():
            return self.greedy(nets, observation), state

    def greedy(self, nets: Nets, observation: Any) -> Tensor:
        return best(nets.critic(observation))


def best(values: Tensor) -> Tensor:
    """The actions of the largest mean over members: [members, B, A] to [B]."""
    return values.mean(0).argmax(-1)


def gap(values: Tensor, action: Tensor) -> Tensor:
    """How much less the least of the members values an action than the best one: [members, B, A] and [B] to [B]."""
    least = reduced(values, "min")
    return picked(least, best(values)) - picked(least, action)
