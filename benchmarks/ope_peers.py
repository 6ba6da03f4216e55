"""Estimates of peers from logs in an .npz; run by their interpreter: `ope_peers.py {scope-rl,obp,offline_rl_ope} LOGS`."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any

import numpy as np

TAU, LAMBDA, CLIP = 1.5, 2.0, 2.0  # as in ope.py


def scope_rl(logs: Any) -> dict[str, float]:
    from scope_rl.ope import discrete

    n, length = len(logs["action"]), int(logs["length"])
    about = {
        "step_per_trajectory": length,
        "action": logs["action"],
        "reward": logs["reward"],
        "pscore": logs["behaviour"][np.arange(n), logs["action"]],
        "evaluation_policy_action_dist": logs["judged"],
        "gamma": float(logs["gamma"]),
    }
    values = {"state_action_value_prediction": logs["guess"]}
    return {
        "IS": discrete.TrajectoryWiseImportanceSampling().estimate_policy_value(**about),
        "WIS": discrete.SelfNormalizedTIS().estimate_policy_value(**about),
        "PDIS": discrete.PerDecisionImportanceSampling().estimate_policy_value(**about),
        "WPDIS": discrete.SelfNormalizedPDIS().estimate_policy_value(**about),
        "DM": discrete.DirectMethod().estimate_policy_value(**about, **values),
        "DR": discrete.DoublyRobust().estimate_policy_value(**about, **values),
        "WDR": discrete.SelfNormalizedDR().estimate_policy_value(**about, **values),
    }


def obp(logs: Any) -> dict[str, float]:
    from obp import ope

    n = len(logs["action"])
    about = {
        "reward": logs["reward"],
        "action": logs["action"],
        "pscore": logs["behaviour"][np.arange(n), logs["action"]],
        "action_dist": logs["judged"][:, :, None],
        "position": np.zeros(n, int),
    }
    values = {"estimated_rewards_by_reg_model": logs["guess"][:, :, None]}
    return {
        "IPS": ope.InverseProbabilityWeighting().estimate_policy_value(**about),
        "SNIPS": ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**about),
        "DM": ope.DirectMethod().estimate_policy_value(**about, **values),
        "DR": ope.DoublyRobust().estimate_policy_value(**about, **values),
        "SNDR": ope.SelfNormalizedDoublyRobust().estimate_policy_value(**about, **values),
        "Switch-DR": ope.SwitchDoublyRobust(tau=TAU).estimate_policy_value(**about, **values),
        "DRos": ope.DoublyRobustWithShrinkage(lambda_=LAMBDA).estimate_policy_value(**about, **values),
    }


def offline_rl_ope(logs: Any) -> dict[str, float]:
    import torch

    torch.set_default_dtype(torch.float64)
    from offline_rl_ope.OPEEstimators.DirectMethod import DirectMethodBase
    from offline_rl_ope.OPEEstimators.DoublyRobust import DREstimator
    from offline_rl_ope.OPEEstimators.EmpiricalMeanDenom import EmpiricalMeanDenom
    from offline_rl_ope.OPEEstimators.IS import ISEstimator
    from offline_rl_ope.OPEEstimators.WeightDenom import PassWeightDenom, PiTWeightDenom

    n, length = len(logs["action"]), int(logs["length"])
    ratio = logs["judged"][np.arange(n), logs["action"]] / logs["behaviour"][np.arange(n), logs["action"]]
    by_step = torch.tensor(ratio.reshape(-1, length).cumprod(1))
    whole = by_step[:, -1:].expand_as(by_step).contiguous()
    tables = {k: torch.tensor(logs[k].reshape(-1, length, logs[k].shape[-1])) for k in ("judged", "guess")}
    actions = torch.tensor(logs["action"].reshape(-1, length, 1)).double()
    rewards = list(torch.tensor(logs["reward"].reshape(-1, length, 1)))
    numbers = list(torch.arange(n, dtype=torch.float64).reshape(-1, length, 1))  # a state is the number of its row

    class Table(DirectMethodBase):
        """Values by the number of the row."""

        def calculate_v(self, state: Any) -> Any:
            values = (tables["judged"] * tables["guess"]).sum(-1).reshape(-1)
            return values[state[:, 0].long()][:, None]

        def calculate_q(self, state: Any, action: Any) -> Any:
            return tables["guess"].reshape(n, -1)[state[:, 0].long(), action[:, 0].long()][:, None]

    def value(estimator: Any, weights: Any) -> float:
        mask = torch.ones_like(weights)
        found = estimator.predict(
            rewards=rewards, states=numbers, actions=list(actions), weights=weights, discount=float(logs["gamma"]), is_msk=mask
        )
        return float(found)

    plain, mean = PassWeightDenom(), EmpiricalMeanDenom()
    by_column = PiTWeightDenom()
    return {
        "IS": value(ISEstimator(mean, plain), whole),
        "PDIS": value(ISEstimator(mean, plain), by_step),
        "WIS": value(ISEstimator(mean, by_column), whole),
        "WPDIS": value(ISEstimator(mean, by_column), by_step),
        "DR": value(DREstimator(mean, plain, Table(len)), by_step),
        "WDR": value(DREstimator(mean, by_column, Table(len)), by_step),
    }


if __name__ == "__main__":
    name, path = sys.argv[1:]
    estimates = {"scope-rl": scope_rl, "obp": obp, "offline_rl_ope": offline_rl_ope}[name](np.load(path))
    print(json.dumps({"version": version(name), "estimates": {k: float(v) for k, v in estimates.items()}}))
