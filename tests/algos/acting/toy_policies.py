"""Two policies of kinds that none of d3ray's algorithms is: one that is handed a memory, one that starts from noise."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from d3ray.algos.base import Algorithm
from d3ray.algos.config import ActionsConfig, SampledConfig
from d3ray.algos.definition import LossValue, Network, Verbs, loss, transitions
from d3ray.algos.nets import Hyper, Nets
from d3ray.algos.ports import Memory, Noise, Ports, Tensors
from d3ray.algos.wants import Stretches
from d3ray.data.batch import Batch, Sequences
from d3ray.data.config import setting
from d3ray.data.spec import Spec, space_columns

UNUSED = {"matmul_precision": "it has no encoder"}


class GRU(nn.Module):
    """Gated recurrent units, [B, T, inputs] and [B, hidden] to [B, T, outputs] and the last memory; padding changes no memory."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.gates, self.head = nn.GRU(inputs, hidden), nn.Linear(hidden, outputs)  # only its weights: vmap knows no nn.GRU

    def forward(self, x: Tensor, hidden: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        w, n, seen = self.gates, 2 * hidden.shape[-1], list[Tensor]()
        for t, own in enumerate(linear(x, w.weight_ih_l0, w.bias_ih_l0).unbind(1)):
            past = linear(hidden, w.weight_hh_l0, w.bias_hh_l0)
            reset, keep = (own[:, :n] + past[:, :n]).sigmoid().chunk(2, -1)
            new = (own[:, n:] + reset * past[:, n:]).tanh()
            new = new + keep * (hidden - new)
            hidden = new if mask is None else torch.where(mask[:, t, None], new, hidden)
            seen.append(hidden)
        return self.head(torch.stack(seen, 1)).tanh(), hidden


class RecurrentBCConfig(SampledConfig, ActionsConfig):
    """Settings of `RecurrentBC`."""

    learning_rate: float = setting(1e-2, "Adam", gt=0)
    batch_size: int = setting(16, "stretches in a gradient step", gt=0)
    length: int = setting(4, "steps that are learned from", gt=0)
    burn_in: int = setting(2, "steps before them that fill the memory", ge=0)
    hidden: int = setting(8, "entries of the memory", gt=0)


class RecurrentBC(Algorithm):
    """L = E[ |a_t - π(o_0 … o_t)|² ] over the steps after the burn-in, whose memory has no gradient."""

    Config: ClassVar = RecurrentBCConfig
    actions: ClassVar = "continuous"
    has_td_errors: ClassVar = False
    exemptions: ClassVar = UNUSED

    def wants(self, config: Any) -> Stretches:
        return Stretches(config.batch_size, config.length, config.burn_in)

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"hidden": Memory((config.hidden,))}

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        (seen,) = space_columns(spec.observation).values()
        return {"policy": Network(GRU(seen.shape[0], config.hidden, spec.action.shape[0]), "learning_rate")}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",)

    def imitate(self, learner: Verbs, batch: Sequences) -> None:
        learner.minimise(self.imitation_loss, "policy", batch)

    @loss("sample step")
    def imitation_loss(self, nets: Nets, batch: Sequences, h: Hyper) -> LossValue:
        x, mask, n = batch.observation, batch.mask, self.config_.burn_in
        hidden = x.new_zeros(len(x), self.config_.hidden)
        if n:
            with torch.no_grad():
                _, hidden = nets.policy(x[:, :n], hidden, mask[:, :n])
        return (nets.policy(x[:, n:], hidden, mask[:, n:])[0] - batch.action[:, n:]).square().mean(-1), {}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        action, hidden = nets.policy(observation[:, None], state["hidden"])
        return action[:, 0], {"hidden": hidden}


class DenoisingBCConfig(SampledConfig, ActionsConfig):
    """Settings of `DenoisingBC`."""

    learning_rate: float = setting(3e-3, "Adam", gt=0)
    batch_size: int = setting(32, "transitions in a gradient step", gt=0)


class DenoisingBC(Algorithm):
    """L = E[ |ε - ε_θ(o, √ᾱ_t a + √(1 - ᾱ_t) ε, t)|² ], t uniform on 1 … 5; acts by the chain from t = 5 to 1."""

    Config: ClassVar = DenoisingBCConfig
    actions: ClassVar = "continuous"
    has_td_errors: ClassVar = False
    exemptions: ClassVar = UNUSED

    def wants(self, config: Any) -> Any:
        return transitions(config, following=False)

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"chain": Noise((5, spec.action.shape[0]), always=True)}

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        (seen,), size = space_columns(spec.observation).values(), spec.action.shape[0]
        layers = nn.Linear(seen.shape[0] + size + 2, 32), nn.ReLU(), nn.Linear(32, size)
        return {"policy": Network(nn.Sequential(*layers), "learning_rate")}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",)

    def imitate(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.denoising_loss, "policy", batch)

    @loss("sample")
    def denoising_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        t = (nets.uniform("t", (len(batch.action), 1)) * 5).floor() + 1
        noise, kept = nets.noise("ε", batch.action.shape), self.kept(t)
        noised = kept.sqrt() * batch.action + (1 - kept).sqrt() * noise
        return (noise - self.noise_in(nets, batch.observation, noised, t)).square().sum(-1), {}

    def noise_in(self, nets: Nets, observation: Any, action: Tensor, t: Tensor) -> Tensor:
        """ε_θ, [B, A]; t [B, 1] is embedded by a sine and a cosine."""
        return nets.policy(torch.cat((observation, action, t.sin(), t.cos()), -1))

    def kept(self, t: Tensor) -> Tensor:
        """ᾱ_t."""
        return (1 - (t / 5.5).square()).square()

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        action = noise["chain"][:, 0]
        for step in (5, 4, 3, 2, 1):
            t = torch.full_like(action[:, :1], step)
            kept, left = self.kept(t), self.kept(t - 1)
            guess = ((action - (1 - kept).sqrt() * self.noise_in(nets, observation, action, t)) / kept.sqrt()).clamp(-1, 1)
            action = (left.sqrt() * (1 - kept / left) * guess + (kept / left).sqrt() * (1 - left) * action) / (1 - kept)
            action = action + ((1 - kept / left) * (1 - left) / (1 - kept)).sqrt() * noise["chain"][:, step - 1]
        return action.clamp(-1, 1), state
