r"""Implicit Q-learning for discrete actions (DiscreteIQL): IQL with a policy that is a softmax.

    value    L_V = E[ |ε - 1(u < 0)| u² ],    u = min_i Q̂_i(s, a) - V(s)                           `IQL.value_loss`
    critic   L_Q = E[ Σ_i (r + γ V(s') - Q_i(s, a))² ]                                              `IQL.critic_loss`
    actor    L_π = E[ -min(exp(β u), w) log π(a|s) ],    π(a|s) = softmax_a f(s)                    `IQL.actor_loss`

A critic has a value for each action, and is asked about the data's alone. The likeliest action acts, and draws of π explore.

Symbols   As in `iql.py`: ε = `expectile`, β = `weight_temp`, w = `max_weight`; Q̂ is the target critic, f(s) the policy's logits.
When      Discrete actions and data of mixed quality that do not cover all actions, where DQN believes in what it never saw; before
          training online.
Paper     Kostrikov, Nair, Levine: Offline Reinforcement Learning with Implicit Q-Learning, 2021, arXiv:2110.06169, whose losses
          ask of actions only that Q and π can be read at them. Its experiments are of continuous ones.
Choices   1. As choices 1 to 3 and 6 of `iql.py`, with its defaults, which are the authors' for continuous actions.
"""

from __future__ import annotations

from typing import ClassVar

from ...data.config import setting
from ..critics import DiscreteCritics, SoftmaxActor
from ..networks.q_functions import Mean, MeanQFunction
from .iql import IQL, ExpectileConfig, WeightedConfig


class DiscreteIQLConfig(ExpectileConfig, WeightedConfig):
    q_function: MeanQFunction = setting(Mean(loss="squared"), "what critics estimate: mean, or a distribution of the return")


class DiscreteIQL(SoftmaxActor, DiscreteCritics, IQL):
    """IQL for discrete actions, offline or online. β is in 1/reward: another unit of the reward is another β."""

    Config: ClassVar = DiscreteIQLConfig
    actions: ClassVar = "discrete"
    presets: ClassVar = {}
