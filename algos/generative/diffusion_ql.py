r"""Diffusion-QL: TD3+BC whose policy is a diffusion, through all of whose steps the critics' gradient goes.

    critic      L_Q = E[ Σ_i (r + γ min_j max_m Q'_j(s', a'_m) - Q_i(s, a))² ],    a'_m: M draws of the average  `DiffusionQL.goal`
    policy      L_π = E[ L_ε - η Q_i(s, π(s)) / mean |Q_j(s, π(s))| ],    i and j are the two critics, one way or the other
                                                                                                       `DiffusionQL.actor_loss`
    acting      one of N draws, by softmax(min_i Q_i(s, a))                                                  `DiffusionQL.act`

Symbols   π(s) is a draw of the diffusion, L_ε its loss (`diffusion.py`), η = `eta`, M = `n_target_samples`, N = `n_action_samples`.
When      Where TD3+BC stays below what the data can do and actions have several modes. η must be found for each task, and an update
          goes through all K steps: `FQL` has the same aim without that. `approximate` spares them.
Paper     Wang, Hunt, Zhou: Diffusion Policies as an Expressive Policy Class for Offline Reinforcement Learning, ICLR 2023,
          arXiv:2208.06193. `approximate` and `sampler_steps`: Kang, Ma, Du, Pang, Yan: Efficient Diffusion Policies for Offline
          Reinforcement Learning (EDP), NeurIPS 2023, arXiv:2305.20081.
Code      github.com/Zhendong-Wang/Diffusion-Policies-for-Offline-RL, agents, commit d871f5c (Apache 2.0). Read, not copied.
Choices   1. Which critic the policy climbs is drawn for each batch, as in the code; the other gives the size.
          2. The average for the critics' goal moves at every fifth step from step 1,000 on, as in the code (`average_interval`,
             `average_start_step`).
          3. Actions are judged by the critics, in the code by their targets.
          4. Rates are constant; the commands of the code's README let both fall along a cosine: a `schedule` of the optimisers.
          5. Both clip their gradients for each task in the code: `max_grad_norm` of the optimisers, in its presets.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import ContinuousConfig, Preset
from ..critics import Critics, CriticsConfig, critic_network
from ..definition import LossValue, Network, Verbs, due, loss
from ..losses.sampled_actions import apart, repeated, taken
from ..nets import Hyper, Nets
from ..networks.diffusion import DQL_CODE, TimeEmbedding
from ..networks.distributions import Categorical
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.q_functions import Values, reduced, td_loss
from ..networks.training import whole_batch
from ..optimizers import Adam, Optimizer
from ..ports import Noise, Ports, Tensors
from ..presets import TaskPresets
from .diffusion import Diffusing, DiffusionConfig

THREE = DefaultEncoder(hidden_units=(256, 256, 256), activation="mish")
SINUSOIDAL = TimeEmbedding(features="sinusoidal", size=16, hidden_units=(32, 16))
MAIN = "authors' code of Diffusion-QL d871f5c, main.py"


class DiffusionQLConfig(DiffusionConfig, CriticsConfig, ContinuousConfig):
    diffusion_encoder: Encoder = setting(THREE, "hidden layers of the policy", source=DQL_CODE)
    time_embedding: TimeEmbedding = setting(SINUSOIDAL, "what the policy sees of k", source=DQL_CODE)
    diffusion_tau: float = setting(0.005, "share of the policy that enters its average", source=DQL_CODE, gt=0, le=1)
    critic_learning_rate: float = setting(3e-4, "of the critics", source=DQL_CODE, gt=0)
    critic_optimizer: Optimizer = setting(Adam(), "what steps the critics", source=DQL_CODE)
    critic_encoder: Encoder = setting(THREE, "hidden layers of the critics", source=DQL_CODE)
    eta: float = setting(1.0, "η: weight of the critics", source=MAIN, ge=0)
    n_target_samples: int = setting(1, "M: actions whose best is the critics' goal; 10: `max_q_backup`", source=MAIN, gt=0)
    n_action_samples: int = setting(50, "N: actions of which one acts", source=DQL_CODE, gt=0)
    average_interval: int = setting(5, "gradient steps from one move of the average to the next", source=DQL_CODE, gt=0)
    average_start_step: int = setting(1_000, "gradient steps before it moves at all", source=DQL_CODE, ge=0)
    approximate: bool = setting(
        False, "whether Q is asked about the action guessed within a noisy one, in place of a draw", source="Kang et al. 2023"
    )


class DiffusionQL(Diffusing, Critics):
    """Diffusion-QL, offline or online. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = DiffusionQLConfig
    actions: ClassVar = "continuous"
    clip: ClassVar = "start"
    presets: ClassVar = {
        "efficient": Preset(
            "Kang et al. 2023, section 4 and appendix: 1,000 steps of noise, 15 of the sampler",
            {"diffusion_steps": 1_000, "sampler_steps": 15, "approximate": True},
        ),
    } | TaskPresets(__file__, DiffusionQLConfig)

    def networks(self, spec: Spec, config: DiffusionQLConfig) -> dict[str, Network]:
        return {"diffusion": self.diffusion_network(spec, config), "critic": critic_network(spec, config)}

    def schedule(self, step: int) -> tuple[str, ...]:
        c = self.config_
        moves = step >= c.average_start_step and step % c.average_interval == 0
        return (*due(step, critic=1, actor=1), *(("average",) if moves else ()), *due(step, targets=c.target_update_interval or 1))

    def actor(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.actor_loss, "diffusion", batch)

    def average(self, learner: Verbs, batch: Batch) -> None:
        learner.track("diffusion", rate="diffusion_tau")

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return td_loss(nets.critic, batch, self.goal(nets, batch, h))

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values | Tensor:
        n, (rows, size) = self.config_.n_target_samples, batch.action.shape
        draws, _ = self.noise_shape(self.spec_, self.config_)
        seen = repeated(batch.next_observation, n)
        action = self.generated(nets.target, seen, nets.noise("next action", (draws, n * rows, size)))
        if n == 1:
            return reduced(nets.target.critic.distribution(seen, action), "min") * batch.discount + batch.reward
        return apart(nets.target.critic(seen, action), n).amax(1).amin(0) * batch.discount + batch.reward

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]."""
        likeness, _ = self.diffusion_loss(nets, batch, h)
        value = nets.critic(batch.observation, self.asked(nets, batch))
        first = nets.uniform("critic", (1,))[0] > 0.5
        climbed, other = torch.where(first, value[0], value[-1]), torch.where(first, value[-1], value[0])
        size = whole_batch(other.detach().abs()).mean()
        return likeness - h.eta * climbed / size, {"likeness": likeness, "value": climbed}

    def asked(self, nets: Nets, batch: Batch) -> Tensor:
        """The action that the critics are asked about, [B, A], with its gradient."""
        if self.config_.approximate:
            k = (nets.uniform("approximate time", (len(batch.action),)) * self.config_.diffusion_steps).floor()
            noisy = nets.diffusion.noised(batch.action, nets.noise("approximate noise", batch.action.shape), k)
            return nets.diffusion.start(batch.observation, noisy, k)
        draws, size = self.noise_shape(self.spec_, self.config_)
        return self.generated(nets, batch.observation, nets.noise("action", (draws, len(batch.action), size)))

    def ports(self, spec: Spec, config: DiffusionQLConfig) -> Ports:
        n = config.n_action_samples
        return {
            "draws": Noise((n, *self.noise_shape(spec, config)), always=True),
            "choice": Noise((n,), "uniform", always=True),
        }

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        n, seen = self.config_.n_action_samples, repeated(observation, self.config_.n_action_samples)
        drawn = noise["draws"].permute(2, 1, 0, 3).flatten(1, 2)  # [B, n, draws, A] to [draws, n·B, A]
        actions = self.generated(nets, seen, drawn)
        values = apart(reduced(nets.critic(seen, actions), "min"), n)
        chosen = Categorical(values.transpose(0, 1).log_softmax(-1)).sample(noise["choice"])
        return taken(actions.unflatten(0, (n, -1)), chosen), state
