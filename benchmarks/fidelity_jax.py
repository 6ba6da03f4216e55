"""The side of the fidelity table that is written in JAX: updates of policies that generate, from their equations alone.

As in the authors' code, an update is one compiled program: the gradients of all losses at once, and one step of optax's Adam; or
one such stage after the other, where later losses see what earlier ones have moved. It is in float32, on the weights, the batch and
the numbers of a file, named as `fidelity_side.py` says; what our side drew is `drawn/LOSS/NAME`. Those that are told a goal are in
`fidelity_jax_goals.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from fidelity_jax_goals import GOAL_LOSSES
from fidelity_jax_nets import GAMMA, Arrays, Losses, Networks, expectile
from workers import serve

TAU, RATE = 0.005, 3e-4


class Nets(Networks):
    """Networks, and what is made with several of them."""

    def values(self, observation: Any, action: Any, kind: str = "live") -> Any:
        """Of both critics, [2, B]."""
        return jnp.stack([self("critic", observation, action, kind=kind, member=k)[:, 0] for k in range(2)])

    def flow(self, observation: Any, x: Any, steps: int) -> Any:
        """Where noise x ends."""
        for k in range(steps):
            x = x + self("flow", observation, x, jnp.full((len(x), 1), k / steps)) / steps
        return jnp.clip(x, -1, 1)

    def noise(self, observation: Any, x: Any, k: Any, kind: str = "live") -> Any:
        """What the network `diffusion` takes for the noise within x at times k [B]."""
        place = f"{kind}/diffusion/0/time"
        half = self.weights[f"{place}.layers.0/weight"].shape[1] // 2
        known = self.weights.get(f"{place}.frequency")
        waves = k[:, None] * (jnp.exp(-jnp.arange(half) * jnp.log(10_000.0) / (half - 1)) if known is None else known)
        time = jax.nn.mish(self.affine(f"{place}.layers.0", jnp.concatenate((jnp.cos(waves), jnp.sin(waves)), -1)))
        time = self.affine(f"{place}.layers.2", time)
        if f"{kind}/diffusion/0/encoder.layers.blocks.0.0.weight" not in self.weights:
            return self("diffusion", observation, x, time, kind=kind, activation=jax.nn.mish)
        return self.residual("diffusion", jnp.concatenate((observation, x, time), -1), kind)

    def residual(self, network: str, x: Any, kind: str) -> Any:
        """IDQL's LN-ResNet."""
        place, block = f"{kind}/{network}/0", 0
        x = self.affine(f"{place}/encoder.0", x)
        while (norm := f"{place}/encoder.layers.blocks.{block}.0") + ".weight" in self.weights:
            inner = jax.nn.mish(self.affine(f"{place}/encoder.{2 * block + 1}", self.normalised(norm, x, 0)))
            x = x + self.affine(f"{place}/encoder.{2 * block + 2}", inner)
            block += 1
        return self.affine(f"{place}/head", jax.nn.mish(x))

    def denoised(self, observation: Any, noise: Any, kind: str = "live") -> Any:
        """The action that noise [K, B, A] becomes, as Diffusion-QL has it: guesses of it are clipped to [-1, 1]."""
        alphas, alpha_bars = kept(len(noise))
        x = noise[0]
        for k in reversed(range(len(noise))):
            before, now = jnp.concatenate((jnp.ones(1), alpha_bars))[k], jnp.full(len(x), k)
            predicted = self.noise(observation, x, now, kind)
            start = jnp.clip(x / jnp.sqrt(alpha_bars[k]) - jnp.sqrt(1 / alpha_bars[k] - 1) * predicted, -1, 1)
            mean = (1 - alphas[k]) * jnp.sqrt(before) / (1 - alpha_bars[k]) * start
            x = mean + (1 - before) * jnp.sqrt(alphas[k]) / (1 - alpha_bars[k]) * x
            if k:
                x = x + jnp.sqrt((1 - alphas[k]) * (1 - before) / (1 - alpha_bars[k])) * noise[len(noise) - k]
        return jnp.clip(x, -1, 1)


def kept(n: int) -> tuple[Any, Any]:
    """α_k and ᾱ_k of the variance-preserving schedule, [n] each."""
    k = np.arange(1, n + 1)
    alphas = np.exp(-0.1 / n - 0.5 * (10 - 0.1) * (2 * k - 1) / n**2)
    return jnp.asarray(alphas, jnp.float32), jnp.asarray(np.cumprod(alphas), jnp.float32)


def noise_error(nets: Nets, batch: Any, drawn: Arrays, loss: str, steps: int) -> Any:
    """|ε(s, x_k, k) - ε|², a mean over entries and samples."""
    noise, k = drawn[f"{loss}/noise"], jnp.floor(drawn[f"{loss}/time"] * steps).astype(jnp.int32)
    left = kept(steps)[1][k][:, None]
    noisy = jnp.sqrt(left) * batch.action + jnp.sqrt(1 - left) * noise
    return jnp.square(nets.noise(batch.observation, noisy, k) - noise).mean()


def matching(nets: Nets, batch: Any, drawn: Arrays) -> Any:
    """|v - (a - z)|² of each entry, [B, A]."""
    noise, t = drawn["flow_loss/noise"], drawn["flow_loss/time"]
    velocity = nets("flow", batch.observation, (1 - t) * noise + t * batch.action, t)
    return jnp.square(velocity - (batch.action - noise))


# ---- losses: of networks that are trained, and of networks as the last stage left them


def fbc(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    return {"flow": matching(trained, batch, drawn).mean()}


def fql(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    next_action = jnp.clip(kept("policy", batch.next_observation, drawn["next_action/next action"]), -1, 1)
    following = kept.values(batch.next_observation, next_action, kind="target")
    following = following.min(0) if h.target_value == "min" else following.mean(0)
    goal = batch.reward + GAMMA * (1 - batch.terminated) * following
    return {
        "critic": jnp.square(trained.values(batch.observation, batch.action) - goal).mean(),
        "flow": matching(trained, batch, drawn).mean(),
        **distilled(trained, kept, batch, drawn, h),
    }


def distilled(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    noise = drawn["actor_loss/action"]
    action = trained("policy", batch.observation, noise)
    value = kept.values(batch.observation, jnp.clip(action, -1, 1)).mean(0)
    share = jax.lax.stop_gradient(1 / jnp.abs(value).mean()) if h.normalize_q else 1.0
    return {
        "distillation": h.alpha * jnp.square(action - kept.flow(batch.observation, noise, h.flow_steps)).mean(),
        "q": -share * value.mean(),
    }


def qc(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    """An action is a chunk of them; losses count what an episode has of it."""
    n_samples, length, size = batch.window_action.shape
    batch = SimpleNamespace(**{**vars(batch), "action": batch.window_action.reshape(n_samples, -1)})
    noise = drawn["next_action/next action"]
    if h.actor == "distilled":
        chunk = jnp.clip(kept("policy", batch.next_observation, noise), -1, 1)
    else:
        seen = jnp.repeat(batch.next_observation, noise.shape[1], 0)
        chunks = kept.flow(seen, noise.reshape(len(seen), -1), h.flow_steps)
        best = kept.values(seen, chunks).mean(0).reshape(noise.shape[:2]).argmax(1)
        chunk = chunks.reshape(noise.shape)[jnp.arange(n_samples), best]
    goal = batch.reward + GAMMA * (1 - batch.terminated) * kept.values(batch.next_observation, chunk, kind="target").mean(0)
    errors = matching(trained, batch, drawn).reshape(n_samples, length, size)
    return {
        "critic": (jnp.square(trained.values(batch.observation, batch.action) - goal) * batch.window_mask[:, -1]).mean(),
        "flow": (errors * batch.window_mask[..., None]).mean(),
        **(distilled(trained, kept, batch, drawn, h) if h.actor == "distilled" else {}),
    }


def value_of_data(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    least = kept.values(batch.observation, batch.action, kind="target").min(0)
    return {"value": expectile(least - trained("value", batch.observation)[:, 0], h.expectile).mean()}


def critics_of_data(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    goal = batch.reward + GAMMA * (1 - batch.terminated) * kept("value", batch.next_observation)[:, 0]
    return {"critic": jnp.square(trained.values(batch.observation, batch.action) - goal).sum(0).mean()}


def ifql(*given: Any) -> Losses:
    trained, _, batch, drawn, _ = given
    return value_of_data(*given) | critics_of_data(*given) | {"flow": matching(trained, batch, drawn).mean()}


def idql_diffusion(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    return {"diffusion": noise_error(trained, batch, drawn, "diffusion_loss", h.diffusion_steps)}


def dql_critics(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    noise = drawn["critic_loss/next action"]
    n = noise.shape[1] // len(batch.reward)
    seen = jnp.tile(batch.next_observation, (n, 1))
    following = kept.values(seen, kept.denoised(seen, noise, "target"), kind="target")
    goal = batch.reward + GAMMA * (1 - batch.terminated) * following.reshape(2, n, -1).max(1).min(0)
    return {"critic": jnp.square(trained.values(batch.observation, batch.action) - goal).sum(0).mean()}


def dql_policy(trained: Nets, kept: Nets, batch: Any, drawn: Arrays, h: Any) -> Losses:
    value = kept.values(batch.observation, trained.denoised(batch.observation, drawn["actor_loss/action"]))
    first = drawn["actor_loss/critic"][0] > 0.5
    climbed, other = jnp.where(first, value[0], value[1]), jnp.where(first, value[1], value[0])
    return {
        "likeness": noise_error(trained, batch, drawn, "actor_loss", h.diffusion_steps),
        "q": -h.eta * climbed.mean() / jax.lax.stop_gradient(jnp.abs(other).mean()),
    }


Stage = Callable[..., Losses]
LOSSES: dict[str, tuple[Stage, ...]] = {  # by name, stage after stage
    "FBC": (fbc,),
    "FQL": (fql,),
    "IFQL": (ifql,),
    "QC": (qc,),
    "IDQL": (idql_diffusion, value_of_data, critics_of_data),
    "DiffusionQL": (dql_critics, dql_policy),
    **{name: (losses,) for name, losses in GOAL_LOSSES.items()},
}


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
        found: Losses = {}
        slopes = jax.tree_util.tree_map(jnp.zeros_like, live)
        for stage in LOSSES[h.name]:

            def total(trained: Arrays, live: Arrays = live, stage: Stage = stage) -> tuple[Any, Losses]:
                losses = stage(Nets(trained), Nets(live | target), batch, drawn, h)
                return sum(losses.values()), losses

            gradients, losses = jax.grad(total, has_aux=True)(live)
            moves, _ = adam.update(gradients, adam.init(live), live)  # of what has no gradient: none
            live, found = optax.apply_updates(live, moves), found | losses
            slopes = jax.tree_util.tree_map(jnp.add, slopes, gradients)
        moved = {}
        for name, old in target.items():
            tau = algorithm.get("taus", {}).get(name.split("/")[1], TAU)
            moved[name] = tau * live[name.replace("target/", "live/", 1)] + (1 - tau) * old
        return found, slopes, live, moved

    losses, gradients, new, moved = updated(live, target)
    written = {f"loss/{name}": value for name, value in losses.items()}
    written |= {name.replace("live/", "gradient/", 1): gradient for name, gradient in gradients.items()}
    np.savez(answer, **{name: np.asarray(a) for name, a in (written | new | moved).items()})


if __name__ == "__main__":
    serve({"update": update})
