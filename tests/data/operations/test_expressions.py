"""Expressions: what they come to beside Python's own arithmetic, and what they refuse, each in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3ray.data.errors import ConfigError
from d3ray.data.operations.expressions import Expression

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
