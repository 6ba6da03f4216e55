r"""Conservative Q-learning (CQL): critics that are pushed down wherever the policy, or chance, would go, and up at the data.

    critic   L_Q = E[ Σ_i (y - Q_i(s, a))² + α ω (G_i(s, a) - κ) ]                                              `CQL.critic_loss`
             G_i(s, a) = log Σ_k exp(Q_i(s, a_k)) / p(a_k) - Q_i(s, a)                                           `CQL.gap`
             a_k: N each uniform, of π(s) and of π(s'); p their density
    goal     y = r + γ min_j Q'_j(s', a'),    a' ~ π(s')                                                         `CQL.goal`
    dual     L_α = E[ -α ω mean_i (G_i - κ) ]: α grows while the gap is above κ
    actor and temperature as in `sac.py`

Symbols   ω = `conservative_weight`, κ = `alpha_threshold`, N = `n_action_samples`, α = 1, or learnt from `initial_alpha`.
When      Data that cover much, as replay buffers, and tasks in which good parts of episodes must be put together. ω has to be
          tuned; an update costs that of several SACs.
Paper     Kumar, Zhou, Tucker, Levine: Conservative Q-Learning for Offline RL, NeurIPS 2020, arXiv:2006.04779.
Code      github.com/aviralkumar2907/CQL, d4rl/rlkit/torch/sac/cql.py, commit d67dbe9 (MIT). Read, not copied.
Choices   1. ω is fixed by default, at 5, as in the README's command for MuJoCo; `learn_alpha` adds the dual variable, which the
             code's script has by default, with ω = 1 and a bound of 5, and d3rlpy too.
          2. `importance_sampling=False` is the code's version 2: densities left out, and Q of the data's action among the a_k.
          3. `backup`: "sampled" is what the code calls deterministic; "mode" is d3rlpy's; "soft" has SAC's entropy; "max" takes the
             best of N: max_k min_i Q'_i, as in d3rlpy and Cal-QL, where the code has min_i max_k.
          4. Order: critic and α in one step from the same draws; actor and temperature, from one draw too; target. The code steps
             the temperature first, which actor and critic then see, and works out the actor's loss before the critic steps; in
             d3rlpy 2.8.1 the critic sees α after its step, and the actor the temperature.
          5. The constant -log(3 N) of the mean over a_k is left out, as in code and d3rlpy: it moves no gradient but α's. Terms
             below e⁻⁶⁰ of the sum's largest have no gradient, which keeps CPUs fast and changes nothing else: `log_sum_exp`.
          6. α rises no further than 1e6, as in the code, where it stays for ever once it is beyond, for a clamp has no gradient.
          7. `cloning_steps`: the code's actor first clones the data, with log π(a|s) in place of Q; d3rlpy's does not. No tanh
             reaches ±1, where many actions of Hopper's expert lie: bounds a tenth wider cloned it far better: hopper-cql.
          8. κ bounds G, as in d3rlpy 2.8.1, CORL and Cal-QL. In the code and d3rlpy 1 it bounds ω G: theirs is ω times this.
          9. log σ is clipped to -20 and 2, as in d3rlpy; the code has -5 and 2, and so have its presets.
         10. ω stays as it is when training goes on online; `set_params(conservative_weight=…)` lowers it there.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Preset, sourced
from ..definition import LossValue, Network, Verbs, loss
from ..losses.prices import price_loss
from ..losses.sampled_actions import apart, log_sum_exp, repeated
from ..nets import Hyper, Nets
from ..networks.encoders import VectorEncoder
from ..networks.perceptrons import Temperature
from ..networks.q_functions import Values, as_values, reduced
from ..optimizers import Adam, Optimizer
from ..presets import TaskPresets
from .sac import SAC, SACConfig

CODE = "CQL's code d67dbe9, d4rl/examples/cql_mujoco_new.py"
README = "CQL's code d67dbe9, README"
TABLE = "Seno and Imai 2021, Table 4; d3rlpy 1.0.0, algos/torch/cql_impl.py, for the goal"
D3RLPY = "d3rlpy 2.8.1, algos/qlearning/cql.py"
THREE = dict.fromkeys(("actor_encoder", "critic_encoder"), VectorEncoder(hidden_units=(256, 256, 256)))
PAPER: dict[str, Any] = {"cloning_steps": 40_000, "log_std_bounds": (-5.0, 2.0), **THREE}
OF_ALPHA = ("alpha_learning_rate", "alpha_optimizer", "initial_alpha", "alpha_threshold")
_LARGEST = 1e6


@sourced(CODE, "critic_learning_rate", "n_critics", "tau")
class CQLConfig(SACConfig):
    actor_learning_rate: float = setting(1e-4, "of the policy", source=CODE, gt=0)
    temp_learning_rate: float = setting(1e-4, "of the temperature", source=CODE, gt=0)
    alpha_learning_rate: float = setting(3e-4, "of α", source=CODE, gt=0)
    alpha_optimizer: Optimizer = setting(Adam(), "what steps α", source=CODE)
    learn_alpha: bool = setting(False, "whether α is learnt; else it stays 1", source=README)
    initial_alpha: float = setting(1.0, "first value of a learnt α", source=D3RLPY, gt=0)
    alpha_threshold: float = setting(10.0, "κ: gap at which a learnt α rests", source=f"{D3RLPY}; choice 8")
    conservative_weight: float = setting(5.0, "ω: weight of the gap", source=f"{README}: MuJoCo, 5 or 10", ge=0)
    n_action_samples: int = setting(10, "N: actions of each of the three kinds", source=CODE, gt=0)
    importance_sampling: bool = setting(True, "whether exp(Q) is divided by the density of its action", source=CODE)
    cloning_steps: int = setting(0, "gradient steps in which the actor clones the data", source=D3RLPY, ge=0)
    backup: Literal["sampled", "mode", "soft", "max"] = setting("sampled", "which next action the goal has", source=CODE)


class CQL(SAC):
    """CQL, offline or online. Data: continuous actions in [-1, 1] after the action scaler. ω and κ depend on the reward's unit."""

    Config: ClassVar = CQLConfig
    compiled_from: ClassVar = None  # products bound it
    warm_up: ClassVar = "cloning_steps"
    exemptions: ClassVar = {
        **dict.fromkeys(OF_ALPHA, "only learn_alpha has an α"),
        "terminated_steps_look_no_further": "the gap's sum has the policy's actions of s', which are judged at s",
    }
    presets: ClassVar = {
        "paper": Preset(f"{CODE} and README; ω is 5 or 10", PAPER),
        "d3rlpy": Preset(D3RLPY, {"learn_alpha": True, "alpha_learning_rate": 1e-4, "backup": "mode"}),
        "d3rlpy-2020": Preset(
            "d3rlpy's manual of October 2020, whose sum, a mean, has none of π(s'): κ is its 10 and log(3 N); in 0.32 α ≤ e²",
            {
                "batch_size": 100,
                "actor_learning_rate": 3e-5,
                "temp_learning_rate": 3e-5,
                "learn_alpha": True,
                "initial_alpha": 5.0,
                "alpha_threshold": 10 + math.log(30),
                "conservative_weight": 1.0,
                "backup": "soft",
            },
        ),
        "d3rlpy-paper": Preset(TABLE, {"backup": "mode", **THREE}),
    } | TaskPresets(__file__, CQLConfig)

    # ---- CQL(H)

    def critic(self, learner: Verbs, batch: Batch) -> None:
        """With α, where it is learnt; choice 4."""
        learner.minimise(self.critic_loss, ("critic", "alpha") if self.config_.learn_alpha else "critic", batch)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Q of each member and sample, [members, B]; and L_α, if α is learnt: neither has a gradient in the other's network."""
        loss, metrics = super().critic_loss(nets, batch, h)
        gap = self.gap(nets, batch)
        metrics = {**metrics, "gap": gap.detach().mean(0)}
        if not self.config_.learn_alpha:
            return loss + h.conservative_weight * gap, metrics
        excess = h.conservative_weight * (gap - h.alpha_threshold)
        alpha, alpha_loss = self.dual(nets, excess.detach(), h)
        return loss + alpha * excess + alpha_loss, {**metrics, "alpha": alpha}

    def gap(self, nets: Nets, batch: Batch) -> Tensor:
        """G of each member and sample, [members, B]."""
        high, data = self.sides(nets, batch)
        return high - data

    def sides(self, nets: Nets, batch: Batch) -> tuple[Tensor, Tensor]:
        """The sum over the a_k, and Q(s, a), [members, B] each; one pass of the critics sees all actions of a state."""
        actions, density = self.candidates(nets, batch)
        n = len(actions) + 1
        seen, asked = repeated(batch.observation, n), torch.cat((actions, batch.action[None])).flatten(0, 1)
        values = self.counted(apart(nets.critic(seen, asked), n), batch)
        others, data = values[:, :-1], values[:, -1]
        terms = others - density if self.config_.importance_sampling else values  # else the data's action is one of them
        return log_sum_exp(terms, 1), data

    @torch.no_grad()  # the policy is not what this loss trains
    def candidates(self, nets: Nets, batch: Batch) -> tuple[Tensor, Tensor]:
        """The a_k, [3 N, B, A], and log p of each, [3 N, B]."""
        shape = (self.config_.n_action_samples, *batch.action.shape)
        anywhere = 2 * nets.uniform("action anywhere", shape) - 1
        here, density_here = self.drawn(nets, batch.observation, "action here", shape)
        there, density_there = self.drawn(nets, batch.next_observation, "action there", shape)
        density_anywhere = torch.full_like(density_here, -math.log(2) * shape[-1])
        return torch.cat((anywhere, here, there)), torch.cat((density_anywhere, density_here, density_there))

    def counted(self, values: Tensor, batch: Batch) -> Tensor:
        """Q of N uniform actions, of 2 N of the policy and of the data's, [members, 3 N + 1, B], as the gap has them."""
        return values

    def drawn(self, nets: Nets, observation: Tensor, name: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Actions of the policy and their log densities: of a shape [N, B, A], N for each state."""
        return nets.policy(observation).sample_with_log_prob(nets.noise(name, shape))

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        """y; choice 3."""
        if self.config_.backup == "soft":
            return super().goal(nets, batch, h)
        if self.config_.backup == "max":
            return self.best_of_draws(nets, batch) * batch.discount + batch.reward
        following = reduced(nets.target.critic.distribution(batch.next_observation, self.next_action(nets, batch)), "min")
        return following * batch.discount + batch.reward

    # ---- options

    def next_action(self, nets: Nets, batch: Batch) -> Tensor:
        """a', [B, A]: a draw, or the policy's mode of `backup="mode"`."""
        if self.config_.backup == "mode":
            return nets.policy(batch.next_observation).mode()
        return self.drawn(nets, batch.next_observation, "next action", batch.action.shape)[0]

    def best_of_draws(self, nets: Nets, batch: Batch) -> Values:
        n = self.config_.n_action_samples
        action, _ = self.drawn(nets, batch.next_observation, "next action", (n, *batch.action.shape))
        values = nets.target.critic(repeated(batch.next_observation, n), action.flatten(0, 1))
        return as_values(apart(reduced(values, "min"), n).amax(0))

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        networks = super().networks(spec, config)
        if config.learn_alpha:
            networks["alpha"] = Network(Temperature(), "alpha_learning_rate", optimizer=config.alpha_optimizer)
        return networks

    def dual(self, nets: Nets, excess: Tensor, h: Hyper) -> tuple[Tensor, Tensor]:
        """`learn_alpha`: α without a gradient, (), and L_α, of which members bear equal shares, [members, B]; choice 6."""
        price = h.initial_alpha * nets.alpha()
        return price.detach().clamp(max=_LARGEST), price_loss(price, excess, 0.0, _LARGEST) / len(excess)

    def schedule(self, step: int) -> tuple[str, ...]:
        kinds = super().schedule(step)
        return tuple("clone" if kind == "actor" else kind for kind in kinds) if step < self.config_.cloning_steps else kinds

    def clone(self, learner: Verbs, batch: Batch) -> None:
        """In place of the actor for the first `cloning_steps`; choice 7."""
        learner.minimise(self.cloning_loss, ("policy", "temperature") if self.config_.learn_temperature else "policy", batch)

    @loss("sample")
    def cloning_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """SAC's L_π with log π(a|s) for Q, and L_α, [B]."""
        policy, alpha = nets.policy(batch.observation), self.temperature(nets, h)
        _, log_prob = policy.sample_with_log_prob(nets.noise("action", batch.action.shape))
        loss = alpha.detach() * log_prob - policy.log_prob(batch.action)
        if self.config_.learn_temperature:
            loss = loss + self.temperature_loss(alpha, log_prob.detach(), h)
        return loss, {"entropy": -log_prob, "temperature": alpha}
