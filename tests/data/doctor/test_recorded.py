"""The doctor on recorded data of other projects: its README's traps are mended by an option, and found where they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.doctor import EnvironmentFacts, Finding, doctor
from d3ray.data.formats.registry import read
from d3ray.data.spec import Box, Discrete, Environment, Spec

PENDULUM = EnvironmentFacts(
    Spec(
        observation=Box(shape=(3,), low=(-1.0, -1.0, -8.0), high=(1.0, 1.0, 8.0)),
        action=Box(shape=(1,), low=-2.0, high=2.0),
    ),
    200,
)
CARTPOLE = EnvironmentFacts(Spec(observation=Box(shape=(4,)), action=Discrete(n=2)), 500)
HOPPER = EnvironmentFacts(Spec(observation=Box(shape=(11,)), action=Box(shape=(3,), low=-1.0, high=1.0)), 1000)
CHEETAH = EnvironmentFacts(Spec(observation=Box(shape=(17,)), action=Box(shape=(6,), low=-1.0, high=1.0)), 1000)
NONE = EnvironmentFacts()


def look(file: Path, facts: EnvironmentFacts, **options: Any) -> dict[str, Finding]:
    """Findings that are more than notes, by name, of a file imported so; and clipped observations, which are a note."""
    imported = read(file, spec=facts.spec, **options)
    dataset = Dataset.from_steps(
        imported.steps, name=file.stem, spec=facts.spec or imported.spec, environment=facts.spec and Environment(id="Named-v0")
    )
    report = doctor(dataset, facts=facts)
    return {one.name: one for one in report.findings if one.severity != "note" or one.name == "observations_clipped"}


@pytest.mark.long
def test_d3rlpys_rewards_in_the_next_row(test_data: Path) -> None:
    for name, facts in (("pendulum_replay.h5", PENDULUM), ("cartpole_replay.h5", CARTPOLE)):
        file = test_data / "d3rlpy" / name
        assert look(file, facts) == {}
        found = look(file, facts, rewards="same row")
        assert "rewards_late" in found
        assert "options.rewards=arriving" in found["rewards_late"].remedy


@pytest.mark.parametrize(("name", "facts"), [("Hopper", HOPPER), ("HalfCheetah", CHEETAH)])
def test_time_limits_and_clipped_velocities_of_mujoco(test_data: Path, name: str, facts: EnvironmentFacts) -> None:
    file = test_data / "cs285" / f"expert_data_{name}-v4.pkl"
    found = look(file, facts)
    clipped = found.pop("observations_clipped", None)
    assert sorted(found) == ["actions_outside", "timeouts_as_terminals"]
    assert found["timeouts_as_terminals"].numbers["timeout_at"] == 1000
    if name == "Hopper":
        assert clipped is not None
        assert {entry.rpartition(" at ")[2] for entry in clipped.numbers["shares"]} == {"-10", "10"}
    assert look(file, facts, timeout_at=1000, actions="clip").keys() <= {"observations_clipped"}


def test_time_limits_of_imitation(test_data: Path) -> None:
    file = test_data / "imitation" / "cartpole_0_final.npz"
    for facts in (CARTPOLE, NONE):
        assert [(one.name, one.numbers["timeout_at"]) for one in look(file, facts).values()] == [("timeouts_as_terminals", 500)]
    assert look(file, CARTPOLE, timeout_at=500) == {}


@pytest.mark.long
@pytest.mark.parametrize("name", ["pendulum_expert_sac_50eps.zip", "pendulum_medium_sac_50eps.zip", "pendulum-v1_enormous"])
def test_actions_that_rllib_normalised(test_data: Path, name: str) -> None:
    file = test_data / "rllib" / name
    (found,) = look(file, PENDULUM).values()
    assert (found.name, found.numbers["action_scale"]) == ("actions_normalised", [2.0])
    assert look(file, PENDULUM, action_scale=2.0) == {}


def test_a_bad_dataset(test_data: Path) -> None:
    file = test_data / "rllib" / "large.json"
    assert sorted(look(file, NONE)) == ["actions_huge", "timeouts_as_terminals"]
    found = look(file, PENDULUM)
    assert sorted(found) == ["actions_far_outside", "observations_outside", "timeouts_as_terminals"]
    assert "-7,810" in found["actions_far_outside"].sentence
