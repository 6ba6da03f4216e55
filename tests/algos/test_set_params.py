"""Settings of an algorithm that is built: coefficients change for losses, acting and checkpoints alike, all else is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from d3ray import AWR, BCQ, SPOT, TD3, XQL, Stack, load
from d3ray.algos.testing import SMALL, maker, tiny_dataset
from d3ray.data.errors import ConfigError

DATA = tiny_dataset(discrete=False)


def spot(**settings: Any) -> Any:
    return maker(SPOT, warmup_steps=0)(**settings)


def changed(state: tuple[dict[str, torch.Tensor], dict[str, Any]], **values: float) -> Any:
    """A state as one that was trained with other coefficients would have left it."""
    tensors, meta = state
    hyper = {f"hyper/{name}": torch.full_like(tensors[f"hyper/{name}"], value) for name, value in values.items()}
    return {**tensors, **hyper}, {**meta, "config": {**meta["config"], **values}}


def same(a: Any, b: Any) -> bool:
    ours, theirs = a.state()[0], b.state()[0]
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def policy_of(algorithm: Any) -> torch.Tensor:
    return torch.cat([t.flatten() for name, t in algorithm.state()[0].items() if name.startswith("live/policy/")])


def test_a_coefficient_that_is_set_is_what_training_goes_on_with() -> None:
    values = {"support_weight": 3.0, "actor_learning_rate": 1e-2, "gamma": 0.5}
    made, other = spot().fit(DATA, 10, 10), spot()
    other.load_state(*changed(made.state(), **values)).fit(DATA, 10, 10)
    assert made.set_params(**values) is made
    assert made.fit(DATA, 10, 10).step == 20
    assert same(made, other)
    assert not torch.equal(policy_of(made), policy_of(spot().fit(DATA, 20, 10)))


def test_settings_learner_and_what_is_saved_say_the_same(tmp_path: Path) -> None:
    made = spot().fit(DATA, 2, 2).set_params(support_weight=0.1, tau=1)
    for one in (made, _kept(made, tmp_path / "saved"), spot().load_state(*made.state())):
        assert (one.support_weight, one.config_.support_weight, one.fit_.learner.values["support_weight"]) == (0.1, 0.1, [0.1])
        assert float(one.fit_.learner.hyper["tau"]) == one.config_.tau == one.tau == 1
        assert "support_weight=0.1" in repr(one)
    assert clone(made).support_weight == 0.1
    assert not hasattr(clone(made), "fit_")


def _kept(algorithm: Any, path: Path) -> Any:
    algorithm.save(path)
    return load(path)


def test_acting_and_values_follow() -> None:
    seen, done = DATA.columns["observation"][:6], DATA.columns["action"][:6]
    made = maker(AWR)().fit(DATA, 3, 3)
    before = made.predict_value(seen, done)
    made.set_params(value_scale=2 * made.value_scale)
    np.testing.assert_allclose(made.predict_value(seen, done), 2 * before, rtol=1e-6)
    perturbed = maker(BCQ)().fit(DATA, 3, 3)
    before = perturbed.predict(seen)
    assert not np.allclose(perturbed.set_params(action_flexibility=1.0).predict(seen), before)
    sampler = made.fit_.sampler(DATA)
    assert float(sampler.sample(0).discount.max()) > 0
    made.set_params(gamma=0.0)
    assert float(sampler.sample(0).discount.max()) == 0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"support_weight": 0.5, "batch_size": 7}, r"This SPOT is built, so its batch_size cannot change: .* are tau, gamma, "),
        ({"support_weight": 0.5, "seed": 3}, "its seed cannot change"),
        ({"support_weight": 0.5, "critic_encoder": {"hidden_units": [3]}}, "its critic_encoder cannot change"),
        ({"support_weight": 0.5, "tau": 2.0}, "SPOT: tau is 2.0; input should be less than or equal to 1"),
        ({"support_weight": 0.5, "taw": 0.5}, "no setting 'taw'; did you mean 'tau'"),
    ],
)
def test_what_shapes_the_program_is_refused_and_nothing_is_set(params: dict[str, Any], message: str) -> None:
    made = spot().fit(DATA, 0)
    with pytest.raises(ConfigError, match=message):
        made.set_params(**params)
    assert made.support_weight == made.config_.support_weight == spot().support_weight
    assert made.get_params() == spot().get_params()


def test_what_stays_as_it_is_may_be_set() -> None:
    made = spot(action_scaler="min_max").fit(DATA, 0)
    made.set_params(**made.get_params())
    made.set_params(critic_encoder=made.config_.critic_encoder, action_scaler=made.config_.action_scaler)  # fitted, the same
    made.set_params(batch_size=made.batch_size, actor_encoder=SMALL)
    other = spot().set_params(gamma=7, batch_size=3)  # unfitted: checked by fit, as ever
    with pytest.raises(ConfigError, match="gamma is 7"):
        other.fit(DATA, 0)


def test_a_setting_that_was_no_number_does_not_become_one() -> None:
    made = maker(XQL)(max_clip=None).fit(DATA, 0)
    with pytest.raises(ConfigError, match="its max_clip cannot change"):
        made.set_params(max_clip=3.0)


def test_rows_of_a_stack_say_what_they_have() -> None:
    rows = [{"gamma": 0.5}, {"tau": 0.2}]
    stack = Stack(maker(TD3)(), (4, 5), rows).fit(DATA, 2, 2)
    first, second = stack.seed(0), stack.seed(1)
    assert (first.gamma, first.config_.gamma, first.tau) == (0.5, 0.5, TD3().tau)
    assert (second.gamma, second.config_.tau) == (TD3().gamma, 0.2)
    stack.set_params(gamma=0.9, critic_learning_rate=1e-30)
    before = {name: t.clone() for name, t in stack.fit_.learner.live["critic"].items()}
    stack.fit(DATA, 2, 2)
    assert all(torch.equal(t, before[name]) for name, t in stack.fit_.learner.live["critic"].items())
    assert [stack.seed(k).config_.gamma for k in (0, 1)] == [0.9, 0.9]
    assert [stack.seed(k).tau for k in (0, 1)] == [TD3().tau, 0.2]
    assert stack.fit_.config.critic_learning_rate == stack.algorithm.critic_learning_rate == 1e-30
    with pytest.raises(ConfigError, match="its n_critics cannot change"):
        stack.set_params(n_critics=5)
    assert Stack(maker(TD3)(), (4, 5), rows).set_params(gamma=0.9).fit(DATA, 0).seed(0).gamma == 0.9
