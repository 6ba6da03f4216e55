"""`doctor(dataset)`: looks through a dataset for what would spoil training on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..dataset import Dataset
from ..storage.costs import checked_limit
from . import check_actions, check_costs, check_ends, check_environment, check_goals, check_rewards, check_values
from .check_environment import EnvironmentFacts
from .findings import SEVERITIES, Finding
from .measures import behaviour, coverage
from .report import Report, draw, estimate
from .survey import Advance, survey


def doctor(
    dataset: Dataset,
    *,
    facts: EnvironmentFacts | None = None,
    cost_limit: float | None = None,
    advance: Advance | None = None,
) -> Report:
    """Report what is wrong with a dataset, what that means, and how to mend it.

    Every row is read once, in order and in pieces. What would cost more than one pass (regressions, nearest neighbours) is
    estimated from a fixed sample of at most 20,000 transitions, so the same data give the same report.

    Args:
        dataset: to examine.
        facts: about the environment that it names, to compare with; None: not compared.
        cost_limit: what an episode may cost, by the column `cost`; None: nobody says.
        advance: called with 1 after each of `n_pieces(dataset)` pieces.

    Raises:
        DataError: a file is missing or truncated.
        ConfigError: the limit is no number from 0 on.
    """
    if cost_limit is not None:
        checked_limit(cost_limit)
    seen = survey(dataset, advance)
    how, where = behaviour(seen.sample, seen.bounds), coverage(seen.sample)
    limit = None if facts is None else facts.time_limit
    checks: Iterable[Iterator[Finding]] = (
        check_values.not_finite(seen),
        check_values.rows_disagree(seen),
        check_environment.spaces_disagree(seen, facts),
        check_rewards.rewards_shifted(seen),
        check_actions.actions_outside(seen),
        check_actions.actions_illegal(seen),
        check_actions.actions_normalised(seen),
        check_ends.timeouts_as_terminals(seen, limit),
        check_ends.longer_than_limit(seen, limit),
        check_ends.next_observations_differ(seen),
        check_ends.observations_jump(seen),
        check_ends.final_missing(seen),
        check_ends.single_steps(seen),
        check_values.observations_normalised(seen),
        check_values.observations_outside(seen),
        check_values.observations_constant(seen),
        check_values.duplicates(seen, where),
        check_goals.goals_unreached(seen),
        check_goals.goals_far(seen, facts),
        check_rewards.rewards_constant(seen),
        check_rewards.return_outliers(seen),
        check_costs.costs_missing(seen, cost_limit),
        check_costs.costs_odd(seen),
        check_costs.costs_above_limit(seen, cost_limit),
        check_actions.actions_constant(seen),
        check_actions.actions_saturated(seen),
        check_actions.behaviour_deterministic(seen, how),
        check_values.observations_clipped(seen),
        check_values.scales_differ(seen),
        check_values.states_low_rank(seen, where),
        check_ends.no_terminals(seen),
        check_ends.few_episodes(seen),
        check_environment.environment_unknown(seen, facts),
    )
    findings = sorted((one for check in checks for one in check), key=lambda one: SEVERITIES.index(one.severity))
    return draw(seen, findings, how, where, estimate(seen.columns, dataset.n_rows, dataset.spec.action_kind))
