"""Networks over the latest steps of an episode: a return to go, an observation and an action become three tokens a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.utils import _pytree as pytree  # it has no public name yet

from ...data.batch import Context
from ...data.spec import ObservationSpace
from .encoders import Encoder
from .encoding import ACTIVATIONS
from .legal import legal_only
from .normalization import LayerNorm
from .perceptrons import Linear
from .transformers import Transformer


class TrajectoryTransformer(nn.Module):
    """Features of each step's observation token, which looks at the steps before it, its return to go and itself: [B, T, E].

    The tokens of a step are (return to go, observation, action), each an embedding plus that of the timestep, normalised; or, as in
    Atari, an embedding through an activation plus that of the last timestep and that of the step's place in the context.

    Args:
        encoder: Of an observation; its width is the tokens'. A vector encoder without activation is the paper's affine layer.
        observation: What it encodes.
        embed_action: Makes, for a width E, what embeds the actions of N steps, [N, …] to [N, E].
        transformer: What looks back.
        max_timestep: Timesteps that are told apart; later ones are taken for the last.
        activation: Of embeddings, which are not normalised then; None: they are.
        places: Steps of a context, whose places have embeddings; None: each step has that of its timestep.
    """

    def __init__(
        self,
        encoder: Encoder,
        observation: ObservationSpace,
        embed_action: Callable[[int], nn.Module],
        transformer: Transformer,
        *,
        max_timestep: int,
        activation: str | None = None,
        places: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder.build(observation)
        self.features = self.encoder.features
        self.embed_return, self.embed_action = Linear(1, self.features), embed_action(self.features)
        self.timestep = nn.Parameter(torch.randn(max_timestep, self.features) * transformer.timestep_std)
        self.place = None if places is None else nn.Parameter(torch.zeros(places, self.features))
        self.activation = ACTIVATIONS[activation or "none"]()
        self.norm = LayerNorm(self.features) if activation is None else nn.Identity()
        self.transformer = transformer.build(self.features)

    def forward(self, context: Context) -> Tensor:
        return self._read(context, slice(1, None, 3))

    def last(self, context: Context) -> Tensor:
        return self._read(context, slice(-1, None))[:, 0]

    def _read(self, context: Context, read: slice) -> Tensor:
        lead = context.mask.shape
        time = embedding(context.timestep.clamp(max=len(self.timestep) - 1), self.timestep)
        seen = self.encoder(pytree.tree_map(lambda part: part.flatten(0, 1), context.observation))
        parts = (self.embed_return(context.return_to_go.reshape(-1, 1)), seen, self.embed_action(context.action.flatten(0, 1)))
        if self.place is not None:
            time = time[:, -1:] + self.place[-lead[1] :]  # padding comes first, so that the last step has the last place
        tokens = torch.stack([self.activation(part).unflatten(0, lead) + time for part in parts], 2).flatten(1, 2)
        mask = context.mask[..., None].expand(*lead, 3).flatten(1)
        return self.transformer(self.norm(tokens[:, :-1]), mask[:, :-1], read)  # nothing looks at the last action


class ActionVectors(nn.Module):
    """A vector of width E for each of n actions."""

    def __init__(self, n: int, width: int, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, width) * std)

    def forward(self, action: Tensor) -> Tensor:
        return embedding(action, self.weight)

    def products(self, features: Tensor) -> Tensor:
        return features @ self.weight.transpose(-2, -1)


class DiscreteTrajectoryPolicy(nn.Module):
    """Logits of π(a_t | R_≤t, s_≤t, a_<t): a `Context` to [B, T, n]; arguments as `TrajectoryTransformer`'s."""

    def __init__(
        self, encoder: Encoder, observation: ObservationSpace, n_actions: int, transformer: Transformer, **more: Any
    ) -> None:
        super().__init__()
        std = transformer.initial_std
        self.body = TrajectoryTransformer(
            encoder, observation, lambda width: ActionVectors(n_actions, width, std), transformer, **more
        )
        self.head = ActionVectors(n_actions, self.body.features, std)

    def forward(self, context: Context) -> Tensor:
        return legal_only(self.head.products(self.body(context)), context.observation)

    def last(self, context: Context) -> Tensor:
        return legal_only(self.head.products(self.body.last(context))[:, None], context.observation)[:, -1]


class TrajectoryPolicy(nn.Module):
    """π(a_t | R_≤t, s_≤t, a_<t) in (-1, 1): a `Context` to [B, T, A]; arguments as `TrajectoryTransformer`'s."""

    def __init__(
        self,
        encoder: Encoder,
        observation: ObservationSpace,
        action_size: int,
        transformer: Transformer,
        *,
        max_timestep: int,
    ) -> None:
        super().__init__()
        self.body = TrajectoryTransformer(
            encoder,
            observation,
            lambda width: Linear(action_size, width),
            transformer,
            max_timestep=max_timestep,
        )
        self.head = Linear(self.body.features, action_size)

    def forward(self, context: Context) -> Tensor:
        return self.head(self.body(context)).tanh()

    def last(self, context: Context) -> Tensor:
        return self.head(self.body.last(context)).tanh()
