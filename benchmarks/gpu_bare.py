"""TD3+BC as a program of bare torch: what the card gives who writes one update by hand, compiles it whole, and replays it.

Parameters are plain tensors with an axis for the seeds, the draws of several updates come at once, an update is one compiled
function, and on a CUDA device `TOGETHER` of them are one CUDA graph. No checks, no metrics, no draws that can be repeated. On the
CPU it is neither compiled nor captured. Shapes are those of Hopper.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from gpu_side import Contender, most_allocated, wait_for
from torch import Tensor
from torch.nn.functional import relu

OBSERVATION, ACTION = 11, 3
TOGETHER = 20  # updates of a graph
GAMMA, TAU, RATE, ALPHA = 0.99, 0.005, 3e-4, 2.5
SIGMA, CLIP = 0.2, 0.5  # of the noise on the target's actions

Layers = list[Tensor]  # weight, bias, weight, …


def layers(lead: tuple[int, ...], sizes: tuple[int, ...], device: str) -> Layers:
    """Uniform weights [*lead, in, out] and zero biases [*lead, 1, out]."""
    made: Layers = []
    for n_in, n_out in pairwise(sizes):
        weight = torch.empty(*lead, n_in, n_out, device=device).uniform_(-(n_in**-0.5), n_in**-0.5)
        made += [weight, torch.zeros(*lead, 1, n_out, device=device)]
    return made


def zeros(net: Layers) -> Layers:
    return [torch.zeros_like(w) for w in net]


def forward(net: Layers, x: Tensor) -> Tensor:
    *hidden, weight, bias = net
    for w, b in zip(hidden[::2], hidden[1::2], strict=True):
        x = relu(x @ w + b)
    return x @ weight + bias


def policy(net: Layers, seen: Tensor) -> Tensor:
    """Actions [S, B, A]."""
    return torch.tanh(forward(net, seen))


def critics(net: Layers, seen: Tensor, action: Tensor) -> Tensor:
    """Both values [S, 2, B]."""
    return forward(net, torch.cat([seen, action], -1).unsqueeze(1)).squeeze(-1)


def critic_loss(net: Layers, seen: Tensor, action: Tensor, goal: Tensor) -> Tensor:
    return (critics(net, seen, action) - goal.unsqueeze(1)).square().mean(-1).sum()


def actor_loss(net: Layers, critic: Layers, seen: Tensor, action: Tensor) -> Tensor:
    chosen = policy(net, seen)
    value = critics([w[:, :1] for w in critic], seen, chosen)[:, 0]
    scale = ALPHA / value.abs().mean(-1).detach()
    return (-scale * value.mean(-1) + (chosen - action).square().mean((-1, -2))).sum()


def adam(net: Layers, moments: tuple[Layers, Layers], gradients: Layers, step: Tensor) -> None:
    """One step in place; `step` counts from 1 and lies on the device."""
    step.add_(1)
    first, second = 1 - 0.9**step, (1 - 0.999**step).sqrt()
    for w, m, v, g in zip(net, *moments, gradients, strict=True):
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        w.sub_(RATE * (m / first) / (v.sqrt() / second + 1e-8))


class Bare(Contender):
    """The data, the parameters and the graph."""

    def build(self, work: Mapping[str, Any], device: str, data: Mapping[str, str], rows: int) -> None:
        torch.manual_seed(0)
        self.device, self.each = device, work["seeds"]
        on_cuda, seeds = device.startswith("cuda"), self.each
        self.grain = TOGETHER if on_cuda else 2
        self.seen, self.after = (torch.randn(rows, OBSERVATION, device=device) for _ in range(2))
        self.action, self.reward = torch.rand(rows, ACTION, device=device) * 2 - 1, torch.randn(rows, device=device)
        self.alive = (torch.rand(rows, device=device) > 1e-3).float()
        hidden = tuple(work["hidden"])
        self.actor = layers((seeds,), (OBSERVATION, *hidden, ACTION), device)
        self.critic = layers((seeds, 2), (OBSERVATION + ACTION, *hidden, 1), device)
        self.targets = [[w.clone() for w in net] for net in (self.actor, self.critic)]
        self.moments = [(zeros(net), zeros(net)) for net in (self.actor, self.critic)]
        self.steps = [torch.zeros((), device=device) for _ in range(2)]
        batch = int(work["ours"]["batch_size"])
        self.rows = torch.zeros(self.grain, seeds, batch, dtype=torch.long, device=device)
        self.noise = torch.zeros(self.grain, seeds, batch, ACTION, device=device)
        self.update = torch.compile(self.eager, fullgraph=True, dynamic=False) if on_cuda else self.eager
        self.graph: torch.cuda.CUDAGraph | None = self.captured() if on_cuda else None

    def eager(self, rows: Tensor, noise: Tensor, acts: bool) -> None:
        """One update of all seeds; `acts`: of the policy and the targets too."""
        seen, action, after = self.seen[rows], self.action[rows], self.after[rows]
        next_action = (policy(self.targets[0], after) + (SIGMA * noise).clamp(-CLIP, CLIP)).clamp(-1, 1)
        goal = self.reward[rows] + GAMMA * self.alive[rows] * critics(self.targets[1], after, next_action).amin(1)
        adam(self.critic, self.moments[1], torch.func.grad(critic_loss)(self.critic, seen, action, goal), self.steps[1])
        if acts:
            adam(self.actor, self.moments[0], torch.func.grad(actor_loss)(self.actor, self.critic, seen, action), self.steps[0])
            for target, net in zip(self.targets, (self.actor, self.critic), strict=True):
                for old, new in zip(target, net, strict=True):
                    old.lerp_(new, TAU)

    def several(self) -> None:
        """The updates of a graph, and their draws."""
        self.rows.random_(0, len(self.seen))
        self.noise.normal_()
        for k in range(self.grain):
            self.update(self.rows[k], self.noise[k], k % 2 == 1)

    @torch.no_grad()
    def captured(self) -> torch.cuda.CUDAGraph:
        """A graph of `several`, after enough of them aside for all to be compiled and allocated."""
        aside = torch.cuda.Stream(self.device)
        aside.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(aside):
            for _ in range(3):
                self.several()
        torch.cuda.current_stream(self.device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.several()
        return graph

    @torch.no_grad()
    def run(self, n: int) -> None:
        for _ in range(n // self.grain):
            if self.graph is None:
                self.several()
            else:
                self.graph.replay()
        wait_for(self.device)

    def memory(self) -> float | None:
        return most_allocated(self.device)
