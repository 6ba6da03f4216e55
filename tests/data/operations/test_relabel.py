"""Other rewards beside a loop over steps, by expressions that come to what Python's own arithmetic does, whatever the shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3ray import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.operations import relabelled
from d3ray.data.operations.expressions import Expression
from d3ray.data.operations.relabelled import TRANSFORMS, Reward

from .derived import by_blocks, check, listed, walk

Slow = Callable[[dict[str, np.ndarray], int], float]
CASES: list[tuple[Reward, Slow]] = [
    ("reward - 1", lambda e, t: e["reward"][t] - 1),
    ("-abs(next_observation[2]) + 0.5 * action[1]", lambda e, t: -abs(e["observation"][t + 1, 2]) + 0.5 * e["action"][t, 1]),
    ("success", lambda e, t: float(e["terminated"][t])),
    ("cost-to-goal", lambda e, t: float(e["terminated"][t]) - 1),
    ("delayed", lambda e, t: e["reward"].sum(dtype=np.float64) if t == len(e["reward"]) - 2 else 0),
    ("sign", lambda e, t: np.sign(e["reward"][t])),
    ("clip", lambda e, t: np.clip(e["reward"][t], -1, 1)),
    ("step / steps", lambda e, t: t / (len(e["reward"]) - 1)),
    (
        lambda s, a, n, r: (n - s).sum(1) + a[:, 0] * r,
        lambda e, t: (e["observation"][t + 1] - e["observation"][t]).sum() + e["action"][t, 0] * e["reward"][t],
    ),
    (
        lambda observation, terminated, return_: observation[:, 0] * terminated + return_,
        lambda e, t: e["observation"][t, 0] * e["terminated"][t] + e["reward"].sum(dtype=np.float64),
    ),
]


def relabelled_by_hand(slow: Slow) -> list[dict[str, np.ndarray]]:
    episodes = listed(walk())
    for episode in episodes:
        rewards = [slow(episode, t) for t in range(len(episode["reward"]) - 1)]
        episode["reward"] = np.array([*rewards, 0], np.float32)
    return episodes


@pytest.mark.parametrize("case", range(len(CASES)))
def test_relabel_beside_a_loop(case: int) -> None:
    reward, slow = CASES[case]
    found = walk().relabel(reward)
    for a, b in zip(by_blocks(found), relabelled_by_hand(slow), strict=True):
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-5)
    assert found.episodes.returns == pytest.approx([e["reward"].sum(dtype=np.float64) for e in listed(found)])


@pytest.mark.parametrize("case", [1, 4, 8])
def test_relabel_wherever_the_data_lie(place: Callable[[Dataset], Dataset], tmp_path: Path, case: int) -> None:
    reward, slow = CASES[case]
    data, expected = place(walk()), relabelled_by_hand(slow)
    found = data.relabel(reward)
    for a, b in zip(by_blocks(found), expected, strict=True):
        np.testing.assert_allclose(a["reward"], b["reward"], rtol=1e-5, atol=1e-5)
        b["reward"] = a["reward"]
    check(found, expected, tmp_path / "all")
    some = [expected[k] for k in _order(data)]
    check(found.filter("steps > 5").shuffle(2), some, tmp_path / "some")
    check(data.filter("steps > 5").shuffle(2).relabel(reward), some, tmp_path / "other")
    assert data.columns["reward"].tolist() == walk().columns["reward"].tolist()


def _order(data: Dataset) -> list[int]:
    """Which episodes `filter("steps > 5").shuffle(2)` leaves."""
    starts = data.episodes.first_row.tolist()
    return [starts.index(row) for row in data.filter("steps > 5").shuffle(2).episodes.first_row.tolist()]


def test_relabel_sees_named_observations_and_further_columns(place: Callable[[Dataset], Dataset]) -> None:
    n = 50
    rng = np.random.default_rng(0)
    seen, more = (
        {"joint": rng.normal(size=(n, 2)), "image": rng.integers(0, 9, (n, 2, 2, 1), np.uint8)},
        {"info/x": np.arange(n * 1.0)},
    )
    data = place(Dataset.from_arrays(seen, rng.integers(0, 3, n), rng.normal(size=n), rng.random(n) < 0.2, extra=more))
    rows = data.episodes.transition_rows()
    joint = data.columns["observation/joint"]
    text = data.relabel("action + next_observation['joint'][1] * info['x']").columns["reward"][rows]
    expected = data.columns["action"][rows] + joint[rows + 1, 1].astype(np.float64) * data.columns["info/x"][rows]
    np.testing.assert_allclose(text, expected, rtol=1e-6)
    found = data.relabel(lambda observation, action, next_observation, reward: next_observation["image"].sum((1, 2, 3)))
    np.testing.assert_array_equal(found.columns["reward"][rows], data.columns["observation/image"][rows + 1].sum((1, 2, 3)))


def test_a_function_sees_the_same_rows_together_whatever_the_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relabelled, "_BLOCK_BYTES", 1 << 10)
    data = walk(3000)

    def rank(reward: np.ndarray) -> np.ndarray:
        """Depends on what comes together, as rounding in a network does."""
        return np.argsort(np.argsort(reward, kind="stable"), kind="stable")

    prints = set()
    for k in (1, 4, 9):
        opened = data.write(tmp_path / f"{k}", n_shards=k)
        for shards in (1, 3):
            prints.add(opened.relabel(rank).write(tmp_path / f"{k}-{shards}", n_shards=shards).fingerprint)
    prints.add(data.relabel(rank).fingerprint)
    assert len(prints) == 1


def test_a_relabelled_folder_shares_every_other_column(tmp_path: Path) -> None:
    data = walk(300).write(tmp_path / "it")
    found = data.relabel("reward * 2")
    assert np.shares_memory(found.columns["observation"], data.columns["observation"])
    assert not found.columns["reward"].flags.owndata  # mapped
    assert not found.columns["reward"].flags.writeable
    assert list((tmp_path / "it").iterdir()) != []


def test_every_transform_is_an_expression() -> None:
    for name in TRANSFORMS:
        assert walk(50).relabel(name).statistics.reward


VALUES = {
    "return": np.array([-2.0, 0.0, 3.5, 100.0]),
    "steps": np.array([1, 2, 3, 50]),
    "terminated": np.array([True, False, True, False]),
    "observation": np.arange(12.0).reshape(4, 3),
}
KNOWN = [*VALUES, "info"]

_leaf = st.sampled_from(["return", "steps", "terminated", "1", "2.5", "0.5", "observation[1]"])
_number = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda a: f"(-{a})"),
        inner.map(lambda a: f"abs({a})"),
        st.tuples(inner, inner).map(lambda p: f"max({p[0]}, {p[1]})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} > 1 else {p[2]})"),
    ),
    max_leaves=8,
)
_condition = st.recursive(
    st.tuples(_number, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), _number).map(" ".join),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})"),
        inner.map(lambda a: f"not ({a})"),
    ),
    max_leaves=5,
)


@given(_condition)
def test_it_is_what_python_makes_of_each_row(text: str) -> None:
    found = Expression(text, KNOWN).condition(VALUES, 4)
    for k in range(4):
        row = {"steps": int(VALUES["steps"][k]), "terminated": bool(VALUES["terminated"][k]), "r": float(VALUES["return"][k])}
        row |= {"observation": VALUES["observation"][k].tolist(), "abs": abs, "max": max}
        assert found[k] == eval(text.replace("return", "r"), {"__builtins__": {}}, row), text


def test_rules_of_its_own() -> None:
    def value(text: str) -> list[float]:
        return np.broadcast_to(Expression(text, KNOWN)(VALUES), (4,)).tolist()

    assert value("1 < steps <= 3") == [False, True, True, False]
    assert value("terminated * 10 - terminated") == [9, 0, 9, 0]
    assert value("min(steps, 3, 2)") == [1, 2, 2, 2]
    assert value("steps ** 0.5 * sqrt(steps)") == pytest.approx([1, 2, 3, 50])
    assert value("7 // 2 + 7 % 4 + -1") == [5] * 4
    assert value("sign(return) + exp(0) + log(1)") == [0, 1, 2, 2]
    assert value("10 ** 10 ** 10") == [np.inf] * 4  # at once
    assert value("1 / (return - return)") == [np.inf] * 4
    assert value("True and not terminated") == [False, True, False, True]
    assert Expression("return_x" if False else "return > steps", KNOWN).names == {"return", "steps"}
    parts = {"info/goal": np.arange(8.0).reshape(4, 2), "info/x": np.ones(4)}
    assert Expression('info["goal"][1] + info["x"]', KNOWN)(parts).tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is no expression: "),
        ("return >", "'return >' is no expression: invalid syntax."),
        ("retrun > 1", "'retrun > 1': there is no 'retrun'; did you mean 'return'?"),
        ("__import__('os').system('true') > 0", "is not allowed in an expression."),
        ("steps.__class__ == 1", "'steps.__class__ == 1': 'steps.__class__' is not allowed in an expression."),
        ("(lambda: 1)() > 0", "is not allowed in an expression."),
        ("[steps for steps in steps]", "is not allowed in an expression."),
        ("open('x') > 1", "there is no function 'open'; "),
        ("abs(steps, steps) > 1", "abs takes one number."),
        ("max(steps) > 1", "max takes two numbers or more."),
        ("max(steps, key=steps) > 1", "is not allowed in an expression."),
        ("steps == 'many'", "\"steps == 'many'\": 'many' is text; an expression is made of numbers."),
        ("observation[3] > 1", "'observation[3] > 1': there is no observation[3]; its subscript goes from 0 to 2."),
        ("steps[0] > 1", "'steps[0] > 1': there is no steps[0]; it is a single number."),
        ("observation['joint'] > 1", "has no keys; subscripts are whole numbers."),
        ("info['gaol'] > 1", "there is no info['gaol']; did you mean 'goal'?"),
        ("info > 1", "info has parts; write info['goal']."),
        ("steps", "'steps' is a number, not a condition; compare it with something, as in 'return > 100'."),
        ("steps and terminated", "takes a number for a condition; compare it with something, as in 'return > 100'."),
        ("not steps", "takes a number for a condition"),
        ("steps in terminated", "is not allowed in an expression."),
        ("steps > 1 if 1 else 2", "takes a number for a condition"),
        ("(steps := 3) > 1", "is not allowed in an expression."),
        ("f'{steps}' > 1", "is not allowed in an expression."),
        ("-" * 500 + "1 > 0", "is nested too deeply."),
        ("(" * 300 + "1" + ")" * 300, ""),
        ("steps > " + "1" * 3000, "The expression has 3,008 letters; 2,000 are the most."),
        ("steps > " + "9" * 400, "has a number that is too large."),
        ("steps > 1j", "is not allowed in an expression."),
        ("steps > 1\nsteps", "is no expression"),
        ("steps\0 > 1", "is no expression"),
    ],
)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    values = {**VALUES, "info/goal": np.zeros((4, 2)), "info/x": np.zeros(4)}
    with pytest.raises(ConfigError) as error:
        Expression(text, KNOWN).condition(values, 4)
    assert sentence in str(error.value)
    assert "return_" not in str(error.value)
