"""What goes with no recurrent encoder is said in one sentence, before anything is trained."""

from __future__ import annotations

from typing import Any

import pytest

from d3ray import BC, DQN, IQL, DecisionTransformer, Rainbow
from d3ray.algos import testing
from d3ray.algos.base import Algorithm
from d3ray.algos.judging.scorers import SCORERS
from d3ray.algos.networks.encoding import EncoderConfig
from d3ray.algos.recurrence import TAKE_THEM
from d3ray.algos.registry import algorithm_class, algorithm_names, online_names
from d3ray.data.errors import ConfigError, DataError

GRU = {"name": "gru", "units": 4}
SAID: list[tuple[str, type[Algorithm], dict[str, Any], str]] = [
    (
        "an algorithm that takes none",
        DecisionTransformer,
        {"encoder": GRU},
        f"DecisionTransformer: encoder is gru, and it takes no recurrent encoder; those who do are {TAKE_THEM}.",
    ),
    (
        "a burn-in that leaves nothing",
        DQN,
        {"encoder": GRU, "sampler": {"name": "recurrent", "length": 10, "burn_in": 12}},
        "DQN: sampler.burn_in is 12; nothing is left to learn from of a length of 10: choose a shorter burn_in, or "
        "a larger length.",
    ),
    (
        "another sampler",
        BC,
        {"encoder": {"name": "lstm"}, "sampler": "epoch"},
        "BC: encoder is lstm, which learns from sub-sequences of episodes, and sampler 'epoch' draws transitions: leave "
        "sampler out, or choose recurrent.",
    ),
    (
        "its sampler alone",
        BC,
        {"sampler": "recurrent"},
        "BC: sampler 'recurrent' is for recurrent encoders, and no encoder is one: choose gru or lstm, or leave sampler out.",
    ),
    (
        "returns of several steps",
        Rainbow,
        {"encoder": GRU, "sampler": "recurrent"},
        "Rainbow: td_steps is 3, and with encoder gru a step learns from the next one: set td_steps to 1.",
    ),
    (
        "augmentation",
        IQL,
        {"critic_encoder": GRU, "augmentation": ["random_shift"]},
        "IQL: augmentation changes each observation for itself, and critic_encoder gru reads them one after the other: leave "
        "augmentation out.",
    ),
    (
        "halves of the data",
        DQN,
        {"encoder": GRU, "n_critics": 2, "bootstrap": True},
        "DQN: bootstrap halves the data by transitions, and encoder gru learns from sub-sequences: leave bootstrap out.",
    ),
    (
        "a unit that is none",
        DQN,
        {"encoder": {"name": "gru", "units": 0}},
        "DQN: encoder.units is 0; input should be greater than 0.",
    ),
]


@pytest.mark.parametrize(("algorithm", "settings", "said"), [pytest.param(*case[1:], id=case[0]) for case in SAID])
def test_what_does_not_go_with_them_is_refused(algorithm: type[Algorithm], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        algorithm(**settings).check_settings()
    assert str(caught.value) == said


def test_those_that_take_them_are_those_that_are_named() -> None:
    families = {"NAF", "BC", "DiscreteBC", "IQL", "DiscreteIQL", "PPO", "A2C", "REINFORCE"}
    assert all(name in TAKE_THEM for name in families)
    for name in (*algorithm_names(), *online_names()):
        cls = algorithm_class(name)
        built_on_dqn = issubclass(cls, DQN)
        assert bool(cls.recurrent) == (name in families or built_on_dqn), name
        fields = [n for n, field in cls.Config.model_fields.items() if isinstance(field.default, EncoderConfig)]
        for field in fields if not cls.recurrent else []:
            with pytest.raises(ConfigError, match="takes no recurrent encoder"):
                testing.maker(cls)(**{field: GRU}).check_settings()


def test_batches_of_the_other_kind_are_refused() -> None:
    data = testing.tiny_dataset(discrete=True)
    recurrent, plain = (testing.maker(DQN, **settings)().fit(data, 1) for settings in ({"encoder": GRU}, {}))
    drawn = [made.fit_.sampler(data).sample(0) for made in (recurrent, plain)]
    assert recurrent.update(drawn[0])["critic_loss"] > 0
    with pytest.raises(DataError, match=r"DQN learns from steps with what came before them \(Histories"):
        recurrent.update(drawn[1])
    with pytest.raises(DataError, match="DQN learns from single steps, and was given steps with what came before them"):
        plain.update(drawn[0])


def test_judges_of_single_observations_refuse_them() -> None:
    data = testing.tiny_dataset(discrete=True)
    made = testing.maker(DQN, encoder=GRU)().fit(data, 1)
    for name in ("td_error", "discrete_action_match"):
        with pytest.raises(ConfigError, match="DQN acts on what came before, so there is no action of it at an observation alone"):
            SCORERS[name](made, data)
