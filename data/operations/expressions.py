"""Small expressions over named arrays, such as `return > 100 and steps >= 50`: parsed, checked, and worked out by arrays.

Numbers, names, `+ - * / // % **`, comparisons (chained ones too), `and`, `or`, `not`, `A if CONDITION else B`, subscripts of names
by whole numbers or quoted keys, and the functions of `FUNCTIONS`. Nothing is ever executed as Python: an expression is a tree of
these and nothing else. Numbers are float64, so `10 ** 10 ** 10` is infinite, not slow.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ..errors import ConfigError, did_you_mean

_LONGEST = 2000  # letters
_DEEPEST = 100  # nested operations; Python recurses
_RETURN = "return_"  # a keyword of Python, and the name that everybody expects here

FUNCTIONS: dict[str, tuple[int, int, Callable[..., Any]]] = {  # the fewest and the most arguments, and what it does to arrays
    "abs": (1, 1, np.abs),
    "sign": (1, 1, np.sign),
    "sqrt": (1, 1, np.sqrt),
    "exp": (1, 1, np.exp),
    "log": (1, 1, np.log),
    "min": (2, 9, lambda *values: np.minimum.reduce(np.broadcast_arrays(*values))),
    "max": (2, 9, lambda *values: np.maximum.reduce(np.broadcast_arrays(*values))),
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class Expression:
    """A parsed expression over names that are known. Raises ConfigError, which names the nearest name."""

    def __init__(self, text: str, known: Collection[str]) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise ConfigError(f"The expression has {len(text):,} letters; {_LONGEST:,} are the most.")
        try:
            self._tree = ast.parse(re.sub(r"\breturn\b", _RETURN, text.strip()), mode="eval").body
            self.names = _check(self._tree, text, known)
        except (SyntaxError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{text!r} is no expression: {_why(error)}.") from None
        except (RecursionError, MemoryError):
            raise ConfigError(f"{text[:40]!r} … is nested too deeply.") from None

    def __call__(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Work it out for arrays [n] (or [n, …] where it has subscripts) by name: an array, or one number for all."""
        with np.errstate(all="ignore"):
            return np.asarray(self._work_out(self._tree, values))

    def condition(self, values: Mapping[str, np.ndarray], n: int) -> np.ndarray:
        """Work it out to [n] bool. Raises ConfigError where it is a number."""
        found = self(values)
        if found.dtype != np.bool_:
            raise ConfigError(f"{self.text!r} is a number, not a condition; compare it with something, as in 'return > 100'.")
        return np.broadcast_to(found, (n,)).copy()

    def _work_out(self, node: ast.expr, values: Mapping[str, np.ndarray]) -> Any:  # noqa: PLR0911 - a case for each kind of node
        match node:
            case ast.Constant(value=bool() as value):
                return np.bool_(value)
            case ast.Constant(value=value):
                return np.float64(value)  # pyright: ignore[reportArgumentType] - a number: `_check` has seen to it
            case ast.Name(id=name):
                return self._value(_said(name), values)
            case ast.Subscript(value=of, slice=ast.Constant(value=key)):
                return self._entry(node, self._part(of, values), key)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~self._truth(self._work_out(operand, values))
            case ast.UnaryOp(op=op, operand=operand):
                value = _number(self._work_out(operand, values))
                return -value if isinstance(op, ast.USub) else value
            case ast.BinOp(left=left, op=op, right=right):
                return _ARITHMETIC[type(op)](_number(self._work_out(left, values)), _number(self._work_out(right, values)))
            case ast.BoolOp(op=op, values=parts):
                truths = [self._truth(self._work_out(part, values)) for part in parts]
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return join.reduce(np.broadcast_arrays(*truths))
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self._work_out(side, values) for side in (left, *others)]
                found = [_COMPARE[type(op)](a, b) for op, a, b in zip(ops, sides, sides[1:], strict=False)]
                return np.logical_and.reduce(np.broadcast_arrays(*found))
            case ast.IfExp(test=test, body=body, orelse=other):
                truth = self._truth(self._work_out(test, values))
                return np.where(truth, _number(self._work_out(body, values)), _number(self._work_out(other, values)))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return FUNCTIONS[name][2](*(_number(self._work_out(argument, values)) for argument in arguments))
            case _:
                raise AssertionError(ast.dump(node))

    def _value(self, name: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
        if name not in values:
            keys = [key.removeprefix(f"{name}/") for key in values if key.startswith(f"{name}/")]
            raise ConfigError(f"{self.text!r}: {name} has parts; write {name}[{keys[0] if keys else '...'!r}].")
        return values[name]

    def _part(self, node: ast.expr, values: Mapping[str, np.ndarray]) -> Any:
        """Return what a subscript looks into: an array, or the arrays of a dict."""
        match node:
            case ast.Name(id=name) if name not in values:
                return {key.removeprefix(f"{name}/"): value for key, value in values.items() if key.startswith(f"{name}/")}
            case ast.Subscript(value=of, slice=ast.Constant(value=key)):
                return self._entry(node, self._part(of, values), key)
            case _:
                return self._work_out(node, values)

    def _entry(self, node: ast.expr, of: Any, key: Any) -> Any:
        what = _said(ast.unparse(node))
        if isinstance(of, dict):
            if key not in of:
                raise ConfigError(f"{self.text!r}: there is no {what}{did_you_mean(str(key), of)}")
            return of[key]
        if isinstance(key, str):
            raise ConfigError(f"{self.text!r}: {what} has no keys; subscripts are whole numbers.")
        if of.ndim < 2 or not -of.shape[1] <= key < of.shape[1]:
            size = "is a single number" if of.ndim < 2 else f"goes from 0 to {of.shape[1] - 1}"
            raise ConfigError(f"{self.text!r}: there is no {what}; its subscript {size}.".replace("its subscript is", "it is"))
        return of[:, key]

    def _truth(self, value: Any) -> Any:
        if np.asarray(value).dtype != np.bool_:
            raise ConfigError(f"{self.text!r} takes a number for a condition; compare it with something, as in 'return > 100'.")
        return np.asarray(value)


def _number(value: Any) -> Any:
    """Convert to float64, flags to 0 and 1, so that every operation has a meaning and none overflows."""
    return np.asarray(value, np.float64)


def _check(tree: ast.expr, text: str, known: Collection[str]) -> frozenset[str]:  # noqa: PLR0912 - a case for each kind of node
    """Collect the names in a tree, and refuse what is not allowed."""
    if _depth(tree) > _DEEPEST:
        raise RecursionError
    names: set[str] = set()
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if id(node) in functions:
                if name not in FUNCTIONS:
                    raise ConfigError(f"{text!r}: there is no function {name!r}{did_you_mean(name, FUNCTIONS)}")
            case ast.Name(id=name):
                if _said(name) not in known:
                    raise ConfigError(f"{text!r}: there is no {_said(name)!r}{did_you_mean(_said(name), known)}")
                names.add(_said(name))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                fewest, most, _ = FUNCTIONS.get(name, (0, len(arguments), None))  # one that is not known is named above
                if not fewest <= len(arguments) <= most:
                    raise ConfigError(f"{text!r}: {name} takes {'one number' if most == 1 else 'two numbers or more'}.")
            case ast.Subscript(slice=ast.Constant(value=int() | str()), value=ast.Name() | ast.Subscript()):
                pass
            case ast.Constant(value=int() | float() | bool() | str()):
                pass
            case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
                pass
            case ast.Compare(ops=ops) if all(type(op) in _COMPARE for op in ops):
                pass
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd()) | ast.IfExp():
                pass
            case ast.expr():
                raise ConfigError(f"{text!r}: {_said(ast.unparse(node))!r} is not allowed in an expression.")
            case _:
                pass  # operators and contexts, which their nodes have been asked about
    _check_texts(tree, text)
    return frozenset(names)


def _depth(tree: ast.expr) -> int:
    level: list[ast.AST] = [tree]
    depth = 0
    while level and depth <= _DEEPEST:
        level, depth = [child for node in level for child in ast.iter_child_nodes(node)], depth + 1
    return depth


def _check_texts(tree: ast.expr, text: str) -> None:
    """Refuse quoted text that is no key in a subscript, and whole numbers that fit no float."""
    keys = {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in keys:
            if isinstance(node.value, str):
                raise ConfigError(f"{text!r}: {node.value!r} is text; an expression is made of numbers.")
            try:
                float(node.value)  # pyright: ignore[reportArgumentType] - a number by now
            except OverflowError:
                raise ConfigError(f"{text!r} has a number that is too large.") from None


def _said(name: str) -> str:
    return re.sub(rf"\b{_RETURN}\b", "return", name)


def _why(error: Exception) -> str:
    reason = str(getattr(error, "msg", error)).rstrip(".")
    return _said(reason[:1].lower() + reason[1:]) or "it cannot be read"
