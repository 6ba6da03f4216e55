r"""A flow of actions: noise moves along a learnt velocity until it is an action that the data might have.

    flow        dx/dt = v(s, x, t),    x_0 = z ~ N(0, 1),    x_1 an action; Euler's method in M steps             `Flow.flow`
    matching    L_v = E[ |v(s, x_t, t) - (a - z)|² ],    x_t = (1 - t) z + t a,    t ~ U(0, 1)              `Flow.flow_loss`

Flow matching has the straight line from a draw of noise to the data's action as its target; what is learnt is the mean of all
lines through x_t, whose flow has the data's distribution (Lipman et al. 2022, arXiv:2210.02747). |·|² is a mean over the entries
of an action.

Symbols   v = the network `flow`, M = `flow_steps`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..base import Algorithm
from ..config import TrainedConfig
from ..definition import LossValue, Network, Verbs, loss
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.vector_fields import VectorField, integrated
from ..optimizers import Adam, Optimizer

FQL_CODE = "authors' code of FQL 719d044, agents/fql.py and utils/networks.py"
FOUR = (512, 512, 512, 512)
LAYERS = DefaultEncoder(hidden_units=FOUR, activation="gelu_tanh", initializer="xavier_uniform")
NORMALISED = LAYERS.model_copy(update={"normalization": "layer"})


class FlowConfig(TrainedConfig):
    flow_steps: int = setting(10, "M: steps from noise to an action", source=FQL_CODE, gt=0)
    flow_learning_rate: float = setting(3e-4, "of the velocity", source=FQL_CODE, gt=0)
    flow_optimizer: Optimizer = setting(Adam(), "what steps the velocity", source=FQL_CODE)
    flow_encoder: Encoder = setting(LAYERS, "hidden layers of the velocity", source=FQL_CODE)


class Flow(Algorithm):
    """Algorithms with the network `flow`."""

    def flow_network(self, spec: Spec, config: Any) -> Network:
        field = VectorField(config.flow_encoder, spec.observation, spec.action.shape[0])
        return Network(field, "flow_learning_rate", optimizer=config.flow_optimizer)

    def imitate(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.flow_loss, "flow", batch)

    @loss("sample")
    def flow_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_v of each sample, [B]."""
        return self.matching(nets, batch).mean(-1), {}

    def matching(self, nets: Nets, batch: Batch) -> Tensor:
        """The squared errors of the velocity, [B, A]."""
        noise, t = nets.noise("noise", batch.action.shape), nets.uniform("time", (len(batch.action), 1))
        velocity = nets.flow(batch.observation, (1 - t) * noise + t * batch.action, t)
        return (velocity - (batch.action - noise)).square()

    def flow(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        """Where noise [B, A] ends, clipped to [-1, 1]."""
        return integrated(lambda x, t: nets.flow(observation, x, t), noise, self.config_.flow_steps).clamp(-1, 1)
