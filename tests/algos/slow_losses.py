"""Losses of algorithms that no peer has, sample by sample, from their equations alone: nothing here is d3ray's.

The tests hold each loss against these in float64, and `benchmarks/fidelity_slow.py` whole updates. A network is a function
`run(kind, name, x, member)` of one vector: what the last affine layer of a "live" or a "target" network makes of it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Run = Callable[..., Tensor]


@dataclass(frozen=True)
class Sample:
    """One transition: vectors, numbers, and γ, or 0 where the episode terminated."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    discount: Tensor


def samples(batch: Any) -> list[Sample]:
    """The transitions of a batch, or of whatever has its columns."""
    columns = (getattr(batch, name) for name in Sample.__dataclass_fields__)
    return [Sample(*parts) for parts in zip(*columns, strict=True)]


def beside(*parts: Tensor) -> Tensor:
    return torch.cat(parts)


def critics(run: Run, kind: str, seen: Tensor, action: Tensor, n: int) -> list[Tensor]:
    """Q_i(s, a) of n members."""
    return [run(kind, "critic", beside(seen, action), member)[0] for member in range(n)]


# ---- SAC-N and EDAC


def squashed(output: Tensor, noise: Tensor, low: float = -20.0, high: float = 2.0) -> tuple[Tensor, Tensor]:
    """A draw of N(μ, σ²) through tanh, and its log density."""
    mean, log_std = output.chunk(2)
    log_std = log_std.clamp(low, high)
    action = (mean + log_std.exp() * noise).tanh()
    density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - (1 - action**2).log()
    return action, density.sum()


def soft_critic(run: Run, one: Sample, noise: Tensor, temperature: float, n: int, low: float = -20.0) -> Tensor:
    """Σ_i (r + γ (min_j Q'_j(s', a') - α log π(a'|s')) - Q_i(s, a))²."""
    with torch.no_grad():
        action, log_prob = squashed(run("live", "policy", one.next_observation), noise, low)
        following = min(critics(run, "target", one.next_observation, action, n)) - temperature * log_prob
        goal = one.reward + one.discount * following
    return sum((goal - value) ** 2 for value in critics(run, "live", one.observation, one.action, n))


def soft_actor(run: Run, one: Sample, noise: Tensor, log_temperature: Tensor, n: int, low: float = -20.0) -> Tensor:
    """α log π(ã|s) - min_i Q_i(s, ã), and of the temperature -α (log π(ã|s) - A)."""
    action, log_prob = squashed(run("live", "policy", one.observation), noise, low)
    alpha = log_temperature.exp()
    price = -alpha * (log_prob.detach() - len(one.action))
    return alpha.detach() * log_prob - min(critics(run, "live", one.observation, action, n)) + price


def alikeness(run: Run, one: Sample, n: int) -> Tensor:
    """1/(N - 1) Σ_{i≠j} ⟨g_i, g_j⟩ of the directions in which critics rise at the data's action."""
    action, directions = one.action.clone().requires_grad_(), []
    for value in critics(run, "live", one.observation, action, n):
        (slope,) = torch.autograd.grad(value, action, create_graph=True)
        directions.append(slope / slope.norm())
    return sum(directions[i] @ directions[j] for i in range(n) for j in range(n) if i != j) / (n - 1)


# ---- MCQ and SPOT


def rebuilt(run: Run, seen: Tensor, action: Tensor, noise: Iterable[Tensor], beta: float) -> Tensor:
    """(a - D(s, z))² + β KL(q(z|s, a) ‖ N(0, 1)), means over entries and over the draws of z."""
    mean, log_std = run("live", "vae_encoder", beside(seen, action)).chunk(2)
    log_std = log_std.clamp(-4, 15)
    latents = [mean + log_std.exp() * numbers for numbers in noise]
    again = [run("live", "vae_decoder", beside(seen, latent)).tanh() for latent in latents]
    divergence = (0.5 * (mean**2 + (2 * log_std).exp() - 1) - log_std).mean()
    return sum(((action - a) ** 2).mean() for a in again) / len(again) + beta * divergence


def held(run: Run, seen: Tensor, noise: Tensor, latents: Tensor, n: int, floor: bool = False) -> tuple[Tensor, Tensor]:
    """MCQ's mean over own actions a' of Σ_i (Q_i(s, a') - y')², and y' = min_i max_k Q_i(s, D(s, z_k))."""
    with torch.no_grad():
        own = [squashed(run("live", "policy", seen), numbers)[0] for numbers in noise]
        done = [run("live", "vae_decoder", beside(seen, latent.clamp(-0.5, 0.5))).tanh() for latent in latents]
        values = [critics(run, "live", seen, action, n) for action in done]
        best = min(max(value[member] for value in values) for member in range(n))
        best = best.clamp(min=0) if floor else best
    return sum((value - best) ** 2 for action in own for value in critics(run, "live", seen, action, n)) / len(own), best


def smoothed(run: Run, one: Sample, noise: Tensor, sigma: float = 0.2, clip: float = 0.5) -> Tensor:
    """TD3's Σ_i (r + γ min_j Q'_j(s', ã) - Q_i(s, a))², ã = clip(π'(s') + clip(σ ε, ±c), ±1), of two critics."""
    with torch.no_grad():
        moved = run("target", "policy", one.next_observation).tanh() + (sigma * noise).clamp(-clip, clip)
        goal = one.reward + one.discount * min(critics(run, "target", one.next_observation, moved.clamp(-1, 1), 2))
    return sum((goal - value) ** 2 for value in critics(run, "live", one.observation, one.action, 2))


def supported(
    run: Run, batch: Sequence[Sample], noise: Sequence[Tensor], weight: float, beta: float
) -> tuple[list[Tensor], list[Tensor]]:
    """SPOT's λ N(s, π(s)) - Q_1(s, π(s)) / mean |Q_1| of each sample, and N."""
    actions = [run("live", "policy", one.observation).tanh() for one in batch]
    values = [critics(run, "live", one.observation, action, 1)[0] for one, action in zip(batch, actions, strict=True)]
    size = sum(abs(value.detach()) for value in values) / len(values)
    prices = [
        rebuilt(run, one.observation, action, numbers, beta) for one, action, numbers in zip(batch, actions, noise, strict=True)
    ]
    return [weight * price - value / size for price, value in zip(prices, values, strict=True)], prices


# ---- XQL


def advantage(run: Run, one: Sample, action: Tensor) -> Tensor:
    """min_i Q̂_i(s, a) - V(s)."""
    return min(critics(run, "target", one.observation, action, 2)).detach() - run("live", "value", one.observation)[0]


def gumbel(
    run: Run, batch: Sequence[Sample], actions: Sequence[Sequence[Tensor]], temperature: float, clip: float | None
) -> tuple[list[Tensor], list[Tensor]]:
    """XQL's (exp(z) - z - 1) / exp(m) of each sample, the mean over its actions, and all z."""
    most = math.inf if clip is None else clip
    z = [
        [(advantage(run, one, action) / temperature).clamp(max=most) for action in its]
        for one, its in zip(batch, actions, strict=True)
    ]
    largest = max(-1.0, *(float(x.detach()) for its in z for x in its))
    losses = [sum((x.exp() - x - 1) / math.exp(largest) for x in its) / len(its) for its in z]
    return losses, [x for its in z for x in its]


def huber(run: Run, one: Sample, delta: float) -> Tensor:
    """Σ_i huber_δ(r + γ V(s') - Q_i(s, a)) of two critics."""
    goal, total = one.reward + one.discount * run("live", "value", one.next_observation)[0].detach(), 0.0
    for value in critics(run, "live", one.observation, one.action, 2):
        x = abs(goal - value)
        total = total + (0.5 * x * x if x <= delta else delta * x - 0.5 * delta * delta)
    return total


# ---- regression weighted by advantages


def normal(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """The logarithm of N(a; μ, σ²), over all entries."""
    return (-0.5 * ((action - mean) / log_std.exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)).sum()


def lambda_return(value: Callable[[Any], Any], rewards: Any, seen: Any, ended: bool, gamma: float, lam: float) -> Any:
    """AWR's R of the first step: backwards over the steps that are looked at. `seen` has one more; past a terminal is nothing."""
    following = 0.0 if ended else value(seen[-1])
    total = following
    for k in reversed(range(len(rewards))):
        here = 0.0 if ended and k == len(rewards) - 1 else value(seen[k + 1])
        total = rewards[k] + gamma * ((1 - lam) * here + lam * total)
    return total


def weights(advantages: Tensor, beta: float, most: float, normalize: bool = True) -> Tensor:
    """AWR's min(exp(Â / β), w) of all samples of a batch, where Â is A less its mean over its deviation, or A."""
    if normalize:
        apart = advantages - advantages.mean()
        advantages = apart / ((apart**2).mean().sqrt() + 1e-5)
    return (advantages / beta).exp().clamp(max=most)


# ---- actions that are one of n


def chosen(run: Run, kind: str, seen: Tensor, action: Tensor, n: int) -> list[Tensor]:
    """Q_i(s, a) of n members, each of which has a value for every action."""
    return [run(kind, "critic", seen, member)[int(action)] for member in range(n)]


def log_share(run: Run, seen: Tensor, action: Tensor) -> Tensor:
    """The logarithm of π(a|s), of a softmax."""
    logits = run("live", "policy", seen)
    return logits[int(action)] - sum(logit.exp() for logit in logits).log()


def chosen_towards(run: Run, one: Sample, following: Tensor, n: int) -> Tensor:
    """Σ_i (r + γ V - Q_i(s, a))²."""
    goal = (one.reward + one.discount * following).detach()
    return sum((goal - value) ** 2 for value in chosen(run, "live", one.observation, one.action, n))


def expected_value(run: Run, kind: str, seen: Tensor, values: Tensor) -> Tensor:
    """Σ_a π(a|s) Q(s, a)."""
    shares = run(kind, "policy", seen).exp()
    return sum(p * value for p, value in zip(shares / shares.sum(), values, strict=True))
