"""d3rlpy's words in d3ray's own algorithms: they do what the present ones do, and warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import d3ray
from d3ray.algos import testing
from d3ray.algos.former import METHODS
from d3ray.algos.saving.loggers import CSVLogger
from d3ray.d3rlpy import algos as like_d3rlpy

DATA = testing.tiny_dataset(discrete=False)
SMALL: dict[str, Any] = {"actor_encoder": {"hidden_units": [8]}, "critic_encoder": {"hidden_units": [8]}, "device": "cpu"}


@pytest.fixture
def td3() -> Any:
    return d3ray.TD3(**SMALL).fit(DATA, 2)


@pytest.mark.parametrize(
    ("former", "use", "now"),
    [
        ("grad_step", lambda a, _: a.grad_step, "step"),
        ("set_grad_step", lambda a, _: a.set_grad_step(1) or a.step, "step = …"),
        ("create_impl", lambda a, _: a.unfitted().create_impl((5,), 3).action_size, "build_with_shapes"),
        ("copy_policy_from", lambda a, _: a.copy_policy_from(a), 'copy_from(other, "policy")'),
        ("copy_q_function_from", lambda a, _: a.copy_q_function_from(a), 'copy_from(other, "critic")'),
        ("copy_policy_optim_from", lambda a, _: a.copy_policy_optim_from(a), 'copy_optimizer_from(other, "policy")'),
        ("copy_q_function_optim_from", lambda a, _: a.copy_q_function_optim_from(a), 'copy_optimizer_from(other, "critic")'),
        ("reset_optimizer_states", lambda a, _: a.reset_optimizer_states(), "reset_optimizers"),
        ("save_model", lambda a, folder: a.save_model(folder / "model"), "save"),
        ("load_model", lambda a, folder: a.save(folder / "model") or a.load_model(folder / "model"), "restore"),
        (
            "from_json",
            lambda a, folder: a.fit(DATA, 1, logger=CSVLogger(folder)) and d3ray.TD3.from_json(folder / "params.json").step,
            "from_params",
        ),
    ],
)
def test_methods_by_their_former_names_work_and_warn(
    td3: Any, former: str, use: Callable[[Any, Path], Any], now: str, tmp_path: Path
) -> None:
    with pytest.warns(DeprecationWarning, match=r"^TD3\.") as said:
        found = use(td3, tmp_path)
    assert [str(one.message) for one in said] == [f"TD3.{former} is deprecated: write {now}."]
    assert said[0].filename == __file__
    assert found == {"grad_step": 2, "set_grad_step": 1, "create_impl": 3, "from_json": 0}.get(former)


def test_every_former_method_is_tried() -> None:
    (mark,) = test_methods_by_their_former_names_work_and_warn.pytestmark  # pyright: ignore[reportFunctionMemberAccess]
    assert {case[0] for case in mark.args[1]} == METHODS.keys()


def test_former_arguments_are_the_present_ones() -> None:
    with pytest.warns(DeprecationWarning, match="n_steps of TD3 is deprecated: write td_steps") as said:
        made: Any = d3ray.TD3(**SMALL, n_steps=3)
    assert (made.td_steps, said[0].filename) == (3, __file__)

    def score(algorithm: Any, episodes: Any) -> float:
        return float(len(episodes))

    with pytest.warns(DeprecationWarning, match="scorers of fit is deprecated") as said:
        made.fit(DATA, 1, scorers={"many": score}, eval_episodes=[1, 2, 3])
    assert (made.eval_results_, said[0].filename) == ({"scorers/many": [3.0]}, __file__)
    with pytest.raises(d3ray.data.errors.ConfigError, match="fit takes no 'scorer'; did you mean 'scorers'"):
        made.fit(DATA, 1, scorer={})


def test_they_are_d3rlpys_own_words_in_its_facade_where_nothing_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        made = like_d3rlpy.TD3(use_gpu=False, n_steps=2, batch_size=8).create_impl((5,), 3)
        made.copy_policy_from(made)
        made.set_grad_step(4)
        assert (made.grad_step, made.td_steps) == (4, 2)
