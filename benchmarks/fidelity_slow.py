"""The slow side of the fidelity table: whole updates of algorithms that neither peer has, sample by sample in float64.

Losses are those of `tests/algos/slow_losses.py`, which the tests use too; networks are affine layers and ReLU from the arrays
alone, torch differentiates and steps. Arrays are named as `fidelity_side.py` says; what our side drew is `drawn/LOSS/NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from workers import serve

from d3ray.tests.algos import slow_losses as slow

GAMMA = 0.99


class Slow:
    """Networks, the batch and what was drawn, in float64; and what an update leaves."""

    def __init__(self, given: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> None:
        parts = {name: torch.from_numpy(np.asarray(given[name], np.float64)) for name in given}
        self.tensors = {name: part for name, part in parts.items() if name.startswith(("live/", "target/"))}
        self.batch = SimpleNamespace(**{n.removeprefix("batch/"): part for n, part in parts.items() if n.startswith("batch/")})
        self.batch.discount = GAMMA * (1 - self.batch.terminated)
        self.samples = slow.samples(self.batch)
        self.drawn = {n.removeprefix("drawn/"): part for n, part in parts.items() if n.startswith("drawn/")}
        self.h = SimpleNamespace(**settings)
        self.n = len({name.split("/")[2] for name in self.tensors if name.startswith("live/critic/")})
        self.written: dict[str, np.ndarray] = {}

    def run(self, kind: str, network: str, x: Tensor, member: int = 0) -> Tensor:
        """What the last affine layer gives; of a distribution its mean and log deviation one after the other."""
        place, layer = f"{kind}/{network}/{member}", 0
        while f"{place}/encoder.{layer}/weight" in self.tensors:
            x = self.affine(f"{place}/encoder.{layer}", x).clamp(min=0)
            layer += 1
        heads = [name for name in ("head", "mean", "log_std") if f"{place}/{name}/weight" in self.tensors]
        return torch.cat([self.affine(f"{place}/{name}", x) for name in heads])

    def affine(self, place: str, x: Tensor) -> Tensor:
        return self.tensors[f"{place}/weight"] @ x + self.tensors[f"{place}/bias"]

    def minimise(self, name: str, losses: list[Tensor] | Callable[[], list[Tensor]], networks: Mapping[str, float]) -> None:
        """One step of Adam, or of SGD where the row says so, on the mean of the losses, at each network's learning rate."""
        mine = {n: rate for n in self.tensors for network, rate in networks.items() if n.startswith(f"live/{network}/")}
        for tensor in mine:
            self.tensors[tensor] = self.tensors[tensor].detach().requires_grad_()
        loss = torch.stack(losses() if callable(losses) else losses).mean()
        gradients = torch.autograd.grad(loss, [self.tensors[tensor] for tensor in mine])
        self.written[f"loss/{name}"] = loss.detach().numpy()
        for (tensor, rate), gradient in zip(mine.items(), gradients, strict=True):
            self.written[f"gradient/{tensor.removeprefix('live/')}"] = gradient.numpy()
            parameter = self.tensors[tensor].detach()
            parameter.grad = gradient
            optimizer = torch.optim.SGD if getattr(self.h, "sgd", False) else torch.optim.Adam
            optimizer([parameter], lr=rate).step()
            parameter.grad = None
            self.tensors[tensor] = parameter

    def track(self, *networks: str, tau: float = 0.005) -> None:
        """τ of a network enters its target."""
        for name in self.tensors:
            if name.startswith(tuple(f"target/{network}/" for network in networks)):
                live = self.tensors[name.replace("target/", "live/", 1)]
                self.tensors[name] = (1 - tau) * self.tensors[name] + tau * live

    def each(self, loss: Callable[..., Tensor], *beside: Any) -> list[Tensor]:
        """A loss of every sample and what stands beside it."""
        return [loss(*row) for row in zip(self.samples, *beside, strict=True)]

    # ---- what updates share

    def imitate(self, beta: float) -> None:
        def loss(one: slow.Sample, z: Tensor) -> Tensor:
            return slow.rebuilt(self.run, one.observation, one.action, [z], beta)

        rates = dict.fromkeys(("vae_encoder", "vae_decoder"), self.h.imitator_rate)
        self.minimise("imitation_loss", lambda: self.each(loss, self.drawn["imitation_loss/latent"]), rates)

    def soft_critics(self, low: float = -20.0) -> list[Tensor]:
        alpha = float(self.tensors["live/temperature/0/log"].exp())
        drawn = self.drawn["critic_loss/next action"]
        return self.each(lambda one, z: slow.soft_critic(self.run, one, z, alpha, self.n, low), drawn)

    def soft_actor(self, low: float = -20.0) -> None:
        def loss(one: slow.Sample, z: Tensor) -> Tensor:
            return slow.soft_actor(self.run, one, z, self.tensors["live/temperature/0/log"], self.n, low)

        rates = {"policy": 3e-4, "temperature": 3e-4}
        self.minimise("actor_loss", lambda: self.each(loss, self.drawn["actor_loss/action"]), rates)


def sac_n(s: Slow) -> None:
    s.minimise("critic_loss", lambda: s.soft_critics(-5), {"critic": 3e-4})
    s.soft_actor(-5)
    s.track("critic")


def edac(s: Slow) -> None:
    loss = lambda one, plain: plain + s.h.eta * slow.alikeness(s.run, one, s.n)  # noqa: E731
    s.minimise("critic_loss", lambda: s.each(loss, s.soft_critics(-5)), {"critic": 3e-4})
    s.soft_actor(-5)
    s.track("critic")


def mcq(s: Slow) -> None:
    s.imitate(s.h.beta)
    noise, latents = (s.drawn[f"critic_loss/{name}"] for name in ("action", "behaviour"))  # [N, 2 B, …]: of s, then of s'

    def critic() -> list[Tensor]:
        found, rows = [], len(s.samples)
        for i, (one, plain) in enumerate(zip(s.samples, s.soft_critics(), strict=True)):
            places = ((one.observation, i), (one.next_observation, rows + i))
            off = [slow.held(s.run, seen, noise[:, at], latents[:, at], s.n)[0] for seen, at in places]
            found.append(s.h.lam * plain + (1 - s.h.lam) * sum(off) / 2)
        return found

    s.minimise("critic_loss", critic, {"critic": 3e-4})
    s.soft_actor()
    s.track("critic")


def spot(s: Slow) -> None:
    if s.h.warming_up:
        s.imitate(s.h.beta)
        return
    noise = s.drawn["critic_loss/target smoothing"]
    s.minimise("critic_loss", lambda: s.each(lambda one, z: slow.smoothed(s.run, one, z), noise), {"critic": 3e-4})
    latents = s.drawn["actor_loss/latent"].transpose(0, 1)
    s.minimise("actor_loss", lambda: slow.supported(s.run, s.samples, latents, s.h.weight, s.h.beta)[0], {"policy": 3e-4})
    s.track("critic", "policy")


def xql(s: Slow) -> None:
    noise, anywhere = (s.drawn.get(f"value_loss/{name}") for name in ("perturbation", "random action"))
    asked = [[one.action] for one in s.samples]
    if noise is not None:
        asked = [[(a + (s.h.std * z).clamp(-0.5, 0.5)).clamp(-1, 1)] for (a,), z in zip(asked, noise, strict=True)]
    if anywhere is not None:
        asked = [[*its, *(2 * u - 1)] for its, u in zip(asked, anywhere.transpose(0, 1), strict=True)]
    s.minimise("value_loss", lambda: slow.gumbel(s.run, s.samples, asked, s.h.gumbel_temp, s.h.max_clip)[0], {"value": 3e-4})

    def actor() -> list[Tensor]:
        found = []
        for one in s.samples:
            weight = (3 * slow.advantage(s.run, one, one.action)).exp().clamp(max=100).detach()
            mean, log_std = s.run("live", "policy", one.observation).tanh(), s.tensors["live/policy/0/log_std"].clamp(-5, 2)
            found.append(-weight * slow.normal(mean, log_std, one.action))
        return found

    s.minimise("actor_loss", actor, {"policy": 3e-4})
    s.minimise("critic_loss", lambda: [slow.huber(s.run, one, s.h.delta) for one in s.samples], {"critic": 3e-4})
    s.track("critic")


def awr(s: Slow) -> None:
    c, b = s.h.scale, s.batch

    def returned(kind: str, i: int) -> float:
        """R of a sample, a number."""
        if s.h.horizon is None:
            return float(b.return_to_go[i])
        left = int(b.ahead_mask[i].sum())
        last = b.discount[i] if left == 0 else b.ahead_discount[i, left - 1]
        rewards = [float(b.reward[i]), *b.ahead_reward[i, :left].tolist()]
        seen = [b.observation[i], b.next_observation[i], *b.ahead_observation[i, :left]]
        value = lambda state: float(c * s.run(kind, "value", state)[0])  # noqa: E731
        return slow.lambda_return(value, rewards, seen, bool(last == 0), GAMMA, 0.95)

    if s.h.phase == "value":
        s.track("value", tau=1.0)
        returns = [returned("target", i) for i in range(len(s.samples))]
        loss = lambda one, r: ((r - c * s.run("live", "value", one.observation)[0]) / c) ** 2  # noqa: E731
        s.minimise("value_loss", lambda: s.each(loss, returns), {"value": 5e-3})
        return
    values = [float(c * s.run("live", "value", one.observation)[0]) for one in s.samples]
    apart = torch.tensor([returned("live", i) - value for i, value in enumerate(values)], dtype=torch.float64)
    weights, log_std = slow.weights(apart, s.h.beta, 20.0), torch.tensor(0.4, dtype=torch.float64).log()

    def log_prob(one: slow.Sample) -> Tensor:
        if one.action.ndim == 0:
            return slow.log_share(s.run, one.observation, one.action)
        return slow.normal(s.run("live", "policy", one.observation).tanh(), log_std.expand(len(one.action)), one.action)

    s.minimise("actor_loss", lambda: s.each(lambda one, weight: -weight * log_prob(one), weights), {"policy": 5e-5})


def discrete_iql(s: Slow) -> None:
    def ahead_of(one: slow.Sample) -> Tensor:
        """The advantage of a sample."""
        return min(slow.chosen(s.run, "target", one.observation, one.action, s.n)) - s.run("live", "value", one.observation)[0]

    expectile = [0.7, 0.3]
    s.minimise("value_loss", lambda: [expectile[int(u < 0)] * u**2 for u in map(ahead_of, s.samples)], {"value": 3e-4})
    weights = [(3 * ahead_of(one)).exp().clamp(max=100).detach() for one in s.samples]
    log_share = lambda one, w: -w * slow.log_share(s.run, one.observation, one.action)  # noqa: E731
    s.minimise("actor_loss", lambda: s.each(log_share, weights), {"policy": 3e-4})
    error = lambda one: slow.chosen_towards(s.run, one, s.run("live", "value", one.next_observation)[0], s.n)  # noqa: E731
    s.minimise("critic_loss", lambda: s.each(error), {"critic": 3e-4})
    s.track("critic")


def discrete_crr(s: Slow) -> None:
    def following(one: slow.Sample) -> Tensor:
        """The least member's mean over the target policy."""
        seen = one.next_observation
        return min(slow.expected_value(s.run, "target", seen, s.run("target", "critic", seen, k)) for k in range(s.n))

    def weight(one: slow.Sample) -> Tensor:
        """What a sample counts."""
        values = sum(s.run("live", "critic", one.observation, k) for k in range(s.n)) / s.n
        baseline = slow.expected_value(s.run, "live", one.observation, values) if s.h.kind == "mean" else max(values)
        advantage = (values[int(one.action)] - baseline).detach()
        return (advantage >= 0).double() if s.h.binary else advantage.exp().clamp(max=20)

    error = lambda one: slow.chosen_towards(s.run, one, following(one), s.n)  # noqa: E731
    log_share = lambda one: -weight(one) * slow.log_share(s.run, one.observation, one.action)  # noqa: E731
    s.minimise("critic_loss", lambda: s.each(error), {"critic": 3e-4})
    s.minimise("actor_loss", lambda: s.each(log_share), {"policy": 3e-4})
    s.track("critic", "policy")


UPDATES = {
    "AWR": awr,
    "DiscreteAWR": awr,
    "DiscreteCRR": discrete_crr,
    "DiscreteIQL": discrete_iql,
    "EDAC": edac,
    "MCQ": mcq,
    "SACN": sac_n,
    "SPOT": spot,
    "XQL": xql,
}


def update(arrays: str, answer: str, algorithm: Mapping[str, Any], actions: int, step: int) -> None:
    """One update on the weights, the batch and the draws of a file; `algorithm` has its name and what it is set to."""
    del actions, step  # as the arrays and the settings have them
    with np.load(arrays) as given:
        slowly = Slow({name: given[name] for name in given if not name.startswith("draw/")}, algorithm)
    UPDATES[algorithm["name"]](slowly)
    new = {name: tensor.detach().numpy() for name, tensor in slowly.tensors.items()}
    np.savez(answer, **slowly.written, **new)


if __name__ == "__main__":
    serve({"update": update})
