r"""Normalised advantage functions (NAF): Q-learning with continuous actions, for a Q whose best action can be read off.

    L(θ) = E[ huber(r + γ V'(s') - Q(s, a)) ],    Q(s, a) = V(s) - (a - μ(s))ᵀ P(s) (a - μ(s)) / 2               `NAF.critic_loss`

P = L Lᵀ, L lower triangular with a positive diagonal: the largest value of a state is V(s), and μ(s) has it. μ has passed through
tanh. There is no actor: the policy is μ.

Symbols   ' marks the target, which follows by the share `tau` at every `target_update_interval`-th gradient step.
When      Online with few action entries, where one network and one loss are wanted. Q has one peak and falls off alike on both
          sides of it: what has two good actions far apart it cannot tell. Offline a baseline that nothing keeps to the data.
Paper     Gu, Lillicrap, Sutskever, Levine: Continuous Deep Q-Learning with Model-based Acceleration, ICML 2016, arXiv:1603.00748.
Code      PFRL 0.4.0, q_functions/state_q_functions.py and action_value.py (MIT). Read, not copied.
Choices   1. Huber's loss with its corner at 1, as in PFRL, whose DQN trains it; in the paper the square, whose slope and that of
             the exponentials on L's diagonal feed each other: with batch normalisation and SGD it ran off within five steps.
          2. Exploration adds noise to μ; the paper tried noise by P too.
          3. No batch normalisation, and no imagined rollouts of a model.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import ContinuousConfig, Preset
from ..critics import Critics
from ..definition import LossValue, Network, due, loss
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder, VectorEncoder
from ..networks.quadratic import QuadraticFunction
from ..optimizers import Adam, Optimizer
from ..ports import Tensors

PFRL = "PFRL 0.4.0, examples/gym/train_dqn_gym.py"


class NAFConfig(ContinuousConfig):
    learning_rate: float = setting(1e-3, "of the network", source=f"{PFRL}: Adam as it comes", gt=0)
    optimizer: Optimizer = setting(Adam(), "what steps it", source=PFRL)
    batch_size: int = setting(100, "transitions in a gradient step", source="as DDPG's", gt=0)
    encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the network")
    tau: float = setting(
        0.005, "τ: share of the network that enters its target when it moves; 1 copies it", source="as TD3's", gt=0, le=1
    )
    target_update_interval: int = setting(1, "gradient steps from one move of the target to the next", gt=0)


class NAF(Critics):
    """Normalised advantage functions, online or offline. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = NAFConfig
    actions: ClassVar = "continuous"
    recurrent: ClassVar = ("critic",)
    presets: ClassVar = {
        "pfrl": Preset(
            PFRL, {"batch_size": 32, "tau": 1.0, "target_update_interval": 100, "encoder": VectorEncoder(hidden_units=(100, 100))}
        ),
    }

    def networks(self, spec: Spec, config: NAFConfig) -> dict[str, Network]:
        critic = QuadraticFunction(config.encoder, spec.observation, spec.action.shape[0])
        return {"critic": Network(critic, "learning_rate", True, config.optimizer)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, critic=1, targets=self.config_.target_update_interval)

    @loss("sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with torch.no_grad():
            goal = batch.reward + batch.discount * nets.target.critic.value(batch.next_observation)
        value = nets.critic(batch.observation, batch.action)
        return huber_loss(value, goal, reduction="none"), {"td_error": (value - goal).abs(), "q_value": value}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return nets.critic.action(observation), state

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return nets.critic(observation, action)[None]
