"""A value of continuous actions whose best action is known: a parabola around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...data.spec import ObservationSpace
from .encoders import Encoder
from .perceptrons import Linear, Observation


class QuadraticFunction(nn.Module):
    """Q(s, a) = V(s) - |L(s)ᵀ (a - μ(s))|² / 2 with μ in (-1, 1): [B, ...] and [B, A] to [B].

    L is lower triangular, and its diagonal is an exponential, so that L Lᵀ is positive definite and μ is the best action.
    Source: Gu et al. 2016, arXiv:1603.00748, equations 8 and 9.
    """

    below: Tensor

    def __init__(self, encoder: Encoder, observation: ObservationSpace, action_size: int) -> None:
        super().__init__()
        self.encoder = encoder.build(observation)
        features, rows, columns = self.encoder.features, *torch.tril_indices(action_size, action_size, -1)
        self.worth, self.best = Linear(features, 1), Linear(features, action_size)
        self.diagonal, self.rest = Linear(features, action_size), Linear(features, len(rows)) if len(rows) else None
        places = torch.zeros(len(rows), action_size * action_size)  # where each number below the diagonal goes
        places[torch.arange(len(rows)), rows * action_size + columns] = 1
        self.register_buffer("below", places)

    def forward(self, observation: Observation, action: Tensor) -> Tensor:
        features = self.encoder(observation)
        apart = action - self.best(features).tanh()
        scale = self.diagonal(features).exp()
        root = scale.unsqueeze(-1) * torch.eye(scale.shape[-1], dtype=scale.dtype, device=scale.device)  # [B, A, A], as ONNX has it
        if self.rest is not None:
            root = root + (self.rest(features) @ self.below).unflatten(-1, root.shape[-2:])
        return self.worth(features)[..., 0] - (root.mT @ apart.unsqueeze(-1)).square().sum((-2, -1)) / 2

    def action(self, observation: Observation) -> Tensor:
        """μ(s), [B, A]."""
        return self.best(self.encoder(observation)).tanh()

    def value(self, observation: Observation) -> Tensor:
        """V(s), the largest value, [B]."""
        return self.worth(self.encoder(observation))[..., 0]
