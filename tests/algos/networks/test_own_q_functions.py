"""Q-functions of a user's own run in d3ray's pages."""

import pytest

from d3ray.algos import testing
from d3ray.algos.actor_critic.sac import SAC
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.networks.q_functions import register_q_function
from d3ray.algos.networks.q_functions.registry import KINDS
from d3ray.algos.values.dqn import DQN
from d3ray.data.errors import ConfigError

from .toy_q_functions import Compressed


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(KINDS, "known", dict(KINDS.known))
    assert register_q_function(Compressed) is Compressed


@pytest.mark.long
def test_dqn_with_it_keeps_the_contract():
    testing.check_algorithm(DQN, q_function="compressed", n_critics=2)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (DQN, {"q_function": "compressed"}),
        (DQN, {"q_function": "compressed", "n_critics": 3, "share_encoder": True, "bootstrap": True}),
        (TD3, {"q_function": "compressed", "bootstrap": True}),
        (SAC, {"q_function": "compressed"}),
    ],
)
def test_pages_take_what_they_do_not_know(algorithm, settings):
    make = testing.maker(algorithm, **settings)
    testing.check_learns_something(make)
    testing.check_row_equals_single_run(make)
    testing.check_resumes_bit_for_bit(make)
    testing.check_update_reads_no_value(make)
    testing.check_randomness_has_addresses(make)
    testing.check_predictions(make)
    testing.check_settings_round_trip(make)


def test_names_are_checked():
    with pytest.raises(ConfigError, match="There is a Q-function 'mean' already"):
        register_q_function(type("Mine", (Compressed,), {"__annotations__": {"name": str}, "name": "mean"}))
    with pytest.raises(ConfigError, match=r"DQN: q_function\.scale is 0; input should be greater than 0"):
        DQN(q_function={"name": "compressed", "scale": 0}).check_settings()
    with pytest.raises(ConfigError, match=r"DQN has no setting 'q_function\.scales'; did you mean 'scale'"):
        DQN(q_function={"name": "compressed", "scales": 3}).check_settings()
    with pytest.raises(ConfigError, match="q_function is 3; it must be a name or settings with a name, of mean, qr"):
        DQN(q_function=3).check_settings()
    with pytest.raises(ConfigError, match="it needs a name, of mean, qr"):
        DQN(q_function={"n_quantiles": 8}).check_settings()
    assert DQN(q_function=Compressed(scale=7)).check_settings().q_function.scale == 7
