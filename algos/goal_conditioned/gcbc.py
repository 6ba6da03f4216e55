r"""Goal-conditioned behaviour cloning (GCBC): do what led to the goal, whatever it was meant for.

    L_π = E[ -log π(a|s, g) ],    g later in the episode of (s, a)                                           `hindsight.py`

π is normal with deviation 1, so that the loss is a squared error.

When      Always once, as `BC`: what does not beat it has learnt nothing from the goals. It puts no parts of episodes together.
Paper     Lynch et al.: Learning Latent Plans from Play, 2019, arXiv:1903.01973; Ghosh et al.: Learning to Reach Goals via Iterated
          Supervised Learning, 2019, arXiv:1912.06088; as in Park et al.: OGBench, ICLR 2025, arXiv:2410.20092.
Code      github.com/seohongpark/ogbench, impls/agents/gcbc.py, commit 1d41409 (MIT). Read, not copied.
Choices   1. Greedy actions are the mean clipped to [-1, 1], as in the code's evaluation.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...data.batch import Batch
from ...data.spec import Spec
from ..config import Preset
from ..definition import LossValue, Network, loss
from ..nets import Hyper, Nets
from .shared import CODE, THREE, GoalConditioned, GoalConfig, aimed, log_prob


class GCBCConfig(GoalConfig):
    """Settings of `GCBC`."""


class GCBC(GoalConditioned):
    """GCBC. Data: continuous actions in [-1, 1] after the action scaler. Rewards are not looked at."""

    Config: ClassVar = GCBCConfig
    presets: ClassVar = {
        "ogbench": Preset(f"{CODE}/gcbc.py, and the same for all of its tasks of states in impls/hyperparameters.sh", {}),
        "ogbench-pixels": Preset(
            "OGBench's code 1d41409, impls/hyperparameters.sh: the same for all ants in mazes from pictures",
            {
                "batch_size": 256,
                "observation_scaler": "pixel",
                "actor_encoder": {"name": "impala", **THREE.model_dump(include={"hidden_units", "activation", "initializer"})},
            },
        ),
    }
    actions: ClassVar = "continuous"
    looks_ahead: ClassVar = False
    exemptions: ClassVar = {**GoalConditioned.exemptions, "gamma": "goals are drawn by it with `geometric` alone"}

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {"policy": self.policy_network(spec, config)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("actor",)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        mean = nets.policy(aimed(batch.observation, batch.extra["actor_goal"]))
        return -log_prob(mean, batch.action), {"mse": (mean - batch.action).square().mean(-1)}
