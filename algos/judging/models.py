"""What a model of the dynamics is worth on episodes that it has not seen, and what a policy returns in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.random import fold, normal, root_key, uniform
from ..dynamics.model import Model

STEPS = (1, 5, 10, 25)
LEVELS = (0.5, 0.9)
_COVERED = tuple(f"coverage_{round(100 * level)}" for level in LEVELS)
_MOST = 2048  # starts that are looked at, evenly spread over the data


def judged_model(model: Model, data: Dataset) -> dict[str, float]:
    """`error_K` after K steps, as far as episodes last, and `coverage_P` of the central P % of what was expected."""
    errors = step_errors(model, data, min(STEPS[-1], int(np.max(data.episodes.steps))))
    told = {f"error_{k}": float(errors[k - 1]) for k in STEPS if k <= len(errors)}
    return told | dict(zip(_COVERED, coverage(model, data, LEVELS), strict=True))


def names_of_model(longest: int) -> list[str]:
    """Name what `judged_model` measures on data whose longest episode has so many steps."""
    return [*(f"error_{k}" for k in STEPS if k <= longest), *_COVERED]


@torch.no_grad()
def step_errors(model: Model, data: Dataset, horizon: int) -> np.ndarray:
    """The root mean squared error of what is expected after 1 … `horizon` steps of the recorded actions, [horizon].

    A state goes on as the mean of what members expect. Each entry counts in its deviations over the data, so that 1 is about what
    the data's mean would be worth. Starts are those with so many steps before them; where there is none, fewer steps are told.
    """
    first, known = _known(data)
    horizon = min(horizon, int(known.max()))
    starts = np.concatenate([row + np.arange(max(n - horizon + 1, 0)) for row, n in zip(first, known, strict=True)])
    starts = starts[:: max(1, -(-len(starts) // _MOST))]
    seen, action = (_column(data, name, model) for name in ("observation", "action"))
    scale = seen.std(0).clamp(min=1e-8)
    state, errors = seen[starts], list[Tensor]()
    for k in range(horizon):
        state = model(state, action[starts + k]).following.mean(0)
        errors.append(((state - seen[starts + k + 1]) / scale).square().mean().sqrt())
    return torch.stack(errors).cpu().numpy()


@torch.no_grad()
def coverage(model: Model, data: Dataset, levels: tuple[float, ...]) -> list[float]:
    """Give for each level how often the entries and the reward that came lay in that central share of what was expected.

    What was expected is the mixture of the members' normal distributions. Of a calibrated model each share is its level; below it
    the model is too sure of itself (Kuleshov et al. 2018, arXiv:1807.00263).
    """
    first, known = _known(data)
    at = np.concatenate([row + np.arange(n) for row, n in zip(first, known, strict=True)])
    at = at[:: max(1, -(-len(at) // _MOST))]
    seen, action, reward = (_column(data, name, model) for name in ("observation", "action", "reward"))
    found = model(seen[at], action[at])
    came = torch.cat((seen[at + 1], reward[at, None]), -1)
    below = torch.special.ndtr((came - found.mean) / found.deviation).mean(0)  # the mixture's distribution function there
    return [float(((below - 0.5).abs() <= level / 2).double().mean()) for level in levels]


def _known(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each episode, and of how many of its steps the next observation was recorded, [E] each."""
    episodes = data.episodes
    return np.asarray(episodes.first_row, np.int64), np.asarray(episodes.steps, np.int64) - ~np.asarray(episodes.final_recorded)


def _column(data: Dataset, name: str, model: Model) -> Any:
    rows = torch.from_numpy(np.ascontiguousarray(data.columns[name])).to(model.units.device)
    return rows.to(model.dtype) if rows.is_floating_point() else rows


@torch.no_grad()
def model_returns(
    model: Model, policy: Any, dataset: Dataset, gamma: float, *, horizon: int | None = None, seed: int = 0
) -> np.ndarray:
    """Discounted returns of a policy in each member of a model, [members, episodes].

    Each rollout begins at an episode's first observation and stays within a member, which draws what follows (PETS' TS∞, Chua et
    al. 2018, section 5.2). It ends where the MDP does, and else after as many steps as the longest recorded episode has: nothing
    is counted beyond. Members of an ensemble that learned from little are apart, which shows in part how wrong they may be.

    Args:
        model: As `ProbabilisticEnsemble.model` gives it.
        policy: As `decisions.policy_of` gives it; it acts greedily.
        dataset: The logs.
        gamma: γ.
        horizon: Steps at most; None: of the longest episode.
        seed: Of the draws.

    Raises:
        ConfigError: the policy remembers what came before.
    """
    if policy.start(1) is not None or getattr(policy, "frames", 1) > 1:
        raise ConfigError("A policy that remembers cannot be followed in a model of single steps.")
    key = fold(root_key(seed), "model returns")
    steps = np.asarray(dataset.episodes.steps, np.int64)
    rows = np.cumsum(steps + 1) - (steps + 1)
    starts = torch.as_tensor(np.asarray(dataset.columns["observation"])[rows])
    members, n = model.members, len(starts)
    which = torch.arange(members).repeat_interleave(n)  # each rollout's member
    state, total = starts.repeat(members, 1), np.zeros(members * n)
    alive, discount = np.ones(members * n, bool), 1.0
    for t in range(int(steps.max()) if horizon is None else horizon):
        _, action = policy.step(None, state.numpy())
        found = model(state, torch.as_tensor(action))
        now = fold(key, t)
        noise = normal(fold(now, "outcome"), (len(state), state.shape[1] + 1)).to(found.deviation.dtype)
        following, reward, end = found.drawn(which, noise)
        ended = model.ends(following, end, uniform(fold(now, "end"), (len(state),)))
        total += discount * np.where(alive, reward.double().numpy(), 0.0)
        alive &= ~ended.numpy()
        state, discount = following.to(starts.dtype), discount * gamma
        if not alive.any():
            break
    return total.reshape(members, n)
