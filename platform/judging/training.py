"""FQE of the policies that are judged: its settings as the data ask for them, its trials, and what comes of it.

Logs of one step take no trials: what an action is worth there is a regression of seconds, made in this process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from ...algos.judging.decisions import Decisions
from ...algos.judging.logs import Logs
from ...algos.judging.values import PolicyValues, is_one_step, one_step_values, policy_values
from ...data.dataset import Dataset
from ...data.errors import DataError
from ...data.spec import Box
from ..driver.proposer import Listed
from ..driver.work import Work
from ..experiment.checks import check_data, check_place, describe_dataset
from ..results.experiment import read_results
from ..settings.config import ExperimentConfig, asked
from ..storage.experiments import Experiment
from ..tracking.policies import open_policy
from .policies import Kept
from .settings import EPOCHS, JudgeSettings
from .verdicts import Critics

FEWEST_STEPS, MOST_STEPS = 10_000, 50_000  # gradient steps where none are said
_TARGET_EVERY = 100  # FQE's own default
_LEFT = 0.005  # share of the way to its values that may be left, as far as its target decides
_ONE_STEP = {"learning_rate": 1e-3, "batch_size": 256, "reward_scaler": "standard"}


def one_step_critics(
    configs: Sequence[ExperimentConfig],
    dataset: Dataset,
    kept: Sequence[Kept],
    acted: Sequence[Decisions],
    say: Callable[[str], None],
) -> list[Critics]:
    """Fit the rewards of one-step logs by policy and seed."""
    found = list[Critics]()
    for config, one, policy in zip(configs, kept, acted, strict=True):
        say(f"Fitting the rewards for {one.label}.")
        values = [
            one_step_values(lambda seed=seed, config=config: config.make_algorithm(seed, "cpu"), dataset, policy, config.n_steps)
            for seed in config.seeds
        ]
        found.append(Critics(values, (), "", config.n_steps))
    return found


def fqe_experiment(settings: JudgeSettings, dataset: Dataset, place: str, path: str) -> ExperimentConfig:
    """The training of FQE on a dataset, which lies at a place, for the policy of a path."""
    spec = dataset.spec
    algorithm: dict[str, Any] = {"name": "DiscreteFQE" if spec.discrete else "FQE", "gamma": settings.gamma}
    if is_one_step(dataset):
        algorithm |= _ONE_STEP
    else:
        algorithm |= {"value_bounds": "rewards", "reward_scaler": _to_size_one(dataset, settings.gamma)}
    vectors = isinstance(spec.observation, Box) and len(spec.observation.shape) == 1
    algorithm |= {"observation_scaler": "standard"} if vectors else {}
    algorithm |= {} if spec.discrete else {"action_scaler": "min_max"}
    algorithm |= settings.fqe
    if isinstance(bounds := algorithm.get("value_bounds"), list | tuple):  # they are given in the units of the data's rewards
        size = algorithm["reward_scaler"]["multiplier"] if isinstance(algorithm["reward_scaler"], dict) else 1.0
        algorithm["value_bounds"] = [size * bound for bound in cast("Sequence[float]", bounds)]
    n_steps = settings.n_steps or needed_steps(dataset, settings.gamma, algorithm.get("target_update_interval", _TARGET_EVERY))
    return ExperimentConfig.checked(
        {
            "name": settings.experiment_name,
            "dataset": place,
            "algorithm": {**algorithm, "algo": path},
            "n_steps": n_steps,
            "n_steps_per_epoch": n_steps // EPOCHS,
            "seeds": settings.seeds,
            "seeds_per_trial": len(settings.seeds),
            "resources": settings.resources,
            "storage": settings.storage,
        }
    )


def needed_steps(dataset: Dataset, gamma: float, target_every: int) -> int:
    """Gradient steps after which FQE has come to its values, as far as its target decides.

    Each move of the target brings values nearer by the share γ (1 - e), e being the share of steps at which the task ended. Logs of
    one step end their fits by the error on other episodes.
    """
    kept = gamma * (1 - float(np.sum(dataset.episodes.terminated)) / dataset.n_transitions)
    if not 0 < kept < 1:
        return MOST_STEPS
    needed = target_every * math.log(_LEFT) / math.log(kept)
    return int(min(max(needed, FEWEST_STEPS), MOST_STEPS)) // EPOCHS * EPOCHS


def _to_size_one(dataset: Dataset, gamma: float) -> dict[str, Any]:
    """A scaler by which returns are about 1, so that learning rates fit whatever the unit of rewards; nothing is shifted."""
    size = float(np.sqrt(np.square(Logs.of(dataset, None, gamma=gamma).returns).mean()))
    return {"name": "multiply", "multiplier": float(f"{1 / size:.1g}") if size else 1.0}


def fqe_work(settings: JudgeSettings, dataset: Dataset, kept: Sequence[Kept], configs: Sequence[ExperimentConfig]) -> Work:
    """FQE of each policy, all seeds a stack."""
    first = configs[0]
    check_place(first)
    check_data(first, dataset)
    about = describe_dataset(dataset, first.dataset_place)
    decided = [config.configuration() for config in configs]
    return Work(
        config=first,
        configuration={**decided[0], "algo": [one.path for one in kept], "seeds": list(first.seeds)},
        datasets={first.dataset_place: about},
        proposer=lambda experiment, *_: Listed(
            [
                experiment.trial(each, first.seeds, title=f"FQE of {one.label}", tags={"d3ray.judged": one.source})
                for one, each in zip(kept, decided, strict=True)
            ]
        ),
        asked=asked("judge", settings, JudgeSettings),
        undivided="a policy is judged by all seeds of its FQE together",
    )


def critics_of_trials(settings: JudgeSettings, dataset: Dataset, kept: Sequence[Kept], acted: Sequence[Decisions]) -> list[Critics]:
    """Read the trials' results by policy. Raises DataError: a policy has no finished seed."""
    results = read_results(settings.storage_place, settings.experiment_name).configurations
    trained = {str(one.settings["algorithm"]["algo"]): one for one in results}
    trials = {
        t.configuration["algorithm"]["algo"]: t for t in Experiment.look(settings.storage_place, settings.experiment_name).trials()
    }
    found = list[Critics]()
    for one, policy in zip(kept, acted, strict=True):
        trial, values, status, unit = trials[one.path], list[PolicyValues](), trials[one.path].status, 1.0
        for seed in trial.seeds:
            if status.get(seed, {}).get("status") == "FINISHED":
                with open_policy(trial.folder.name, seed=seed) as fqe:
                    assert fqe.algorithm is not None
                    values.append(policy_values(fqe.algorithm, dataset, policy))
                    unit = 1 / fqe.algorithm.config_.reward_scaler.reward_transform().scale
        if not values:
            reason = next((about.get("reason", "") for about in status.values()), "it has not ended")
            raise DataError(f"FQE of {one.label} has no finished seed: {reason}.")
        doubt = next((about["warning"] for about in status.values() if "warning" in about), "")
        found.append(Critics(values, trained[one.path].seeds, doubt, trial.configuration["n_steps"], unit))
    return found
