"""Other libraries' and papers' names of algorithms, where somebody types them."""

from __future__ import annotations

import pytest

import d3ray
from d3ray import experiments
from d3ray.algos import spellings
from d3ray.algos.registry import algorithm_class, algorithm_names, online_names
from d3ray.data.errors import ConfigError
from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.platform.subjects.kind import check_name, subject_names

EVERY = [*algorithm_names(), *online_names()]
MEANT = {
    "TD3BC": "TD3PlusBC",
    "TD3+BC": "TD3PlusBC",
    "td3_plus_bc": "TD3PlusBC",
    "C51": "CategoricalDQN",
    "QRDQN": "DQN",
    "QR-DQN": "DQN",
    "D3QN": "DoubleDQN",
    "DT": "DecisionTransformer",
    "BCDiscrete": "DiscreteBC",
    "discrete_bc": "DiscreteBC",
    "SAC-Discrete": "DiscreteSAC",
    "SAC-N": "SACN",
    "crr": "CRR",
    "cal_ql": "CalQL",
    "any_percent_bc": "BC",
    "SoftActorCritic": "SAC",
    "A3C": "A2C",
    "MOREL": "MOReL",
}


@pytest.mark.parametrize(("typed", "meant"), MEANT.items())
def test_what_others_call_an_algorithm_is_known(typed: str, meant: str) -> None:
    for refuse in (algorithm_class, check_name):
        with pytest.raises(ConfigError, match=f"There is no algorithm .*; did you mean '{meant}'"):
            refuse(typed)


def test_every_spelling_stands_for_what_there_is_and_takes_nobodys_name() -> None:
    assert {*spellings._NAMES.values()} <= {*EVERY}
    assert not {*spellings._NAMES} & {spellings._plain(name) for name in EVERY}
    assert {*spellings._Q_FUNCTIONS, *spellings._DUELING} <= {*spellings._NAMES}
    assert {name for name in EVERY if spellings.known_as(name, subject_names()) != name} == set()


def test_what_else_is_to_be_set_is_said_in_the_readers_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'DQN' with q_function='qr'\?"):
        algorithm_class("QRDQN")
    assert run_command("train", ["d3ray/cartpole-replay", "algorithm=QRDQN"]) == BAD_INPUT
    assert "did you mean 'DQN' with algorithm.q_function=qr?" in capsys.readouterr().err
    d3ray.DQN(q_function="qr").check_settings()


def test_the_command_python_and_programs_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["train", "d3ray/cartpole-replay", "algorithm=TD3BC"], ["algorithms", "TD3BC"]):
        assert run_command(arguments[0], arguments[1:]) == BAD_INPUT
        assert "did you mean 'TD3PlusBC'?" in capsys.readouterr().err
    for module in (d3ray, d3ray.algos):
        with pytest.raises(AttributeError, match="did you mean 'TD3PlusBC'"):
            module.TD3BC  # noqa: B018 # pyright: ignore
    said = experiments.problems({"dataset": "d3ray/cartpole-replay", "algorithm": "TD3BC"})
    assert any("did you mean 'TD3PlusBC'?" in one.sentence for one in said)
