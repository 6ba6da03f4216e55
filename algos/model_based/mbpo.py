r"""Model-based policy optimisation (MBPO): SAC on what a model generates, which is learnt from what the policy meets meanwhile.

    L(φ) = E_D[ Σ_k ((y_k - μ_k)² / σ_k² + log σ_k²) / K ] + w Σ_k (b_k - c_k) / M                              `MBPO.model_loss`

All else is SAC's, on batches of which the share `real` comes from the replay buffer, and the rest from short rollouts of the
present policy in the model, which branch off where the buffer has been.

Symbols   y = (s' - s, r), μ, σ²: what a member expects, K = entries of y, M = `n_members`, w = `bound_weight`, D: the buffer, but
          for the share `holdout`, by which the members' errors are told; b = highest and c = lowest log σ².
When      Online, where steps in the environment are dear and updates are not: `fit_online(…, n_updates=20)`.
Paper     Janner, Fu, Zhang, Levine: When to Trust Your Model: Model-Based Policy Optimization, NeurIPS 2019, arXiv:1906.08253.
Code      github.com/jannerm/mbpo, commit ac694ff (MIT). Read, not copied.
Choices   1. The model makes a gradient step with each of the policy's (`model_interval`), after `model_warmup_steps` of its own; in
             the code it is trained until its errors rise, every 250 steps of the environment.
          2. Elites are chosen anew at every use, by running errors on transitions that are held out; which ones goes by their place
             in the buffer.
          3. Its inputs and targets are scaled by running moments; the code scales inputs, by those of the whole buffer.
          4. A rollout has the same length throughout (`rollouts.horizon`); on Hopper and Ant the code's grow with the epochs.
          5. Rounds come by gradient steps: 5,000 are 250 steps of the environment with 20 updates each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from torch import nn

from ...data.batch import Batch
from ...data.config import setting
from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.spec import Spec
from ..actor_critic.sac import SAC, SACConfig
from ..config import Preset
from ..definition import LossValue, Network, Verbs, due, loss
from ..dynamics.generated import Generated
from ..dynamics.held_out import PartlyHeldOut
from ..dynamics.running import RunningModel
from ..dynamics.settings import ModelRollouts
from ..dynamics.terminations import Termination, termination_of
from ..nets import Hyper, Nets
from ..networks.dynamics import EnsembleDynamics
from ..networks.encoders import Encoder
from ..optimizers import Adam, Optimizer
from ..wants import Transitions
from .probabilistic_ensemble import LAYERS
from .shared import InAModel, by_member, check_elites, ensemble_loss

CODE = "MBPO's code ac694ff"
ROLLOUTS = ModelRollouts(horizon=1, n_transitions=100_000, interval=5_000, real=0.05, capacity=400_000, penalty="none", lam=0.0)


class MBPOConfig(SACConfig):
    rollouts: ModelRollouts = setting(ROLLOUTS, "how the model generates", source=f"{CODE}, examples/config/hopper/0.py")
    n_members: int = setting(7, "M: networks side by side", source=CODE, gt=0)
    n_elites: int = setting(5, "members that count, by their errors on what is held out", source=CODE, gt=0)
    model_encoder: Encoder = setting(LAYERS, "hidden layers of each member: vector or dense", source=CODE)
    model_batch_size: int = setting(256, "transitions of each member in a gradient step of the model", source=CODE, gt=0)
    model_learning_rate: float = setting(1e-3, "of the model", source=f"{CODE}, models/constructor.py", gt=0)
    model_optimizer: Optimizer = setting(Adam(weight_decay=5e-5), "what steps the model", source=f"{CODE}: 2.5e-5 to 1e-4 by layer")
    model_interval: int = setting(1, "gradient steps of the policy from one of the model's to the next", gt=0)
    model_warmup_steps: int = setting(2_000, "first gradient steps, which are the model's alone", ge=0)
    bound_weight: float = setting(0.01, "w: what draws the bounds of log σ² together", source=CODE, ge=0)
    holdout: float = setting(0.2, "share of what is met that no member learns from", source=CODE, gt=0, lt=1)
    termination: Termination = setting(
        "auto", "when the MDP ends: never, learned, or as one of these environments; auto: as the environment's, else learned"
    )


class MBPO(InAModel, SAC):
    """MBPO, online, and offline as SAC in a model. Data: observations are vectors, actions continuous in [-1, 1]."""

    Config: ClassVar = MBPOConfig
    brings_model: ClassVar = True
    presets: ClassVar = {"paper": Preset(f"{CODE}, examples/config; horizon and target entropy are chosen by task", {})}
    exemptions: ClassVar = {
        **InAModel.exemptions,
        "terminated_steps_look_no_further": "the model learns what was seen after an end like all else",
    }

    def completed(self, config: Any, dataset: Dataset) -> Any:
        return self._ending(super().completed(config, dataset), dataset.environment.id if dataset.environment else None)

    def completed_online(self, config: Any, spec: Spec, environment: str) -> Any:
        return self._ending(super().completed_online(config, spec, environment), environment)

    def _ending(self, config: Any, environment: str | None) -> Any:
        known = termination_of(environment) if config.termination == "auto" else None
        return config if known is None else config.model_copy(update={"termination": known})

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        if config.dynamics is not None:
            raise ConfigError(f"{self.name} learns a model of its own: leave dynamics out, or choose MOPO or SAC with it.")
        check_elites(self.name, config)
        members = EnsembleDynamics(config.model_encoder, spec, config.n_members)
        ends = "learned" if config.termination == "auto" else config.termination
        model = Network(RunningModel(members, config.n_elites, ends, spec), "model_learning_rate", optimizer=config.model_optimizer)
        return {**super().networks(spec, config), "dynamics": model}

    def guests(self, config: Any, row: int) -> Mapping[str, nn.Module]:
        """None: the model is the algorithm's own."""
        return {}

    def wants(self, config: Any) -> Generated:
        taught = PartlyHeldOut(Transitions(config.model_batch_size * config.n_members))
        transitions = cast("Transitions", SAC.wants(self, config))
        return Generated(self, config, config.rollouts, transitions, taught=taught, begins=config.model_warmup_steps)

    def schedule(self, step: int) -> tuple[str, ...]:
        model = due(step, model=self.config_.model_interval)
        return ("model",) if step < self.config_.model_warmup_steps else (*model, *super().schedule(step))

    def model(self, learner: Verbs, batch: Batch) -> None:
        """All members, each on transitions of its own."""
        learner.minimise(self.model_loss, "dynamics", batch)

    @loss("batch")
    def model_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L, (), over what is not held out."""
        scaling, members, model = self.fit_.scaling, self.config_.n_members, nets.dynamics

        def told(name: str) -> Any:
            return by_member(batch.extra[f"model/{name}"], members)

        seen, following = scaling.raw_observation(told("observation")), scaling.raw_observation(told("next_observation"))
        reward, followed = scaling.raw_reward(told("reward")), told("followed")
        model.meet(seen, following, reward)
        ended = (told("discount") == 0).to(reward.dtype) if self.config_.termination in ("auto", "learned") else None
        found, goal = model.told(seen, scaling.raw_action(told("action"))), model.goal(seen, following, reward)
        each, metrics = ensemble_loss(model, found, goal, ended, told("held_out"), followed, h.bound_weight)
        return (each * told("weight")).mean(), {f"model_{name}": value for name, value in metrics.items()}
