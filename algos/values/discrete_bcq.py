r"""Batch-constrained Q-learning for discrete actions (DiscreteBCQ): DoubleDQN among actions that the data's behaviour might take.

    policy     π(s) = argmax_a mean_j Q_j(s, a) over the a with G(a|s) / max_a' G(a'|s) > τ                  `DiscreteBCQ.greedy`
    critic     L(θ) = E[ Σ_i huber(r + γ min_j Q'_j(s', π(s')) - Q_i(s, a)) ]                         `DiscreteBCQ.critic_loss`
    imitator   L(ω) = E[ -log G(a|s) + β / A · Σ_a' log G(a'|s)² ]                                               `imitation_error`

G reads the features of Q_1's encoder, which both losses train, or those of an encoder of its own.

Symbols   G = imitator, τ = `action_flexibility`, β = `beta`, A = number of actions, Q' = target critic, i, j = members.
When      Offline, data of one behaviour, or a few, from which the policy should not go far. τ = 0 is DoubleDQN, τ near 1 cloning.
Paper     Fujimoto, Conti, Ghavamzadeh, Pineau: Benchmarking Batch Deep RL Algorithms, 2019, arXiv:1910.01708.
Code      github.com/sfujim/BCQ, discrete_BCQ/discrete_BCQ.py, commit 4876f7e (MIT). Read, not copied.
Choices   1. One step for both losses, as in code and d3rlpy 2.8.1.
          2. The shared encoder is all of Q_1's but its last layer, as in d3rlpy; in the code the convolutions of images, after
             which each has a layer of its own, and nothing of vectors: `imitator_encoder="default"`.
             That is d3rlpy's `share_encoder=False`; `share_encoder` is of the ensemble here, as for every critic.
          3. The regulariser is taken on normalised log-probabilities, as in d3rlpy and `discrete_bc.py`; in the code on the logits
             as they come, with β = 0.01.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Preset
from ..definition import LossValue, Network, Verbs, loss
from ..losses.classification import imitation_error
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.legal import legal_only
from ..networks.perceptrons import CategoricalHead, CategoricalPolicy
from ..networks.q_functions import DiscreteCritic, td_loss
from ..optimizers import Adam
from .double_dqn import DoubleDQN
from .dqn import DQN, MANUAL, OFFLINE_ATARI, REPRODUCTIONS, DQNConfig, best

D3RLPY = "d3rlpy 2.8.1, algos/qlearning/bcq.py"
CODE = "BCQ's code 4876f7e, discrete_BCQ/main.py"


class DiscreteBCQConfig(DQNConfig):
    action_flexibility: float = setting(0.3, "τ: least likelihood of an action, the likeliest's being 1", source=CODE, ge=0, lt=1)
    beta: float = setting(0.5, "β: weight of the imitator's regulariser", source=f"{MANUAL}; {D3RLPY}", ge=0)
    imitator_encoder: Encoder | None = setting(
        None, "hidden layers of the imitator; None: the first critic's, which it trains too", source=D3RLPY
    )


class DiscreteBCQ(DoubleDQN):
    """Batch-constrained Q-learning, offline or online. Data: discrete actions."""

    Config: ClassVar = DiscreteBCQConfig
    recurrent: ClassVar = ("critic", "imitator")
    presets: ClassVar = {
        "paper": Preset(f"{CODE}, Atari; choices 2 and 3", {"beta": 0.01}),
        "paper-vectors": Preset(
            f"{CODE}, other tasks; choice 3",
            {
                "beta": 0.01,
                "batch_size": 64,
                "learning_rate": 3e-4,
                "optimizer": Adam(),
                "tau": 0.005,
                "target_update_interval": 1,
                "imitator_encoder": DefaultEncoder(),
            },
        ),
        "atari": Preset(f"on DQN Replay: {REPRODUCTIONS}/offline/discrete_bcq.py", {"beta": 0.01, **OFFLINE_ATARI}),
        "d3rlpy": Preset(f"{D3RLPY} and optimizers.py", {"optimizer": "adam"}),
        "d3rlpy-2020": Preset(MANUAL, {}),
        "small": DQN.presets["small"],
    }

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        networks = super().networks(spec, config)
        if config.imitator_encoder is None:
            critic = cast("DiscreteCritic", networks["critic"].module)
            imitator = CategoricalHead(critic.encoder.features, spec.n_actions)
        else:
            imitator = CategoricalPolicy(config.imitator_encoder, spec.observation, spec.n_actions)
        return {**networks, "imitator": Network(imitator, "learning_rate", optimizer=config.optimizer)}

    def critic(self, learner: Verbs, batch: Batch) -> None:
        """With the imitator; choice 1."""
        learner.minimise(self.critic_loss, ("critic", "imitator"), batch)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L(θ) of each member and sample, [members, B], of which each bears an equal share of L(ω)."""
        goal, features = self.goal(nets, batch, h), nets.critic.features(batch.observation)
        loss, metrics = td_loss(nets.critic, batch, goal, features)
        imitation, log_prob = imitation_error(self.logits(nets, batch.observation, features), batch.action, h.beta)
        return loss + imitation / len(loss), {**metrics, "log_prob": log_prob}

    def greedy(self, nets: Nets, observation: Any) -> Tensor:
        """π(s), [B]."""
        features = nets.critic.features(observation)
        values = legal_only(nets.critic.expected(features), observation)
        logits = self.logits(nets, observation, features)
        likelihood = (logits - logits.amax(-1, keepdim=True)).exp()  # the likeliest action's is 1
        return best(torch.where(likelihood > nets.h.action_flexibility, values, -torch.inf))

    def logits(self, nets: Nets, observation: Any, features: Tensor) -> Tensor:
        """Of G(·|s), [B, A], from an observation or from the critics' features of it."""
        if self.config_.imitator_encoder is not None:
            return nets.imitator(observation)
        return legal_only(nets.imitator(features if features.ndim == 2 else features[0]), observation)
