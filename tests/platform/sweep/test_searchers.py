"""Searchers: the same questions get the same answers, in whatever process, and they find what there is to find."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from d3ray.data.errors import ConfigError
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.sweep.search_space import Configuration, SearchSpace
from d3ray.platform.sweep.searchers import Past, Searcher, SearcherConfig, make_searcher

CONFIG = ExperimentConfig.checked({"dataset": "some/data", "algorithm": "TD3PlusBC"})
CONDITIONAL = {
    "algorithm.name": {"choice": ["TD3PlusBC", "IQL"]},
    "IQL.expectile": {"uniform": [0.6, 0.95]},
    "TD3PlusBC.alpha": {"loguniform": [0.1, 10]},
    "algorithm.gamma": {"uniform": [0.9, 0.99], "step": 0.01},
    "algorithm.td_steps": {"integers": [1, 7], "step": 3},
}
FLAT = {
    "algorithm.alpha": {"uniform": [1, 5]},
    "algorithm.td_steps": {"choice": [1, 3]},
    "algorithm.gamma": {"choice": [0.9, 0.99]},
}


def searcher(name: str, search: dict[str, Any] = FLAT, **settings: Any) -> Searcher:
    space = SearchSpace(search, "TD3PlusBC")
    return make_searcher(SearcherConfig.checked({"name": name, **settings}), space, CONFIG, "max")


def value(configuration: Configuration) -> float:
    """Largest at gamma 0.9, td_steps 3, alpha 4."""
    found = -abs(configuration.get("algorithm.alpha", configuration.get("TD3PlusBC.alpha", 9)) - 4)
    return found - 10 * abs(configuration.get("algorithm.gamma", 0.9) - 0.9) - abs(configuration.get("algorithm.td_steps", 3) - 3)


def ask(ask_whom: Callable[[], Searcher], n: int, history: list[Past] | None = None) -> list[Past]:
    """`n` configurations one after another, each ended before the next, a new searcher for each question."""
    past = list(history or [])
    while len(past) < n:
        chosen = ask_whom().suggest(len(past), past)
        assert chosen is not None
        ended = ("finished", "stopped", "failed")[0 if len(past) % 5 else len(past) // 5 % 3]
        past.append(Past(len(past), chosen, ended, None if ended == "failed" else value(chosen), 100))  # pyright: ignore[reportArgumentType]
    return past


@pytest.mark.parametrize(
    ("name", "search", "settings"),
    [
        ("random", CONDITIONAL, {}),
        ("random", FLAT, {}),
        ("qmc", CONDITIONAL, {}),
        ("optuna", CONDITIONAL, {}),
        ("optuna", FLAT, {}),
        ("optuna", CONDITIONAL, {"sampler": "GP", "n_startup_trials": 4}),
        ("hyperopt", FLAT, {}),
        ("ray.tune.search.hyperopt.HyperOptSearch", FLAT, {"n_initial_points": 4}),
    ],
)
def test_one_that_is_made_anew_goes_on_as_if_it_had_not_been(name: str, search: dict[str, Any], settings: dict[str, Any]) -> None:
    one = searcher(name, search, start=["paper"], **settings)
    undisturbed = ask(lambda: one, 16)
    resumed = ask(lambda: searcher(name, search, start=["paper"], **settings), 16, undisturbed[:7])
    assert resumed == undisturbed
    assert len({str(sorted(past.configuration.items())) for past in undisturbed}) > 12
    other = ask(lambda: searcher(name, search, start=["paper"], seed=1, **settings), 16)
    assert [past.configuration for past in other[1:]] != [past.configuration for past in undisturbed[1:]]


def test_random_draws_are_uniform_independent_and_shift_no_other() -> None:
    drawn = [searcher("random", CONDITIONAL).suggest(n, ()) or {} for n in range(600)]
    gammas = np.array([one["algorithm.gamma"] for one in drawn])
    counts = np.unique(gammas, return_counts=True)[1]
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-3
    alphas = np.array([one["TD3PlusBC.alpha"] for one in drawn if "TD3PlusBC.alpha" in one])
    assert len(alphas) == sum(one["algorithm.name"] == "TD3PlusBC" for one in drawn)
    assert stats.kstest(np.log10(alphas), "uniform", (-1, 2)).pvalue > 1e-3
    other = [one["algorithm.gamma"] for one in drawn if "TD3PlusBC.alpha" in one]
    assert abs(np.corrcoef(np.log(alphas), other)[0, 1]) < 4 / math.sqrt(len(alphas))
    more = searcher("random", {**CONDITIONAL, "algorithm.tau": {"uniform": [0.001, 0.01]}}).suggest(5, ()) or {}
    assert {name: more[name] for name in drawn[5]} == drawn[5]  # one setting more, and the others are drawn as before


def test_random_takes_each_of_few_once_in_an_order_of_its_own() -> None:
    few = {"algorithm.gamma": {"choice": [0.9, 0.95, 0.99]}, "algorithm.td_steps": {"integers": [1, 4]}}
    found = [str(searcher("random", few).suggest(n, ())) for n in range(12)]
    assert len(set(found)) == 12
    assert found != [str(searcher("grid", few).suggest(n, ())) for n in range(12)]
    assert searcher("random", few).end == 12
    assert searcher("random", few).suggest(12, ()) is None


def test_a_grid_is_walked_through_in_order() -> None:
    grid = searcher("grid", {"algorithm.td_steps": {"integers": [1, 2]}, "algorithm.gamma": {"uniform": [0.8, 0.9], "step": 0.1}})
    walked = [grid.suggest(n, ()) for n in range(5)]
    assert [tuple(one.values()) for one in walked if one] == [(1, 0.8), (1, 0.9), (2, 0.8), (2, 0.9)]
    assert (walked[4], grid.end) == (None, 4)
    with pytest.raises(ConfigError, match=r"searcher grid: algorithm\.alpha has no end of values; give it a step"):
        searcher("grid", FLAT)


@pytest.mark.parametrize("name", ["random", "optuna"])
def test_points_of_a_grid_take_turns_and_are_searched_alike(name: str) -> None:
    search = {"dataset": {"grid": ["one", "two"]}, "algorithm.alpha": {"uniform": [1, 5]}}
    one = searcher(name, search, start=["config"], **({"n_startup_trials": 1} if name == "optuna" else {}))
    past = ask(lambda: one, 8)
    assert [p.configuration["dataset"] for p in past] == ["one", "two"] * 4
    assert [p.configuration["algorithm.alpha"] for p in past[:2]] == [2.5, 2.5]  # the default, at both
    assert past[2].configuration["algorithm.alpha"] == past[3].configuration["algorithm.alpha"]
    strange = [Past(p.number, p.configuration, p.ended, -1e9 if p.number % 2 else p.value, p.step) for p in past]
    assert one.suggest(8, past) == one.suggest(8, strange)  # the other dataset's values say nothing here


def test_optuna_finds_what_random_search_does_not() -> None:
    wide = {
        "algorithm.alpha": {"uniform": [0.01, 100]},
        "algorithm.tau": {"uniform": [0.0, 1.0]},
        "algorithm.gamma": {"choice": [0.9, 0.99]},
    }

    def late(name: str) -> float:
        one, past = searcher(name, wide), list[Past]()
        for n in range(40):
            chosen = one.suggest(n, past) or {}
            past.append(Past(n, chosen, "finished", value(chosen) - 50 * abs(chosen["algorithm.tau"] - 0.2), 100))
        return float(np.mean([p.value for p in past[-15:] if p.value is not None]))

    assert late("optuna") > late("random") + 20  # a random configuration has -64 on average


def test_optuna_hears_how_configurations_ended() -> None:
    one = searcher("optuna", FLAT, n_startup_trials=0)
    past = ask(lambda: searcher("random", FLAT), 12)

    def told(ended: str | None, value: float | None) -> Configuration | None:
        return one.suggest(12, [Past(p.number, p.configuration, ended, value, 100) for p in past])  # pyright: ignore[reportArgumentType]

    scored = one.suggest(12, past)
    answers = [told("failed", None), told("finished", None), told(None, None), scored]
    assert answers[0] == answers[1]  # what has no value teaches nothing
    assert answers[2] != answers[0]  # what still runs is avoided
    assert scored != answers[0]
    stopped = [Past(p.number, p.configuration, "stopped", p.value, 50) for p in past]
    assert one.suggest(12, stopped) != answers[0]  # how far it had come counts


def test_points_of_a_sobol_sequence_lie_evenly() -> None:
    drawn = [searcher("qmc", {"algorithm.alpha": {"uniform": [0, 16]}}, seed=4).suggest(n, ()) or {} for n in range(16)]
    assert sorted(int(one["algorithm.alpha"]) for one in drawn) == list(range(16))


def test_presets_are_tried_first() -> None:
    first = [searcher("random", CONDITIONAL, start=["paper", "config"]).suggest(n, ()) or {} for n in range(4)]
    assert [one["algorithm.name"] for one in first] == ["TD3PlusBC", "IQL"] * 2
    assert first[0]["TD3PlusBC.alpha"] == 2.5
    assert first[0]["algorithm.gamma"] == 0.99


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "optna"}, "there is no searcher 'optna'; did you mean 'optuna'?"),
        ({"name": "random", "sed": 3}, "random has no setting 'sed'; did you mean 'seed'?"),
        ({"name": "optuna", "n_startup": 3}, "optuna has no setting 'n_startup'; did you mean 'n_startup_trials'?"),
        ({"name": "hyperopt", "gama": 3}, "hyperopt has no setting 'gama'; did you mean 'gamma'?"),
        ({"name": "random", "start": ["papr"]}, "no algorithm of this sweep has a preset 'papr'; did you mean 'paper'?"),
        ({"name": "zoopt"}, "searcher zoopt: ZOOpt not found"),
        ({"name": "optuna", "sampler": "CmaEs"}, "sampler is 'CmaEs'; choose from TPE, GP: these follow from results alone"),
        ({"name": "no.such.Searcher"}, "searcher: 'no.such.Searcher' cannot be imported: No module named 'no'"),
        ({"name": "collections.OrderedDict"}, "searcher: 'collections.OrderedDict' is no ray.tune.search.Searcher"),
        ({"name": "variant_generator"}, "there is no searcher"),
    ],
)
def test_refuses(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_searcher(SearcherConfig.checked(settings), SearchSpace(FLAT, "TD3PlusBC"), CONFIG, "max")
    assert said in str(refused.value)


def test_rays_searchers_refuse_what_hangs_on_the_algorithm() -> None:
    with pytest.raises(ConfigError, match="searcher hyperopt: settings of one algorithm only are for random, qmc, grid and optuna"):
        searcher("hyperopt", CONDITIONAL)


def test_a_searcher_of_rays_has_the_settings_in_the_order_of_the_search() -> None:
    """Libraries keep it: in another order a resume would be told of other points."""
    pytest.importorskip("hyperopt")
    names = ["gamma", "alpha", "tau", "policy_noise", "noise_clip", "batch_size"]
    search = {f"algorithm.{name}": {"uniform": [0.1, 0.9]} if name != "batch_size" else {"integers": [1, 9]} for name in names}
    made: Any = searcher("hyperopt", search)
    assert list(made._searchers[0]._domains) == list(search)
