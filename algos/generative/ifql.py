r"""Implicit flow Q-learning (IFQL): IQL's critics choose among actions that a flow of the data's actions draws.

    value, critic   L_V, L_Q of `iql.py`, whose policy has no part in them
    flow            L_v, of the data's actions                                                                   `flow.py`
    policy          the best of N actions x_1 of the flow, as min_i Q_i(s, x_1) has it                          `IFQL.act`

Symbols   ε = `expectile`, N = `n_action_samples`, M = `flow_steps`; the others as in `iql.py` and `flow.py`.
When      As IQL where actions have several modes, or where its weighted regression is not enough. ε and N are to be tuned;
          an action costs N · M passes of the velocity.
Paper     Park, Li, Levine: Flow Q-Learning, ICML 2025, arXiv:2502.02538, section 5 and appendix: IDQL (Hansen-Estruch et al. 2023,
          arXiv:2304.10573) with a flow in place of diffusion.
Code      github.com/seohongpark/fql, agents/ifql.py, commit 719d044 (MIT). Read, not copied.
Choices   1. Value, critic and flow see each other as the last step left them, as in the code.
          2. Every action is drawn, the greedy ones too, as in the code.
          3. Layer norm adds 1e-5 to the variance, as torch's; JAX's adds 1e-6. Last layers begin as torch's.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ...data.batch import Batch
from ...data.spec import Spec
from ..config import Preset
from ..definition import Network, Verbs, due
from ..in_sample.iql import InSampleValues
from ..losses.sampled_actions import repeated
from ..nets import Nets
from ..ports import Noise, Ports
from .flow import Flow, FlowConfig
from .rejection import IFQL_CODE, Rejection, RejectionConfig


class IFQLConfig(FlowConfig, RejectionConfig):
    """Settings of `IFQL`."""


class IFQL(Flow, Rejection, InSampleValues):
    """IFQL, offline or online. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = IFQLConfig
    actions: ClassVar = "continuous"
    presets: ClassVar = {"paper": Preset(IFQL_CODE, {})}

    def networks(self, spec: Spec, config: IFQLConfig) -> dict[str, Network]:
        return {"flow": self.flow_network(spec, config), **self.value_networks(spec, config)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, joint_step=1, targets=self.config_.target_update_interval or 1)

    def joint_step(self, learner: Verbs, batch: Batch) -> None:
        """Choice 1: the critics move before the value that is their goal; it reads their targets, which move last."""
        learner.minimise(self.critic_loss, "critic", batch)
        learner.minimise(self.value_loss, "value", batch)
        learner.minimise(self.flow_loss, "flow", batch)

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"action": Noise((config.n_action_samples, *spec.action.shape), always=True)}

    def proposals(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        return self.flow(nets, repeated(observation, noise.shape[0]), noise.flatten(0, 1))
