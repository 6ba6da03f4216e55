"""A model that is used while it is trained: its scalers run along, and its best members change."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...data.spec import Spec
from ..networks.dynamics import EnsembleDynamics
from ..networks.training import current_training
from .model import Model, Outcomes

_LATEST = 0.01  # least share of a step's moments that enters the running ones
_LEAST = 1e-6  # deviation of what never changes


class Moments(nn.Module):
    """Running mean and deviation of vectors; the first steps count alike, later ones fade.

    `count` () are the steps that were met, `square` [n] the mean squared distance from `mean` [n].
    """

    count: Tensor
    mean: Tensor
    square: Tensor
    trains = True

    def __init__(self, n: int) -> None:
        super().__init__()
        self.path = ""  # the learner writes the layer's dotted name here
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("square", torch.ones(n))

    def forward(self, x: Tensor) -> None:
        """Takes note of vectors, [..., n]."""
        now = current_training()
        if now is None or now.statistics is None:
            return
        rows = x.detach().reshape(-1, x.shape[-1])
        share = (1 / (self.count + 1)).clamp(min=_LATEST)
        mean = self.mean + share * (rows.mean(0) - self.mean)
        square = self.square + share * ((rows - mean).square().mean(0) - self.square)
        told = {"count": self.count + 1, "mean": mean, "square": square}
        now.statistics.update({f"{self.path}.{name}": value for name, value in told.items()})

    def deviation(self) -> Tensor:
        """[n]; 1 before anything was met."""
        return torch.where(self.count > 0, self.square.sqrt().clamp(min=_LEAST), torch.ones_like(self.square))


class RunningModel(Model):
    """An ensemble that is being trained, of which at any time the `n_elites` best members by their held-out errors count."""

    def __init__(self, network: EnsembleDynamics, n_elites: int, termination: str, spec: Spec) -> None:
        super().__init__(network, torch.arange(network.members), {}, None, termination, spec, None)
        self.n_elites = n_elites
        self.seen, self.changes = Moments(network.outputs - 1), Moments(network.outputs)

    def forward(self, observation: Tensor, action: Tensor) -> Outcomes:
        """Expect as `Model` does, by the members that are the best by now."""
        found, best = super().forward(observation, action), self.network.held_out.best(self.n_elites)
        end = None if found.end is None else found.end[best]
        return Outcomes(found.following[best], found.reward[best], found.deviation[best], end)

    def meet(self, observation: Tensor, following: Tensor, reward: Tensor) -> None:
        """Takes note of raw transitions, [..., D], [..., D] and [...], for the scalers."""
        self.seen(observation)
        self.changes(torch.cat((following - observation, reward[..., None]), -1))

    def note(self, error: Tensor, goal: Tensor, held_out: Tensor) -> None:
        self.network.note(error, goal, held_out)

    def held_out_error(self) -> Tensor:
        return self.network.held_out_error()

    def scales(self) -> Tensor:
        return self.changes.deviation()

    def _scaled(self, name: str, x: Tensor) -> Tensor:
        return (x - self.seen.mean) / self.seen.deviation() if name == "observation" else x
