"""Losses in JAX of policies that are told a goal, as those of `fidelity_jax.py`; networks see goal, state and action in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from fidelity_jax_nets import GAMMA, Arrays, Losses, Networks, expectile


def log_prob(mean: Any, x: Any) -> Any:
    """Of a normal distribution with deviation 1, [B]."""
    return jax.scipy.stats.norm.logpdf(x, mean).sum(-1)


def cloning(nets: Networks, batch: Any, weight: Any = 1.0) -> Any:
    return -(weight * log_prob(nets("policy", batch.actor_goal, batch.observation), batch.action)).mean()


def ddpg_bc(mean: Any, value: Any, batch: Any, h: Any) -> Losses:
    size = jax.lax.stop_gradient(jnp.abs(value).mean() + 1e-6)
    return {"q": -value.mean() / size, "bc": -h.alpha * log_prob(mean, batch.action).mean()}


def capped(advantage: Any, alpha: float) -> Any:
    return jnp.minimum(jnp.exp(alpha * advantage), 100.0)


def ivl(values: Callable[..., Any], trained: Networks, kept: Networks, batch: Any, h: Any) -> Any:
    """L_V of values(nets, seen, goal, kind), [2, B]."""
    target = GAMMA * (1 - batch.terminated) * values(kept, batch.next_observation, batch.goal, "target") + batch.reward
    advantage = target.min(0) - values(kept, batch.observation, batch.goal, "target").mean(0)
    weight = jnp.where(advantage >= 0, h.expectile, 1 - h.expectile)
    return (weight * jnp.square(target - values(trained, batch.observation, batch.goal, "live"))).sum(0).mean()


def gcbc(trained: Networks, kept: Networks, batch: Any, drawn: Arrays, h: Any) -> Losses:
    return {"actor": cloning(trained, batch)}


def plain_values(nets: Networks, seen: Any, goal: Any, kind: str = "live") -> Any:
    return jnp.stack([nets("value", goal, seen, kind=kind, member=k)[:, 0] for k in range(2)])


def gcivl(trained: Networks, kept: Networks, batch: Any, drawn: Arrays, h: Any) -> Losses:
    near, far = (plain_values(kept, seen, batch.actor_goal).mean(0) for seen in (batch.next_observation, batch.observation))
    return {
        "value": ivl(plain_values, trained, kept, batch, h),
        "actor": cloning(trained, batch, capped(near - far, h.alpha)),
    }


def critics(nets: Networks, seen: Any, action: Any, goal: Any, kind: str = "live") -> Any:
    return jnp.stack([nets("critic", goal, seen, action, kind=kind, member=k)[:, 0] for k in range(2)])


def gciql(trained: Networks, kept: Networks, batch: Any, drawn: Arrays, h: Any) -> Losses:
    seen, goal = batch.observation, batch.goal
    least = critics(kept, seen, batch.action, goal, "target").min(0)
    target = batch.reward + GAMMA * (1 - batch.terminated) * kept("value", goal, batch.next_observation)[:, 0]
    found = {
        "value": expectile(least - trained("value", goal, seen)[:, 0], h.expectile).mean(),
        "critic": jnp.square(critics(trained, seen, batch.action, goal) - target).sum(0).mean(),
    }
    if h.extraction == "awr":
        worth = critics(kept, seen, batch.action, batch.actor_goal).min(0) - kept("value", batch.actor_goal, seen)[:, 0]
        return found | {"q": cloning(trained, batch, capped(worth, h.alpha)), "bc": 0.0}
    mean = trained("policy", batch.actor_goal, seen)
    return found | ddpg_bc(mean, critics(kept, seen, jnp.clip(mean, -1, 1), batch.actor_goal).min(0), batch, h)


def representation(nets: Networks, seen: Any, goal: Any) -> Any:
    x = nets("representation", goal, seen)
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True) * jnp.sqrt(x.shape[-1])


def hiql_values(nets: Networks, seen: Any, goal: Any, kind: str = "live") -> Any:
    shown = representation(nets, seen, goal)
    return jnp.stack([nets("value", seen, shown, kind=kind, member=k)[:, 0] for k in range(2)])


def hiql(trained: Networks, kept: Networks, batch: Any, drawn: Arrays, h: Any) -> Losses:
    def gain(there: Any, goal: Any) -> Any:
        return hiql_values(kept, there, goal).mean(0) - hiql_values(kept, batch.observation, goal).mean(0)

    low = trained("policy", batch.observation, representation(kept, batch.observation, batch.low_goal))
    high = trained("high_policy", batch.high_goal, batch.observation)
    subgoal = representation(kept, batch.observation, batch.high_target)
    low_weight = capped(gain(batch.next_observation, batch.low_goal), h.low_alpha)
    high_weight = capped(gain(batch.high_target, batch.high_goal), h.high_alpha)
    return {
        "value": ivl(hiql_values, trained, kept, batch, h),
        "low": -(low_weight * log_prob(low, batch.action)).mean(),
        "high": -(high_weight * log_prob(high, subgoal)).mean(),
    }


def halves(nets: Networks, seen: Any, action: Any, goal: Any) -> tuple[Any, Any]:
    """Of both critics, [2, B, d] each."""
    pair = jnp.concatenate((seen, action), -1)
    phi, psi = ([nets.half("critic", half, x, k) for k in range(2)] for half, x in (("state", pair), ("goal", goal)))
    return jnp.stack(phi), jnp.stack(psi)


def crl(trained: Networks, kept: Networks, batch: Any, drawn: Arrays, h: Any) -> Losses:
    phi, psi = halves(trained, batch.observation, batch.action, batch.goal)
    logits = jnp.einsum("eik,ejk->eij", phi, psi) / jnp.sqrt(phi.shape[-1])
    own = jnp.eye(logits.shape[-1])
    contrast = -(own * jax.nn.log_sigmoid(logits) + (1 - own) * jax.nn.log_sigmoid(-logits)).mean()
    mean = trained("policy", batch.actor_goal, batch.observation)
    phi, psi = halves(kept, batch.observation, jnp.clip(mean, -1, 1), batch.actor_goal)
    return {"critic": contrast, **ddpg_bc(mean, (phi * psi / jnp.sqrt(phi.shape[-1])).sum(-1).min(0), batch, h)}


def distance(nets: Networks, here: Any, there: Any) -> Any:
    """Of latents: lengths of unions of intervals, in each gap between neighbouring ends covered where some interval spans it."""
    x, y = (part.reshape(len(part), -1, 8) for part in (here, there))
    ends = jnp.sort(jnp.concatenate((x, y), -1), -1)
    left, right = ends[..., :-1, None], ends[..., 1:, None]
    covered = ((x[..., None, :] <= left) & (y[..., None, :] >= right)).any(-1)
    lengths = ((right - left)[..., 0] * covered).sum(-1)
    share = jax.nn.sigmoid(nets.weights["live/distance/0/mixture"])
    return share * lengths.mean(-1) + (1 - share) * lengths.max(-1)


def qrl(trained: Networks, kept: Networks, batch: Any, drawn: Arrays, h: Any) -> Losses:
    z, after, goal = (trained("distance", seen) for seen in (batch.observation, batch.next_observation, batch.goal))
    far, excess = distance(trained, z, goal), jnp.square(jax.nn.relu(distance(trained, z, after) - 1)).mean()
    price = jnp.exp(trained.weights["live/multiplier/0/log"])
    guess = z + trained("dynamics", z, batch.action)
    mean = trained("policy", batch.actor_goal, batch.observation)
    z_kept, aim = kept("distance", batch.observation), kept("distance", batch.actor_goal)
    ahead = z_kept + kept("dynamics", z_kept, jnp.clip(mean, -1, 1))
    return {
        "apart": (100 * jax.nn.softplus(5 - far / 100)).mean() + jax.lax.stop_gradient(price) * excess,
        "price": price * (h.margin - jax.lax.stop_gradient(excess)),
        "dynamics": (distance(trained, after, guess) + distance(trained, guess, after)).mean() / 2,
        **ddpg_bc(mean, -distance(kept, ahead, aim), batch, h),
    }


GOAL_LOSSES: dict[str, Callable[..., Losses]] = {
    "GCBC": gcbc,
    "GCIVL": gcivl,
    "GCIQL": gciql,
    "HIQL": hiql,
    "CRL": crl,
    "QRL": qrl,
}
