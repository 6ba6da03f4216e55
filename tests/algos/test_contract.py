"""Every algorithm keeps the contract, and the contract catches algorithms that do not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from d3ray.algos import testing
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.td3_plus_bc import TD3PlusBC
from d3ray.data.random import normal, root_key

CELLS = [(name, check) for name in algorithm_names() for check in testing.CHECKS]


@pytest.mark.parametrize(("name", "check"), CELLS, ids=[f"{n}-{c.__name__.removeprefix('check_')}" for n, c in CELLS])
def test_contract(name: str, check: Callable[[Any], None]) -> None:
    check(testing.maker(algorithm_class(name)))


@pytest.mark.parametrize("name", ["TD3PlusBC", "DQN"])
def test_stacks_keep_the_contract_with_dropout_batch_norm_scalers_and_n_steps(name: str) -> None:
    encoder = {"hidden_units": [16, 16], "use_batch_norm": True, "dropout_rate": 0.2, "activation": "tanh"}
    fields = algorithm_class(name).Config.model_fields
    settings = {field: encoder for field in fields if field.endswith("encoder") and field != "share_encoder"}
    make = testing.maker(algorithm_class(name), td_steps=3, observation_scaler="standard", **settings)
    testing.check_row_equals_single_run(make, n_steps=100)
    testing.check_resumes_bit_for_bit(make)
    testing.check_update_reads_no_value(make)


class ReadsAValue(TD3PlusBC):
    def actor_loss(self, nets, batch, h):
        loss, metrics = super().actor_loss(nets, batch, h)
        return loss * (1.0 if loss.mean().item() > 0 else 2.0), metrics


class DrawsFromAGenerator(TD3PlusBC):
    def critic_loss(self, nets, batch, h):
        loss, metrics = super().critic_loss(nets, batch, h)
        return loss * (1 + 0.1 * torch.rand_like(loss)), metrics


class KeepsStateOfItsOwn(TD3PlusBC):
    calls = 0

    def actor_loss(self, nets, batch, h):
        self.calls += 1
        loss, metrics = super().actor_loss(nets, batch, h)
        return loss * (1 + 0.01 * self.calls), metrics


class NeverTrainsItsPolicy(TD3PlusBC):
    def schedule(self, step):
        return ("critic",)


class SharesOneDrawAmongSeeds(TD3PlusBC):
    def critic_loss(self, nets, batch, h):
        loss, metrics = super().critic_loss(nets, batch, h)
        return loss * (1 + 0.1 * normal(root_key(self.seed), loss.shape, loss.dtype)), metrics


@pytest.mark.parametrize(
    ("broken", "check", "complaint"),
    [
        (ReadsAValue, testing.check_update_reads_no_value, "reads a value"),
        (DrawsFromAGenerator, testing.check_row_equals_single_run, "outside nets.noise"),
        (KeepsStateOfItsOwn, testing.check_resumes_bit_for_bit, "outside learner.state"),
        (NeverTrainsItsPolicy, testing.check_learns_something, "'policy' never moves"),
        (SharesOneDrawAmongSeeds, testing.check_one_update_in_float32, "differs from its single run's"),
    ],
)
def test_contract_catches(broken: Any, check: Callable[[Any], None], complaint: str) -> None:
    with pytest.raises(testing.ContractError, match=complaint):
        check(testing.maker(broken))
