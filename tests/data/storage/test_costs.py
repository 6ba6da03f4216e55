"""The column `cost`: read from every layout that has it, summed by episode, checked, and drawn beside the reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, read
from d3ray.data.formats.tabular.guess import look
from d3ray.data.sampling import SequenceSampler, StreamSampler, TransitionSampler
from d3ray.data.storage.costs import checked_limit
from d3ray.jobs.command.running import run_command

from ..sampling.slow_experience import Story, as_buffer, as_dataset, stories

COSTS = np.array([1, 0, 2, 0, 0, 5], np.float32)
ENDS = np.array([0, 0, 1, 0, 1, 1], bool)


def arrays(**more: Any) -> Dataset:
    """Episodes of 3, 2 and 1 steps, which cost 3, 0 and 5."""
    given_ = {"cost": COSTS} | more
    return Dataset.from_arrays(np.arange(12.0).reshape(6, 2), np.zeros((6, 1)), np.arange(6.0), ENDS, extra=given_, name="mine")


def test_an_episode_costs_the_sum_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (65_536, 1, 2, 4):  # rows of a block, which episodes go over
        monkeypatch.setattr("d3ray.data.storage.rows.BLOCK", size)
        monkeypatch.setattr("d3ray.data.storage.costs.BLOCK", size)
        assert arrays().cost_returns.tolist() == [3, 0, 5]
    assert arrays().take([2, 0]).cost_returns.tolist() == [5, 3]
    with pytest.raises(DataError, match="'dataset' has no column 'cost'"):
        _ = Dataset.from_arrays(np.zeros((2, 1)), np.zeros((2, 1)), [0, 0], [0, 1]).cost_returns


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (COSTS[:5], "observations has 6 rows and cost has 5"),
        (np.r_[COSTS[:4], np.nan, 0], "cost has NaN in row 4"),
        (np.zeros((6, 2)), r"cost has shape \[6, 2\]; one value a step is needed"),
        (np.array(["a"] * 6), "cost is of type <U1; numbers are needed"),
    ],
)
def test_what_is_no_cost_is_refused(cost: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        arrays(cost=cost)


@pytest.mark.parametrize("cost", [COSTS.astype(int), COSTS.astype(bool), COSTS[:, None], COSTS.astype(np.float64), list(COSTS)])
def test_costs_are_float32(cost: Any) -> None:
    assert arrays(cost=cost).kinds["cost"] == ("float32", ())


@pytest.mark.parametrize("limit", [-1.0, float("nan"), float("inf")])
def test_a_limit_is_a_number_from_0_on(limit: float) -> None:
    with pytest.raises(ConfigError, match=f"cost_limit is {limit:g}; it is the cost that an episode may come to"):
        checked_limit(limit)


def written(path: Path, **more: Any) -> Path:
    """DSRL's layout: next observations at all steps, costs in a column of one."""
    seen = np.arange(12.0, dtype=np.float32).reshape(6, 2)
    plain = {
        "observations": seen,
        "next_observations": seen + 2 + ENDS[:, None],
        "actions": np.zeros((6, 1), np.float32),
        "rewards": COSTS,
    }
    with h5py.File(path, "w") as file:
        for name, array in {**plain, "terminals": np.zeros(6), "timeouts": ENDS, **more}.items():
            file[name] = array
    return path


def test_dsrls_files_have_costs(tmp_path: Path) -> None:
    path = written(tmp_path / "a.hdf5", costs=COSTS[:, None])
    assert detect(path) == "d4rl"
    table = read(path).steps
    assert table.columns["cost"][~table.columns["closing"]].tolist() == COSTS.tolist()
    assert table.final_recorded.all()
    other = read(written(tmp_path / "b.hdf5", **{"infos/cost": COSTS})).steps
    assert other.columns["cost"].tolist() == table.columns["cost"].tolist()
    both = read(written(tmp_path / "c.hdf5", costs=COSTS, **{"infos/cost": COSTS + 1})).steps
    assert (both.columns["cost"].sum(), both.columns["info/cost"].sum()) == (8, 14)
    with pytest.raises(DataError, match="'observations' has 6 rows, but 'costs' has 5"):
        read(written(tmp_path / "d.hdf5", costs=COSTS[:5]))
    with pytest.raises(DataError, match="cost has NaN in row 1"):
        read(written(tmp_path / "e.hdf5", costs=np.where(np.arange(6) == 1, np.nan, COSTS)))


def test_tables_have_costs_by_either_name(tmp_path: Path) -> None:
    for name in ("cost", "costs"):
        path = tmp_path / f"{name}.csv"
        rows = [f"{k // 3},{k},0,0,{c:g}" for k, c in enumerate(COSTS)]
        path.write_text("\n".join([f"episode,observation:0,action:0,reward,{name}", *rows]))
        steps = read(path).steps
        assert steps.columns["cost"].tolist() == [1, 0, 2, 0, 0, 0, 5, 0]
        assert steps.columns["cost"].dtype == np.float32
    path.write_text("run,x,u,gain,violations\n0,1,2,3,4\n")
    assert {one.name: one.guess for one in look(path)}["violations"] == "cost"


quick = settings(max_examples=25, deadline=None)


def with_costs(told: list[Story]) -> Dataset:
    """The episodes, whose costs are a tenth of the rewards."""
    whole = as_dataset(told).to_steps()
    whole.columns["cost"] = (0.1 * whole.columns["reward"]).astype(np.float32)
    return Dataset.from_steps(whole, name="told")


def slow_sum(s: Story, t: int, stop: int, gamma: float) -> float:
    return sum(gamma ** (k - t) * 0.1 * s.reward(k) for k in range(t, min(stop, s.steps)))


@quick
@given(stories(), st.integers(1, 3))
def test_costs_of_a_window_are_summed_as_its_rewards_are(told: list[Story], td_steps: int) -> None:
    told = [*told, Story(len(told), 3, "terminated")]
    steps = {float(s.observation(t)): (s, t) for s in told for t in range(s.steps)}
    options: dict[str, Any] = {"td_steps": td_steps, "gamma": 0.5, "extra": ("cost", "initial"), "dtype": torch.float64}
    data, starts = with_costs(told), [s for s in told if s.drawable(td_steps)]
    first = sum(len(s.drawable(td_steps)) for s in told) / len(starts)
    for batch in (TransitionSampler(data, 16, seed=(1, 2), **options).sample(0), StreamSampler(data, 16, **options).sample(0)):
        assert torch.allclose(batch.extra["cost"], 0.1 * batch.reward, rtol=1e-5, atol=1e-6)
        found = (batch.observation[..., 0].flatten(), batch.extra["cost"].flatten(), batch.extra["initial"].flatten())
        for seen, cost, initial in zip(*(part.tolist() for part in found), strict=True):
            s, t = steps[seen]
            assert cost == pytest.approx(slow_sum(s, t, t + td_steps, 0.5), rel=1e-6, abs=1e-6)
            assert initial == pytest.approx(first * (t == 0))


@quick
@given(stories(), st.integers(1, 5))
def test_costs_to_go_are_the_rest_of_the_episode(told: list[Story], length: int) -> None:
    told = [*told, Story(len(told), 3, "terminated")]
    steps = {float(s.observation(t)): (s, t) for s in told for t in range(s.steps)}
    data, options = with_costs(told), {"extra": ("cost_to_go", "cost"), "dtype": torch.float64}
    for batch in (
        SequenceSampler(data, 16, length, seed=(1, 2), **options).sample(0),
        StreamSampler(data, 16, length=length, **options).sample(0),
    ):
        there = batch.mask.flatten()
        assert not batch.extra["cost_to_go"].flatten()[~there].any()
        found = (batch.observation[..., 0], batch.extra["cost"], batch.extra["cost_to_go"])
        for seen, cost, left in zip(*(part.flatten()[there].tolist() for part in found), strict=True):
            s, t = steps[seen]
            assert cost == pytest.approx(slow_sum(s, t, t + 1, 1.0), rel=1e-6)
            assert left == pytest.approx(slow_sum(s, t, s.steps, 1.0), rel=1e-6, abs=1e-6)


def test_a_buffer_draws_its_costs() -> None:
    from d3ray.data.replay import ReplayBuffer

    told, spec = [Story(0, 4, "terminated"), Story(1, 3, "truncated")], as_buffer([Story(0, 1, "terminated")], 4).buffer.spec
    buffer = ReplayBuffer(100, spec, extra={"cost": ()})
    for s in told:
        for t in range(s.steps):
            last, final = t == s.steps - 1, np.array([s.observation(s.steps)], np.float32)
            ended, cut = last and s.end == "terminated", last and s.end == "truncated"
            given_ = (np.array([s.observation(t)], np.float32), np.array([0.0], np.float32), 0.0, ended, cut)
            buffer.add(*given_, final if last else None, cost=0.1 * s.reward(t))
    batch = buffer.sampler(64, td_steps=2, gamma=0.5, extra=("cost",)).sample(step=0)
    steps = {float(s.observation(t)): (s, t) for s in told for t in range(s.steps)}
    for seen, cost in zip(batch.observation[:, 0].tolist(), batch.extra["cost"].tolist(), strict=True):
        s, t = steps[seen]
        assert cost == pytest.approx(slow_sum(s, t, t + 2, 0.5), rel=1e-5, abs=1e-6)
    with pytest.raises(DataError, match="A replay buffer has no share of first steps"):
        buffer.sampler(64, extra=("initial",))


def test_inspect_tells_what_episodes_cost_and_which_break_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays().write(tmp_path / "set")
    assert run_command("inspect", [str(tmp_path / "set"), "cost_limit=2"]) == 0
    said = capsys.readouterr().out
    assert "costs of an episode: 2.6667 in the mean; by share of episodes: 0%: 0, 5%: 0.3" in said
    assert "2 of 3 episodes (67%) cost more than 2: 2.667 in the mean, 0 at least and 5 at most." in said
    assert run_command("inspect", [str(tmp_path / "set"), "cost_limit=-2"]) == 2
    assert "cost_limit is -2" in capsys.readouterr().err
