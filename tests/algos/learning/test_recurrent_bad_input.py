"""What goes with no recurrent encoder is said in one sentence, before anything is trained."""

from __future__ import annotations

from typing import Any

import pytest

from d3ray import BC, DQN, IQL, DecisionTransformer, Rainbow
from d3ray.algos import testing
from d3ray.algos.base import Algorithm
from d3ray.algos.judging.scorers import SCORERS
from d3ray.algos.networks.encoding import EncoderConfig
from d3ray.algos.recurrence import take_them
from d3ray.algos.registry import algorithm_class, algorithm_names, online_names
from d3ray.data.errors import ConfigError, DataError

GRU = {"name": "gru", "units": 4}
SAID: list[tuple[type[Algorithm], dict[str, Any], str]] = [
    (DecisionTransformer, {"encoder": GRU}, "encoder is gru, and it takes no recurrent encoder; those who do are .*BC, IQL"),
    (
        DQN,
        {"encoder": GRU, "sampler": {"name": "recurrent", "length": 10, "burn_in": 12}},
        "sampler.burn_in is 12; nothing is left",
    ),
    (BC, {"encoder": {"name": "lstm"}, "sampler": "epoch"}, "sampler 'epoch' draws transitions: leave sampler out, or choose rec"),
    (BC, {"sampler": "recurrent"}, "no encoder is one: choose gru or lstm, or leave sampler out"),
    (Rainbow, {"encoder": GRU, "sampler": "recurrent"}, "set td_steps to 1"),
    (IQL, {"critic_encoder": GRU, "augmentation": ["random_shift"]}, "critic_encoder gru .*: leave augmentation out"),
    (DQN, {"encoder": GRU, "n_critics": 2, "bootstrap": True}, "leave bootstrap out"),
    (DQN, {"encoder": {"name": "gru", "units": 0}}, "encoder.units is 0"),
]


@pytest.mark.parametrize(("algorithm", "settings", "said"), SAID)
def test_what_does_not_go_with_them_is_refused(algorithm: type[Algorithm], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{algorithm.__name__}: .*{said}"):
        algorithm(**settings).check_settings()


def test_those_that_take_them_are_those_that_are_named() -> None:
    families = {"NAF", "BC", "DiscreteBC", "IQL", "DiscreteIQL", "PPO", "A2C", "REINFORCE"}
    assert families <= {*take_them(("continuous", "discrete"))}
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
