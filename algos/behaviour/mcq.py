r"""Mildly conservative Q-learning (MCQ): SAC whose critics are held, wherever the policy goes, at what the behaviour could do.

    behaviour   a conditional VAE of the data's actions, D(s, z)                                      `behaviour_model.py`
                L_β = E[ (a - D(s, z))² + β KL(q(z|s, a) ‖ N(0, 1)) ],    z ~ q(z|s, a), means over entries
    critic      L_Q = E[ Σ_i λ (y - Q_i(s, a))² + (1 - λ) mean_k (Q_i(ŝ, â_k) - y'(ŝ))² ]                   `MCQ.critic_loss`
                y' = min_i max_k Q_i(ŝ, b_k)                                                             `MCQ.supported`
                ŝ: s and s' alike;    â_k ~ π(ŝ),    b_k = D(ŝ, z_k): N of each
    goal y, actor and temperature as in `sac.py`

So values of actions beyond the data are neither free nor crushed: they are drawn to the best that the behaviour can do there.

Symbols   λ = `lam`, N = `n_action_samples`; the others as in `sac.py` and `behaviour_model.py`.
When      Data of low or mixed quality, where what keeps strictly to the behaviour stays as bad as it is.
Paper     Lyu, Ma, Li, Lu: Mildly Conservative Q-Learning for Offline Reinforcement Learning, NeurIPS 2022, arXiv:2206.04745.
Code      github.com/dmksjfl/MCQ, offlinerl/algo/modelfree/MCQ.py, commit 1f27c77 (no licence). Read, not copied.
Choices   1. The code cuts y' off at 0 from below, which suits tasks that pay and not those that cost: `floor_at_zero`.
          2. Sums over entries in the code's model are means here: β = 2 is its weight of the divergence, with latents of 2 |A|.
          3. For some tasks the code also cuts errors off at 0 or leaves out actions near the behaviour's; not here.
          4. Each critic draws â_k and b_k of its own in the code; here all see the same.
          5. Order: behaviour, critic, actor and temperature, target. In the code the critic sees the temperature after its step.
          6. log σ of the policy is clipped to -20 and 2, as in `sac.py`; the code has -5 and 2, and so have its presets.
          7. λ is chosen by task in the paper; the code names it for two, which are presets `d4rl-TASK`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..actor_critic.sac import SAC, SACConfig
from ..config import Preset, sourced
from ..definition import LossValue, Network, loss
from ..losses.sampled_actions import apart, by_parts, repeated
from ..nets import Hyper, Nets
from ..networks.encoders import VectorEncoder
from ..presets import TaskPresets
from .behaviour_model import CLIP, WIDE, BehaviourConfig, BehaviourModel, latent_size

CODE = "authors' code 1f27c77, offlinerl/config/algo/MCQ_config.py"
LARGE = VectorEncoder(hidden_units=(400, 400, 400))  # the code's Net has a layer before its `layer_num` = 2
PAPER: dict[str, Any] = {
    "actor_encoder": LARGE,
    "critic_encoder": LARGE,
    "imitator_encoder": WIDE,
    "floor_at_zero": True,
    "log_std_bounds": (-5.0, 2.0),
}


@sourced(f"{CODE} and MCQ.py", "actor_learning_rate", "critic_learning_rate", "n_critics", "tau")
class MCQConfig(BehaviourConfig, SACConfig):
    beta: float = setting(2.0, "β: weight of the latents' divergence from the prior", source=f"{CODE}; choice 2", ge=0)
    lam: float = setting(0.7, "λ: weight of the data against the policy's own actions", source=CODE, gt=0, le=1)
    n_action_samples: int = setting(10, "N: actions of policy and behaviour for each state", source=CODE, gt=0)
    floor_at_zero: bool = setting(False, "whether y' is at least 0", source="choice 1")


class MCQ(BehaviourModel, SAC):
    """MCQ, offline or online. Data: continuous actions in [-1, 1] after the action scaler, of a behaviour with some variety."""

    Config: ClassVar = MCQConfig
    compiled_from: ClassVar = None  # products bound it
    exemptions: ClassVar = {
        "terminated_steps_look_no_further": "critics are held at what the behaviour could do in s' too, which no reward follows",
    }
    presets: ClassVar = {
        "paper": Preset(f"{CODE} and MCQ.py; λ is chosen by task", PAPER),
    } | TaskPresets(__file__, MCQConfig)

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {**self.behaviour_networks(spec, config), **super().networks(spec, config)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate", *super().schedule(step))

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        loss, metrics = super().critic_loss(nets, batch, h)
        n, rows = self.config_.n_action_samples, len(batch.reward)
        both = pytree.tree_map(lambda s, t: torch.cat((s, t.detach())), batch.observation, batch.next_observation)  # [2 B, ...]
        with torch.no_grad():
            action = nets.policy(both).sample(nets.noise("action", (n, 2 * rows, batch.action.shape[1]))).flatten(0, 1)
            supported = self.supported(nets, both, 2 * rows)
        off = apart(nets.critic(repeated(both, n), action), n) - supported  # [members, N, 2 B]
        held = off.square().mean(1).unflatten(-1, (2, rows)).mean(1)
        return h.lam * loss + (1 - h.lam) * held, {**metrics, "supported": supported.unflatten(-1, (2, rows)).mean(0)}

    def supported(self, nets: Nets, observation: Any, rows: int) -> Tensor:
        """y', [rows], in passes without a gradient."""
        n = self.config_.n_action_samples

        def valued(noise: Tensor) -> Tensor:
            seen = repeated(observation, noise.shape[0])
            return nets.critic(seen, nets.vae_decoder(seen, noise.flatten(0, 1).clamp(-CLIP, CLIP)))

        noise = nets.noise("behaviour", (n, rows, latent_size(self.spec_, self.config_)))
        best = apart(by_parts(valued, noise), n).amax(1).amin(0)
        return best.clamp(min=0) if self.config_.floor_at_zero else best
