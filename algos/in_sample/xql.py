r"""Extreme Q-learning (XQL): IQL whose value is the soft maximum of Q over the data's actions, by regression with Gumbel errors.

    value    L_V = E[ (exp(z) - z - 1) / exp(m) ],    z = min((min_i Q̂_i(s, a) - V(s)) / β, w_z)                `XQL.value_loss`
             m = max(-1, the largest z of the batch), a number
    critic   L_Q = E[ Σ_i huber_δ(r + γ V(s') - Q_i(s, a)) ],    ½ x² up to δ, then δ |x| - ½ δ²               `XQL.critic_loss`
    actor    as IQL's, of weight min(exp((min_i Q̂_i(s, a) - V(s)) / T), w)                                      `IQL.actor_loss`

At its least L_V has V(s) = β log E[exp(Q̂(s, a) / β)]: β → 0 is the best of the data's actions, β → ∞ their mean. Q̂ is the target.

Symbols   β = `gumbel_temp`, w_z = `max_clip`, δ = `huber_delta`; the others as in `iql.py`, but for its β, which is
          1 / T here: `weight_temp` weighs the actor's advantages, and has nothing to do with the β of `gumbel_temp`.
When      As IQL, where its expectile is hard to choose; a small β makes the loss explode.
Paper     Garg, Hejna, Geist, Ermon: Extreme Q-Learning: MaxEnt RL without Entropy, ICLR 2023, arXiv:2301.02328.
Code      github.com/Div99/XQL, offline/critic.py and learner.py, commit dff09af. Read, not copied.
Choices   1. exp(m) divides each batch's gradient by a number of its own, as in the code, where outliers would blow it up.
          2. Order: V, `n_value_updates` times on one batch; actor; critic; target, as in the code.
          3. `n_critics=1` is the code's `double=False`. Its `log_loss`, which its own arguments break, is left out, and so is its
             `grad_pen`, off there, a penalty of weight `lambda_gp` on the critics' slope in the action where that is above 1.
          4. By task L_V sees the data's actions with noise (`perturb_actions`), or uniform ones beside them (`n_random_actions`);
             Q̂ is then asked there. The actor's weight is of the data's own.
          5. Layer norm follows an activation here, and precedes it in the code. The code's dropout of V is never switched on.
          6. A Q-function other than the mean has its own loss in place of Huber's.
          7. The actor's rate falls to 0 at 10⁶ steps, as in `iql.py`. The code's configs for going on online keep it constant, as
             does `actor_optimizer="adam"` from the first step on: preset `mujoco-finetune`, and all of AntMaze's.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..definition import LossValue, Verbs, loss
from ..losses.sampled_actions import apart, repeated
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.q_functions import Mean, learned_from, reduced
from ..networks.q_functions.critics import over_members
from ..networks.training import whole_batch
from ..presets import TaskPresets
from .iql import IQL, RETURNS, ContinuousInSampleConfig

CODE = "authors' code dff09af, offline/train_offline.py and configs"
SCRIPTS = "authors' code dff09af, offline/reproduce"
_REACH = 0.5  # where noise on the data's actions is clipped, as in the code


class XQLConfig(ContinuousInSampleConfig):
    weight_temp: float = setting(3.0, "1 / T: inverse temperature of the advantage weight; 0 is cloning", source=CODE, ge=0)
    value_encoder: Encoder = setting(DefaultEncoder(normalization="layer"), "hidden layers of the value function", source=CODE)
    gumbel_temp: float = setting(2.0, "β: temperature of the soft maximum, in units of return", source=SCRIPTS, gt=0)
    max_clip: float | None = setting(7.0, "w_z: ceiling of z; None: none", source=CODE, gt=0)
    huber_delta: float = setting(20.0, "δ: from where the critic's loss is linear", source="authors' code, critic.py", gt=0)
    n_value_updates: int = setting(1, "steps of the value in a gradient step", source=CODE, gt=0)
    n_random_actions: int = setting(0, "uniform actions beside the data's in L_V", source=CODE, ge=0)
    perturb_actions: bool = setting(False, "whether the data's actions get noise in L_V", source=CODE)
    perturbation_std: float = setting(0.1, "standard deviation of that noise", source=CODE, ge=0)


class XQL(IQL):
    """XQL, offline or online. Data: continuous actions in [-1, 1] after the action scaler. β depends on the reward's unit."""

    Config: ClassVar = XQLConfig
    recurrent: ClassVar = ()  # the largest z of the batch, and further actions of a state, are of single transitions
    presets: ClassVar = {
        "paper": Preset(f"{SCRIPTS}/mujoco: one setting for all tasks", {"reward_scaler": RETURNS}),
    } | TaskPresets(__file__, XQLConfig)

    def joint_step(self, learner: Verbs, batch: Batch) -> None:
        batch = learner.precompute(self.target_value, batch)
        for _ in range(self.config_.n_value_updates):
            learner.minimise(self.value_loss, "value", batch)
        learner.minimise(self.actor_loss, "policy", batch)
        learner.minimise(self.critic_loss, "critic", batch)

    @loss("sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_V of each sample, [B], the mean over the actions of its state."""
        value = nets.value(batch.observation)
        z = (self.judged(nets, batch, h) - value) / h.gumbel_temp  # [actions, B]
        if self.config_.max_clip is not None:
            z = z.minimum(h.max_clip)
        largest = whole_batch(z.detach()).amax((0, 1), keepdim=True).clamp(min=-1)
        loss = (z - largest).exp() - (z + 1) * (-largest).exp()
        return loss.mean(0), {"advantage": z[0] * h.gumbel_temp, "value": value}

    @torch.no_grad()
    def judged(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        """min_i Q̂_i of the actions that V is regressed to, [actions, B]: the data's, perhaps with noise, and uniform ones."""
        n, shape = self.config_.n_random_actions, batch.action.shape
        if not (n or self.config_.perturb_actions):
            return self.target_value(nets, batch, h)[None]
        actions = batch.action[None]
        if self.config_.perturb_actions:
            noise = (h.perturbation_std * nets.noise("perturbation", shape)).clamp(-_REACH, _REACH)
            actions = (actions + noise).clamp(-1, 1)
        if n:
            actions = torch.cat((actions, 2 * nets.uniform("random action", (n, *shape)) - 1))
        values = nets.target.critic(repeated(batch.observation, n + 1), actions.flatten(0, 1))
        return apart(reduced(values, "min"), n + 1)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        if not isinstance(self.config_.q_function, Mean):
            return super().critic_loss(nets, batch, h)
        with torch.no_grad():
            goal = batch.reward + batch.discount * nets.value(batch.next_observation)
        value = nets.critic(batch.observation, batch.action)
        error = value - goal
        near = error.clamp(-h.huber_delta, h.huber_delta)
        return learned_from(near * (error - near / 2), batch), {
            "td_error": over_members(error.abs()),
            "q_value": over_members(value),
        }
