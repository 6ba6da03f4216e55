"""What the doctor can find: the name of each finding, how grave it can be, what it means, and what mends it.

`docs/datasets.md` repeats this table; a test holds them together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the gravest first


@dataclass(frozen=True)
class Kind:
    """One thing that can be found."""

    severity: Severity  # the gravest that it gets
    title: str
    meaning: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """One thing that was found in a dataset."""

    name: str  # a key of KINDS
    severity: Severity
    sentence: str  # what is there, with its numbers
    meaning: str  # what follows from it for training
    remedy: str  # what mends it: an option, or what to do
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])  # JSON values

    @property
    def title(self) -> str:
        return KINDS[self.name].title

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "title": self.title}


def found(name: str, sentence: str, *, severity: Severity | None = None, remedy: str | None = None, **numbers: Any) -> Finding:
    """Make a finding; severity and remedy are the kind's own unless given."""
    kind = KINDS[name]
    return Finding(name, severity or kind.severity, sentence, kind.meaning, remedy or kind.remedy, numbers)


KINDS: dict[str, Kind] = {
    "not_finite": Kind(
        "error",
        "NaN or infinite numbers",
        "One such number in a batch makes every weight NaN.",
        "Ingest again from the source: importers refuse such numbers and name the row to mend.",
    ),
    "rows_disagree": Kind(
        "error",
        "Flags contradict the table of episodes",
        "Another program wrote or changed the folder; values would be bootstrapped across episodes.",
        "`d3ray inspect DATASET verify=true` names a file that was changed; ingest again from the source.",
    ),
    "rewards_late": Kind(
        "error",
        "Rewards stand one row late",
        "Each row holds what the action before it earned, so every value is learned for the wrong action.",
        "Ingest with `options.rewards=arriving`; give arrays with the rewards moved up by one row.",
    ),
    "rewards_early": Kind(
        "error",
        "Rewards stand one row early",
        "Each row holds what the action after it earned, so every value is learned for the wrong action.",
        "Move the rewards down by one row in the source, and ingest again.",
    ),
    "spaces_disagree": Kind(
        "error",
        "The spaces are not the environment's",
        "A policy learned from this data cannot act in the environment that it names.",
        "Ingest with `environment=ID` of the environment where the steps were taken.",
    ),
    "actions_far_outside": Kind(
        "error",
        "Actions far outside their space",
        "These cannot be actions that were taken: the unit is another, or the column is another quantity.",
        "`action_scale=X` where the unit is another; else leave the dataset.",
    ),
    "actions_outside": Kind(
        "warning",
        "Actions outside their space",
        "Environments clip such actions; algorithms whose policy is bounded cannot imitate them and refuse them.",
        "Ingest with `actions=clip` where the environment clipped them, or `actions=refuse` to see the first.",
    ),
    "actions_illegal": Kind(
        "warning",
        "Actions that were not legal",
        "Losses take what was done for legal where it was done, and a policy that learned from it is never let do it.",
        "Correct `action_mask`, or the actions, and ingest again without `illegal_actions=keep`.",
    ),
    "actions_normalised": Kind(
        "warning",
        "Actions look normalised",
        "They fill [-1, 1] where the space is wider: a policy learned from them acts with the wrong force.",
        "Ingest with `action_scale=X`, X being the space's bound.",
    ),
    "actions_huge": Kind(
        "warning",
        "Actions are very large",
        "A network's outputs are of the order of one: losses of such actions swamp everything else.",
        "Train with `algorithm.action_scaler=min_max`, or ingest with `action_scale=X`; check that the column holds actions.",
    ),
    "actions_constant": Kind(
        "warning",
        "The action is always the same",
        "Nothing can be learned about any other action.",
        "Check that the right column was read as actions.",
    ),
    "actions_unused": Kind(
        "warning",
        "Actions that were never taken",
        "Their values are extrapolated; algorithms that maximise over all actions may prefer them.",
        "Use an algorithm that stays near the data (`DiscreteBC`, or a conservative one), or an environment with fewer actions.",
    ),
    "timeouts_as_terminals": Kind(
        "warning",
        "Time limits stored as terminals",
        "The learner takes the value at the limit for zero and learns that long episodes end badly.",
        "Ingest with `timeout_at=N`: episodes that end terminated after N steps become truncated.",
    ),
    "longer_than_limit": Kind(
        "warning",
        "Episodes are longer than the environment allows",
        "Ends were lost, so values are bootstrapped from one episode into the next.",
        "Ingest with `timeout_at=N`, or name the environment that has no such limit.",
    ),
    "next_observations_differ": Kind(
        "warning",
        "Next observations that are not the next row",
        "The importer ended an episode at each: rows were left out or shuffled, or the columns were scaled differently.",
        "Import the file as its recorder wrote it; a bag of single transitions needs no mending.",
    ),
    "observations_jump": Kind(
        "warning",
        "Observations jump inside an episode",
        "Ends of episodes were lost: values are bootstrapped from the end of one into the beginning of the next.",
        "Ingest with what numbers the episodes (`rename.episode=NAME`), with their `timeouts`, or with `timeout_at=N`.",
    ),
    "final_missing": Kind(
        "warning",
        "Truncated episodes without a final observation",
        "Algorithms that bootstrap cannot use the windows that end there; imitation can.",
        "Import from a source that has `next_observations`, or pass `final_observations` to `Dataset.from_arrays`.",
    ),
    "single_steps": Kind(
        "warning",
        "Episodes of a single transition",
        "n-step returns, sequences and returns say nothing there; where all end terminated, nothing is bootstrapped at all.",
        "Check that terminals and timeouts were not taken for something else, such as 'not done'.",
    ),
    "one_step_log": Kind(
        "note",
        "Every step is a decision of its own",
        "As in a bandit's log: values are means of rewards, and nothing is bootstrapped; sequences and `td_steps` add nothing.",
        "Nothing where that is so; where rows belong together, ingest with what numbers the episodes (`rename.episode=NAME`).",
    ),
    "decisions_cut": Kind(
        "warning",
        "Single decisions that were taken as cut",
        "Algorithms that bootstrap find nothing to learn from there, though a decision's reward is all of its value.",
        "Ingest with `options.ends=terminated`, or give them as terminals.",
    ),
    "no_terminals": Kind(
        "note",
        "No episode ends terminated, yet lengths vary",
        "Where the task does end, its ends were stored as timeouts, and values are bootstrapped past them.",
        "Give the ends of the task as terminals.",
    ),
    "few_episodes": Kind(
        "note",
        "Very few episodes",
        "No episodes can be held out for a score that tells about others.",
        "Record more episodes, or cut long ones with `timeout_at=N`.",
    ),
    "duplicate_episodes": Kind(
        "warning",
        "Episodes that occur twice",
        "They weigh double, and a split puts copies of what is trained on into the test part.",
        "Ingest each file once.",
    ),
    "duplicate_transitions": Kind(
        "warning",
        "Transitions that occur twice",
        "They weigh double; in a task with few states that is natural, with real numbers it means copied rows.",
        "Ingest each file once; check how the rows were recorded.",
    ),
    "goals_unreached": Kind(
        "warning",
        "No goal is reached",
        "Nothing shows what it takes to reach such a goal; rewards that say so would be the same in every step.",
        "Check that goals have the units of what is reached; leave them out of the data, and goals are drawn in hindsight (GCBC, "
        "GCIQL, HIQL).",
    ),
    "goals_far": Kind(
        "warning",
        "Goals of the tasks are far from the data",
        "A policy is evaluated on goals of which the data show nothing near: what it does there is extrapolated.",
        "Check that the data are of this environment, and `goals.part`; record steps that come near these goals.",
    ),
    "rewards_zero": Kind(
        "warning",
        "All rewards are zero",
        "Every policy has the same value: imitation can learn from this, and what is told a goal, as GCIQL.",
        "Check that the right column was read as rewards, or relabel them.",
    ),
    "rewards_constant": Kind(
        "warning",
        "All rewards are equal",
        "Returns then measure length alone; where no episode ends terminated, every policy has the same value.",
        "Make sure that terminals are ends of the task and not time limits: all that is learned comes from them.",
    ),
    "rewards_sparse": Kind(
        "note",
        "Rewards are sparse",
        "One-step targets carry them back slowly.",
        "Train with `td_steps` above 1.",
    ),
    "costs_missing": Kind(
        "error",
        "No costs, and a limit of them",
        "Nothing can be kept below a limit that no step counts against; BCQLagrangian and its like refuse such data.",
        'Ingest with the column (`rename.cost=NAME` of tables), or give `Dataset.from_arrays` the costs as `extra={"cost": …}`.',
    ),
    "costs_zero": Kind(
        "warning",
        "All costs are zero",
        "Every policy keeps within every limit, as far as these data tell.",
        "Check that the right column was read as costs; without a limit to keep, train without one.",
    ),
    "costs_negative": Kind(
        "warning",
        "Costs below zero",
        "They pay other steps' costs off, so an episode may break its limit and keep it in the sum.",
        "Check the column's sign: a cost is what is to stay small, and mostly 0 or 1.",
    ),
    "costs_above_limit": Kind(
        "warning",
        "Episodes above the limit of costs",
        "A policy within the limit is to be made of what the others show; where there are none, of parts of episodes alone.",
        "Nothing where enough episodes keep within the limit; else record more careful ones, or allow more.",
    ),
    "return_outliers": Kind(
        "warning",
        "Returns far below all others",
        "A few episodes dominate squared losses and the mean return.",
        "Look at these episodes; leave them out, or clip rewards.",
    ),
    "observations_constant": Kind(
        "note",
        "Constant entries of observations",
        "They tell nothing, and a change at deployment is something that no network has seen.",
        "Nothing while they stay as they are; where they may change as the policy acts, leave them out or take "
        "`observation_scaler=min_max`, since `standard` multiplies any change by 1,000 (1 / epsilon).",
    ),
    "observations_normalised": Kind(
        "warning",
        "Observations look normalised",
        "Each entry has mean 0 and spread 1: a policy learned from them needs the same scaling where it acts.",
        "Ingest what the environment showed, and train with `observation_scaler=standard`; the policy then carries the numbers.",
    ),
    "observations_outside": Kind(
        "warning",
        "Observations outside their space",
        "They were scaled or shifted before they were stored, or come from another version of the environment.",
        "Ingest what the environment showed; name the version of the environment that it was.",
    ),
    "observations_clipped": Kind(
        "note",
        "Entries of observations are clipped",
        "Many rows hold exactly the largest or smallest value, as where MuJoCo's Hopper clips velocities at ±10.",
        "Nothing needs mending where the environment clips too.",
    ),
    "scales_differ": Kind(
        "note",
        "Entries of observations differ in scale",
        "A network hears the large ones first.",
        "Train with `observation_scaler=standard`.",
    ),
    "states_low_rank": Kind(
        "note",
        "Observations vary in few directions",
        "The data cover a small part of the state space; elsewhere values are extrapolated.",
        "Collect from more diverse policies or starts.",
    ),
    "actions_saturated": Kind(
        "note",
        "Actions lie at their bounds",
        "Log-probabilities of squashed Gaussian policies grow without bound there.",
        "Prefer deterministic policies (`TD3PlusBC`). CQL cloned such data better when its `min_max` action scaler had bounds a "
        "tenth wider.",
    ),
    "actions_narrow": Kind(
        "note",
        "Actions fill a small part of their space",
        "Values of other actions are extrapolated.",
        "Check the unit of the actions (`action_scale=X`), or stay near the data.",
    ),
    "behaviour_deterministic": Kind(
        "note",
        "The behaviour looks deterministic",
        "One action is seen in each state: imitation learns it, and nothing can be said about better ones.",
        "Mix in data of other policies to learn more than imitation.",
    ),
    "environment_unknown": Kind(
        "note",
        "The environment is not named",
        "Spaces have no bounds, and spaces and time limit could not be compared.",
        "Ingest with `environment=ID`.",
    ),
}
