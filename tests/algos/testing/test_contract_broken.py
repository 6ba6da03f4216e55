"""The contract catches what is broken: each of `broken_algorithms` fails the check that is meant for it, and says why.

They are subclasses of DQN and TD3, which pass every check (test_contract.py).
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from d3ray.algos import testing
from d3ray.algos.definition import loss
from d3ray.algos.testing import check_name
from d3ray.algos.values.dqn import DQN

from .broken_algorithms import BROKEN

IDS = [cls.__name__ for cls, _, _ in BROKEN]


@pytest.mark.long
@pytest.mark.parametrize(("broken", "check", "message"), BROKEN, ids=IDS)
def test_a_broken_algorithm_fails_its_check(broken: type[Any], check: Any, message: str) -> None:
    options = {"onnx": False} if check is testing.check_export_acts_as_predict else {}
    with pytest.raises(testing.ContractError, match=message) as caught:
        check(testing.maker(broken), **options)
    assert str(caught.value).startswith(broken.__name__)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "check", "message"), BROKEN, ids=IDS)
def test_a_broken_algorithm_passes_all_checks_before_its_own(broken: type[Any], check: Any, message: str) -> None:
    with pytest.raises(testing.ContractError, match=message) as caught:
        testing.check_algorithm(broken, onnx=False)
    assert str(caught.value).endswith(f"[{check.__name__}]")


def test_every_check_has_something_to_catch() -> None:
    assert {check_name(check) for _, check, _ in BROKEN} == {check_name(check) for check in testing.CHECKS}


def test_a_check_that_cannot_run_is_named_too() -> None:
    class Crashes(DQN):
        @loss("member sample")
        def critic_loss(self, nets, batch, h):
            raise KeyError("why")

    with pytest.raises(testing.ContractError, match=r"Crashes raises KeyError: 'why' \[check_learns_something\]"):
        testing.check_algorithm(Crashes)


def test_longer_returns_are_no_breach() -> None:
    """They end where an episode was cut; the check is about what is taught otherwise."""
    testing.check_truncation_is_unseen(lambda **settings: testing.maker(DQN)(**{"td_steps": 3, **settings}))


def test_exemptions_let_off_and_have_to_be_known_and_reasoned() -> None:
    class Exempt(DQN):
        exemptions: ClassVar = {"predictions": "there are none"}

        def act(self, nets, observation, state, noise):
            return observation

    testing.check_predictions(testing.maker(Exempt))
    Exempt.exemptions = {"prediction": "there are none"}
    with pytest.raises(testing.ContractError, match="exemptions has 'prediction', which is no setting and no check"):
        testing.check_algorithm(Exempt)
    Exempt.exemptions = {"predictions": ""}
    with pytest.raises(testing.ContractError, match="the exemption of 'predictions' has no reason"):
        testing.check_settings_are_described(testing.maker(Exempt))
