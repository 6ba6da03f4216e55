r"""Estimates of returns and advantages from rollouts, for all on-policy algorithms.

A rollout has T steps of n environments, tensors [T, n] in order. At each step the episode may have ended: by the MDP (terminated,
so nothing follows) or cut (by a time limit, or because the rollout ends there), where the value of what followed stands for the
rest. d_t = γ (1 - terminated_t) is `discount`, c_t is `ends`: 1 where the next row is of another episode, and of the last row.

    residual     δ_t = r_t + d_t V(s'_t) - V(s_t)
    GAE          Â_t = δ_t + γ λ (1 - c_t) Â_{t+1}                            Schulman et al. 2016, arXiv:1506.02438, equation 16
    TD(λ)        G_t = Â_t + V(s_t)
    n steps      GAE with λ = 1: r_t + γ r_{t+1} + … + d V(s'), as far as the episode goes in the rollout
    Monte Carlo  G_t = r_t + γ (1 - c_t) G_{t+1}, where every episode is there to its end
    Retrace      Q_t = r_t + d_t (V(s'_t) + (1 - c_t) ρ_{t+1} (Q_{t+1} - Q(s_{t+1}, a_{t+1})))
                 Munos et al. 2016, arXiv:1606.02647; ρ truncated at 1: Wang et al. 2017, arXiv:1611.01224, equation 5
"""

from __future__ import annotations

import torch
from torch import Tensor


def advantages(reward: Tensor, value: Tensor, following: Tensor, discount: Tensor, ends: Tensor, decay: Tensor | float) -> Tensor:
    """Generalised advantages Â, [T, n].

    Args:
        reward: r, [T, n], and so are the others.
        value: V(s).
        following: V(s'), of what was really seen next, at ends too.
        discount: γ (1 - terminated).
        ends: Bool: whether the next row goes on with something else.
        decay: γ λ; 0 gives the residuals, γ the returns of n steps less the values.
    """
    residual = reward + discount * following - value
    return _backwards(residual, decay * (~ends).to(residual.dtype))


def returns(reward: Tensor, ends: Tensor, gamma: Tensor | float) -> Tensor:
    """Monte-Carlo returns G, [T, n], of episodes that are there to their ends."""
    return _backwards(reward, gamma * (~ends).to(reward.dtype))


def retrace(
    reward: Tensor, q_value: Tensor, following: Tensor, discount: Tensor, ends: Tensor, ratio: Tensor, largest: float = 1.0
) -> Tensor:
    """Retrace's goals for Q(s, a), [T, n].

    Args:
        reward: r, [T, n], and so are the others.
        q_value: Q(s, a) of what was done.
        following: V(s').
        discount: As `advantages`'.
        ends: As `advantages`'.
        ratio: ρ = π(a|s) / μ(a|s), of the policy that is judged over the one that acted.
        largest: Where ρ is cut off.
    """
    goal, after = torch.empty_like(reward), torch.zeros_like(reward[-1])
    for t in reversed(range(len(reward))):
        goal[t] = reward[t] + discount[t] * (following[t] + torch.where(ends[t], 0, after))
        after = ratio[t].clamp(max=largest) * (goal[t] - q_value[t])
    return goal


def _backwards(x: Tensor, share: Tensor) -> Tensor:
    """y_t = x_t + share_t y_{t+1}."""
    found = [x[-1]]
    for now, part in zip(reversed(x[:-1].unbind()), reversed(share[:-1].unbind()), strict=True):
        found.append(torch.addcmul(now, part, found[-1]))
    return torch.stack(found[::-1])
