r"""Implicit diffusion Q-learning (IDQL): IQL's critics choose among actions that a diffusion of the data's actions draws.

    value, critic   L_V, L_Q of `iql.py`, whose policy has no part in them
    diffusion       L_ε, of the data's actions                                                              `diffusion.py`
    policy          the best of N actions of the diffusion, as min_i Q_i has it                                `IDQL.act`

The diffusion that acts is a slow average of the one that is trained.

Symbols   ε of IQL = `expectile`, N = `n_action_samples`, K = `diffusion_steps`; the others as in `iql.py` and `diffusion.py`.
When      As IQL where actions have several modes, or where its weighted regression is not enough. `IFQL` is the same with a flow.
Paper     Hansen-Estruch, Kostrikov, Janner, Kuba, Levine: IDQL: Implicit Q-Learning as an Actor-Critic Method with Diffusion
          Policies, 2023, arXiv:2304.10573.
Code      github.com/philippe-eecs/IDQL, jaxrl5/agents/ddpm_iql/ddpm_iql_learner.py, commit 7582571 (MIT). Read, not copied.
Choices   1. Order: diffusion, value, critic, as in the code: the critics' goal is this step's value.
          2. The best of N acts, as in the code's evaluation; the paper's general form draws one by the weight that the expectile
             implies. The code judges by the critics' targets, here by the critics.
          3. |·|² is a mean over an action's entries, in the code a sum: Adam does not notice.
          4. Weights begin as torch's, in the code as Xavier has it; the parameters of the time's features have the 2π of w in them,
             so that Adam moves w less.
          5. The code steps the diffusion by AdamW with optax's decay of 1e-4; here by Adam. Value and critics have 256, 256.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import Preset
from ..definition import Network, Verbs, due
from ..in_sample.iql import RETURNS, InSampleValues
from ..losses.sampled_actions import repeated
from ..nets import Nets
from ..networks.diffusion import IDQL_CODE
from ..networks.encoders import DefaultEncoder, Encoder
from ..optimizers import Adam, Cosine, Optimizer
from ..ports import Noise, Ports
from .diffusion import Diffusing, DiffusionConfig
from .rejection import Rejection, RejectionConfig

LAUNCHER = "authors' code of IDQL 7582571, launcher/examples/train_ddpm_iql_offline.py"


class IDQLConfig(DiffusionConfig, RejectionConfig):
    batch_size: int = setting(512, "transitions in a gradient step", source=LAUNCHER, gt=0)
    expectile: float = setting(0.7, "ε: which expectile of Q the value learns", source=LAUNCHER, gt=0, lt=1)
    n_action_samples: int = setting(64, "N: actions whose best acts", source=LAUNCHER, gt=0)
    critic_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the critics", source=IDQL_CODE)
    value_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the value function", source=IDQL_CODE)
    diffusion_optimizer: Optimizer = setting(Adam(schedule=Cosine(duration=3_000_000)), "what steps the diffusion", source=LAUNCHER)


class IDQL(Diffusing, Rejection, InSampleValues):
    """IDQL, offline or online. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = IDQLConfig
    actions: ClassVar = "continuous"
    averages: ClassVar = ("diffusion",)
    clip: ClassVar = "each"
    presets: ClassVar = {
        "paper": Preset(f"D4RL locomotion: {LAUNCHER}", {"reward_scaler": RETURNS}),
        "d4rl-antmaze": Preset(
            f"AntMaze: {LAUNCHER}", {"expectile": 0.9, "reward_scaler": {"name": "constant_shift", "shift": -1}}
        ),
    }

    def networks(self, spec: Spec, config: IDQLConfig) -> dict[str, Network]:
        return {"diffusion": self.diffusion_network(spec, config), **self.value_networks(spec, config)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, imitate=1, joint_step=1, targets=self.config_.target_update_interval or 1)

    def joint_step(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.value_loss, "value", batch)
        learner.minimise(self.critic_loss, "critic", batch)

    def imitate(self, learner: Verbs, batch: Batch) -> None:
        super().imitate(learner, batch)
        learner.track("diffusion", rate="diffusion_tau")

    def ports(self, spec: Spec, config: Any) -> Ports:
        return {"action": Noise((config.n_action_samples, *self.noise_shape(spec, config)), always=True)}

    def proposals(self, nets: Nets, observation: Any, noise: Tensor) -> Tensor:
        n, rows, draws, size = noise.shape
        return self.generated(nets, repeated(observation, n), noise.permute(2, 0, 1, 3).reshape(draws, n * rows, size))
