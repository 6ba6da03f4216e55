r"""Q-chunking (QC): a policy that names the next h actions at once, which are then played without looking, and their value.

    chunk     A = (a_t, …, a_{t+h-1}), one action of h times the size
    critic    L_Q = E[ v Σ_i (Σ_k γᵏ r_{t+k} + γʰ mean_j Q'_j(s_{t+h}, A') - Q_i(s, A))² ]                  `QC.critic_loss`
    flow      L_v of `flow.py`, of chunks: the mean over all their entries, v_k of action k                       `QC.flow_loss`
    policy    `actor` "best_of_n": the best of N chunks of the flow, as mean_i Q_i has it
              `actor` "distilled": the policy of `fql.py`, which the flow's end and Q draw (QC-FQL)
    acting    a chunk is drawn where the one before is used up, and its actions follow each other           `QC.act`

v_k is 1 where the episode has the step t + k, else 0; v is 1 where it has all h, or the MDP ended before. A return of h steps whose
actions are all part of what is valued has no bias, other than one of n steps of a single action; and a policy that keeps to its
chunk explores as steadily as the data do.

Symbols   h = `td_steps`, N = `n_action_samples`; the others as in `fql.py`, whose choices are kept.
When      Rare rewards and long tasks, data whose actions go together for some steps: manipulation. Where the world may push in
          between, h must be short: nobody looks before a chunk is over.
Paper     Li, Zhou, Levine: Reinforcement Learning with Action Chunking, NeurIPS 2025, arXiv:2507.07969.
Code      github.com/ColinQiyangLi/qc, agents/acfql.py, commit 48283b4 (MIT). Read, not copied.
Choices   1. Windows that an episode's end cuts short count in L_v with the actions they have. In L_Q they count where the MDP
             ended, and their last action stands for those that never came: else nothing would teach the value of the last steps
             before an end, from which the others bootstrap. The code leaves them out.
          2. γʰ counts the steps that there are: a window that ends terminated bootstraps nothing, as in the code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.errors import DataError, named
from ...data.sampling.returns import WINDOW
from ...data.spec import Box, Spec
from ..base import Algorithm
from ..config import Preset
from ..definition import LossValue, Network, Verbs, loss, precomputed, transitions
from ..losses.sampled_actions import apart, repeated, taken
from ..nets import Hyper, Nets
from ..networks.q_functions import reduced
from ..ports import Memory, Noise, Ports, Tensors
from ..wants import Wants
from .fql import FQL, FQLConfig

if TYPE_CHECKING:
    from ...data.dataset import Dataset

QC_CODE = "authors' code of QC 48283b4, agents/acfql.py and README"


class QCConfig(FQLConfig):
    td_steps: int = setting(5, "h: actions that are named at once, and steps of a return", source=QC_CODE, gt=0)
    actor: Literal["best_of_n", "distilled"] = setting("best_of_n", "how chunks are chosen", source=QC_CODE)
    n_action_samples: int = setting(32, "N: chunks whose best is played", source=QC_CODE, gt=0)
    alpha: float = setting(100.0, "α: weight of the distance from the flow, of `distilled`", source=QC_CODE, ge=0)


class QC(FQL):
    """QC, offline or online. Data: continuous actions in [-1, 1] after the action scaler, in episodes longer than a chunk."""

    Config: ClassVar = QCConfig
    presets: ClassVar = {
        "paper": Preset(QC_CODE, {}),
        "qc-fql": Preset(QC_CODE, {"actor": "distilled"}),
    }
    exemptions: ClassVar = dict.fromkeys(
        ("alpha", "normalize_q", "actor_learning_rate", "actor_optimizer", "actor_encoder"), "of `distilled`"
    )
    values = Algorithm.values  # Q is of a chunk, and nobody predicts with one

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        networks = super().networks(_chunked(spec, config.td_steps), config)
        return networks if config.actor == "distilled" else {name: net for name, net in networks.items() if name != "policy"}

    def completed(self, config: QCConfig, dataset: Dataset) -> Any:
        """Raises DataError where no episode is as long as a chunk."""
        if (longest := int(dataset.episodes.steps.max())) < config.td_steps:
            raise DataError(
                f"QC names {config.td_steps} actions at once, and the longest episode of {dataset.name!r} has {longest} steps: "
                f"lower {named('td_steps')}."
            )
        return super().completed(config, dataset)

    def wants(self, config: QCConfig) -> Wants:
        return transitions(config, extra=(WINDOW,))

    def joint_step(self, learner: Verbs, batch: Batch) -> None:
        batch = learner.precompute(self.next_action, replace(batch, action=batch.extra[WINDOW].flatten(-2)))
        if self.config_.actor == "distilled":
            learner.minimise(self.actor_loss, "policy", batch)
        learner.minimise(self.flow_loss, "flow", batch)
        learner.minimise(self.critic_loss, "critic", batch)

    @precomputed
    def next_action(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        shape = self.noise_shape(self.spec_, self.config_)
        return self.chunk(nets, batch.next_observation, nets.noise("next action", (len(batch.reward), *shape)))

    @loss("sample")
    def flow_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        each = self.matching(nets, batch)
        there = batch.extra["window_mask"]
        return (each.unflatten(-1, (there.shape[-1], -1)) * there[..., None]).mean((-2, -1)), {}

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        each, metrics = super().critic_loss(nets, batch, h)
        whole, ended = batch.extra["window_mask"][..., -1], (batch.discount == 0).to(each.dtype)
        return each * whole.maximum(ended), metrics

    def chunk(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        """Chunks [B, h·A] of noise [B, h·A], or of N times as much, [B, N, h·A]."""
        if self.config_.actor == "distilled":
            return self.one_step(nets, observation, noise)
        n = noise.shape[1]
        seen = repeated(observation, n)
        chunks = self.flow(nets, seen, noise.movedim(1, 0).flatten(0, 1))
        best = apart(reduced(nets.critic(seen, chunks), self.config_.target_value), n).argmax(0)
        return taken(chunks.unflatten(0, (n, -1)), best)

    def noise_shape(self, spec: Spec, config: QCConfig) -> tuple[int, ...]:
        size = config.td_steps * spec.action.shape[0]
        return (size,) if config.actor == "distilled" else (config.n_action_samples, size)

    def ports(self, spec: Spec, config: QCConfig) -> Ports:
        return {
            "chunk": Memory((config.td_steps, *spec.action.shape)),
            "left": Memory((1,)),
            "noise": Noise(self.noise_shape(spec, config), always=True),
        }

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        """The next action of the chunk under way, or the first of a new one."""
        fresh = self.chunk(nets, observation, noise["noise"]).unflatten(-1, state["chunk"].shape[-2:])
        begins = state["left"] < 0.5  # a count: it is 0
        chunk = torch.where(begins[..., None], fresh, state["chunk"])
        left = torch.where(begins, torch.full_like(state["left"], chunk.shape[-2] - 1), state["left"] - 1)
        return chunk[:, 0], {"chunk": torch.cat((chunk[:, 1:], chunk[:, :1]), 1), "left": left}


def _chunked(spec: Spec, h: int) -> Spec:
    """The spaces with actions h times the size, for networks."""
    (size,) = spec.action.shape
    return spec.model_copy(update={"action": Box(shape=(h * size,), dtype="float32")})
