r"""Decision Transformer (DT): what the data did where so much return was still to come; ask for much when acting.

    loss     L(θ) = E[ (a_t - π_θ(R_{≤t}, s_{≤t}, a_{<t}))² ],    over the steps of a stretch   `DecisionTransformer.imitation_loss`
    return   R_t = Σ_{k ≥ t} r_k, undiscounted; acting, R_0 is asked for and R_{t+1} = R_t - r_t                `context_policy.py`

π is a causal transformer over the tokens (R_t, s_t, a_t) of the latest K steps; the action is read from the token of s_t, through
tanh. Stretches shorter than K, at the ends of episodes and at their beginnings when acting, are padded and the padding is masked.

Symbols   K = `context`, R_0 = `target_returns`; returns are scaled as rewards are, by `reward_scaler`.
When      Episodes whose returns differ, sparse or late rewards, and a return that can be asked for. It imitates whole episodes
          and does not put parts together; it needs memory at each decision.
Paper     Chen, Lu, Rajeswaran, Lee, Grover, Laskin, Abbeel, Srinivas, Mordatch: Decision Transformer: Reinforcement Learning via
          Sequence Modeling, NeurIPS 2021, arXiv:2106.01345.
Code      github.com/kzl/decision-transformer, gym/, commit 046702e (MIT). Read, not copied.
Choices   1. The mean over steps that are there and over an action's entries, as in the code. d3rlpy 2.8.1 sums over the entries and
             divides by padded steps too.
          2. Stretches begin at a step drawn uniformly, as in the code; d3rlpy's end there (`anchor`).
          3. The rate rises over 10⁴ steps, as in the code; the paper's Table 9 says 10⁵. d3rlpy has no warm-up, decay or clipping.
          4. An observation is embedded by one affine layer, as in the code; d3rlpy's encoder has two layers of 256 with ReLU.
          5. Timesteps' embeddings begin with deviation 1, as in the code; d3rlpy's with 0.02, and its ε of layer norms is 3e-3.
          6. Timesteps count from 0, as in the code; d3rlpy's from 1, with 0 for padding, which is masked.
          7. The code's heads for states and returns are left out: nothing trains them.
          8. d3rlpy's global position encoding is in `discrete_decision_transformer.py` only.
          9. Where another action is done than was proposed, an explorer's say, that one is looked back at; who steps a policy by
             hand, or out of a package, tells it by `executed` beside `rewarded`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from ...data.batch import Context, Sequences
from ...data.config import setting
from ...data.spec import Spec
from ..config import ActionsConfig, Preset
from ..definition import LossValue, Network, Verbs, loss
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.trajectories import TrajectoryPolicy
from ..networks.transformers import Transformer
from ..optimizers import AdamW, Optimizer, WarmUp
from ..ports import Tensors
from ..presets import TaskPresets
from .shared import SequenceAlgorithm, SequenceConfig

PAPER = "Chen et al. 2021, Table 9"
CODE = "authors' code 046702e, gym/experiment.py"
SCALED: dict[str, Any] = {"observation_scaler": "standard", "reward_scaler": {"name": "multiply", "multiplier": 1e-3}}


class DecisionTransformerConfig(SequenceConfig, ActionsConfig):
    batch_size: int = setting(64, "stretches in a gradient step", source=PAPER, gt=0)
    learning_rate: float = setting(1e-4, "of the transformer", source=PAPER, gt=0)
    optimizer: Optimizer = setting(
        AdamW(weight_decay=1e-4, max_grad_norm=0.25, schedule=WarmUp(warm_up=10_000)),
        "what steps the transformer",
        source=f"{PAPER}; {CODE}",
    )
    encoder: Encoder = setting(
        DefaultEncoder(hidden_units=(128,), last_activation="none"),
        "what embeds an observation; its width is a token's",
        source=PAPER,
    )
    transformer: Transformer = setting(Transformer(), "layers, heads and dropout", source=PAPER)


class DecisionTransformer(SequenceAlgorithm):
    """Decision Transformer, offline.

    Data: whole episodes of continuous actions in [-1, 1] after the action scaler, of different returns. A policy acts for a return,
    in the units of the environment's rewards, and remembers: see `policy`, `as_stateful_wrapper` and `target_returns`.
    """

    Config: ClassVar = DecisionTransformerConfig
    actions: ClassVar = "continuous"
    presets: ClassVar = {
        "paper": Preset(f"{PAPER}; {CODE}", SCALED),
        "d3rlpy": Preset(
            "d3rlpy 2.8.1, algos/transformer/decision_transformer.py and models/torch/transformers.py",
            {
                "anchor": "last",
                "optimizer": "adam",
                "encoder": DefaultEncoder(),
                "transformer": Transformer(norm_epsilon=3e-3, timestep_std=0.02),
            },
        ),
    } | TaskPresets(__file__, DecisionTransformerConfig)

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {"policy": Network(self.policy_network(spec, config), "learning_rate", optimizer=config.optimizer)}

    def policy_network(self, spec: Spec, config: Any) -> nn.Module:
        size, latest = spec.action.shape[0], config.max_timestep
        return TrajectoryPolicy(config.encoder, spec.observation, size, config.transformer, max_timestep=latest)

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",)

    def imitate(self, learner: Verbs, batch: Sequences) -> None:
        learner.minimise(self.imitation_loss, "policy", batch)

    @loss("sample step")
    def imitation_loss(self, nets: Nets, batch: Sequences, h: Hyper) -> LossValue:
        """L of each step, [B, T]. Padding does not count."""
        return (nets.policy(batch.seen) - batch.action).square().mean(-1), {}

    def act(self, nets: Nets, observation: Context, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return nets.policy.last(observation), state
