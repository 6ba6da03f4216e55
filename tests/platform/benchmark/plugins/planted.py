"""A plugin: faults of the kind that a change of d3ray might bring, of which `D3RAY_PLANTED` names one."""

from __future__ import annotations

import os
from typing import Any

import torch

from d3ray.algos.acting.policy import PolicyModule
from d3ray.algos.actor_critic.ddpg import DDPG
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.learning.learner import Learner
from d3ray.algos.values.dqn import DQN
from d3ray.data.sampling.gather import Gather


def no_target_network() -> None:
    """The goal is judged by the critic that is being trained."""

    def schedule(self: Any, step: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*before[type(self).__name__](self, step), "targets")))

    def targets(self: Any, learner: Learner, batch: Any) -> None:
        for name in learner.target:
            learner.copy(name)

    before = {"DQN": DQN.schedule, "TD3": TD3.schedule}
    for algorithm in (DQN, TD3):
        algorithm.schedule = schedule
    for algorithm in (DQN, DDPG):
        algorithm.targets = targets


def shifted_rewards() -> None:
    """A step has the reward of the one before it."""
    reward = Gather.reward
    Gather.reward = lambda self, rows: reward(self, (rows - 1).clamp(min=0))


def ignored_terminals() -> None:
    """Episodes that ended are looked at as if they went on."""
    take = Gather.take

    def blind(self: Any, name: str, rows: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(rows, dtype=torch.bool) if name == "terminated" else take(self, name, rows)

    Gather.take = blind


def scaled_actions() -> None:
    """Policies act in the units that they were trained in."""
    PolicyModule.raw = lambda self, action: action


def second_best() -> None:
    """DQN learns as it should, and its policy takes the action after the best one."""
    act = DQN.act
    DQN.act = lambda self, nets, observation: (act(self, nets, observation) + 1) % 2  # CartPole has two


if planted := os.environ.get("D3RAY_PLANTED"):
    faults = (no_target_network, shifted_rewards, ignored_terminals, scaled_actions, second_best)
    {fault.__name__: fault for fault in faults}[planted]()
