"""`d3ray train DATASET`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...platform.record.status import main_losses
from ...platform.settings.config import ExperimentConfig
from ...platform.words import resume_command
from ..command.base import Result
from ..command.planning import PlannableConfig, PlanResult, planned
from ..data.of_file import with_dataset_of_file
from ..views.live_view import live_experiment
from ..views.view_text import losses_words

if TYPE_CHECKING:
    from ...platform.record.results import Results


class TrainConfig(PlannableConfig, ExperimentConfig):
    """An experiment, and whether to go on with an earlier one."""

    def implied(self) -> Mapping[str, tuple[Any, str]]:
        """Settings of the algorithm that were not given, with the preset or default that they come from."""
        algorithm = self.sample
        preset = algorithm.presets[self.algorithm.preset] if self.algorithm.preset else None
        found: dict[str, tuple[Any, str]] = {"name": (self.experiment, "algorithm and dataset")} if self.name is None else {}
        for name, value in algorithm.check_settings().model_dump(mode="json").items():
            place = f"preset {self.algorithm.preset}" if preset and name in preset.settings else "default"
            if name not in self.algorithm.settings:
                found[f"algorithm.{name}"] = (value, place)
        return found


@dataclass(frozen=True, kw_only=True)
class TrainResult(Result):
    """Outcome of each seed."""

    experiment: Results


def run(config: TrainConfig) -> TrainResult | PlanResult:
    """Trains what is unfinished, or plans it.

    Raises:
        ConfigError, DataError, StorageError: before any work, for what cannot be used.
    """
    from ...platform.experiment.run import run_experiment, train_work

    config = with_dataset_of_file(config)
    if config.plan:
        return planned(train_work(config), config)
    with live_experiment(config.storage_place, config.experiment) as on_progress:
        result = run_experiment(config, resume=config.resume, replace=config.replace, trial=config.trial, on_progress=on_progress)
    return describe(result, limited=config.time_limit.experiment is not None and config.trial is None)


def describe(result: Results, *, limited: bool = False) -> TrainResult:
    from ...platform.record.results import COSTS, SUCCESS

    finished = [seed for seed in result.seeds if seed.status == "FINISHED"]
    lines = [f"{result.name}: {len(finished)} of {len(result.seeds)} seeds are trained."]
    for seed in result.seeds:
        score = "" if seed.score is None else f"{'best ' + seed.best.metric if seed.best else 'return'} {seed.score:.6g}"
        solved = seed.metrics.get(SUCCESS)
        success = "" if solved is None else f"success {100 * solved:.3g} %"
        cost = "" if (spent := seed.metrics.get(COSTS)) is None else f"cost {spent:.6g}"
        losses = losses_words([{name: seed.metrics[name] for name in main_losses(seed.metrics)}])
        said = [f"  seed {seed.seed}: {seed.status.lower()} at step {seed.step}", score, success, cost, losses, seed.reason]
        lines.append("  ".join(filter(None, said)))
        if seed.warning:
            lines.append(f"    warning: {seed.warning}")
    look = {"folder": result.folder, "runs": result.look, **result.views}
    if "://" not in result.folder and any(seed.policy is not None for seed in finished):
        look["policies"] = f"{result.folder}/trials/*/policy"
    elif finished:  # where no shell finds out what a star stands for
        look |= {f"policy of seed {seed.seed}": seed.policy for seed in finished[:1] if seed.policy is not None}
    model = next(iter(result.models), None)
    if model and any(s.score is not None for s in finished):
        look |= {"model": f"models:/{model}@candidate", "make it the champion": f"d3ray promote {model}"}
    elif model:
        look["model"] = f"models:/{model}/{finished[0].model_version}"
    # A trial that was cancelled alone is an outcome: its line says so.
    failed = [seed for seed in result.seeds if seed.status != "FINISHED" and not (seed.status == "KILLED" and seed.is_final)]
    problems: list[str] = []
    if left := [seed for seed in failed if not seed.reason]:  # which nobody began
        go_on = resume_command(result.folder)
        under = "with a larger time_limit.experiment " if limited else ""
        problems.append(f"{len(left)} of {len(result.seeds)} seeds are left; {under}{go_on} goes on.")
    if failed := [seed for seed in failed if seed.reason]:
        reasons = "; ".join(f"seed {seed.seed}: {seed.reason}" for seed in failed)
        problems.append(f"{len(failed)} of {len(result.seeds)} seeds failed: {reasons.rstrip('.?')}.")
    if not all(seed.is_final for seed in failed):
        problems.append(f"Once that is mended, {resume_command(result.folder)} goes on.")
    elif not all(seed.reason.startswith("diverged") for seed in failed):
        problems.append(
            "It was tried again as often as `retries` says; with more of them it is once more: "
            f"{resume_command(result.folder)} retries=N"
        )
    if result.undelivered:
        problems.append(result.undelivered)
    return TrainResult(made="\n".join(lines), look=look, failed=" ".join(problems), experiment=result)
