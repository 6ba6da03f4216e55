"""Spaces: what is refused, what is drawn, and how a configuration becomes an experiment."""

from __future__ import annotations

from typing import Any

import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.sweep.search_space import SearchSpace, applied, current
from d3ray.platform.sweep.spaces import Space, read_space

BOTH = {"algorithm.name": {"choice": ["TD3PlusBC", "IQL"]}}


def experiment(**algorithm: Any) -> ExperimentConfig:
    return ExperimentConfig.checked({"dataset": "some/data", "algorithm": {"name": "TD3PlusBC", **algorithm}})


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({}, "search names nothing"),
        ({"algorithm.alpa": {"uniform": [1, 2]}}, "TD3PlusBC has no setting 'alpa'; did you mean 'alpha'?"),
        ({"algorithm.alpha": {"unifrom": [1, 2]}}, "no kind of space 'unifrom'; did you mean 'uniform'?"),
        ({"algorithm.alpha": {"uniform": [2, 1]}}, "uniform is [2, 1]; the first end must be below the second"),
        ({"algorithm.alpha": {"uniform": [1, 1]}}, "the first end must be below the second"),
        ({"algorithm.alpha": {"uniform": 1}}, "uniform is 1; it must be its two ends"),
        ({"algorithm.alpha": {"uniform": [1, True]}}, "it must be its two ends"),
        ({"algorithm.alpha": {"uniform": [1, 2], "choice": [1]}}, "needs one kind of space"),
        ({"algorithm.alpha": {}}, "needs one kind of space"),
        ({"algorithm.alpha": {"uniform": [1, 2], "stp": 1}}, "uniform has nothing called 'stp'; did you mean 'step'?"),
        ({"algorithm.alpha": {"choice": [1, 2], "step": 1}}, "choice has nothing called 'step': choice stands alone"),
        ({"algorithm.alpha": {"uniform": [1, 2], "step": 3}}, "step is 3; it must be above 0 and at most 1"),
        ({"algorithm.alpha": {"loguniform": [0, 1]}}, "loguniform is [0, 1]; both ends must be above 0"),
        ({"algorithm.td_steps": {"integers": [1.5, 3]}}, "integers and their step are whole numbers"),
        ({"algorithm.td_steps": {"integers": [1, 9], "step": 0.5}}, "integers and their step are whole numbers"),
        ({"algorithm.td_steps": {"uniform": [1, 3]}}, "td_steps is 1.763932; it must be a whole number"),
        (
            {"algorithm.td_steps": [1, 3]},
            "it must be a whole number. To choose among these, write algorithm.td_steps: {choice: [1, 3]}.",
        ),
        ({"algorithm.alpha": {"choice": []}}, "choice is empty"),
        ({"algorithm.alpha": {"choice": 3}}, "choice is 3; it must be a list of values"),
        ({"algorithm.alpha": {"choice": [1, 2, 1]}}, "choice has 1 twice"),
        ({"algorithm.alpha": {"choice": [1, -1]}}, "TD3PlusBC: alpha is -1; input should be greater than 0"),
        ({"algorithm.gamma": {"uniform": [0.9, 1.2]}}, "gamma is 1.0145898"),
        ({"algorithm.actor_encoder": {"choice": ["defalt"]}}, "did you mean 'default'?"),
        ({"algorithm.actor_encoder.dropout": {"choice": [0.1]}}, "actor_encoder has no setting 'dropout'"),
        ({"algorithm.alpha.uniform": [1, 2]}, "alpha is 2.5 and has no parts; write algorithm.alpha: {uniform: …}"),
        ({"algorithm": {"alpha": {"uniform": [1, 2]}}}, "write algorithm.alpha: …"),
        ({"algorithm.preset": {"choice": ["papr"]}}, "TD3PlusBC has no preset 'papr'; did you mean 'paper'?"),
        ({"algorithm.name": {"choice": ["TD3PlusBC", "IQLL"]}}, "There is no algorithm 'IQLL'; did you mean 'IQL'?"),
        ({"algorithm.name": {"uniform": [1, 2]}}, "it needs choice or grid"),
        ({"dataset": {"integers": [1, 2]}}, "it needs choice or grid"),
        ({"dataset": {"choice": [3]}}, "dataset has 3, which is no name"),
        ({"datset": {"grid": ["one"]}}, "nothing called 'datset' to search; did you mean 'dataset'?"),
        ({"seeds": {"choice": [[0]]}}, "nothing called 'seeds' to search"),
        ({"n_steps": {"choice": [0]}}, "n_steps is 0"),
        ({"IQL.expectile": {"uniform": [0.6, 0.9]}}, "for IQL, which this sweep does not train: algorithm.name is not searched"),
        ({**BOTH, "SAC.tau": 0.1}, "for SAC, which this sweep does not train: algorithm.name has other values"),
        ({"IQQL.expectile": {"uniform": [0.6, 0.9]}}, "there is no algorithm 'IQQL'; did you mean 'IQL'?"),
        ({**BOTH, "algorithm.expectile": 0.7}, "TD3PlusBC has no setting 'expectile'; for IQL alone write IQL.expectile"),
        ({**BOTH, "IQL.expectile": {"grid": [0.7, 0.8]}}, "IQL.expectile is a grid and algorithm.name a choice"),
        ({**BOTH, "IQL.gamma": 0.9, "algorithm.gamma": 0.8}, "algorithm.gamma and IQL.gamma are one setting of IQL"),
        ({**BOTH, "IQL.expectile": {"choice": [0.7, 1.5]}}, "IQL: expectile is 1.5"),
    ],
)
def test_refuses_what_cannot_be_searched(search: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SearchSpace(search, "TD3PlusBC").check(experiment())
    assert said in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_a_setting_of_one_algorithm_beside_the_names_of_several_is_refused() -> None:
    with pytest.raises(ConfigError, match="IQL has no setting 'alpha'"):
        SearchSpace(BOTH, "TD3PlusBC").check(experiment(alpha=2.0))


def test_numbers_become_values_at_the_right_places() -> None:
    uniform, stepped = read_space("a", {"uniform": [1, 5]}), read_space("a", {"uniform": [0.1, 0.55], "step": 0.1})
    assert [uniform.at(u) for u in (0.0, 0.25, 0.999999)] == pytest.approx([1, 2, 5], abs=1e-5)
    assert stepped.values == (0.1, 0.2, 0.3, 0.4, 0.5)  # 0.55 is no step's, and 0.3 is 0.3
    assert [stepped.at(u) for u in (0.0, 0.19, 0.2, 0.99)] == [0.1, 0.1, 0.2, 0.5]
    log = read_space("a", {"loguniform": [1e-5, 1e-3]})
    assert log.at(0.5) == pytest.approx(1e-4)
    whole = read_space("a", {"integers": [2, 10], "step": 3})
    assert list(whole.values or ()) == [2, 5, 8]
    assert [whole.at(u) for u in (0.0, 0.4, 0.99)] == [2, 5, 8]
    assert read_space("a", {"choice": ["x", None, [1]]}).at(0.99) == [1]
    assert read_space("a", 0.98) == Space("choice", (0.98,))


@pytest.mark.parametrize(
    ("written", "codes"),
    [
        ({"uniform": [0.1, 0.5], "step": 0.1}, {0.3: 2, 0.1 + 0.2: 2, 0.35: None, 0.6: None, True: None, "0.3": None}),
        ({"integers": [2, 10], "step": 3}, {5: 1, 6: None, 11: None, 5.5: None, True: None}),
        ({"choice": [1, "a", True]}, {"a": 1, 3: None}),
        ({"loguniform": [1, 5]}, {2.5: 2.5, 6: None, "a": None}),
    ],
)
def test_values_as_libraries_know_them(written: dict[str, Any], codes: dict[Any, Any]) -> None:
    space = read_space("a", written)
    assert {value: space.encoded(value) for value in codes} == codes
    assert all(space.decoded(code) == pytest.approx(value) for value, code in codes.items() if code is not None)


def test_whole_numbers_and_others_are_not_the_same() -> None:
    assert [read_space("a", {"integers": [1, 5]}).encoded(value) for value in (5, 5.0)] == [4, None]
    assert [read_space("a", {"choice": [1, True, [2]]}).encoded(value) for value in (1, 1.0, True, [2])] == [0, None, 1, 2]


def test_conditional_settings_come_with_their_algorithm_only() -> None:
    search = {"IQL.expectile": {"uniform": [0.6, 0.8]}, "TD3PlusBC.alpha": 2.0, "algorithm.gamma": {"choice": [0.9, 0.99]}, **BOTH}
    space = SearchSpace(search, "TD3PlusBC")
    space.check(experiment())
    assert space.is_conditional
    low = space.configuration(lambda _, one: one.at(0.0))
    high = space.configuration(lambda _, one: one.at(0.99))
    assert low == {"algorithm.name": "TD3PlusBC", "TD3PlusBC.alpha": 2.0, "algorithm.gamma": 0.9}
    assert high.keys() == {"algorithm.name", "IQL.expectile", "algorithm.gamma"}
    assert applied(experiment(), low).algorithm.settings == {"alpha": 2.0, "gamma": 0.9}
    made = applied(experiment(), high).make_algorithm(0).check_settings()
    assert (type(made).__name__, made.gamma) == ("IQLConfig", 0.99)


def test_a_grid_names_each_combination_once() -> None:
    search = {"dataset": {"grid": ["one", "two"]}, "algorithm.name": {"grid": ["TD3PlusBC", "IQL"]}}
    space = SearchSpace(
        {**search, "IQL.expectile": {"grid": [0.7, 0.8, 0.9]}, "algorithm.gamma": {"choice": [0.9, 0.99]}}, "TD3PlusBC"
    )
    points = space.grid_points()
    assert len(points) == 2 + 2 * 3  # datasets with TD3PlusBC, and with IQL and its three expectiles
    assert {"algorithm.name": "IQL", "dataset": "two", "IQL.expectile": 0.8} in points
    everything = list(space.combinations({}))
    assert len(everything) == space.size() == 16
    assert len({str(sorted(one.items())) for one in everything}) == 16
    assert everything[0] == {"algorithm.name": "TD3PlusBC", "dataset": "one", "algorithm.gamma": 0.9}
    assert [one["algorithm.gamma"] for one in everything[:4]] == [0.9, 0.99, 0.9, 0.99]  # the last name changes fastest
    assert space.size(points[0]) == 2
    assert SearchSpace({"algorithm.alpha": {"uniform": [1, 2]}}, "TD3PlusBC").size() is None


def test_parts_of_settings_leave_the_rest_of_them() -> None:
    base = experiment(actor_encoder={"name": "vector", "hidden_units": [7], "activation": "tanh"}, gamma=0.9)
    changed = applied(base, {"algorithm.actor_encoder.hidden_units": [3, 5], "n_steps": 70, "dataset": "other"})
    encoder = changed.make_algorithm(0).check_settings().actor_encoder  # pyright: ignore[reportAttributeAccessIssue]
    assert (encoder.hidden_units, encoder.activation) == ((3, 5), "tanh")
    assert (changed.n_steps, changed.dataset, changed.algorithm.settings["gamma"]) == (70, "other", 0.9)


def test_presets_are_searched_and_read_back() -> None:
    config = applied(experiment(), {"algorithm.preset": "paper", "algorithm.tau": 0.01})
    assert current(config, ["algorithm.preset", "algorithm.tau", "algorithm.alpha", "dataset"]) == {
        "algorithm.preset": "paper",
        "algorithm.tau": 0.01,
        "algorithm.alpha": 2.5,
        "dataset": "some/data",
    }
