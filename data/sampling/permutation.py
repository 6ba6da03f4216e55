"""Permutations by arithmetic: a shuffled order of n numbers that is computed where it is looked at, and never stored."""

from __future__ import annotations

import math

from torch import Tensor

from ..random import bits_at, shift_right

ROUNDS = 8


def permute(key: Tensor, position: Tensor, n: int) -> Tensor:
    """Where the permutation of 0 … n - 1 that a key names puts each position: int64, of the broadcast shape of both.

    A Feistel network on pairs of digits to the base ⌈√n⌉, whose rounds add a hash, walked along its cycle until it lands below n
    (Black and Rogaway 2002). Its domain is less than 2√n + 1 larger than n, so hardly any number takes a second walk.
    """
    base = math.isqrt(n - 1) + 1
    value = _walk(key, position, base)
    while bool((outside := value >= n).any()):  # few are, so they alone walk on
        value[outside] = _walk(key.expand(value.shape)[outside], value[outside], base)
    return value


def _walk(key: Tensor, value: Tensor, base: int) -> Tensor:
    left, right = value // base, value % base
    for k in range(ROUNDS):
        left, right = right, (left + shift_right(bits_at(key, right * ROUNDS + k), 1) % base) % base
    return left * base + right
