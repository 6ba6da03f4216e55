"""What is to be done about what the doctor found, on this page: a form to train by, or a sentence that says what and where."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from ..record.datasets import Finding

_BELOW = "below, under “Bring it in again”"
_DATASETS = "on the page of datasets"
_COLUMNS = f"Say {_BELOW} which column is what."
_SOURCE = f"Bring the file in {_DATASETS} as its recorder wrote it, under another name."
TODO: Mapping[str, str] = {  # by the finding's name; those that a button answers need none
    "not_finite": f"Mend these rows in the file, and bring it in {_DATASETS}: what it cannot use it names by row.",
    "rows_disagree": f"Somebody changed its files: bring the original in {_DATASETS}, and delete this one.",
    "rewards_late": f"Move the rewards up by one row in the file, and bring it in {_DATASETS}.",
    "rewards_early": f"Move the rewards down by one row in the file, and bring it in {_DATASETS}.",
    "spaces_disagree": f"Say {_BELOW} the environment in which the steps were taken.",
    "actions_far_outside": f"Say {_BELOW} what actions are multiplied by, where the unit is another; else which column is what.",
    "actions_illegal": f"Correct the actions, or which were legal, in the file, and bring it in {_DATASETS}.",
    "actions_constant": _COLUMNS,
    "next_observations_differ": f"{_SOURCE} Where the rows were single transitions from the start, nothing needs mending.",
    "observations_jump": f"Say {_BELOW} which column numbers the episodes, or their time limit.",
    "final_missing": "Nothing here: a file with the next observations would tell. BC and DiscreteBC learn from all of it.",
    "single_steps": f"{_COLUMNS} Flags that say “not done” are often taken for ends.",
    "goals_unreached": f"Leave the goals out of the file, and bring it in {_DATASETS}: training draws its own in hindsight.",
    "goals_far": f"Say {_BELOW} the environment of these steps; else record steps that come near its goals.",
    "one_step_log": f"Nothing, where each row is a decision of its own; else say {_BELOW} which column numbers the episodes.",
    "decisions_cut": f"Say {_BELOW} that the task was over at the ends.",
    "no_terminals": f"Where the task was over at the ends of a CSV, say so {_BELOW}; else nothing needs mending.",
    "few_episodes": f"Bring more files in {_DATASETS}, several at once where they belong together, or hold out 0 in the form.",
    "duplicate_episodes": f"Bring each file in once, {_DATASETS}, and delete this one.",
    "duplicate_transitions": f"Bring each file in once, {_DATASETS}; where states are few, nothing needs mending.",
    "rewards_zero": f"{_COLUMNS} Without rewards BC and DiscreteBC learn what was done.",
    "rewards_constant": f"Where ends are time limits, say {_BELOW} at how many steps: all that is learned comes from the ends.",
    "return_outliers": "Look at these episodes in the list below; in the form the reward scaler “clip” bounds what a step counts.",
    "costs_missing": f"{_COLUMNS} Without costs a limit of them means nothing.",
    "costs_zero": f"{_COLUMNS} Where nothing costs, train without a limit.",
    "costs_negative": f"{_COLUMNS} A cost is what is to stay small, mostly 0 or 1.",
    "costs_above_limit": "Nothing, where the limit is below what was recorded on purpose: BCQLagrangian keeps to one.",
    "observations_constant": f"Nothing, while they stay as they are; where that cannot be, say {_BELOW} which column is what.",
    "observations_normalised": f"{_SOURCE} The policy scales by itself, where the form says an observation scaler.",
    "observations_outside": f"{_SOURCE} Or say {_BELOW} the version of the environment that it was.",
    "observations_clipped": "Nothing, where the environment clips too.",
    "states_low_rank": f"Bring logs of other policies or starts in {_DATASETS}, several files at once.",
    "actions_narrow": f"Where the unit is another, say {_BELOW} what actions are multiplied by; else nothing needs mending.",
    "behaviour_deterministic": f"Bring logs of other policies in with these, {_DATASETS}, to learn more than imitation.",
    "environment_unknown": f"Say {_BELOW} its environment, if gymnasium has it; policies are judged by logs otherwise.",
}
_ALGORITHMS: Mapping[str, str] = {  # that learn from such data as they are
    "actions_unused": "DiscreteCQL",
    "actions_saturated": "TD3PlusBC",
}


def training(finding: Finding, dataset: str) -> tuple[str, str] | None:
    """Return the label and form query of a button that trains with a remedy; None: training is no remedy."""
    if (algorithm := _ALGORITHMS.get(finding.name)) is not None:
        return f"Train {algorithm} on it", urlencode({"dataset": dataset, "algorithm": algorithm})
    if not finding.settings:
        return None
    said = " and ".join(f"{name.replace('_', ' ')} {value}" for name, value in finding.settings.items())
    return f"Train with {said}", urlencode({"dataset": dataset, **{f"algorithm.{k}": v for k, v in finding.settings.items()}})


def todo(finding: Finding) -> str:
    """Say what to do and where; empty if a button does it."""
    return "" if finding.mends else TODO.get(finding.name, "")
