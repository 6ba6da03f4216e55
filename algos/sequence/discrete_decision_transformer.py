r"""Decision Transformer for discrete actions: its Atari version, which classifies what the data did for so much return.

    loss     L(θ) = E[ -log π_θ(a_t | R_{≤t}, s_{≤t}, a_{<t}) ]             `DiscreteDecisionTransformer.imitation_loss`
    tokens   tanh of the embeddings of R_t, s_t and a_t, each plus e_T + p_t           `networks/trajectories.py`

π is a softmax over the products of a causal transformer's features with a vector for each action. e_T is the embedding of the
context's last timestep, and p_t that of the step's place in it (`position_encoding="global"`). The likeliest action acts.

Symbols   K = `context`, R_0 = `target_returns`; returns are scaled as rewards are, by `reward_scaler`.
When      As `DecisionTransformer`, with discrete actions: returns that differ, late rewards, a return that can be asked for.
Paper     Chen, Lu, Rajeswaran, Lee, Grover, Laskin, Abbeel, Srinivas, Mordatch: Decision Transformer: Reinforcement Learning via
          Sequence Modeling, NeurIPS 2021, arXiv:2106.01345, section 4.1 and Table 8.
Code      github.com/kzl/decision-transformer, atari/, commit 5605e40 (MIT). Read, not copied.
Choices   1. The mean over steps that are there; d3rlpy 2.8.1 learns from padding too, whose action is 0.
          2. Every step has one place, as in d3rlpy; in the code each of its three tokens has, and e is of the first
             timestep when training; it begins at 0, and with a deviation of 0.02 in d3rlpy and here.
          3. The rate's schedule counts gradient steps; in code and d3rlpy it counts steps of the data. 30 million of those are
             7,812 batches of 128 stretches of 30 steps. There the rate would rise again after the end of its cosine.
          4. All parameters decay; in the code biases, norms and embeddings do not.
          5. d3rlpy's ε of layer norms is 3e-3, and its timesteps count from 1, with 0 for padding, which is masked.
          6. The likeliest action acts, as in d3rlpy; the code draws from π.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from ...data.batch import Context, Sequences
from ...data.config import setting
from ...data.spec import Spec
from ..config import Preset
from ..definition import LossValue, loss
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder, PixelEncoder
from ..networks.trajectories import DiscreteTrajectoryPolicy
from ..networks.transformers import Transformer
from ..optimizers import AdamW, Cosine, Optimizer
from ..ports import Tensors
from .decision_transformer import DecisionTransformer
from .shared import SequenceConfig

PAPER = "Chen et al. 2021, Table 8"
D3RLPY = "d3rlpy 2.8.1, algos/transformer/decision_transformer.py"
FALLING = Cosine(warm_up=3, duration=7_809, final=0.1)


class DiscreteDecisionTransformerConfig(SequenceConfig):
    batch_size: int = setting(128, "stretches in a gradient step", source=PAPER, gt=0)
    learning_rate: float = setting(6e-4, "of the transformer", source=PAPER, gt=0)
    optimizer: Optimizer = setting(
        AdamW(betas=(0.9, 0.95), weight_decay=0.1, max_grad_norm=1.0, schedule=FALLING), "what steps the transformer", source=PAPER
    )
    encoder: Encoder = setting(
        DefaultEncoder(hidden_units=(128,), last_activation="none"),
        "what embeds an observation; its width is a token's",
        source=PAPER,
    )
    transformer: Transformer = setting(
        Transformer(n_layers=6, n_heads=8, activation="gelu", timestep_std=0.02), "layers, heads and dropout", source=PAPER
    )
    embed_activation: Literal["tanh", "relu", "gelu", "none"] = setting("tanh", "of the tokens' embeddings", source=D3RLPY)
    position_encoding: Literal["simple", "global"] = setting(
        "global", "of each step's timestep, or of the last timestep and of a step's place", source=D3RLPY
    )


class DiscreteDecisionTransformer(DecisionTransformer):
    """Decision Transformer for discrete actions, offline.

    Data: whole episodes of different returns. A policy acts for a return, in the units of the environment's rewards, and remembers:
    see `policy`, `as_stateful_wrapper` and `target_returns`.
    """

    Config: ClassVar = DiscreteDecisionTransformerConfig
    actions: ClassVar = "discrete"
    exemptions: ClassVar = {
        "target_returns": "after a few updates the likeliest action is the same for every return",
    }
    presets: ClassVar = {
        "paper": Preset(
            f"{PAPER}, but for Pong; convolutions as `PixelEncoder`'s",
            {"context": 30, "encoder": PixelEncoder(feature_size=128, last_activation="none"), "observation_scaler": "pixel"},
        ),
        "d3rlpy": Preset(
            f"{D3RLPY} and models/torch/transformers.py; its schedule for stretches of 20 steps",
            {
                "anchor": "last",
                "optimizer": {"name": "adam", "schedule": Cosine(warm_up=4, duration=11_715, final=0.1)},
                "encoder": DefaultEncoder(),
                "transformer": Transformer(n_layers=6, n_heads=8, activation="gelu", norm_epsilon=3e-3, timestep_std=0.02),
            },
        ),
    }

    def policy_network(self, spec: Spec, config: Any) -> nn.Module:
        return DiscreteTrajectoryPolicy(
            config.encoder,
            spec.observation,
            spec.n_actions,
            config.transformer,
            max_timestep=config.max_timestep,
            activation=config.embed_activation,
            places=config.context if config.position_encoding == "global" else None,
        )

    @loss("sample step")
    def imitation_loss(self, nets: Nets, batch: Sequences, h: Hyper) -> LossValue:
        log_prob = nets.policy(batch.seen).log_softmax(-1)
        return -log_prob.gather(-1, batch.action[..., None])[..., 0], {}

    def act(self, nets: Nets, observation: Context, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return nets.policy.last(observation).argmax(-1), state
