"""PFRL's users at home: agents that are told what they see and answer what to do, PFRL's drivers of them, and its run folders.

    import d3ray.pfrl as pfrl

    agent = pfrl.Agent(d3ray.DQN(...), env)
    pfrl.experiments.train_agent_with_evaluation(agent, env, steps=50_000, …)

Names and arguments of what is here are PFRL 0.4.0's; what learns is d3ray's. docs/migrating.md has what is told otherwise, and why.
"""

from __future__ import annotations

from . import experiments as experiments
from .agent import Agent as Agent
