"""Published scores: numbers that were looked up again by hand, and what may stand beside what."""

from __future__ import annotations

from collections import Counter

import pytest

from d3ray.algos.environments.scores import normalized_score
from d3ray.algos.registry import algorithm_names
from d3ray.platform.benchmark.published import SOURCES, Selection, d4rl_names, published


@pytest.mark.parametrize(
    ("dataset", "algorithm", "source", "selection", "printed"),
    [
        ("hopper-medium-v0", "TD3PlusBC", "d3rlpy", "last", "86.7"),
        ("hopper-medium-v0", "TD3PlusBC", "d3rlpy", "best", "100.8"),
        ("hopper-medium-replay-v2", "TD3PlusBC", "CORL", "last", "64.42 ± 21.52"),
        ("antmaze-umaze-v2", "AWAC", "CORL", "best", "70.75 ± 8.84"),
        ("relocate-expert-v1", "10% BC", "CORL", "last", "97.90 ± 5.21"),
        ("walker2d-medium-replay-v2", "CQL", "OfflineRL-Kit", "last", "71.3 ± 17.9"),
        ("hopper-medium-expert-v2", "CQL", "JAX-CORL", "last", "90.37 ± 31.29"),
        ("halfcheetah-random-v0", "BEAR", "d3rlpy's references", "last", "25.1"),
        ("walker2d-random-v0", "PLASWithPerturbation", "d3rlpy's references", "last", "6.8"),
    ],
)
def test_a_score_is_the_one_printed(dataset: str, algorithm: str, source: str, selection: Selection, printed: str) -> None:
    found = published()[dataset, algorithm][source, selection]
    assert " ± ".join(filter(None, (found.score, found.spread))) == printed


def test_every_number_is_one_of_a_known_source_dataset_and_algorithm() -> None:
    places = [(source, selection) for by_source in published().values() for source, selection in by_source]
    expected = {("d3rlpy", "last"): 120, ("d3rlpy", "best"): 120, ("CORL", "last"): 300, ("CORL", "best"): 300}
    expected |= {("d3rlpy's references", "last"): 81}  # of seven algorithms on twelve datasets; three of AWAC's are dashes
    assert Counter(places) == {**expected, ("OfflineRL-Kit", "last"): 36, ("JAX-CORL", "last"): 36}
    assert {source for source, _ in places} == set(SOURCES)
    assert {algorithm for _, algorithm in published()} <= {*algorithm_names(), "10% BC"}
    for by_source in published().values():
        for one in by_source.values():
            assert -10 < float(one.score) < 250
            assert not one.spread or 0 <= float(one.spread) < 100


def test_raw_returns_are_those_of_the_scores() -> None:
    """By D4RL's anchors the scores of d3rlpy's tables 2 and 3 follow from tables 5 and 6, but for one misprint."""
    off: dict[str, float] = {}
    for (dataset, algorithm), by_source in published().items():
        for (source, selection), one in by_source.items():
            assert bool(one.returned) == (source == "d3rlpy")
            if one.returned:
                score = normalized_score(dataset, float(one.returned))
                assert score is not None
                off[f"{algorithm} on {dataset}, {selection}"] = abs(score - float(one.score))
    assert len(off) == 240
    assert {name: round(value) for name, value in off.items() if value > 0.5} == {"CRR on walker2d-medium-expert-v0, last": 9}
    assert sum(value > 0.06 for value in off.values()) == 9
    assert published()["halfcheetah-random-v0", "SAC"]["d3rlpy", "last"].returned == "3546.6"


def test_columns_stand_beside_the_same_data_and_what_was_made_by_the_same_procedure() -> None:
    assert d4rl_names("d4rl/hopper-medium-v2") == ["hopper-medium-v2"]
    assert d4rl_names("d4rl/hopper-medium-v1") == []
    assert sorted(d4rl_names("d3ray-mujoco/hopper-medium-v4")) == ["hopper-medium-v0", "hopper-medium-v2"]
    assert d4rl_names("d3ray-mujoco/hopper-medium-replay-100k-v4") == []  # a tenth of the data is not the same
    assert d4rl_names("d3ray/pendulum-replay") == []
