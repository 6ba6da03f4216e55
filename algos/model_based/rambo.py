r"""Robust adversarial model-based offline RL (RAMBO): SAC in a model that is trained on, so as to be of no use to it.

    L_T(φ) = E_D[ Σ_i ( (y - μ_i)² / σ_i² + log σ_i² ) ] + λ Σ_M A(s, a, s', r) log T(s', r|s, a)               `RAMBO.model_loss`
    A      = r + γ min_j Q_j(s', π(s')) - min_j Q_j(s, a),    standardised over the batch                       `RAMBO.advantage`

The first sum keeps the model to the data D. The second, over what it draws itself where the policy acts, makes those outcomes less
likely that are better than expected; T is the mean density of the members, entry by entry.

Symbols   λ = `adversary_weight`, y = what members are to say, D: rows of a batch that are data, M: those that were generated.
When      As MOPO, where no measure of uncertainty is to be trusted. λ is of the size of 3e-4: larger ones run away.
Paper     Rigter, Lacerda, Hawes: RAMBO-RL, NeurIPS 2022, arXiv:2204.12581, Algorithm 1 and equation 9.
Code      github.com/marc-rigter/rambo, commit be635eb (MIT), and OfflineRL-Kit's, policy/model_based/rambo.py. Read, not copied.
Choices   1. The model steps with every `adversary_interval`-th step of the policy, on the same batch; in the code it makes 1,000
             steps after every 1,000 of the policy's.
          2. Its states are those that were generated in the rounds that are kept, at which the present policy acts; the code has
             rollouts of its own for it.
          3. The elites alone are trained on, and λ's sum is over rows, as in OfflineRL-Kit.
          4. The code first clones the data; here nothing does.
          5. The model is part of the algorithm, and saved with it; where that is loaded again, `dynamics` has to be there, which
             has its shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...data.batch import Batch
from ...data.config import setting
from ...data.errors import ConfigError
from ...data.spec import Spec
from ..actor_critic.sac import SAC, SACConfig
from ..config import Preset
from ..definition import LossValue, Network, Verbs, due, loss
from ..dynamics.generated import no_model
from ..dynamics.settings import ModelRollouts
from ..nets import Hyper, Nets
from ..networks.q_functions import reduced
from ..optimizers import Adam, Optimizer
from ..presets import TaskPresets
from .shared import InAModel

CODE = "RAMBO's code be635eb, examples/config/rambo"
ROLLOUTS = ModelRollouts(horizon=5, n_transitions=50_000, interval=1000, real=0.5, penalty="none", lam=0.0)


class RAMBOConfig(SACConfig):
    actor_learning_rate: float = setting(1e-4, "of the policy", source=f"{CODE}/base.py", gt=0)
    rollouts: ModelRollouts = setting(ROLLOUTS, "how the model generates", source=f"{CODE}/base.py")
    model_learning_rate: float = setting(3e-4, "of the model", source=f"{CODE}/base.py", gt=0)
    model_optimizer: Optimizer = setting(Adam(), "what steps the model")
    adversary_weight: float = setting(3e-4, "λ: of what makes the model worse for the policy", source=f"{CODE}/mujoco", ge=0)
    adversary_interval: int = setting(1, "gradient steps from one of the model's to the next", gt=0)
    bound_weight: float = setting(1e-3, "what draws the bounds of log σ² together", source="OfflineRL-Kit, run_rambo.py", ge=0)


class RAMBO(InAModel, SAC):
    """RAMBO, offline. Data: observations are vectors, actions continuous in [-1, 1] after the action scaler."""

    Config: ClassVar = RAMBOConfig
    exemptions: ClassVar = {
        **InAModel.exemptions,
        "terminated_steps_look_no_further": "the model learns what was seen after an end like all else",
        "bootstraps_by_the_batchs_discount": "what follows a draw of the model is discounted by the setting itself",
    }
    presets: ClassVar = {
        "paper": Preset(f"{CODE}/base.py; horizon and λ are chosen by task", {}),
    } | TaskPresets(__file__, RAMBOConfig)

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        if (model := self.given_model(config)) is None:
            raise ConfigError(no_model(self.name))
        trained = Network(model.requires_grad_(True), "model_learning_rate", optimizer=config.model_optimizer)
        return {**super().networks(spec, config), "dynamics": trained}

    def guests(self, config: Any, row: int) -> Mapping[str, nn.Module]:
        """None: the model is the algorithm's own."""
        return {}

    def schedule(self, step: int) -> tuple[str, ...]:
        return (*super().schedule(step), *due(step, adversary=self.config_.adversary_interval))

    def adversary(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.model_loss, "dynamics", batch)

    @loss("batch")
    def model_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_T, ()."""
        scaling, real = self.fit_.scaling, batch.extra["real"]
        seen = scaling.raw_observation(batch.observation)
        found = nets.dynamics.told(seen, scaling.raw_action(batch.action))
        goal = nets.dynamics.goal(seen, scaling.raw_observation(batch.next_observation), scaling.raw_reward(batch.reward))
        nll = ((goal - found.mean).square() * (-found.log_variance).exp() + found.log_variance).mean(-1).sum(0)
        kept = (nll * real).sum() / real.sum().clamp(min=1)
        density, advantage = self.advantage(nets, batch, h)
        made_worse = (density * advantage * (1 - real)).sum()
        loss = kept + h.bound_weight * nets.dynamics.spread() + h.adversary_weight * made_worse
        return loss.to(batch.reward.dtype), {"model_nll": kept.detach(), "adversary": made_worse.detach()}

    def advantage(self, nets: Nets, batch: Batch, h: Hyper) -> tuple[Tensor, Tensor]:
        """Log T of what the model draws where the policy acts, and A of it, without a gradient, [B] each."""
        scaling, n = self.fit_.scaling, len(batch.reward)
        seen = scaling.raw_observation(batch.observation)
        with torch.no_grad():
            action, _ = nets.policy(batch.observation).sample_with_log_prob(nets.noise("action against it", batch.action.shape))
        found = nets.dynamics.told(seen, scaling.raw_action(action))
        with torch.no_grad():
            member = (
                (nets.uniform("member against it", (n,)) * len(found.mean)).long()[None, :, None].expand(1, *found.mean.shape[1:])
            )
            noise = nets.noise("outcome against it", (n, found.mean.shape[-1])).to(found.mean.dtype)
            goal = found.mean.gather(0, member)[0] + noise * (0.5 * found.log_variance.gather(0, member)[0]).exp()
            following, reward = nets.dynamics.raw(goal, seen.to(goal.dtype))
            chance = found.end_logit.sigmoid().gather(0, member[..., 0])[0]
            ended = nets.dynamics.ended(following, chance, nets.uniform("end against it", (n,)))
            then = scaling.observation(following.to(batch.reward.dtype))
            value = reduced(nets.critic(then, nets.policy(then).mode()), "min") * (1 - ended.to(batch.reward.dtype))
            better = scaling.scaled_reward(reward.to(batch.reward.dtype)) + h.gamma * value
            better = better - reduced(nets.critic(batch.observation, action), "min")
            better = standardised(better, 1 - batch.extra["real"])
        each = (goal - found.mean).square() * (-found.log_variance).exp() + found.log_variance + math.log(2 * math.pi)
        density = (-0.5 * each).logsumexp(0) - math.log(len(each))
        return density.sum(-1), better.to(density.dtype)


def standardised(x: Tensor, counts: Tensor) -> Tensor:
    """[B] with mean 0 and deviation 1 over the rows that count, of which `counts` is 1."""
    n = counts.sum().clamp(min=2)
    mean = (x * counts).sum() / n
    deviation = (((x - mean) * counts).square().sum() / (n - 1)).sqrt()
    return (x - mean) / (deviation + 1e-6)
