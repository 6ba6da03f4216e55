r"""A probabilistic ensemble: networks side by side that each learn a normal distribution over what follows an action.

    L(θ) = E[ Σ_k ((y_k - μ_k)² / σ_k² + log σ_k²) / K ] + w Σ_k (b_k - c_k) / M - E[ d log p + (1 - d) log(1 - p) ]
                                                                                     `ProbabilisticEnsemble.dynamics_loss`

y = (s' - s, r), and μ, σ² are functions of s and a. log σ² lies softly between c and b, which are learnt and drawn together. The
last term is there where `termination` is learned: d is whether the MDP ended, and p what a member gives it.

Symbols   K = entries of y, M = `n_members`, w = `bound_weight`, b = highest and c = lowest log σ².
When      Before MOPO, COMBO and others: they ask it for transitions; also to see what data say of the dynamics at all.
Paper     Chua, Calandra, McAllister, Levine: Deep Reinforcement Learning in a Handful of Trials using Probabilistic Dynamics Models
          (PETS), NeurIPS 2018, arXiv:1805.12114. Elites, and their numbers: Janner, Fu, Zhang, Levine: When to Trust Your Model
          (MBPO), NeurIPS 2019, arXiv:1906.08253.
Code      github.com/jannerm/mbpo, models/bnn.py (MIT). Read, not copied.
Choices   1. Every member draws batches of its own, as MBPO's do after its first bootstrap; all from the same data.
          2. Episodes are held out, not steps, of which the neighbours would be learned from: `holdout`.
          3. Errors on what is held out run along with training, in the network itself. By the latest of them the `n_elites` best
             members count; MBPO looks at all of it after each epoch, and takes each member back to where it was best.
          4. Where those errors have not fallen for `patience` steps, the network stays as it is: every seed of a stack for itself.
          5. Where the MDP ended and what was seen then was not recorded, only the end is learned.
          6. Observations and rewards are scaled by default, so that w and σ mean the same everywhere; MBPO scales inputs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, overload

import numpy as np
import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.dataset import Dataset
from ...data.episodes import Episode, Transition
from ...data.errors import ConfigError, DataError
from ...data.masks import bare
from ...data.scalers import ObservationScaler, RewardScaler
from ...data.scalers.observation import StandardScaler
from ...data.scalers.reward import StandardRewardScaler
from ...data.seeds import fold
from ...data.spec import Spec
from ..acting.inputs import as_batch, raw_actions, raw_inputs
from ..acting.plain import plain_array
from ..base import Algorithm
from ..config import ActionsConfig, ContinuousConfig, Preset, RewardedConfig, SampledConfig
from ..definition import LossValue, Network, Verbs, due, loss
from ..dynamics.held_out import PartlyHeldOut
from ..dynamics.model import Model
from ..dynamics.terminations import Termination, termination_of
from ..export.export import export_model
from ..nets import Hyper, Nets
from ..networks.dynamics import EnsembleDynamics
from ..networks.encoders import Encoder, VectorEncoder
from ..optimizers import Adam, Optimizer
from ..wants import Transitions
from .shared import by_member, check_elites, ensemble_loss

MBPO = "Janner et al. 2019, the authors' code"
MANUAL = "d3rlpy's manual of October 2020, MOPO"
LAYERS = VectorEncoder(hidden_units=(200, 200, 200, 200), activation="silu")
_LOOKS = 100  # gradient steps from one look at whether to stop to the next


class ProbabilisticEnsembleConfig(SampledConfig, RewardedConfig, ActionsConfig):
    once: ClassVar = ContinuousConfig

    batch_size: int = setting(256, "transitions of each member in a gradient step", source=MBPO, gt=0)
    n_members: int = setting(7, "M: networks side by side", source=MBPO, gt=0)
    n_elites: int = setting(5, "members that count, by their errors on what is held out", source=MBPO, gt=0)
    encoder: Encoder = setting(LAYERS, "hidden layers of each member: vector or dense", source=MBPO)
    learning_rate: float = setting(1e-3, "of the ensemble", source=MBPO, gt=0)
    optimizer: Optimizer = setting(Adam(weight_decay=5e-5), "what steps it", source=f"{MBPO}: 2.5e-5 to 1e-4 by layer")
    bound_weight: float = setting(0.01, "w: what draws the bounds of log σ² together", source=MBPO, ge=0)
    holdout: float = setting(0.1, "share of the episodes that no member learns from", gt=0, lt=1)
    patience: int | None = setting(
        10_000, "gradient steps without a lower error on them after which it stays as it is; None: it never does", gt=0
    )
    termination: Termination = setting(
        "auto",
        "when the MDP ends: never, learned, or as one of these environments; auto: as the data's does, else learned where an "
        "episode terminated",
    )
    observation_scaler: ObservationScaler | None = setting(StandardScaler(), "how observations are scaled; choice 6")
    reward_scaler: RewardScaler | None = setting(StandardRewardScaler(), "how rewards are scaled; choice 6")


class ProbabilisticEnsemble(Algorithm):
    """A model of the dynamics and rewards. Data: observations are vectors, actions of either kind."""

    Config: ClassVar = ProbabilisticEnsembleConfig
    actions: ClassVar = ("continuous", "discrete")
    has_td_errors: ClassVar = False
    models_dynamics: ClassVar = True
    holds: ClassVar = ("dynamics",)
    presets: ClassVar = {
        "mbpo": Preset(MBPO, {}),
        "d3rlpy-2020": Preset(
            f"{MANUAL}; its layers are those of all its networks",
            {
                "batch_size": 100,
                "n_members": 5,
                "n_elites": 5,
                "optimizer": Adam(weight_decay=1e-4),
                "encoder": VectorEncoder(hidden_units=(256, 256)),
                "patience": None,
                "observation_scaler": None,
                "reward_scaler": None,
            },
        ),
    }
    exemptions: ClassVar = {
        "n_elites": "all members are trained; it says how many count afterwards",
        "matmul_precision": "what follows differs from what was seen by less than bfloat16 can tell",
        "terminated_steps_look_no_further": "what was seen after an end is learned like all else",
        "bootstraps_by_the_batchs_discount": "nothing is bootstrapped; of the discount it sees where the MDP ended",
    }

    def completed(self, config: Any, dataset: Dataset) -> Any:
        if config.termination == "auto":
            known = termination_of(dataset.environment.id if dataset.environment else None)
            ends = bool(np.asarray(dataset.episodes.terminated).any())
            config = config.model_copy(update={"termination": known or ("learned" if ends else "never")})
        return super().completed(config, dataset)

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        check_elites(self.name, config)
        network = EnsembleDynamics(config.encoder, spec, config.n_members)
        return {"dynamics": Network(network, "learning_rate", optimizer=config.optimizer)}

    def wants(self, config: Any) -> PartlyHeldOut:
        return PartlyHeldOut(Transitions(config.batch_size * config.n_members))

    def schedule(self, step: int) -> tuple[str, ...]:
        patience = self.config_.patience
        return due(step, improve=1) if patience is None else due(step, improve=1, judge=min(_LOOKS, patience))

    def improve(self, learner: Verbs, batch: Batch) -> None:
        """All members, each on its part of the batch."""
        if "held_out" not in batch.extra:  # it is a user's own, to learn from
            batch = batch.with_extra(held_out=torch.zeros_like(batch.reward), followed=torch.ones_like(batch.reward))
        learner.minimise(self.dynamics_loss, "dynamics", batch)

    def judge(self, learner: Verbs, batch: Batch) -> None:
        learner.hold(self.worn_out, "dynamics", batch)

    def worn_out(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        """Tells whether errors on held-out data have stopped falling, bool ()."""
        return nets.dynamics.worn_out(self.config_.patience)

    @loss("sample")
    def dynamics_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L of each sample, [B], by the member that learns from it; choice 1."""
        n, members = len(batch.reward), self.config_.n_members
        parts = (*self._told(batch), batch.extra["held_out"], batch.extra["followed"])
        seen, action, goal, ended, held_out, followed = (by_member(part, members) for part in parts)
        learned = ended if self.config_.termination == "learned" else None
        found = nets.dynamics(seen, action)
        each, metrics = ensemble_loss(nets.dynamics, found, goal, learned, held_out, followed, h.bound_weight)
        return each.flatten()[:n], metrics

    def _told(self, batch: Batch) -> tuple[Tensor, ...]:
        """Observations, actions, targets y and ends, [B, …] each."""
        seen = bare(batch.observation)
        change = bare(batch.next_observation) - seen
        goal = torch.cat((change, batch.reward[:, None]), -1)
        return seen, batch.action, goal, (batch.discount == 0).to(batch.reward.dtype)

    # ---- what it is for

    def model(self) -> Model:
        """The elites in raw units, at rest."""
        fit = self.fitted
        network: Any = fit.learner.modules["dynamics"]
        scalers = {
            name: affine.to(fit.dtype) for name, affine in fit.scaling.affines().items() if name in ("observation", "action")
        }
        termination = fit.config.termination
        if termination == "auto":
            raise ConfigError(f"This {self.name} has met no data, so nobody knows when the MDP ends: fit it, or set termination.")
        reward = fit.config.reward_scaler
        environment = fit.sources.data.get("environment")
        best, spread = network.held_out.best(fit.config.n_elites), reward and reward.reward_transform()
        return Model(network, best, scalers, spread, termination, fit.spec, environment).requires_grad_(False)

    @overload
    def predict(self, x: Any, action: Any, with_variance: Literal[False] = False) -> tuple[np.ndarray, np.ndarray]: ...

    @overload
    def predict(self, x: Any, action: Any, with_variance: bool) -> tuple[np.ndarray, ...]: ...

    def predict(self, x: Any, action: Any, with_variance: bool = False) -> tuple[np.ndarray, ...]:  # pyright: ignore
        """Next observations [B, D] and rewards [B] at raw observations and raw actions: the means over elites.

        At a single observation and a single action they are single too.

        Args:
            x: Observations, [B, D].
            action: Actions, [B, A], or int64 [B].
            with_variance: Adds the largest norm of an elite's variances, [B]: by which MOPO's rewards are lowered.

        Raises:
            DataError: a shape is wrong or a number is not finite.
        """
        fit = self.fitted
        shown, single = as_batch(fit.spec, x)
        seen = torch.as_tensor(raw_inputs(fit.spec, shown)["observation"], device=fit.device)
        taken = raw_actions(fit.spec.action, plain_array(action, "Actions")[None] if single else action, len(seen))
        found = self.model()(seen, torch.as_tensor(taken, device=fit.device))
        told = found.following.mean(0), found.reward.mean(0), *([found.uncertainty("variance")] if with_variance else [])
        return tuple(part.cpu().numpy()[0 if single else slice(None)] for part in told)

    def generate(
        self,
        algorithm: Any,
        transitions: Dataset | Sequence[Episode] | Sequence[Transition],
        *,
        horizon: int = 5,
        n_transitions: int = 400,
        penalty: Any = "variance",
        lam: float = 1.0,
        seed: int | None = None,
    ) -> list[Transition]:
        """Plays a policy in this model, from observations of the data on: transitions, rollout after rollout.

        Args:
            algorithm: Trained; its `sample_action` acts.
            transitions: Where rollouts begin: transitions, or all of a dataset's or of episodes.
            horizon: Steps of a rollout, fewer where the MDP ends.
            n_transitions: Rollouts.
            penalty: As of `ModelRollouts`, but bellman.
            lam: λ: rewards are r - λ u.
            seed: Of the draws; None: another one at every call.

        Raises:
            DataError: there is no transition to begin at.
        """
        starts = _observations(transitions)
        self._generated = getattr(self, "_generated", 0) + 1
        rng = np.random.default_rng(fold(self.seed, f"generate {self._generated}") if seed is None else seed)
        model, policy, n = self.model(), algorithm.policy(), n_transitions
        state = torch.as_tensor(starts[rng.integers(len(starts), size=n)], device=self.fitted.device)
        alive, steps = np.ones(n, bool), list[tuple[np.ndarray, ...]]()
        for t in range(horizon):
            shown = state.cpu().numpy()
            action = policy.draw(shown, step=t, seed=int(rng.integers(2**62)))
            found = model(state, torch.as_tensor(action, device=state.device))
            noise = torch.as_tensor(rng.standard_normal((n, shown.shape[1] + 1)), device=state.device).to(found.deviation.dtype)
            member = torch.as_tensor(rng.integers(model.members, size=n), device=state.device)
            following, reward, end = found.drawn(member, noise)
            ended = model.ends(following, end, torch.as_tensor(rng.random(n), device=state.device)).cpu().numpy()
            reward = (reward - lam * found.uncertainty(penalty)).cpu().numpy()
            state = following.to(state.dtype)
            steps.append((shown, action, reward, ended, state.cpu().numpy(), alive.copy()))
            alive &= ~ended
        seen, action, reward, ended, following, there = (np.stack(part, 1) for part in zip(*steps, strict=True))  # [n, T, ...]
        last = ended | (np.arange(horizon) == horizon - 1)
        made = Dataset.from_arrays(
            seen[there], action[there], reward[there], ended[there], last[there] & ~ended[there], next_observations=following[there]
        )
        return [transition for episode in made.episodes for transition in episode]

    def export(self, path: str | Path, *, overwrite: bool = False) -> None:
        """The model for use without d3ray, raw numbers in and out; the ending chooses, as `save_policy`'s does.

        `.onnx`, `.pt` (TorchScript) and `.pt2` (torch.export) are one file each; without an ending, a model package, which
        `d3ray.algos.export.model_package.read_model` opens without torch.

        Raises:
            ConfigError: something is there and `overwrite` is not said, the ending is another one, or it has not been trained.
            StorageError: the place cannot be written.
        """
        export_model(self, path, overwrite=overwrite)


def _observations(given: Any) -> np.ndarray:
    """The observations of transitions, episodes or a dataset, [N, D]. Raises DataError where there is none."""
    if isinstance(given, Dataset):
        rows = [np.asarray(given.columns["observation"])[~np.asarray(given.columns["closing"], bool)]]
    else:
        rows = [np.asarray(x.observation)[None] if isinstance(x, Transition) else np.asarray(x.observations)[:-1] for x in given]
    if not rows or not sum(map(len, rows)):
        raise DataError("There is no transition for rollouts to begin at.")
    return np.concatenate(rows)
