"""Settings that no machine has room or time for are refused in a sentence, from Python, the command line and the page alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from d3ray.data.errors import ConfigError
from d3ray.jobs.command.running import run_command
from d3ray.platform.api.configs import check, problems
from d3ray.platform.yaml_text import parse_value, read_yaml

CONFIG: dict[str, Any] = {"dataset": "d3ray/pendulum-replay", "algorithm": {"name": "TD3PlusBC"}, "n_steps": 10}
DEEP = "[" * 900 + "]" * 900
LAUGHS = "\n".join(f"a{k}: &a{k} [" + f"*a{k - 1}, " * 9 * (k > 0) + "x]" for k in range(12))


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("algorithm.batch_size", 10**11, "it must be at most 1,048,576"),
        ("algorithm.n_critics", 10**6, "it must be at most 1,000"),
        ("algorithm.actor_encoder", {"name": "vector", "hidden_units": [10**9]}, "it must be at most 65,536"),
        ("algorithm.actor_encoder", {"name": "vector", "hidden_units": [1] * 5000}, "it must have at most 1,000 entries"),
        ("seeds", list(range(100_000)), "this holds more than 100,000 values"),
        ("seeds", list(range(20_000)), "it must have at most 10,000 entries"),
        ("seeds", [10**400], "it must be at most 9,223,372,036,854,775,807"),
        ("n_steps", 10**400, "it must be at most 1,000,000,000,000"),
        ("n_steps_per_epoch", 10**13, "it must be at most 1,000,000,000,000"),
        ("evaluation", {"holdout": 0.1, "episodes": 10**9}, "it must be at most 1,000,000"),
    ],
)
def test_what_is_too_large_is_refused(setting: str, value: Any, said: str) -> None:
    config = {**CONFIG, "algorithm": dict(CONFIG["algorithm"])}
    place, _, name = setting.rpartition(".")
    (config[place] if place else config)[name] = value
    with pytest.raises(ConfigError, match=said) as error:
        check(config)
    assert len(str(error.value)) < 400  # what was written is not all of it repeated
    if len(str(value)) < 100_000:
        assert any(said in one.sentence for one in problems(config))


def test_what_is_large_is_taken() -> None:
    settings = {"name": "TD3PlusBC", "batch_size": 65_536, "n_critics": 20}
    found = check({**CONFIG, "algorithm": settings, "seeds": list(range(1000)), "n_steps": 10**9}).config
    assert found["algorithm"]["batch_size"] == 65_536


def test_a_grid_has_an_end() -> None:
    values = {"grid": [k / 1000 for k in range(1, 200)]}
    names = ("tau", "gamma", "actor_learning_rate")
    search = {f"algorithm.{name}": values for name in names}
    config = {**CONFIG, "search": search, "searcher": {"name": "grid"}, "evaluation": {"holdout": 0.2}}
    with pytest.raises(ConfigError, match=r"7,880,599 configurations, and a sweep 1,000,000 at most"):
        check(config, job="sweep")
    check({**config, "budget": {"configurations": 30}}, job="sweep")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DEEP, "nested more than 30 levels"),
        ("{a: " * 900 + "1" + "}" * 900, "nested more than 30 levels"),
        ("[" * 100_000, "nested more than 30 levels"),
        ("- " * 2000 + "a", "nested more than 30 levels"),
        ("&a [*a]", "nested more than 30 levels|holds more than"),
        (LAUGHS, "holds more than 100,000 values"),
        ("9" * 5000, "cannot be read"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_text_that_no_config_is_ends_in_a_sentence(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_value(text, "the config")
    file = tmp_path / "config.yaml"
    file.write_text(f"name:\n  {text}\n" if "\n" not in text else text)
    with pytest.raises(ConfigError):
        read_yaml(file)


def test_brackets_in_words_are_no_levels() -> None:
    assert parse_value("a: '[[[[[[[[[['") == {"a": "[[[[[[[[[["}


def test_the_command_ends_in_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for said in (("algorithm.batch_size=100000000000",), ("n_steps=" + "9" * 400,), (f"algorithm.actor_encoder={DEEP}",)):
        told = ["d3ray/pendulum-replay", "algorithm=TD3PlusBC", f"storage={tmp_path}", *said]
        assert run_command("train", told) == 2
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert len(error.strip().splitlines()) <= 3
