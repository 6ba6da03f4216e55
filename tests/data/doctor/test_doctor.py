"""The doctor: every fault it knows is found where it is planted, on others' data too, and nothing where there is none."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.doctor import KINDS, EnvironmentFacts, Finding, doctor
from d3ray.data.doctor import sample as sample_module
from d3ray.data.doctor import survey as surveys
from d3ray.data.doctor.check_ends import observations_jump, timeouts_as_terminals
from d3ray.data.doctor.measures import behaviour, neighbours, unexplained
from d3ray.data.doctor.report import MACHINE, MEASURED
from d3ray.data.doctor.sample import chosen, n_pieces, row_hashes
from d3ray.data.doctor.survey import survey
from d3ray.data.formats.registry import read
from d3ray.data.spec import Box, Discrete, Environment, Spec

from .planted import FACTS, LIMIT, LIMITS, PLANTED, SPEC, decisions, healthy, with_end_goals


def names(dataset: Dataset, facts: EnvironmentFacts | None = None) -> dict[str, str]:
    """Severity of each finding by its name."""
    return {one.name: one.severity for one in doctor(dataset, facts=facts).findings}


def grave(dataset: Dataset, facts: EnvironmentFacts | None = None) -> list[str]:
    """Sentences of findings that are more than notes."""
    return [one.sentence for one in doctor(dataset, facts=facts).findings if one.severity != "note"]


def test_a_healthy_dataset_is_silent() -> None:
    assert names(healthy().dataset(), FACTS) == {}


@pytest.mark.long
@pytest.mark.parametrize("name", ["d3ray/cartpole-replay", "d3ray/pendulum-replay"])
def test_the_shipped_datasets_are_silent(name: str) -> None:
    dataset = Dataset.open(name)
    limit = 500 if "cartpole" in name else 200
    assert grave(dataset, EnvironmentFacts(dataset.spec, limit)) == []
    assert grave(dataset) == []


def test_every_kind_is_planted() -> None:
    assert sorted(PLANTED) == sorted(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_a_planted_fault_is_found(name: str) -> None:
    dataset, facts = PLANTED[name]()
    report = doctor(dataset, facts=facts, cost_limit=LIMITS.get(name))
    (found,) = [one for one in report.findings if one.name == name]
    assert found.severity == KINDS[name].severity, found.sentence
    assert found.sentence[-1] == "."
    assert report.to_dict()["findings"]


@pytest.mark.long
def test_a_planted_fault_brings_few_others_along() -> None:
    for name in ("rewards_late", "timeouts_as_terminals", "actions_normalised", "duplicate_episodes", "return_outliers"):
        dataset, facts = PLANTED[name]()
        assert [found for found in names(dataset, facts) if KINDS[found].severity != "note"] == [name]


def test_every_end_that_was_lost_is_a_jump_and_no_other_step_is() -> None:
    seen = survey(PLANTED["observations_jump"]()[0])
    (found,) = observations_jump(seen)
    assert found.numbers["transitions"] == 119
    assert not list(observations_jump(survey(healthy(corner=True).dataset())))


def test_remedies_name_the_numbers_of_the_data() -> None:
    def remedy(name: str) -> str:
        dataset, facts = PLANTED[name]()
        return next(one.remedy for one in doctor(dataset, facts=facts).findings if one.name == name)

    assert f"timeout_at={LIMIT}`" in remedy("timeouts_as_terminals")
    assert "action_scale=2`" in remedy("actions_normalised")
    assert "timeout_at=30`" in remedy("longer_than_limit")


def test_a_log_of_single_decisions_is_given_the_advice_that_fits_it() -> None:
    rare = np.zeros(400)
    rare[::50] = 1
    none = np.zeros(400, bool)
    clicks, cut = (doctor(decisions(**changes)[0]) for changes in ({"rewards": rare}, {"terminated": none, "truncated": ~none}))
    assert {one.name for one in clicks.findings} == {"one_step_log", "environment_unknown"}
    assert not any(word in one.remedy for one in clicks.findings for word in ("td_steps", "terminals"))
    assert {one.name for one in cut.findings} == {"one_step_log", "decisions_cut", "environment_unknown"}
    assert "one_step_log" not in names(PLANTED["single_steps"]()[0])  # their rows go on from each other


def test_findings_and_distributions_call_entries_by_their_names() -> None:
    one = healthy()
    named = SPEC.with_names({"observation": ("x", "y", "speed x", "speed y"), "action": ("push x", "push y")})
    report = doctor(replace(one, observations=one.observations * [1, 1, 1, 0], final=None, spec=named).dataset())
    assert [shown.title for shown in report.observations] == [f"observation {name}" for name in ("x", "y", "speed x", "speed y")]
    assert [shown.title for shown in report.actions] == ["action push x", "action push y"]
    (constant,) = [found for found in report.findings if found.name == "observations_constant"]
    assert constant.sentence.endswith("never change: observation speed y.")


@pytest.mark.parametrize("n", [4, 34])
def test_an_entropy_is_never_above_that_of_even_draws(n: int) -> None:
    rng = np.random.default_rng(0)
    even = Dataset.from_arrays(rng.normal(size=(6000, 5)), rng.integers(0, n, 6000), np.zeros(6000), np.ones(6000, bool))
    found = behaviour(survey(even).sample, None)
    assert found is not None
    assert found.entropy <= np.log(n)
    bounds = np.full(1, -1.0), np.full(1, 1.0)
    real = Dataset.from_arrays(rng.normal(size=(6000, 5)), rng.uniform(-1, 1, (6000, 1)), np.zeros(6000), np.ones(6000, bool))
    found = behaviour(survey(real).sample, bounds)
    assert found is not None
    assert found.entropy <= np.log(2)


def test_a_place_is_an_episode_and_a_step() -> None:
    dataset, _ = PLANTED["not_finite"]()
    first = np.asarray(dataset.episodes.first_row)
    episode = int(np.searchsorted(first, 77, side="right")) - 1
    column = survey(dataset).columns["observation"]
    assert column.moments is not None
    rows = np.delete(dataset.columns["observation"], [77, *np.flatnonzero(dataset.columns["closing"])], axis=0)
    np.testing.assert_allclose(column.moments.mean, rows.mean(0), rtol=1e-4)
    (found,) = [one for one in doctor(dataset).findings if one.name == "not_finite"]
    assert found.sentence.endswith(f"the first is step {77 - first[episode]} of episode {episode}.")


@pytest.mark.parametrize("shift", [-1, 1])
def test_rewards_of_one_that_first_are_zero_are_late(shift: int) -> None:
    """A CartPole whose rewards came late has a zero first and then ones: nothing to regress on."""
    one = healthy()
    rewards = np.where(one.first if shift == 1 else one.last, 0.0, 1.0).astype(np.float32)
    assert ("rewards_late" in names(replace(one, rewards=rewards).dataset(), FACTS)) == (shift == 1)


def test_a_reward_of_the_state_reached_is_not_late() -> None:
    """Rewards of the next state, as MuJoCo's forward reward: the row after knows that state too, and yet nothing is wrong."""
    one = healthy()
    assert one.final is not None
    following = np.roll(one.observations, -1, 0)
    following[one.last] = one.final
    rewards = (following[:, 0] - one.observations[:, 0]) * 5
    assert names(replace(one, rewards=rewards.astype(np.float32)).dataset(), FACTS) == {}


def test_a_reward_of_a_state_that_chance_decides_is_not_early() -> None:
    """The row before is explained by this state alone; the row's own by the next state only, which must be looked at."""
    rng = np.random.default_rng(0)
    walk = np.zeros((3001, 2))
    for t in range(3000):
        walk[t + 1] = 0.9 * walk[t] + rng.normal(size=2)
    ends = np.arange(3000) % 100 == 99
    arrays = (walk[:-1], rng.uniform(-1, 1, (3000, 1)), walk[1:, 0], np.zeros(3000), ends)
    found = names(Dataset.from_arrays(*arrays, final_observations=walk[1:][ends]))
    assert not {"rewards_late", "rewards_early"} & set(found)


def test_noisy_rewards_are_not_late() -> None:
    one = healthy()
    rng = np.random.default_rng(0)
    for rewards in (
        rng.normal(size=len(one.rewards)),
        one.rewards + rng.normal(size=len(one.rewards)),
        rng.normal(size=len(one.rewards)).cumsum(),
    ):
        assert names(replace(one, rewards=rewards.astype(np.float32)).dataset(), FACTS) == {}


def test_lengths_that_vary_are_no_time_limit() -> None:
    one = healthy()
    rng = np.random.default_rng(0)
    for _ in range(20):
        lengths = rng.integers(3, 40, 60)
        n = lengths.sum()
        ends = np.zeros(n, bool)
        ends[np.cumsum(lengths) - 1] = True
        seen = survey(Dataset.from_arrays(one.observations[:n], one.actions[:n], one.rewards[:n], ends))
        assert list(timeouts_as_terminals(seen)) == []


# ---- against slower ways


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, facts = PLANTED["rewards_late"]()
    whole = doctor(dataset, facts=facts).to_dict()
    monkeypatch.setattr(sample_module, "_BYTES", 2000)
    calls: list[int] = []
    again = doctor(dataset, facts=facts, advance=calls.append).to_dict()
    assert sum(calls) == n_pieces(dataset) > 50
    assert again == whole


def test_the_sample_is_of_neighbouring_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_module, "_BYTES", 3000)
    one = healthy()
    assert one.final is not None
    sample = survey(one.dataset()).sample
    assert len(sample) == len(one.rewards)
    np.testing.assert_array_equal(sample.state, one.observations)
    following = np.roll(one.observations, -1, 0)
    following[one.last] = one.final
    np.testing.assert_array_equal(sample.after, following)
    np.testing.assert_array_equal(sample.inner, ~one.first & ~one.last)
    k = np.flatnonzero(sample.inner)
    np.testing.assert_array_equal(sample.reward[k], np.stack([one.rewards[k - 1], one.rewards[k], one.rewards[k + 1]], 1))
    np.testing.assert_array_equal(sample.episode, np.cumsum(one.first) - 1)


def test_extremes_are_counted_as_a_loop_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_module, "_BYTES", 1000)
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.uint8, np.int32):
        trend = np.arange(300)[:, None] // 40 * [-1, 0, 1] + [8, 0, 0]  # extremes that come late, and such that come early
        values = (rng.integers(0, 6, (300, 3)) + trend).astype(dtype)
        dataset = Dataset.from_arrays(values, rng.normal(size=(300, 1)), np.zeros(300), np.zeros(300))
        column = survey(dataset).columns["observation"]
        assert column.at_low.tolist() == [sum(v == min(values[:, k]) for v in values[:, k]) for k in range(3)]
        assert column.at_high.tolist() == [sum(v == max(values[:, k]) for v in values[:, k]) for k in range(3)]
        np.testing.assert_allclose(column.std, values.astype(np.float64).std(0))


def test_hashes_are_equal_where_rows_are() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.integers(-1, 2, (3000, 5)), rng.integers(-1, 2, (3000, 5))]).astype(np.float32)
    other = rng.integers(0, 2, 6000)
    hashes = row_hashes([rows, other])
    expected = {(*row, k) for row, k in zip((rows + 0.0).tolist(), other.tolist(), strict=True)}
    assert len(np.unique(hashes)) == len(expected)
    signs = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]], np.float64)
    assert len(np.unique(row_hashes([signs]))) == 4
    image = rng.integers(0, 256, (4, 9, 9, 3)).astype(np.uint8)
    changed = image.copy()
    changed[2, 8, 8, 2] ^= 1
    assert (row_hashes([image]) == row_hashes([changed])).tolist() == [True, True, False, True]


def test_thinned_transitions_are_counted_about_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "HASHES", 1024)
    dataset, _ = PLANTED["duplicate_transitions"]()
    seen = survey(dataset)
    assert seen.thinned > 1
    assert len(seen.transition_hashes) < 2048
    (found,) = [one for one in doctor(dataset).findings if one.name == "duplicate_transitions"]
    assert found.numbers["copies"] == pytest.approx(dataset.n_transitions / 2, rel=0.15)


def test_regression_finds_what_is_there() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3))
    noise = rng.normal(size=4000)
    targets = np.stack([x @ [1, 2, 3], x[:, 0] ** 2 - np.sin(2 * x[:, 1]), x[:, 0] + noise, noise], 1)
    left = unexplained(x, targets, np.arange(4000) // 100)
    assert left[0] < 1e-4
    assert left[1] < 0.05
    assert left[2] == pytest.approx(0.5, abs=0.06)
    assert left[3] == pytest.approx(1.0, abs=0.1)
    assert np.isnan(unexplained(x, np.ones((4000, 1)), np.arange(4000))).all()


def test_neighbours_are_the_nearest() -> None:
    x = np.random.default_rng(0).normal(size=(700, 3)) * [1, 10, 100]
    scaled = x / x.std(0)
    found = neighbours(x, 5)
    for k in (0, 13, 699):
        distance = np.square(scaled - scaled[k]).sum(1)
        distance[k] = np.inf
        assert set(found[k].tolist()) == set(np.argsort(distance)[:5].tolist())


def test_entropy_of_a_known_behaviour() -> None:
    rng = np.random.default_rng(0)
    state = rng.normal(size=(6000, 2))
    ends = np.arange(6000) % 100 == 99
    even = Dataset.from_arrays(state, rng.integers(0, 4, 6000), np.zeros(6000), ends)
    found = behaviour(survey(even).sample, None)
    assert found is not None
    assert found.entropy == pytest.approx(np.log(4), rel=0.15)
    settled = Dataset.from_arrays(state, (state[:, 0] > 0).astype(np.int64), np.zeros(6000), ends)
    found = behaviour(survey(settled).sample, None)
    assert found is not None
    assert found.entropy < 0.15
    gaussian = Dataset.from_arrays(state, state @ [[1.0], [2.0]] + 0.5 * rng.normal(size=(6000, 1)), np.zeros(6000), ends)
    found = behaviour(survey(gaussian).sample, None)
    assert found is not None
    assert found.entropy == pytest.approx(0.5 * np.log(2 * np.pi * np.e * 0.25), abs=0.05)


def test_a_sample_is_spread_and_the_same_every_time() -> None:
    index = chosen(1_000_003, 1000, "x")
    assert (index == chosen(1_000_003, 1000, "x")).all()
    assert (index != chosen(1_000_003, 1000, "y")).any()
    assert (index // 1000.003).astype(int).tolist() == pytest.approx(list(range(1000)), abs=1)
    assert (np.diff(index) > 0).all()
    assert chosen(7, 1000, "x").tolist() == list(range(7))


# ---- shapes and places


def test_images_dicts_and_discrete_actions() -> None:
    rng = np.random.default_rng(0)
    observations = {"camera": rng.integers(0, 256, (300, 3, 12, 12)).astype(np.uint8), "speed": rng.normal(size=(300, 2))}
    ends = np.arange(300) % 30 == 29
    dataset = Dataset.from_arrays(observations, rng.integers(0, 3, 300), rng.normal(size=300), ends, name="camera")
    report = doctor(dataset)
    assert report.n_entries == 2
    assert [one.title for one in report.actions] == ["action"]
    assert sum(report.actions[0].counts) == 300
    assert sum(report.returns.counts) == 10
    assert {one.name for one in report.findings} >= {"timeouts_as_terminals", "environment_unknown"}


def test_spaces_of_kinds() -> None:
    rng = np.random.default_rng(0)
    ends = np.arange(400) % 40 == 39
    room = rng.integers(0, 5, 400)
    many = Dataset.from_arrays(room, rng.integers(0, 3, (400, 2)), rng.normal(size=400), ends)
    sample = survey(many).sample
    np.testing.assert_array_equal(sample.state, np.eye(5)[room])
    assert sample.action.shape == (400, 6)
    assert behaviour(sample, None) is None
    binary = Dataset.from_arrays(room, rng.integers(0, 2, (400, 3)).astype(np.uint8), rng.normal(size=400), ends)
    assert survey(binary).sample.action.shape == (400, 3)
    for dataset in (many, binary):
        assert doctor(dataset).to_dict()["behaviour"] is None


@pytest.mark.parametrize("steps", [[1], [1, 1], [2], [1, 2, 1]])
def test_tiny_datasets_have_a_report(steps: list[int]) -> None:
    n = sum(steps)
    ends = np.zeros(n, bool)
    ends[np.cumsum(steps) - 1] = True
    report = doctor(Dataset.from_arrays(np.ones((n, 2)), np.ones((n, 1)), np.ones(n), ends))
    assert sum(report.steps.counts) == len(steps)


def test_a_folder_is_read_without_a_node_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    expected = doctor(healthy().dataset(), facts=FACTS).to_dict()
    for options in ({"n_shards": 3}, {"n_shards": 2, "compression": "zstd"}, {"n_shards": 1}):
        folder = healthy().dataset().write(tmp_path / f"{len(options)}{options['n_shards']}", **options)
        assert doctor(folder, facts=FACTS).to_dict() == expected
    assert not (tmp_path / "cache").exists()


def test_bounds_that_are_not_the_environments_are_named() -> None:
    wide = Spec(observation=Box(shape=(4,)), action=Box(shape=(2,), low=-3.0, high=3.0))
    (found,) = [one for one in doctor(healthy().dataset(), facts=EnvironmentFacts(wide, LIMIT)).findings if one.severity != "note"]
    assert found.name == "spaces_disagree"
    assert found.sentence == "The dataset's actions may reach from -1 to 1, those of Point-v0 from -3 to 3."
    problem = EnvironmentFacts(problem="gymnasium knows no environment 'Point-v0'.")
    (found,) = doctor(healthy().dataset(), facts=problem).findings
    assert found.sentence == "Point-v0 cannot be compared with: gymnasium knows no environment 'Point-v0'."


def test_the_times_that_are_stated_are_those_of_the_speed_table() -> None:
    table = json.loads((Path(__file__).parents[3] / "benchmarks/results/speed.json").read_text())
    rows = [row for row in table["results"] if row["cpu"] in MACHINE]
    measured = {row["label"]: statistics.median(run["per_second"] for run in row["runs"]["a"]) for row in rows}
    for stated in MEASURED.values():
        for name, speed in stated.items():
            (label,) = (label for label in measured if label == name.replace("256x256", "256×256") + ": whole `fit`")
            assert speed == round(measured[label])
    assert {1: "one", 2: "two"}[table["threads"]] in MACHINE


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


def test_goals_that_are_reached_are_not_found() -> None:
    assert "goals_unreached" not in names(with_end_goals(lambda ends: ends)[0])
    assert "goals_unreached" not in names(healthy().dataset().with_goals())  # of which each step reaches its own


def test_some_goals_that_are_far_are_a_note_with_numbers() -> None:
    observations = healthy().observations
    goals = np.concatenate([observations[5:8], np.add(observations[:2], [30, 0, 0, 0])])
    (one,) = [f for f in doctor(healthy().dataset(), facts=replace(FACTS, goals=goals)).findings if f.name == "goals_far"]
    assert (one.severity, one.numbers["far"], one.numbers["goals"]) == ("note", 2, 5)
    spread = observations.std(0)
    by_hand = np.linalg.norm((goals[:, None] - observations) / spread, axis=2).min(1).max()
    assert one.numbers["farthest"] == pytest.approx(by_hand, rel=1e-3)
    assert names(healthy().dataset(), replace(FACTS, goals=observations[:5])) == {}
    assert names(healthy().dataset(), replace(FACTS, goals=np.zeros((5, 3)))) == {}  # of another kind: not compared
