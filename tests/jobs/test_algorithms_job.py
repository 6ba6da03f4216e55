"""`d3ray algorithms`, and an algorithm's settings in `--help`."""

from __future__ import annotations

import pytest

from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.jobs.command.running import BAD_INPUT, run_command


def test_every_algorithm_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("algorithms", []) == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.strip()}
    for name in algorithm_names():
        if name in lines:  # other tests register their own
            kinds = algorithm_class(name).action_kinds()
            assert lines[name][0] == (kinds[0] if len(kinds) == 1 else "both")
            assert len(lines[name]) > 5
    assert {"IQL", "DQN", "TD3PlusBC", "DecisionTransformer"} <= lines.keys()
    assert run_command("algorithms", ["actions=discrete"]) == 0
    out = capsys.readouterr().out
    assert "\nDQN" in out
    assert "IQL  " not in out.replace("DiscreteIQL", "")


def test_those_that_learn_online_alone_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("algorithms", ["actions=discrete"]) == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert [name for name, words in lines.items() if words[1:2] == ["online"]] == ["A2C", "ACER", "PPO", "REINFORCE", "TRPO"]
    assert run_command("algorithms", ["PPO"]) == 0
    out = capsys.readouterr().out
    assert "\n  clip  (number, > 0; default 0.2)\n" in out
    assert "d3ray train algorithm=PPO evaluation=ENVIRONMENT" in out


def test_one_shows_each_setting_with_range_default_meaning_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("algorithms", ["TD3PlusBC"]) == 0
    out = capsys.readouterr().out
    for name in algorithm_class("TD3PlusBC").Config.model_fields:
        assert f"\n  {name}  (" in out
    assert "  alpha  (number, > 0; default 2.5)\n      α: weight of Q against imitation (Fujimoto and Gu 2021, section 5)\n" in out
    assert "  paper: Fujimoto and Gu 2021, Table 2 and section 5\n" in out
    assert "algorithm=TD3PlusBC" in out
    assert run_command("train", ["--help", "algorithm=TD3PlusBC"]) == 0
    assert "  alpha  (number, > 0; default 2.5)" in capsys.readouterr().out
    assert run_command("algorithms", ["TD3PlusB"]) == BAD_INPUT
    said = capsys.readouterr().err
    assert said == "There is no algorithm 'TD3PlusB'; did you mean 'TD3PlusBC'?\n"
    assert run_command("algorithms", ["rllib/PPO"]) == BAD_INPUT
    assert capsys.readouterr().err == "rllib/PPO is RLlib's own: its settings are those of RLlib's config for it.\n"
    assert run_command("train", ["--help", "algorithm=rllib/PPO"]) == 0
