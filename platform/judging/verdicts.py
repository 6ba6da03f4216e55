"""What the logs say of one policy: estimates, refused where FQE is not to be believed, and what it returned where it played."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ...algos.dynamics.model import Model
from ...algos.environments.collect import collect
from ...algos.judging.decisions import Decisions, policy_of
from ...algos.judging.estimates import MODEL, Estimates, estimate
from ...algos.judging.logs import LOG_PROB, Logs, logged
from ...algos.judging.models import model_returns
from ...algos.judging.values import PolicyValues, mean_of
from ...data.dataset import Dataset
from ..record.policies import EstimateTable, Judged
from ..record.results import SeedResult
from .judgement import disagreement, unleaned, unsettled, widened
from .policies import Kept
from .settings import JudgeSettings
from .words import said

VALUE = "train/q_value"
CUT = 0.05  # share of episodes that were cut from which it is said
SAME = (
    "The policy was trained on these very logs, which flatters it: judge it by episodes that it has not seen, which "
    "evaluation.holdout keeps back."
)


@dataclass(frozen=True, eq=False)
class Behaved:
    """Log-probabilities of what was logged, [N], and whether they were estimated; None where weights would say nothing."""

    log_prob: np.ndarray | None
    estimated: bool = False


@dataclass(frozen=True, eq=False)
class Critics:
    """A policy's FQE results."""

    values: Sequence[PolicyValues]  # of each seed that has finished, one or more
    seeds: Sequence[SeedResult]  # of all seeds what they measured; of logs of one step none
    doubt: str  # what their metrics give cause to doubt, as diverging values; empty where nothing does
    n_steps: int  # gradient steps that they took, or were allowed
    unit: float = 1.0  # of the values in their metrics, in that of the data's rewards


def verdict(
    settings: JudgeSettings,
    dataset: Dataset,
    one: Kept,
    policy: Decisions,
    behaved: Behaved,
    critics: Critics | None,
    model: Model | None,
    say: Callable[[str], None],
    *,
    has_seen: bool,
) -> Judged:
    """Every estimate of a policy that is asked for.

    `critics` is None where no FQE was trained, `model` where none was named; `has_seen`: it learned from some of these logs.
    """
    logs, by_member = _logs(settings, dataset, policy, behaved), np.zeros((0, 0))
    if model is not None:
        say(f"Following {one.label} in the model.")
        by_member = model_returns(model, policy_of(one.path, dataset.spec, dataset.name), dataset, settings.gamma)
        logs = dataclasses.replace(logs, model_value=by_member.mean(0))
    options: dict[str, Any] = {"interval": settings.interval, "level": settings.level, "bounds": settings.bounds}
    asked, warnings, runs, each = settings.estimators, list[str](), (), list[tuple[float, Any]]()
    if critics is None:
        found = estimate(logs, asked, **options)
    else:
        needed = None if asked is None else list(dict.fromkeys((*asked, "DM")))  # by which it is seen whether FQE has settled
        logs = _valued(logs, mean_of(critics.values))
        found = estimate(logs, needed, **options)
        alone = [estimate(_valued(logs, values), ["DM"], **options)["DM"] for values in critics.values]
        each = [(one.value, one.interval) for one in alone if one.value is not None]  # a seed may come to what no rewards allow
        ended = [seed for seed in critics.seeds if seed.status == "FINISHED"]
        assert logs.q_value is not None
        moved, size = critics.unit * _moved(ended), float(np.sqrt(np.square(logs.q_value).mean()))
        found = believed(widened(found, each), moved, size, critics.n_steps, critics.doubt)
        warnings += [f"FQE of {one.label}: seed {s.seed} failed: {s.reason}." for s in critics.seeds if s.status == "FAILED"]
        warnings += [beyond] if (beyond := _beyond(dataset, found)) else []
        runs = tuple(seed.run_id for seed in ended if seed.run_id)
    members = [estimate(dataclasses.replace(logs, model_value=told), [MODEL], **options)[MODEL] for told in by_member]
    found = widened(found, [(cast("float", m.value), m.interval) for m in members], MODEL)
    warnings += [SAME] if has_seen else []
    rows = found.rows if asked is None else {name: found.rows[name] for name in asked}
    found = dataclasses.replace(found, rows=rows, warnings=(*found.warnings, *warnings))
    return Judged(
        label=one.label,
        source=one.source,
        path=one.path,
        estimates=EstimateTable.model_validate(dataclasses.asdict(found)),
        by_seed=tuple(value for value, _ in each),
        played=_played(settings, one, dataset, say),
        runs=runs,
    )


def believed(estimates: Estimates, moved: float, size: float, n_steps: int, doubt: str) -> Estimates:
    """Refuse estimates that rely on FQE if it has not settled, has diverged, or contradicts the weights."""
    found = unsettled(estimates, moved, size, n_steps)
    if doubt:
        found = unleaned(found, f"FQE diverged: {doubt}.")
    return found if (clash := disagreement(found)) is None else unleaned(found, clash)


def _logs(settings: JudgeSettings, dataset: Dataset, policy: Decisions, behaved: Behaved) -> Logs:
    """Return the logs with both policies' action probabilities: a greedy discrete policy has 1 for its action, else 0."""
    log_prob = np.where(policy.taken == logged(dataset, "action"), 0.0, -np.inf) if dataset.spec.discrete else None
    known = {LOG_PROB: behaved.log_prob, "estimated": behaved.estimated, "gamma": settings.gamma}
    return Logs.of(dataset, log_prob, **known)


def _valued(logs: Logs, values: PolicyValues) -> Logs:
    return dataclasses.replace(logs, q_value=values.q_value, value=values.value, final_value=values.final_value)


def _beyond(dataset: Dataset, found: Estimates) -> str:
    """Say how estimates treat episodes that were cut off, whose later rewards are unknown; empty if few were."""
    cut = float(np.mean(~np.asarray(dataset.episodes.terminated, bool)))
    if cut < CUT or found.continued is None:
        return ""
    with_that = f"with that the logs returned {said(found.continued.value)}"
    return f"{cut:.0%} of the episodes were cut: DM, DR and WDR count what FQE expects beyond ({with_that}), IS does not."


def _moved(seeds: Sequence[SeedResult]) -> float:
    """How far the mean value of logged actions moved from the last epochs but three to the last three, the largest of seeds."""
    curves = [seed.curves[VALUE].values for seed in seeds if VALUE in seed.curves]
    far = [abs(one[-3:].mean() - one[-6:-3].mean()) for one in curves if len(one) >= 6]
    return float(max(far, default=0.0))


def _played(settings: JudgeSettings, one: Kept, dataset: Dataset, say: Callable[[str], None]) -> tuple[float, ...]:
    """Discounted returns in the environment, where one was named."""
    if (place := settings.played) is None:
        return ()
    say(f"Playing {settings.episodes} episodes of {one.label}.")
    found = collect(
        place, policy_of(one.path, dataset.spec, dataset.name), n_episodes=settings.episodes, n_envs=min(settings.episodes, 10)
    )
    return tuple(Logs.of(found, None, gamma=settings.gamma).returns.tolist())
