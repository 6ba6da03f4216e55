"""`d3ray.metrics`, d3rlpy's place of what judges: scorers, comparers and evaluators by the names that its users import."""

from d3ray.algos.judging import scorers
from d3ray.algos.judging.evaluators import (
    AverageValueEstimationEvaluator,
    CompareContinuousActionDiffEvaluator,
    CompareDiscreteActionMatchEvaluator,
    ContinuousActionDiffEvaluator,
    DiscountedSumOfAdvantageEvaluator,
    DiscreteActionMatchEvaluator,
    EnvironmentEvaluator,
    InitialStateValueEstimationEvaluator,
    Scores,
    SoftOPCEvaluator,
    TDErrorEvaluator,
)
from d3ray.algos.judging.scorers import (
    average_value_estimation_scorer,
    compare_continuous_action_diff,
    compare_discrete_action_match,
    continuous_action_diff_scorer,
    discounted_sum_of_advantage_scorer,
    discrete_action_match_scorer,
    dynamics_observation_prediction_error_scorer,
    dynamics_prediction_variance_scorer,
    dynamics_reward_prediction_error_scorer,
    evaluate_on_environment,
    initial_state_value_estimation_scorer,
    soft_opc_scorer,
    td_error_scorer,
    value_estimation_std_scorer,
)
from d3ray.data.lazy import also_called

also_called({f"{__name__}.comparer": scorers, f"{__name__}.scorer": scorers})
__all__ = [
    "AverageValueEstimationEvaluator",
    "CompareContinuousActionDiffEvaluator",
    "CompareDiscreteActionMatchEvaluator",
    "ContinuousActionDiffEvaluator",
    "DiscountedSumOfAdvantageEvaluator",
    "DiscreteActionMatchEvaluator",
    "EnvironmentEvaluator",
    "InitialStateValueEstimationEvaluator",
    "Scores",
    "SoftOPCEvaluator",
    "TDErrorEvaluator",
    "average_value_estimation_scorer",
    "compare_continuous_action_diff",
    "compare_discrete_action_match",
    "continuous_action_diff_scorer",
    "discounted_sum_of_advantage_scorer",
    "discrete_action_match_scorer",
    "dynamics_observation_prediction_error_scorer",
    "dynamics_prediction_variance_scorer",
    "dynamics_reward_prediction_error_scorer",
    "evaluate_on_environment",
    "initial_state_value_estimation_scorer",
    "soft_opc_scorer",
    "td_error_scorer",
    "value_estimation_std_scorer",
]
