"""TD3+BC as a program of JAX: a scan of many updates over data on the device, seeds by `vmap`. Shapes are those of Hopper.

Products are in JAX's default precision, which on recent NVIDIA cards is TF32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from gpu_side import Contender

OBSERVATION, ACTION = 11, 3
GAMMA, TAU, RATE, ALPHA = 0.99, 0.005, 3e-4, 2.5
SIGMA, CLIP = 0.2, 0.5  # of the noise on the target's actions
SCANNED = 1_000  # updates of a call


class Jax(Contender):
    """The data, the state of all seeds, and the compiled scan."""

    def build(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> None:
        if device.startswith("cuda") and jax.default_backend() != "gpu":
            raise RuntimeError(f"JAX runs on {jax.default_backend()} here")
        self.grain, self.each = SCANNED if device.startswith("cuda") else 10, work["seeds"]
        self.data = made_data(rows)
        keys = jax.random.split(jax.random.key(0), self.each)
        started = partial(start, hidden=tuple(work["hidden"]))
        scan = partial(scanned, n=self.grain, batch=int(work["ours"]["batch_size"]))
        if self.each == 1:
            self.state, self.several = started(keys[0]), jax.jit(scan)
        else:
            self.state, self.several = jax.vmap(started)(keys), jax.jit(jax.vmap(scan, (0, None)))

    def run(self, n: int) -> None:
        for _ in range(n // self.grain):
            self.state = self.several(self.state, self.data)
        jax.block_until_ready(self.state)


def made_data(rows: int) -> dict[str, Any]:
    random, keys = jax.random, jax.random.split(jax.random.key(1), 5)
    return {
        "seen": random.normal(keys[0], (rows, OBSERVATION)),
        "action": random.uniform(keys[1], (rows, ACTION), minval=-1, maxval=1),
        "reward": random.normal(keys[2], (rows,)),
        "after": random.normal(keys[3], (rows, OBSERVATION)),
        "alive": (random.uniform(keys[4], (rows,)) > 1e-3).astype("float32"),
    }


def start(key: Any, hidden: tuple[int, ...]) -> dict[str, Any]:
    """Parameters, targets, moments and the key of one seed."""

    def net(key: Any, sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
        keys, pairs = jax.random.split(key, len(sizes) - 1), list(pairwise(sizes))
        bounds = [n_in**-0.5 for n_in, _ in pairs]
        weights = [jax.random.uniform(k, p, minval=-b, maxval=b) for k, p, b in zip(keys, pairs, bounds, strict=True)]
        return [(w, jnp.zeros(w.shape[1])) for w in weights]

    one, two, key = jax.random.split(key, 3)
    critic = jax.vmap(lambda k: net(k, (OBSERVATION + ACTION, *hidden, 1)))(jax.random.split(two, 2))
    nets = {"actor": net(one, (OBSERVATION, *hidden, ACTION)), "critic": critic}
    moments = {name: {"m": empty(part), "v": empty(part), "t": jnp.zeros(())} for name, part in nets.items()}
    return {"nets": nets, "targets": jax.tree.map(jnp.copy, nets), "moments": moments, "key": key}


def empty(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def forward(net: list[tuple[Any, Any]], x: Any) -> Any:
    *hidden, (weight, bias) = net
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    return x @ weight + bias


def policy(net: Any, seen: Any) -> Any:
    return jnp.tanh(forward(net, seen))


def critics(net: Any, seen: Any, action: Any) -> Any:
    """Both values [2, B]."""
    both = jnp.concatenate([seen, action], -1)
    return jax.vmap(lambda one: forward(one, both)[:, 0])(net)


def adam(net: Any, moments: dict[str, Any], gradients: Any) -> tuple[Any, dict[str, Any]]:
    t = moments["t"] + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments["m"], gradients)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments["v"], gradients)
    first, second = 1 - 0.9**t, 1 - 0.999**t
    stepped = jax.tree.map(lambda w, m, v: w - RATE * (m / first) / (jnp.sqrt(v / second) + 1e-8), net, m, v)
    return stepped, {"m": m, "v": v, "t": t}


def update(state: dict[str, Any], data: dict[str, Any], k: Any, batch: int) -> dict[str, Any]:
    """One update of one seed; every second is of the policy and the targets too."""
    key, at, drawn = jax.random.split(state["key"], 3)
    rows = jax.random.randint(at, (batch,), 0, len(data["reward"]))
    seen, action, reward, after, alive = (data[name][rows] for name in ("seen", "action", "reward", "after", "alive"))
    nets, targets, moments = state["nets"], state["targets"], state["moments"]
    noise = jnp.clip(SIGMA * jax.random.normal(drawn, action.shape), -CLIP, CLIP)
    next_action = jnp.clip(policy(targets["actor"], after) + noise, -1, 1)
    goal = reward + GAMMA * alive * critics(targets["critic"], after, next_action).min(0)

    def critic_loss(net: Any) -> Any:
        return jnp.square(critics(net, seen, action) - goal).mean(1).sum()

    critic, of_critic = adam(nets["critic"], moments["critic"], jax.grad(critic_loss)(nets["critic"]))

    def actor_loss(net: Any) -> Any:
        chosen = policy(net, seen)
        value = critics(jax.tree.map(lambda w: w[:1], critic), seen, chosen)[0]
        scale = ALPHA / jax.lax.stop_gradient(jnp.abs(value).mean())
        return -scale * value.mean() + jnp.square(chosen - action).mean()

    def delayed(_: Any) -> Any:
        actor, of_actor = adam(nets["actor"], moments["actor"], jax.grad(actor_loss)(nets["actor"]))
        moved = jax.tree.map(lambda old, new: old + TAU * (new - old), targets, {"actor": actor, "critic": critic})
        return actor, of_actor, moved

    actor, of_actor, moved = jax.lax.cond(k % 2 == 1, delayed, lambda _: (nets["actor"], moments["actor"], targets), None)
    nets, moments = {"actor": actor, "critic": critic}, {"actor": of_actor, "critic": of_critic}
    return {"nets": nets, "targets": moved, "moments": moments, "key": key}


def scanned(state: dict[str, Any], data: dict[str, Any], n: int, batch: int) -> dict[str, Any]:
    """`n` updates."""
    return jax.lax.scan(lambda state, k: (update(state, data, k, batch), None), state, jnp.arange(n))[0]
