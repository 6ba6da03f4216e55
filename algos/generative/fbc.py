r"""Flow behaviour cloning (FBC): do what the data did, where they did several things too; see `flow.py` for the equations.

    policy    a = clip(x_1, -1, 1),    dx/dt = v(s, x, t),    x_0 ~ N(0, 1)

A regression (`BC`) acts by the mean of what the data did, which may be what nobody did: between two ways around an obstacle. A
flow draws one of them.

When      Data of several behaviours, of people above all. Where one action a state is right, `BC` is as good and ten times as
          fast to ask. Rewards are not looked at.
Paper     Lipman et al.: Flow Matching for Generative Modeling, 2022, arXiv:2210.02747; as a policy: Park, Li, Levine: Flow
          Q-Learning, 2025, arXiv:2502.02538, whose behaviour policy it is.
Code      github.com/seohongpark/fql, agents/fql.py, commit 719d044 (MIT). Read, not copied.
Choices   1. Every action is drawn, the greedy ones too, as in the code: a policy that takes the same noise everywhere would be
             another one. Exported policies take the noise as an input.
          2. Layer norm adds 1e-5 to the variance, as torch's; JAX's adds 1e-6. Last layers begin as torch's.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ...data.config import setting
from ...data.spec import Spec
from ..config import ActionsConfig, AlgorithmConfig, SampledConfig
from ..definition import Network, transitions
from ..nets import Nets
from ..ports import Noise, Ports, Tensors
from ..wants import Wants
from .flow import FQL_CODE, Flow, FlowConfig


class FBCConfig(FlowConfig, SampledConfig, ActionsConfig):
    once: ClassVar = AlgorithmConfig

    batch_size: int = setting(256, "transitions in a gradient step", source=FQL_CODE, gt=0)


class FBC(Flow):
    """Flow behaviour cloning. Data: continuous actions in [-1, 1] after the action scaler. Rewards are not looked at."""

    Config: ClassVar = FBCConfig
    actions: ClassVar = "continuous"
    has_td_errors: ClassVar = False

    def networks(self, spec: Spec, config: FBCConfig) -> dict[str, Network]:
        return {"flow": self.flow_network(spec, config)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",)

    def wants(self, config: Any) -> Wants:
        return transitions(config, following=False)

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"noise": Noise(spec.action.shape, always=True)}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return self.flow(nets, observation, noise["noise"]), state
