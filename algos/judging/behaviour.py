"""The behaviour's probabilities where nobody recorded them: behaviour cloning, each episode by a model that did not see it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from ...data.batch import Batch
from ...data.dataset import Dataset
from ...data.errors import ConfigError, DataError
from ...data.sampling import TransitionSampler
from ..base import Algorithm
from ..imitation.bc import BC
from ..imitation.discrete_bc import DiscreteBC
from .held_out import fit_while_better
from .resampling import groups

FOLDS = 2
STEPS = 5000  # gradient steps of each fold's model
_ROWS = 8192  # steps that are looked at at once
_BINS = 10  # of probabilities, within which they are compared with what happened


@dataclass(frozen=True, eq=False)
class Behaviour:
    """An estimated behaviour.

    Attributes:
        log_prob: [N], of the logged actions, in the data's units; `Logs(…, log_prob=…, estimated=True)` takes it.
        fit: Mean of them. All are of episodes that the model behind them did not see.
        baseline: The same of a model that sees no observation: how often each action was taken, or one normal distribution. Where
            `fit` is no better, the model has learnt nothing of what the behaviour looks at.
        calibration: Of discrete actions the expected calibration error: the distance between probabilities and how often such an
            action followed, within ten bins of probability, weighed by their size; 0 is perfect. None of continuous ones.
    """

    log_prob: np.ndarray
    fit: float
    baseline: float
    calibration: float | None


def estimate_behaviour(dataset: Dataset, *, model: Algorithm | None = None, folds: int = FOLDS, n_steps: int = STEPS) -> Behaviour:
    """Estimate how likely the behaviour was to act as was logged.

    Args:
        dataset: The logs; two episodes or more.
        model: What is trained, by its settings; one whose network `policy` gives logits, or a distribution. None: `DiscreteBC`
            without its regulariser, or `BC(policy_type="stochastic", action_scaler="min_max")`, a normal distribution.
        folds: Parts of the episodes, each looked at by a model that the others trained.
        n_steps: Gradient steps of each model, at most: it ends where actions that it did not see become no likelier.

    Raises:
        DataError: there are fewer episodes than folds, or actions are neither discrete nor continuous.
        ConfigError: fewer than two folds.
    """
    if folds < 2:
        raise ConfigError(f"folds is {folds}; it is 2 or more, so that no model looks at what it was trained on.")
    if dataset.n_episodes < folds:
        raise DataError(f"{dataset.name} has {dataset.n_episodes} episodes; {folds} folds need as many.")
    kind = dataset.spec.action_kind
    if kind not in ("discrete", "continuous"):
        raise DataError(f"A behaviour is estimated of discrete or continuous actions, and those of {dataset.name} are {kind}.")
    model = model or (DiscreteBC(beta=0.0) if kind == "discrete" else BC(policy_type="stochastic", action_scaler="min_max"))
    fold, steps = groups(dataset.n_episodes, folds), np.asarray(dataset.episodes.steps)
    of_step, log_prob, logits, actions = np.repeat(fold, steps), np.empty(int(steps.sum())), list[Tensor](), list[Tensor]()
    for k in range(folds):
        train, seen = (dataset.take(np.flatnonzero(which)) for which in (fold != k, fold == k))
        fitted = type(model)(**model.get_params(deep=False))
        looked_at = _batches(seen, _ROWS)
        fit_while_better(fitted, train, lambda fitted=fitted, some=looked_at: -_mean_log_prob(fitted, some), n_steps)
        parts = [_log_probs(fitted, batch) for batch in _batches(seen)]
        log_prob[of_step == k] = torch.cat([part[0] for part in parts]).numpy()
        logits += [part[1] for part in parts]
        actions += [part[2] for part in parts]
    done, probabilities = torch.cat(actions).numpy(), torch.cat(logits).exp().numpy()
    discrete = kind == "discrete"
    return Behaviour(
        log_prob,
        fit=float(log_prob.mean()),
        baseline=-float(
            stats.entropy(np.bincount(done)) if discrete else stats.norm(scale=np.maximum(done.std(0), 1e-12)).entropy().sum()
        ),
        calibration=_calibration(probabilities, done) if discrete else None,
    )


def _mean_log_prob(model: Algorithm, batches: list[Batch]) -> float:
    return float(torch.cat([_log_probs(model, batch)[0] for batch in batches]).mean())


def _batches(dataset: Dataset, most: int | None = None) -> list[Batch]:
    """Give all steps, or `most` of them, spread evenly over the episodes."""
    sampler = TransitionSampler(dataset, 1, bootstrap=False, next_action=False)
    rows = torch.arange(0, sampler.n_windows, 1 if most is None else -(-sampler.n_windows // most))
    return [sampler.at(part) for part in rows.split(_ROWS)]


def _log_probs(model: Algorithm, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Give log-probabilities [B] of the logged actions, of all discrete ones [B, A], and the logged actions; on the CPU."""
    fit = model.fitted
    with torch.no_grad():
        found = fit.nets().policy(fit.scaling.observation(batch.observation))
        action = fit.scaling.action(batch.action)
        if fit.spec.discrete:
            each = getattr(found, "log_probs", found).double().log_softmax(-1).cpu()
            return each.gather(-1, action.cpu()[:, None])[:, 0], each, action.cpu()
        affine, density = fit.scaling.action_affine, found.log_prob(action).double().cpu()
        stretch = 0.0 if affine is None else affine.scale.abs().log().expand(action.shape[-1]).sum().double().cpu()
        return density + stretch, torch.zeros(len(density), 0), batch.action.double().cpu()


def _calibration(probabilities: np.ndarray, actions: np.ndarray) -> float:
    happened = actions[:, None] == np.arange(probabilities.shape[1])
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1).ravel()
    apart = np.bincount(bins, probabilities.ravel() - happened.ravel(), _BINS)
    return float(np.abs(apart).sum() / probabilities.size)
