r"""Deep deterministic policy gradient (DDPG): a policy that climbs a critic by the critic's slope in the action.

    critic   L_Q = E[ Σ_i (r + γ min_j Q'_j(s', π'(s')) - Q_i(s, a))² ]                                         `DDPG.critic_loss`
    actor    L_π = E[ -Q_1(s, π(s)) + ρ u(s)² ],    π = tanh(u)                                                  `DDPG.actor_loss`

Both targets move at every step by the share τ. The paper has one critic; of several the least is the goal and the first is climbed.

Symbols   ρ = `regularizing_rate`, τ = `tau`; ' marks targets, i and j number the critics.
When      Online, as the simplest of its kind; TD3 and SAC are steadier. Offline a baseline that nothing keeps to the data.
Paper     Lillicrap et al.: Continuous Control with Deep Reinforcement Learning, ICLR 2016, arXiv:1509.02971.
Code      The authors gave none. github.com/sfujim/TD3 (MIT) has the paper's (DDPG.py) and one tuned anew (OurDDPG.py), whose values
          are the defaults here and in d3rlpy 2.8.1. Read, not copied.
Choices   1. ρ keeps u, the action before tanh, from running away. Paper, PFRL and d3rlpy 2.8.1 have none (0); d3rlpy's manual of
             2020 names the rate and not the form. The square is the mean over an action's entries.
          2. The action enters at the critic's first layer, as in d3rlpy and PFRL; in the paper at the second.
          3. `target_update_interval` with `tau=1` is PFRL's hard update.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Preset
from ..critics import ActorCritic, ActorCriticConfig, critic_network
from ..definition import LossValue, Network, due, loss
from ..nets import Hyper, Nets
from ..networks.encoders import VectorEncoder
from ..networks.perceptrons import DeterministicPolicy
from ..networks.q_functions import reduced, td_loss
from ..optimizers import Adam
from ..ports import Tensors

MANUAL = "d3rlpy's manual of October 2020"
LARGE = VectorEncoder(hidden_units=(400, 300))
LARGE_AND_FAST = {  # of PFRL's examples of DDPG and TD3: torch's Adam as it comes
    "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "batch_size": 100, "actor_encoder": LARGE, "critic_encoder": LARGE,
}  # fmt: skip


class DDPGConfig(ActorCriticConfig):
    n_critics: int = setting(1, "size of the ensemble", source="Lillicrap et al. 2016", gt=0)
    regularizing_rate: float = setting(1e-10, "ρ: weight of the square of the action before tanh", source=MANUAL, ge=0)


class DDPG(ActorCritic):
    """DDPG, offline or online. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = DDPGConfig
    actions: ClassVar = "continuous"
    presets: ClassVar = {
        "paper": Preset(
            "Lillicrap et al. 2016, section 7; not its batch normalisation, nor how its last layers begin",
            {
                "actor_learning_rate": 1e-4,
                "critic_learning_rate": 1e-3,
                "critic_optimizer": Adam(weight_decay=1e-2),
                "batch_size": 64,
                "tau": 1e-3,
                "regularizing_rate": 0.0,
                "actor_encoder": LARGE,
                "critic_encoder": LARGE,
            },
        ),
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/ddpg.py", {"regularizing_rate": 0.0}),
        "d3rlpy-2020": Preset(MANUAL, {"batch_size": 100}),
        "pfrl": Preset(
            "PFRL 0.4.0, examples/mujoco/reproduction/ddpg; the class alone copies targets every 10,000 steps",
            {**LARGE_AND_FAST, "regularizing_rate": 0.0},
        ),
    }

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        policy = DeterministicPolicy(config.actor_encoder, spec.observation, spec.action.shape[0])
        return {
            "policy": Network(policy, "actor_learning_rate", True, config.actor_optimizer),
            "critic": critic_network(spec, config),
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, critic=1, actor=1, targets=self.config_.target_update_interval or 1)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with torch.no_grad():
            following = nets.target.critic.distribution(batch.next_observation, nets.target.policy(batch.next_observation))
            goal = reduced(following, "min") * batch.discount + batch.reward
        return td_loss(nets.critic, batch, goal)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        raw = nets.policy.raw(batch.observation)
        value = nets.critic(batch.observation, raw.tanh(), 1)[0]
        return h.regularizing_rate * raw.square().mean(-1) - value, {"value": value}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return nets.policy(observation), state
