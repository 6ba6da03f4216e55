"""d3rlpy's side of `scorers.py`: its evaluators of given weights."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from d3rlpy import metrics
from fidelity_d3rlpy import named
from peer import make, open_dataset
from workers import serve


def algorithm(weights: str, dataset: str, settings: Mapping[str, Any]) -> Any:
    """An algorithm with the weights of our side."""
    settings = dict(settings)
    learner = make(settings.pop("name"), settings, "cpu")
    data = open_dataset(dataset)
    learner.build_with_dataset(data)
    if (scaler := learner.config.action_scaler) is not None:  # it is training that fits it there
        scaler.fit_with_transition_picker(data.episodes, data.transition_picker)
    with np.load(weights) as given, torch.no_grad():
        for network, parameters in named(learner.impl.modules, False).items():
            for name, parameter in parameters.items():
                if (place := f"live/{network}/{name}") in given:
                    parameter.copy_(torch.from_numpy(given[place]).reshape(parameter.shape))
    return learner


def score(weights: str, base: str, dataset: str, settings: Mapping[str, Any], threshold: float) -> dict[str, tuple[float, float]]:
    """By the names of our scorers, the number and the seconds that it took."""
    learner, other, data = algorithm(weights, dataset, settings), algorithm(base, dataset, settings), open_dataset(dataset)
    known: dict[str, Any] = {
        "td_error": metrics.TDErrorEvaluator(),
        "discounted_sum_of_advantage": metrics.DiscountedSumOfAdvantageEvaluator(),
        "average_value_estimation": metrics.AverageValueEstimationEvaluator(),
        "initial_state_value_estimation": metrics.InitialStateValueEstimationEvaluator(),
        "soft_opc": metrics.SoftOPCEvaluator(threshold),
    }
    if data.dataset_info.action_space.name == "DISCRETE":
        known["discrete_action_match"] = metrics.DiscreteActionMatchEvaluator()
        known["compare_discrete_action_match"] = metrics.CompareDiscreteActionMatchEvaluator(other)
    else:
        known["continuous_action_diff"] = metrics.ContinuousActionDiffEvaluator()
        known["compare_continuous_action_diff"] = metrics.CompareContinuousActionDiffEvaluator(other)
    found: dict[str, tuple[float, float]] = {}
    for name, evaluator in known.items():
        begin = time.perf_counter()
        found[name] = float(evaluator(learner, data)), time.perf_counter() - begin
    return found


if __name__ == "__main__":
    serve({"score": score})
