"""Causal transformers: what turns a sequence of tokens into features that look at no later token.

A transformer is a config that builds a module, as encoders are. Blocks are GPT-2's, norms first (Radford et al. 2019, section 2.3).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...data.config import Config, setting
from ...data.errors import ConfigError
from .encoding import ACTIVATIONS
from .layers import Dropout
from .normalization import LayerNorm
from .perceptrons import Linear
from .training import autocast, lowered

_AUTHORS = "Chen et al. 2021, Table 9"
_CODE = "authors' code 046702e, gym/experiment.py and trajectory_gpt2.py"
_MASKED = -1e4  # added to the logits of what is not looked at: its share is 0 in every precision, and a row of such has no NaN
ALL = slice(None)


class Transformer(Config):
    n_layers: int = setting(3, "attention blocks", source=_AUTHORS, gt=0)
    n_heads: int = setting(1, "attention heads; the tokens' width is a multiple of it", source=_AUTHORS, gt=0)
    activation: Literal["relu", "tanh", "elu", "gelu", "silu", "leaky_relu"] = setting(
        "relu", "between the layers of a block's perceptron", source=_AUTHORS
    )
    expansion: int = setting(4, "width of that perceptron over the tokens'", source=_CODE, gt=0)
    embedding_dropout: float = setting(0.1, "of the tokens, while training", source=_AUTHORS, ge=0, lt=1)
    attention_dropout: float = setting(0.1, "of what attention looks at, while training", source=_AUTHORS, ge=0, lt=1)
    residual_dropout: float = setting(0.1, "of what a block adds to its input, while training", source=_AUTHORS, ge=0, lt=1)
    norm_epsilon: float = setting(1e-5, "ε of the layer norms in blocks and after them", source=_CODE, gt=0)
    initial_std: float = setting(0.02, "deviation of the weights at first; biases are 0", source=_CODE, gt=0)
    timestep_std: float = setting(1.0, "the same of the timesteps' embeddings", source="torch.nn.Embedding, as in the code", gt=0)

    def build(self, size: int) -> CausalTransformer:
        """The module over tokens of width `size`. Raises ConfigError where heads do not divide it."""
        if size % self.n_heads:
            raise ConfigError(f"The tokens of a transformer are {size} wide, which {self.n_heads} heads do not divide.")
        return CausalTransformer(size, self)


class CausalTransformer(nn.Module):
    """Blocks over tokens [B, L, E], each of which looks at itself and at those before it that the mask [B, L] lets through."""

    def __init__(self, size: int, config: Transformer) -> None:
        super().__init__()
        self.dropout = Dropout(config.embedding_dropout)
        self.blocks = nn.ModuleList(Block(size, config) for _ in range(config.n_layers))
        self.norm = LayerNorm(size, epsilon=config.norm_epsilon)
        for layer in self.modules():
            if isinstance(layer, Linear):
                nn.init.normal_(layer.weight, std=config.initial_std)
                nn.init.zeros_(layer.bias)

    def __call__(self, *inputs: Any, **named: Any) -> Tensor:
        if (device := lowered()) is None:
            return super().__call__(*inputs, **named)
        with autocast(device):
            return super().__call__(*inputs, **named).float()

    def forward(self, tokens: Tensor, mask: Tensor, read: slice = ALL) -> Tensor:
        """Features [B, R, E] of the tokens `read`; what only others would need is left out of the last block."""
        place = torch.arange(tokens.shape[1], device=tokens.device)
        looked_at = (place <= place[:, None]) & mask[:, None]  # [B, L, L]: by the token, what it looks at
        x, bias = self.dropout(tokens), _MASKED * (~looked_at).to(tokens.dtype)[:, None]
        *first, last = self.blocks
        for block in first:
            x = block(x, bias)
        return self.norm(last(x, bias, read))


class Block(nn.Module):
    def __init__(self, size: int, config: Transformer) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(size, epsilon=config.norm_epsilon)
        self.attention = Attention(size, config)
        self.perceptron_norm = LayerNorm(size, epsilon=config.norm_epsilon)
        wide = config.expansion * size
        self.perceptron = nn.Sequential(Linear(size, wide), ACTIVATIONS[config.activation](), Linear(wide, size))
        self.dropout = Dropout(config.residual_dropout)

    def forward(self, x: Tensor, bias: Tensor, read: slice = ALL) -> Tensor:
        """[B, L, E], and [B, 1, L, L] added to attention's logits, to [B, R, E]."""
        x = x[:, read] + self.dropout(self.attention(self.attention_norm(x), bias, read))
        return x + self.dropout(each(self.perceptron, self.perceptron_norm(x)))


class Attention(nn.Module):
    """Dot-product attention of several heads (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, size: int, config: Transformer) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.query, self.key_value = Linear(size, size), Linear(size, 2 * size)
        self.out = Linear(size, size)
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, x: Tensor, bias: Tensor, read: slice = ALL) -> Tensor:
        query = self._heads(each(self.query, x[:, read]))
        key, value = map(self._heads, each(self.key_value, x).chunk(2, -1))
        logits = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5 + bias[..., read, :]
        seen = self.dropout(logits.softmax(-1)) @ value  # [B, heads, R, E / heads]
        return each(self.out, seen.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


def each(layer: nn.Module, x: Tensor) -> Tensor:
    """Applies a layer of rows to each token: [B, L, E] to [B, L, …]. A product of one matrix is the fastest."""
    return layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])
