"""`d3ray demo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..command.base import RestartableConfig, Result, option
from ..command.console import note
from ..views.live_view import live_experiment

if TYPE_CHECKING:
    from ...platform.record.results import Results

DATASET = "d3ray/cartpole-replay"
SMALL = {"hidden_units": [64, 64]}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "DQN": {"preset": "small", "batch_size": 64, "td_steps": 5, "n_critics": 2, "encoder": SMALL},
    "DiscreteBC": {"encoder": SMALL},
}


class DemoConfig(RestartableConfig):
    """How long, and where the results go."""

    n_steps: int = option(6_000, "gradient steps of a seed", gt=0)
    seeds: tuple[int, ...] = option((0, 1, 2), "seeds of each algorithm", min_length=1)
    episodes: int = option(10, "episodes of an evaluation", gt=0)
    storage: str = option("./d3ray_results", "folder of the results")


@dataclass(frozen=True, kw_only=True)
class DemoResult(Result):
    """Mean return of each algorithm over its seeds after the last step, of the data, and of the exported policy."""

    scores: dict[str, float]
    data: float
    exported: float


def run(config: DemoConfig) -> DemoResult:
    """Trains, registers, evaluates the registered policy through onnxruntime, and draws the report."""
    from ...data.dataset import Dataset
    from ...platform.cluster.session import ray_session

    dataset = Dataset.open(DATASET)
    returns = dataset.statistics.return_
    note(f"{DATASET}: {dataset.n_transitions:,} transitions in {dataset.n_episodes} episodes, mean return {returns.mean:.1f}.")
    with ray_session():  # one for both
        results = {name: _train(name, config) for name in ALGORITHMS}
    metric = "evaluation/return"
    last = {name: [s.metrics[metric] for s in result.seeds if metric in s.metrics] for name, result in results.items()}
    kept = {name: [seed.score or 0.0 for seed in result.seeds] for name, result in results.items()}  # what was exported
    best = max(kept, key=lambda name: max(kept[name]))
    model = f"models:/{results[best].models[0]}@candidate"
    played = _evaluate(model, config)
    page = _report([result.name for result in results.values()], config)
    lines = [f"{'the data':>12}: mean return {returns.mean:6.1f}   (what the recorded agents got)"]
    for name, returns_ in last.items():
        each, top = (", ".join(f"{value:.0f}" for value in values) for values in (returns_, kept[name]))
        lines.append(
            f"{name:>12}: mean return {np.mean(returns_):6.1f}   (after the last step of each seed {each}; at its best {top})"
        )
    lines.append(f"{'exported':>12}: mean return {played:6.1f}   ({model}, played through onnxruntime alone)")
    return DemoResult(
        made="\n".join(lines),
        look={
            "report": page,
            "policy": model,
            "make it the champion": f"d3ray promote {results[best].models[0]}",
            "runs": results[best].look,
        },
        scores={name: float(np.mean(values)) for name, values in last.items()},
        data=float(np.mean(returns.mean)),
        exported=played,
    )


def _train(name: str, config: DemoConfig) -> Results:
    from ...platform.experiment.run import run_experiment
    from ...platform.settings.config import ExperimentConfig

    settings = {
        "name": f"demo-{name}",
        "dataset": DATASET,
        "algorithm": {"name": name, **ALGORITHMS[name]},
        "n_steps": config.n_steps,
        "n_steps_per_epoch": max(1, config.n_steps // 6),
        "seeds": config.seeds,
        "evaluation": {"environment": "CartPole-v1", "episodes": config.episodes},
        "checkpoint": {"best": "evaluation/return"},
        "storage": config.storage,
    }
    experiment = ExperimentConfig.checked(settings)
    with live_experiment(experiment.storage_place, experiment.experiment) as on_progress:
        return run_experiment(experiment, resume=config.resume, replace=config.replace, on_progress=on_progress)


def _evaluate(model: str, config: DemoConfig) -> float:
    from ..policies.evaluate import EvaluateConfig
    from ..policies.evaluate import run as evaluate

    return evaluate(EvaluateConfig.checked({"policy": model, "episodes": 20, "seed": 1_000, "storage": config.storage})).mean


def _report(names: list[str], config: DemoConfig) -> str:
    from ..results.report import ReportConfig
    from ..results.report import run as report

    return report(ReportConfig.checked({"experiments": names, "storage": config.storage})).look["page"]
