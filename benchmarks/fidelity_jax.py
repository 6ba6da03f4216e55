"""The side of the fidelity table that is written in JAX: updates of policies that are flows, from their equations alone.

As in the authors' code, an update is one compiled program: the gradients of all losses at once, and one step of optax's Adam. It is
in float32, on the weights, the batch and the numbers of a file, named as `fidelity_side.py` says; what our side drew is
`drawn/LOSS/NAME`. Networks are affine layers with JAX's GELU, after which critics and values have layer norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from workers import serve

GAMMA, TAU, RATE = 0.99, 0.005, 3e-4
EPSILON = 1e-5  # ours, which layer norm adds to the variance
Arrays = dict[str, Any]
Losses = dict[str, Any]


class Nets:
    """Networks whose weights are `live/…` and `target/…` of some arrays."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.weights = weights

    def __call__(self, network: str, *inputs: Any, kind: str = "live", member: int = 0) -> Any:
        place, x, layer = f"{kind}/{network}/{member}", jnp.concatenate(inputs, -1), 0
        while f"{place}/encoder.{layer}/weight" in self.weights:
            x = jax.nn.gelu(self.affine(f"{place}/encoder.{layer}", x))
            x = self.normalised(f"{kind}/{network}/0/encoder.layers.{3 * layer + 2}", x, member)
            layer += 1
        return self.affine(f"{place}/head", x)

    def affine(self, place: str, x: Any) -> Any:
        return x @ self.weights[f"{place}/weight"].T + self.weights[f"{place}/bias"]

    def normalised(self, place: str, x: Any, member: int) -> Any:
        """Layer norm, whose weights are those of all members, or x where there is none."""
        if f"{place}.weight" not in self.weights:
            return x
        gain, bias = (self.weights[f"{place}.{part}"].reshape(-1, x.shape[-1])[member] for part in ("weight", "bias"))
        apart = x - x.mean(-1, keepdims=True)
        return gain * apart / jnp.sqrt(jnp.square(apart).mean(-1, keepdims=True) + EPSILON) + bias

    def values(self, observation: Any, action: Any, kind: str = "live") -> Any:
        """Of both critics, [2, B]."""
        return jnp.stack([self("critic", observation, action, kind=kind, member=k)[:, 0] for k in range(2)])

    def flow(self, observation: Any, x: Any, steps: int) -> Any:
        """Where noise x ends."""
        for k in range(steps):
            x = x + self("flow", observation, x, jnp.full((len(x), 1), k / steps)) / steps
        return jnp.clip(x, -1, 1)


def matching(nets: Nets, batch: Any, drawn: Arrays) -> Any:
    noise, t = drawn["flow_loss/noise"], drawn["flow_loss/time"]
    velocity = nets("flow", batch.observation, (1 - t) * noise + t * batch.action, t)
    return jnp.square(velocity - (batch.action - noise)).mean()


# ---- losses by name: of networks that are trained, and of networks as the last step left them


def fbc(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    return {"flow": matching(trained, batch, drawn)}


def fql(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    next_action = jnp.clip(kept("policy", batch.next_observation, drawn["next_action/next action"]), -1, 1)
    following = kept.values(batch.next_observation, next_action, kind="target")
    following = following.min(0) if h.target_value == "min" else following.mean(0)
    goal = batch.reward + GAMMA * (1 - batch.terminated) * following
    noise = drawn["actor_loss/action"]
    action = trained("policy", batch.observation, noise)
    value = kept.values(batch.observation, jnp.clip(action, -1, 1)).mean(0)
    share = jax.lax.stop_gradient(1 / jnp.abs(value).mean()) if h.normalize_q else 1.0
    return {
        "critic": jnp.square(trained.values(batch.observation, batch.action) - goal).mean(),
        "flow": matching(trained, batch, drawn),
        "distillation": h.alpha * jnp.square(action - kept.flow(batch.observation, noise, h.flow_steps)).mean(),
        "q": -share * value.mean(),
    }


def ifql(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    goal = batch.reward + GAMMA * (1 - batch.terminated) * kept("value", batch.next_observation)[:, 0]
    advantage = kept.values(batch.observation, batch.action, kind="target").min(0) - trained("value", batch.observation)[:, 0]
    return {
        "value": (jnp.where(advantage >= 0, h.expectile, 1 - h.expectile) * jnp.square(advantage)).mean(),
        "critic": jnp.square(trained.values(batch.observation, batch.action) - goal).sum(0).mean(),
        "flow": matching(trained, batch, drawn),
    }


LOSSES: dict[str, Callable[..., Losses]] = {"FBC": fbc, "FQL": fql, "IFQL": ifql}


def update(arrays: str, answer: str, algorithm: Mapping[str, Any], actions: int, step: int) -> None:
    """One update on the weights, the batch and the draws of a file; `algorithm` has its name and what it is set to."""
    del actions, step  # as the arrays and the settings have them
    with np.load(arrays) as found:
        given = {name: jnp.asarray(found[name]) for name in found}
    live, target = ({name: a for name, a in given.items() if name.startswith(kind)} for kind in ("live/", "target/"))
    parts, drawn = (
        {name.removeprefix(kind): a for name, a in given.items() if name.startswith(kind)} for kind in ("batch/", "drawn/")
    )
    batch, h = SimpleNamespace(**parts), SimpleNamespace(**algorithm)
    adam = optax.adam(RATE)

    @jax.jit
    def updated(live: Arrays, target: Arrays) -> tuple[Losses, Arrays, Arrays, Arrays]:
        def total(trained: Arrays) -> tuple[Any, Losses]:
            losses = LOSSES[h.name](Nets(trained), Nets(live | target), batch, drawn, h)
            return sum(losses.values()), losses

        gradients, losses = jax.grad(total, has_aux=True)(live)
        moves, _ = adam.update(gradients, adam.init(live), live)
        new = optax.apply_updates(live, moves)
        moved = {name: TAU * new[name.replace("target/", "live/", 1)] + (1 - TAU) * old for name, old in target.items()}
        return losses, gradients, new, moved

    losses, gradients, new, moved = updated(live, target)
    written = {f"loss/{name}": value for name, value in losses.items()}
    written |= {name.replace("live/", "gradient/", 1): gradient for name, gradient in gradients.items()}
    np.savez(answer, **{name: np.asarray(a) for name, a in (written | new | moved).items()})


if __name__ == "__main__":
    serve({"update": update})
