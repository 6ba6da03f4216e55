"""FQL as a program of JAX, as its authors run theirs: a batch drawn by NumPy, and one compiled update for each.

Written from the paper's equations (Park, Li, Levine: Flow Q-Learning, arXiv:2502.02538) and their order of steps; runs in the
peers' environment. One gradient is taken of all losses together and one Adam steps all networks, as there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from workers import serve, timed

GAMMA, TAU, RATE, ALPHA, FLOW_STEPS = 0.99, 0.005, 3e-4, 10.0, 10
EPSILON = 1e-6  # that flax's layer norm adds to the variance
OPTIMIZER = optax.adam(RATE)


def layers(key: Any, sizes: tuple[int, ...], *, normalised: bool) -> list[dict[str, Any]]:
    made = []
    for k, (inputs, outputs) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        limit = np.sqrt(6 / (inputs + outputs))
        layer = {"weight": jax.random.uniform(k, (inputs, outputs), minval=-limit, maxval=limit), "bias": jnp.zeros(outputs)}
        if normalised:
            layer |= {"gain": jnp.ones(outputs), "shift": jnp.zeros(outputs)}
        made.append(layer)
    return made


def forward(net: list[dict[str, Any]], *inputs: Any) -> Any:
    x = jnp.concatenate(inputs, -1)
    for layer in net[:-1]:
        x = jax.nn.gelu(x @ layer["weight"] + layer["bias"])
        if "gain" in layer:
            apart = x - x.mean(-1, keepdims=True)
            x = layer["gain"] * apart * jax.lax.rsqrt(jnp.square(apart).mean(-1, keepdims=True) + EPSILON) + layer["shift"]
    return x @ net[-1]["weight"] + net[-1]["bias"]


def start(key: Any, observation: int, action: int, hidden: tuple[int, ...]) -> dict[str, Any]:
    keys, seen = jax.random.split(key, 3), observation + action
    critics = jax.vmap(lambda k: layers(k, (seen, *hidden, 1), normalised=True))(jax.random.split(keys[0], 2))
    trained = {
        "critic": critics,
        "policy": layers(keys[1], (seen, *hidden, action), normalised=False),
        "flow": layers(keys[2], (seen + 1, *hidden, action), normalised=False),
    }
    return {"trained": trained, "target": critics, "moments": OPTIMIZER.init(trained)}


def critics(net: Any, seen: Any, action: Any) -> Any:
    return jax.vmap(forward, (0, None, None))(net, seen, action)[..., 0]


def losses(trained: Any, target: Any, batch: dict[str, Any], key: Any) -> Any:
    keys = jax.random.split(key, 4)
    seen, action = batch["observations"], batch["actions"]
    noise = [jax.random.normal(k, action.shape) for k in keys[:3]]
    following = jnp.clip(forward(trained["policy"], batch["next_observations"], noise[0]), -1, 1)
    goal = batch["rewards"] + GAMMA * batch["masks"] * critics(target, batch["next_observations"], following).mean(0)
    critic_loss = jnp.square(critics(trained["critic"], seen, action) - jax.lax.stop_gradient(goal)).mean()
    time = jax.random.uniform(keys[3], (len(action), 1))
    at = (1 - time) * noise[1] + time * action
    flow_loss = jnp.square(forward(trained["flow"], seen, at, time) - (action - noise[1])).mean()
    held, generated = jax.lax.stop_gradient(trained), noise[2]
    for k in range(FLOW_STEPS):
        moment = jnp.full((len(action), 1), k / FLOW_STEPS)
        generated = generated + forward(held["flow"], seen, generated, moment) / FLOW_STEPS
    leap = forward(trained["policy"], seen, noise[2])
    value = critics(held["critic"], seen, jnp.clip(leap, -1, 1)).mean(0)
    distance = jnp.square(leap - jnp.clip(generated, -1, 1)).mean()
    return critic_loss + flow_loss + ALPHA * distance - value.mean()


@jax.jit
def update(state: dict[str, Any], batch: dict[str, Any], key: Any) -> dict[str, Any]:
    gradients = jax.grad(losses)(state["trained"], state["target"], batch, key)
    steps, moments = OPTIMIZER.update(gradients, state["moments"])
    trained = optax.apply_updates(state["trained"], steps)
    target = jax.tree.map(lambda live, held: TAU * live + (1 - TAU) * held, trained["critic"], state["target"])
    return {"trained": trained, "target": target, "moments": moments}


class Program:
    """The data and the state."""

    def set_up_fit(self, dataset: str, batch_size: int, hidden: list[int], warm: int) -> None:
        """`warm` updates are done and not measured. `dataset` is the peer's file, whose last row of an episode is never drawn."""
        with np.load(dataset) as arrays:
            seen, action = arrays["observations"], arrays["actions"]
            self.rows = np.flatnonzero(arrays["timeouts"] == 0)
            self.rows = self.rows[self.rows + 1 < len(seen)]
            self.data = {
                "observations": seen,
                "actions": action,
                "rewards": arrays["rewards"].reshape(-1),
                "masks": 1 - arrays["terminals"].reshape(-1).astype(np.float32),
            }
        self.batch_size, self.random, self.key = batch_size, np.random.default_rng(0), jax.random.key(0)
        self.state = start(self.key, seen.shape[1], action.shape[1], tuple(hidden))
        self.fit(warm)

    def fit(self, n: int) -> dict[str, float]:
        """`n` updates."""
        return timed(lambda: self.run(n), "cpu")

    def run(self, n: int) -> None:
        for _ in range(n):
            rows = self.rows[self.random.integers(len(self.rows), size=self.batch_size)]
            batch = {name: column[rows] for name, column in self.data.items()}
            batch["next_observations"] = self.data["observations"][rows + 1]
            self.key, own = jax.random.split(self.key)
            self.state = update(self.state, batch, own)
        jax.block_until_ready(self.state)


if __name__ == "__main__":
    program = Program()
    serve({"set_up_fit": program.set_up_fit, "fit": program.fit})
