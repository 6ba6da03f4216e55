"""A form from a schema says the settings that it was made from, and what was changed in it, for every algorithm there is."""

from __future__ import annotations

import pytest

from d3ray import experiments
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.platform.web.forms import Field, differing, fields, grouped, nested
from d3ray.platform.web.new_experiment import beginning, fitting


def pairs(found: list[Field]) -> list[tuple[str, str]]:
    """As a browser sends it."""
    return [pair for one in found for pair in [(one.path, one.text), *pairs(one.children)]]


@pytest.mark.parametrize("name", sorted(algorithm_names()))
def test_a_form_that_nobody_touched_says_nothing(name: str) -> None:
    about = experiments.algorithm(name)
    for preset in ("", *about.presets):
        start = beginning(about, preset)
        found = fields(about.settings, start, start)
        assert not any(one.is_changed for one in found)
        given = nested(pairs(found))
        assert differing(fields(about.settings, {**start, **given}, start), given) == {}, preset
        settings = {key: value for key, value in given.items() if value is not None or start[key] is None}
        assert algorithm_class(name).Config.model_validate(settings) == algorithm_class(name).Config.model_validate(
            {key: value for key, value in start.items() if key in settings}
        )
        for one in found:
            assert one.kind != "choice" or one.text in {option for option, _ in one.options}, (one.path, one.text)
        assert sum(map(len, grouped(found).values())) == len(found)


def test_what_is_changed_is_said_with_all_that_belongs_to_it() -> None:
    about = experiments.algorithm("TD3PlusBC")
    start = beginning(about, "")
    said = dict(pairs(fields(about.settings, start, start, "algorithm.")))
    said |= {"algorithm.batch_size": "32", "algorithm.actor_encoder": "vector", "algorithm.actor_encoder.hidden_units": "[8, 8]"}
    said |= {"algorithm.action_scaler": "min_max"}
    given = nested((key.removeprefix("algorithm."), value) for key, value in said.items())
    own = differing(fields(about.settings, {**start, **given}, start), given)
    assert own.keys() == {"batch_size", "actor_encoder", "action_scaler"}
    assert (own["batch_size"], own["actor_encoder"]["name"], own["actor_encoder"]["hidden_units"]) == (32, "vector", [8, 8])
    assert algorithm_class("TD3PlusBC").Config.model_validate(own).actor_encoder.hidden_units == (8, 8)  # pyright: ignore[reportAttributeAccessIssue]


def test_every_setting_tells_where_it_starts_and_why() -> None:
    about = experiments.algorithm("IQL")
    found = {one.path: one for one in fields(about.settings, {}, {})}
    assert (found["expectile"].kind, found["expectile"].text, found["expectile"].bounds) == ("number", "0.7", "above 0, below 1")
    assert "IQL" in found["expectile"].source
    assert found["actor_encoder"].kind == "choice"
    assert [child.path for child in found["actor_encoder"].children if "hidden" in child.path] == ["actor_encoder.hidden_units"]


def test_only_algorithms_that_fit_are_offered() -> None:
    for kind in ("continuous", "discrete"):
        names = fitting(kind)
        assert len(names) > 10
        assert {experiments.algorithm(name).actions for name in names} == {kind}
    assert fitting("other") == []
