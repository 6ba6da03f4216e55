"""Operations on datasets beside slow ones over lists of episodes; lazy, in memory and in folders, whatever the shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from d3ray import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.recording import DEEPEST
from d3ray.data.sampling import TransitionSampler
from d3ray.data.spec import Box, Dict, Discrete, Environment, Spec
from d3ray.data.storage import rows as rows_module
from d3ray.data.storage.steps import StepTable

from .derived import by_blocks, check, listed, walk


def test_filter_by_an_expression_and_by_a_function(place: Callable[[Dataset], Dataset], tmp_path: Path) -> None:
    data = place(walk())
    episodes = listed(walk())
    kept = [e for e in episodes if e["reward"].sum(dtype=np.float64) > 5 and len(e["reward"]) - 1 >= 4 and e["terminated"].any()]
    assert 0 < len(kept) < len(episodes)
    found = data.filter("return > 5 and steps >= 4 and terminated")
    check(found, kept, tmp_path / "kept")
    same = data.filter(lambda e: e.compute_return() > 5 and len(e) >= 4 and e.terminated)
    assert same.episodes.first_row.tolist() == found.episodes.first_row.tolist()
    assert found.provenance["derived"]["operation"] == "filter"
    assert found.provenance["derived"]["parameters"] == {"keep": "return > 5 and steps >= 4 and terminated"}
    assert found.provenance["derived"]["parents"][0]["fingerprint"] == data.fingerprint
    assert "the function tests" in same.provenance["derived"]["parameters"]["keep"] or "lambda" in str(same.provenance)
    assert [e.terminated for e in data.filter("truncated and episode < 10").episodes] == [
        False for e in episodes[:10] if not e["terminated"].any()
    ]


def test_take_shuffle_and_top(place: Callable[[Dataset], Dataset], tmp_path: Path) -> None:
    data, episodes = place(walk()), listed(walk())
    check(data.take(7), episodes[:7], tmp_path / "take")
    check(data.take([5, 0, 9]), [episodes[k] for k in (5, 0, 9)], tmp_path / "numbers")
    shuffled = data.shuffle(3)
    starts = walk().episodes.first_row.tolist()
    order = [starts.index(row) for row in shuffled.episodes.first_row.tolist()]
    assert sorted(order) == list(range(len(episodes))) != order
    assert data.shuffle(3).episodes.first_row.tolist() == shuffled.episodes.first_row.tolist()
    assert data.shuffle(4).episodes.first_row.tolist() != shuffled.episodes.first_row.tolist()
    check(shuffled, [episodes[k] for k in order], tmp_path / "shuffle")
    returns = [e["reward"].sum(dtype=np.float64) for e in episodes]
    best = sorted(range(len(episodes)), key=lambda k: -returns[k])
    check(data.top(0.25), [episodes[k] for k in sorted(best[: len(episodes) // 4])], tmp_path / "top")
    chosen, steps = [], 0
    for k in best:
        steps += len(episodes[k]["reward"]) - 1
        if steps > 0.3 * 400:
            break
        chosen.append(k)
    check(data.top(0.3, by="transitions"), [episodes[k] for k in sorted(chosen)], tmp_path / "steps")


def test_the_order_of_a_shuffle_is_the_same_on_every_machine() -> None:
    ten = Dataset.from_arrays(np.zeros((10, 1)), [0] * 10, [0] * 10, [1] * 10)
    assert (ten.shuffle(7).episodes.first_row // 2).tolist() == [6, 3, 5, 0, 4, 8, 1, 7, 9, 2]  # golden


def test_top_of_a_few() -> None:
    data = Dataset.from_arrays(np.zeros((30, 1)), [0] * 30, np.tile([1.0, 3, 2], 10), [1] * 30)
    assert data.top(0.1).episodes.first_row.tolist() == [2, 8, 14]  # of equal returns the first ones, in their order
    assert data.top(0.01).n_episodes == 1
    assert data.top(1.0).n_episodes == data.top(1.0, by="transitions").n_episodes == 30
    assert data.top(0.1, by="transitions").n_episodes == 3


def test_splits_by_shares_and_folds(tmp_path: Path) -> None:
    data = walk(2000)
    parts = data.split((0.7, 0.2, 0.1), seed=1)
    n = data.n_episodes
    assert [part.n_episodes for part in parts] == pytest.approx([0.7 * n, 0.2 * n, 0.1 * n], abs=1)
    assert sorted(np.concatenate([p.episodes.first_row for p in parts])) == data.episodes.first_row.tolist()
    assert all((np.diff(p.episodes.first_row) > 0).all() for p in parts)
    assert [p.name for p in parts] == [f"dataset (part {k} of 3)" for k in (1, 2, 3)]
    assert parts[2].provenance["derived"]["parameters"]["part"] == "part 3 of 3"
    seven = data.take(7)
    assert [p.n_episodes for p in seven.split((0.98, 0.01, 0.01))] == [5, 1, 1]
    assert [p.n_episodes for p in seven.split((0.01, 0.01, 0.98))] == [1, 1, 5]
    folds = list(data.folds(4, seed=2))
    assert len(folds) == 4
    assert sorted(np.concatenate([test.episodes.first_row for _, test in folds])) == data.episodes.first_row.tolist()
    for train, test in folds:
        assert not set(train.episodes.first_row) & set(test.episodes.first_row)
        assert train.n_episodes + test.n_episodes == n
        assert (np.diff(train.episodes.first_row) > 0).all()
    assert len({test.fingerprint for _, test in folds}) == 4
    first = [next(data.folds(4, seed))[1].episodes.first_row.tolist() for seed in (2, 2, 3)]
    assert first[0] == first[1] != first[2]
    assert first[0] != data.take(folds[0][1].n_episodes).episodes.first_row.tolist()


@pytest.mark.parametrize("named", [False, True])
def test_concat_reads_each_part_where_it_lies(place: Callable[[Dataset], Dataset], tmp_path: Path, named: bool) -> None:
    a, b = place(walk(150, 1, named=named)), place(walk(90, 2, named=named))
    expected = listed(walk(150, 1, named=named)) + listed(walk(90, 2, named=named))
    both = Dataset.concat([a, b])
    check(both, expected, tmp_path / "both")
    some = Dataset.concat([a.take([3, 1]), b.filter("steps > 5")])
    second = listed(walk(90, 2, named=named))
    check(some, [expected[3], expected[1], *(e for e in second if len(e["reward"]) > 6)], tmp_path / "some")
    check(
        Dataset.concat([both, b]).shuffle(1).take(4), by_blocks(Dataset.concat([a, b, b]).shuffle(1).take(4)), tmp_path / "nested"
    )
    parents = both.provenance["derived"]["parents"]
    assert [parent["fingerprint"] for parent in parents] == [a.fingerprint, b.fingerprint]


def test_what_is_put_together_has_a_space_for_all() -> None:
    def spec(low: float, n: int) -> Spec:
        return Spec(observation=Dict(spaces={"a": Box(shape=(1,), low=low, high=1)}), action=Discrete(n=n))

    sets = [Dataset.from_arrays({"a": [[0.0]]}, [0], [0], [1], spec=spec(low, n)) for low, n in ((0, 2), (0, 5), (-1, 3))]
    assert Dataset.concat(sets[:1]).spec == spec(0, 2)
    assert Dataset.concat(sets[:2]).spec == spec(0, 5)
    assert Dataset.concat(sets).spec == Spec(observation=Dict(spaces={"a": Box(shape=(1,))}), action=Discrete(n=5))


@pytest.mark.filterwarnings("error")
def test_kinds_below_0_are_mapped() -> None:
    taken = np.array([-3, -2, -3, -2])
    spec = Spec(observation=Box(shape=(1,)), action=Discrete(n=2, start=-3))
    dataset = Dataset.from_arrays(np.zeros((4, 1)), taken, np.zeros(4), [0, 1, 0, 1], spec=spec)
    mapped = dataset.map_batches(lambda batch: {"reward": batch["reward"] + 1})
    assert (mapped.spec, mapped.columns["action"].tolist()) == (spec, [-3, -2, 0, -3, -2, 0])


def test_samplers_draw_the_same_from_a_lazy_dataset_and_from_its_copy(place: Callable[[Dataset], Dataset], tmp_path: Path) -> None:
    a, b = place(walk(600, 1)), place(walk(300, 2))
    lazy = Dataset.concat([a.filter("steps > 3"), b.relabel("reward * 2").top(0.5)]).relabel("reward - 1")
    copy = lazy.write(tmp_path / "copy")
    for step in range(3):
        one, other = (TransitionSampler(d, 64, seed=5, td_steps=3, dtype=torch.float64).sample(step) for d in (lazy, copy))
        for name in ("observation", "action", "reward", "next_observation", "discount", "index"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_joined_columns_are_a_node_map_and_are_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    maps = tmp_path / "cache/node_maps"
    a, b = walk(300, 1).write(tmp_path / "a"), walk(200, 2).write(tmp_path / "b")
    both = Dataset.concat([a, b])
    assert both.fingerprint  # by blocks
    assert not maps.exists() or not any(maps.iterdir())
    both.prepare()
    entry = maps / both.fingerprint
    assert (entry / "reward.raw").read_bytes() == both.columns["reward"].tobytes()
    assert not both.columns["reward"].flags.owndata
    before = (entry / "reward.raw").stat().st_mtime_ns
    unseen = Dataset.concat([b, a])
    unseen.prepare()  # measured for its map
    monkeypatch.setattr(rows_module.JoinedRows, "read", None)
    assert unseen.summary.fingerprint != both.fingerprint  # and not again
    monkeypatch.undo()
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    both.write(tmp_path / "both", n_shards=2).prepare()  # the same rows: the same map
    assert (entry / "reward.raw").stat().st_mtime_ns == before
    content = bytearray((entry / "reward.raw").read_bytes())
    content[0] ^= 1
    (entry / "reward.raw").write_bytes(content)
    np.testing.assert_array_equal(Dataset.concat([a, b]).columns["reward"], Dataset.open(tmp_path / "both").columns["reward"])
    assert len(Dataset.concat([walk(300, 1), walk(200, 2)]).folders) == 0
    calls = iter(range(10**6))
    unsteady = Dataset.concat([a.relabel(lambda reward: reward + 9 + next(calls)), b])
    with pytest.raises(DataError, match="The column 'reward' has other values when it is read again"):
        _ = unsteady.columns


def test_mix_has_the_shares(tmp_path: Path) -> None:
    a, b, c = walk(3000, 1), walk(1000, 2), walk(2000, 3)
    mixed = Dataset.mix([a, b, c], (3, 2, 1), seed=4)
    parts = [part.n_transitions for part in mixed.source.parts]  # type: ignore[attr-defined]
    longest = max(int(d.episodes.steps.max()) for d in (a, b, c))
    assert parts == pytest.approx([1500, 1000, 500], abs=longest)
    assert mixed.n_transitions == sum(parts)
    assert mixed.fingerprint == Dataset.mix([a, b, c], (3, 2, 1), seed=4).fingerprint
    assert mixed.fingerprint != Dataset.mix([a, b, c], (3, 2, 1), seed=5).fingerprint
    small = Dataset.mix([a, b], (0.5, 0.5), n_transitions=100)
    assert [p.n_transitions for p in small.source.parts] == pytest.approx([50, 50], abs=longest)  # type: ignore[attr-defined]
    about = mixed.provenance["derived"]
    assert about["operation"] == "mix"
    assert about["parameters"] == {"shares": [0.5, pytest.approx(1 / 3), pytest.approx(1 / 6)], "n_transitions": 3000, "seed": 4}
    assert [parent["fingerprint"] for parent in about["parents"]] == [d.fingerprint for d in (a, b, c)]
    with pytest.raises(DataError, match=r"dataset has 1,000 transitions and its share of this mix is 2,000\."):
        Dataset.mix([a, b], (0.5, 0.5), n_transitions=4000)


def test_a_chain_is_told_from_its_first_parents(tmp_path: Path) -> None:
    data = walk(environment=Environment(id="Walk-v0")).write(tmp_path / "it")
    chain = data.filter("steps > 2").relabel("sign").take(3).write(tmp_path / "chain")
    take = chain.provenance["derived"]
    assert (take["operation"], take["parameters"]) == ("take", {"episodes": 3})
    relabel = take["parents"][0]["derived"]
    assert (relabel["operation"], relabel["parameters"]) == ("relabel", {"reward": "sign"})
    kept = relabel["parents"][0]["derived"]
    assert kept["parents"] == [{"name": "dataset", "fingerprint": data.fingerprint, "provenance": {}}]
    assert chain.environment == Environment(id="Walk-v0")
    assert chain.take(1).provenance["derived"]["parents"][0]["fingerprint"] == chain.fingerprint


@pytest.mark.parametrize("written", [False, True])
def test_what_is_put_together_step_by_step_tells_of_each_part_once(tmp_path: Path, written: bool) -> None:
    parts, data = [walk(20, k) for k in range(70)], walk(20, 70)
    for part in parts:
        data = Dataset.concat([data, part], name="all")
        if written:
            data = data.write(tmp_path / "it", overwrite=True)
    found = data.write(tmp_path / "it", overwrite=written)
    assert found.n_transitions == 71 * 20
    about = Dataset.open(tmp_path / "it").provenance["derived"]
    assert about["operation"] == "concat"
    assert about["parents"] == [
        {"name": "dataset", "fingerprint": part.fingerprint, "provenance": {}} for part in (walk(20, 70), *parts)
    ]


@pytest.mark.parametrize("written", [False, True])
def test_a_chain_of_any_length_can_be_written(tmp_path: Path, written: bool) -> None:
    data = walk(20)
    for k in range(80):
        data = data.relabel(f"reward + {k}")
        if written:
            data = data.write(tmp_path / "it", overwrite=k > 0)
    data.write(tmp_path / "it", overwrite=written)
    about, texts = Dataset.open(tmp_path / "it").provenance, []
    while "derived" in about:
        texts.append(about["derived"]["parameters"]["reward"])
        about = about["derived"]["parents"][0]
        about = about.get("provenance", about)
    assert texts == [f"reward + {k}" for k in range(79, 79 - DEEPEST, -1)]
    assert about["left_out"] is True


def test_shards_are_opened_one_after_the_other_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rows_module, "BLOCK", 64)
    data = walk(2000).write(tmp_path / "it", n_shards=6, compression="zstd")
    found = data.filter("steps > 4").relabel("reward - 1").write(tmp_path / "some", n_shards=3)
    assert not (tmp_path / "cache").exists()  # nothing was mapped for it
    assert found.n_episodes == int((data.episodes.steps > 4).sum())
    shard = tmp_path / "it/data-00003-of-00006.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match=f"^{shard} is damaged"):
        Dataset.open(tmp_path / "it").filter("steps > 4").write(tmp_path / "damaged")
    assert not (tmp_path / "damaged").exists()


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        (lambda d: d.filter("return > 1e9"), "dataset has no episode that satisfies 'return > 1e9'."),
        (lambda d: d.filter("reward > 1"), "'reward > 1': there is no 'reward'; choose from 'return', 'steps', "),
        (lambda d: d.take(0), "take is 0; dataset has 3 episodes."),
        (lambda d: d.take(4), "take is 4; dataset has 3 episodes."),
        (lambda d: d.take([0, 3]), "take is given episode 3; dataset has 0 to 2."),
        (lambda d: d.take([1, 0, 1]), "take is given episode 1 twice."),
        (lambda d: d.take([]), "take is given neither how many episodes nor their numbers."),
        (lambda d: d.top(0), "top is 0; it is a share of the dataset, above 0 and at most 1."),
        (lambda d: d.top(0.5, by="steps"), "top counts by 'episodes' or 'transitions', not 'steps'."),
        (lambda d: d.split((0.5, 0.6)), "The shares of a split are [0.5, 0.6]; give two or more above 0 that add up to 1."),
        (lambda d: d.split((0.25,) * 4), "dataset has 3 episodes; a split into 4 parts needs as many."),
        (lambda d: next(d.folds(1)), "The number of folds is 1; it is 2 or more."),
        (lambda d: next(d.folds(4)), "dataset has 3 episodes; 4 folds need as many."),
        (lambda d: Dataset.concat([]), "Nothing to put together: there is no dataset."),
        (
            lambda d: Dataset.concat([d, walk(discrete=True)]),
            "Column 'action' is float32 [1] in the first and int64 [] in number 2.",
        ),
        (lambda d: Dataset.mix([d], [1]), "A mix of 1 datasets was given 1 shares; it takes two or more of each."),
        (lambda d: Dataset.mix([d, d], [1, 0]), "The shares of a mix are [1, 0]; each is a number above 0."),
        (lambda d: d.relabel("rewrad - 1"), "'rewrad - 1': there is no 'rewrad'; did you mean 'reward'?"),
        (lambda d: d.relabel("observation[1]"), "'observation[1]': there is no observation[1]; its subscript goes from 0 to 0."),
        (lambda d: d.relabel(lambda x, y: x), "A function of rewards takes (observation, action, next_observation, reward), or "),
        (lambda d: d.relabel("1 / (step - 1)").columns, "The new reward is inf in row 1, step 1 of its episode."),
        (lambda d: d.relabel(lambda reward: reward[1:]).columns, "one number each is needed."),
        (
            lambda d: d.relabel(lambda reward: [None] * len(reward)).columns,
            "The new rewards are of type object; numbers are needed.",
        ),
    ],
)
def test_what_cannot_be_is_said(operation: Callable[[Dataset], object], sentence: str) -> None:
    three = Dataset.from_arrays(np.zeros((6, 1)), np.zeros((6, 1)), [0] * 6, [0, 1] * 3)
    with pytest.raises((ConfigError, DataError)) as error:
        operation(three)
    assert sentence in str(error.value)


def test_diff_says_what_and_where(place: Callable[[Dataset], Dataset]) -> None:
    plain = walk(300)
    table = plain.to_steps()
    columns = {name: column.copy() for name, column in table.columns.items()}
    rows = plain.episodes.first_row[[4, 9]] + [0, 1]
    columns["reward"][rows] += [0.5, 2]
    columns["observation"][rows[1], 2] = 7
    other = Dataset.from_steps(
        StepTable(columns, table.first_row, table.steps, table.terminated, table.final_recorded), name="other"
    )
    a, b = place(plain), place(other)
    found = a.diff(b)
    assert not found.same
    assert found.names == ("dataset", "other")
    assert (found.counts, found.kinds, found.spec, found.environment) == ({}, {}, {}, None)
    assert [c.column for c in found.columns] == ["observation", "reward"]
    reward = found.columns[1]
    assert (reward.rows, reward.of, reward.row, reward.episode, reward.step) == (2, a.n_rows, rows[0], (4, 4), (0, 0))
    assert reward.largest == pytest.approx(2, rel=1e-5)
    assert reward.values == (float(plain.columns["reward"][rows[0]]), float(columns["reward"][rows[0]]))
    assert (found.columns[0].episode, found.columns[0].step) == ((9, 9), (1, 1))
    assert "reward.mean" in found.statistics
    again = a.diff(place(plain))
    assert again.same
    assert (again.columns, again.statistics, again.counts) == ((), {}, {})
    short = a.diff(a.take(5))
    assert short.counts["episodes"] == (a.n_episodes, 5)
    assert short.columns == ()
    assert not short.same
    shifted = a.diff(a.take(np.arange(1, a.n_episodes)))
    assert {c.column for c in shifted.columns} >= {"observation", "action", "reward"}
    assert shifted.columns[0].row == 0
    assert a.diff(walk(300, discrete=True)).kinds == {"action": ("float32 [2]", "int64 []")}
