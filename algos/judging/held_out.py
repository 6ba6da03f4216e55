"""Errors on episodes that were held out: how runs are ranked where there is no environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.batch import Batch, Drawn
from ...data.dataset import Dataset
from ...data.histories import steps_there
from ...data.random import fold, root_key
from ..acting.fitted import policy_module
from ..base import Algorithm
from ..definition import Loss
from ..learning.estimator import Estimator
from ..learning.fit import Fit
from ..learning.learner import Learner
from ..learning.setup import sampling
from ..nets import kind_of_update
from ..ports import drawn, memories, started
from ..recurrence import remembers
from ..wants import Stretches
from .models import judged_model
from .seen import Seen, open_transitions, own_policy

_TRANSITIONS = 4096  # of the held-out episodes that are looked at, the same at every epoch
_KINDS_WITHIN = 4096  # gradient steps, from 0 and from a warm-up's end, in which each kind of update is expected to be due
_LOOK = 100  # gradient steps from one look at an error to the next
_PATIENCE = 5  # looks without a smaller error after which nothing more is learned
_KEPT = 16  # drawn batches, of algorithms that scale or discount otherwise


class HeldOut:
    """An evaluator of transitions that are not trained on; `(algorithm, epoch) → {name: float}`.

    - `action_match`, the share of discrete actions that the policy would have taken too, or `action_error`, the mean squared
      distance of continuous ones in the data's units. Policies that look back see what came before in a stretch of its episode.
    - `td_error`, the mean of |r + γ Q(s', π(s')) - Q(s, a)| with one-step rewards, in the units of the scaled rewards, where the
      algorithm learns values and does not look back.
    - Of an algorithm that judges another's policy, and has none, neither.
    - Of a model of the dynamics `error_1`, `error_5`, … after so many steps, and `coverage_50` and `coverage_90` (see `models`).
    - Each of the algorithm's own losses by its name, on transitions drawn uniformly, the same at every call and for every seed.
      Nothing is trained, and layers are at rest.

    What is looked at is drawn, and brought to the device, once.

    Args:
        dataset: The held-out part: `train, test = dataset.split(0.1, seed=0)`.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._drawn: dict[str, Any] = {}

    def __call__(self, algorithm: Estimator, epoch: int) -> dict[str, float]:
        fit, found = algorithm.fitted, dict[str, float]()
        with torch.no_grad():
            if algorithm.acts() and not algorithm.goal_conditioned:  # data say what was done, and not for which goal
                found = self._acted(fit)
        if algorithm.models_dynamics:
            found |= judged_model(cast("Any", algorithm).model(), self.dataset)
        return found | losses(fit.learner, self._fixed(fit))

    def _acted(self, fit: Fit) -> dict[str, float]:
        """Compare the policy with the data, with as much of what came before as it looks at."""
        if isinstance(fit.sources.wants, Stretches):
            return self._looking_back(fit)
        return self._remembered(fit) if remembers(fit.config) else self._errors(fit)

    def _errors(self, fit: Fit) -> dict[str, float]:
        seen = Seen(fit, own_policy(fit), self.transitions(fit), root_key(0, fit.device))
        if fit.spec.discrete:
            found = {"action_match": float(seen.match.double().mean())}
        else:
            found = {"action_error": float(seen.distance.mean())}
        if fit.algorithm.learns_values():
            found["td_error"] = float(seen.td_error.abs().mean())
        return found

    def _looking_back(self, fit: Fit) -> dict[str, float]:
        """Compare at the last step of stretches, each acted on with what came before and the return that followed."""
        batch: Any = self._fixed(fit)
        action = self._unrolled(fit, batch) if memories(fit.ports) else fit.algorithm.act(fit.nets(), batch.seen, {}, {})[0]
        return _compared(fit, action, batch.action[:, -1])

    def _remembered(self, fit: Fit) -> dict[str, float]:
        """Compare at steps of sub-sequences, each acted on with those of its sub-sequence that came before."""
        batch: Any = self._fixed(fit)
        there = steps_there(batch.observation)
        assert there is not None
        return _compared(fit, fit.algorithm.act(fit.nets(), batch.observation, {}, {})[0][there], batch.action[there])

    def _unrolled(self, fit: Fit, batch: Any) -> Tensor:
        """The action at the last step of stretches, of a policy that is handed its memory; padding leaves the memory as it is."""
        first = pytree.tree_leaves(batch.observation)[0]
        n, action = len(first), first.new_zeros(0)
        state, nets = started(fit.ports, n, fit.dtype, fit.device), fit.nets()
        for t in range(first.shape[1]):
            noise = drawn(fit.ports, fold(root_key(0, fit.device), t), n, fit.dtype)
            action, after = fit.algorithm.act(nets, pytree.tree_map(lambda part, t=t: part[:, t], batch.observation), state, noise)
            there = batch.mask[:, t]
            state = {k: torch.where(there.reshape(-1, *[1] * (v.ndim - 1)), v, state[k]) for k, v in after.items()}
        return action

    def transitions(self, fit: Fit) -> Batch:
        def draw() -> Batch:
            sampler = open_transitions(fit, self.dataset, blind=False)
            return sampler.at(torch.arange(0, sampler.n_windows, -(-sampler.n_windows // _TRANSITIONS)))

        return self._once(f"transitions {self._about(fit)}", draw)

    def _fixed(self, fit: Fit) -> Drawn:
        wants = fit.sources.wants
        length = wants.length if isinstance(wants, Stretches) else sampling(fit.config).length if remembers(fit.config) else 1
        size = max(1, _TRANSITIONS // length)
        return self._once(f"fixed {wants} {self._about(fit)}", lambda: fit.sources.fixed(self.dataset, size))

    def _about(self, fit: Fit) -> str:
        scalers = [getattr(fit.config, f"{name}_scaler", None) for name in ("observation", "action", "reward")]
        return f"{fit.learner.discounts[0]} {sampling(fit.config)} {scalers} {fit.dtype} {fit.device}"

    def _once(self, about: str, draw: Callable[[], Any]) -> Any:
        if about not in self._drawn:
            while len(self._drawn) >= _KEPT:
                self._drawn.pop(next(iter(self._drawn)))
            self._drawn[about] = draw()
        return self._drawn[about]

    def close(self) -> None:
        self._drawn.clear()


def _compared(fit: Fit, action: Tensor, done: Tensor) -> dict[str, float]:
    """Compare what networks would do with what was done, both as the networks have it."""
    if not action.is_floating_point():
        return {"action_match": float((action == done).double().mean())}
    scaler = fit.scaling.action_affine
    raw = done if scaler is None else scaler.reverse(done)
    return {"action_error": float((policy_module(fit).raw(action) - raw).double().square().mean())}


def fit_while_better(model: Algorithm, train: Dataset, error: Callable[[], float], n_steps: int) -> None:
    """Fit `model` until `error` has not fallen for some looks, and leave it as it was where that was smallest."""
    least, since, best = math.inf, 0, None
    for _ in model.fitter(train, n_steps, min(_LOOK, n_steps), show_progress=False):
        now, since = error(), since + 1
        if best is None or now < least:
            least, since, best = now, 0, model.state()
        if since == _PATIENCE:
            break
    if best is not None:
        model.load_state(*best)


def losses(learner: Learner, batch: Drawn) -> dict[str, float]:
    """Give the mean of each loss that the schedule comes to, at the present parameters of one seed; nothing is trained."""
    reader, algorithm = _Reader(learner), learner.algorithm
    begins = (0, getattr(algorithm.config_, algorithm.warm_up) if algorithm.warm_up else 0)
    steps = (step for begin in begins for step in range(begin, begin + _KINDS_WITHIN))
    for kind in dict.fromkeys(kind for step in steps for kind in algorithm.schedule(step)):
        kind_of_update(algorithm, kind)(reader, batch)
    return {name: float(value) for name, value in reader.found.items()}


class _Reader:
    """Gives an update its verbs and only reads the losses: nothing is trained, tracked, copied or held."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.found: Mapping[str, Tensor] = {}

    def minimise(self, loss: Loss, network: Any, batch: Drawn) -> None:
        self.found = {**self.found, loss.__name__: self._learner.value(loss, batch)}

    def precompute(self, part: Any, batch: Any) -> Any:
        return batch  # each loss works it out for itself

    def track(self, network: str, rate: str = "tau") -> None:
        return

    def copy(self, network: str) -> None:
        return

    def hold(self, test: Any, network: str, batch: Drawn) -> None:
        return

    def release(self, network: str) -> None:
        return
