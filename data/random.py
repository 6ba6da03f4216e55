"""Random numbers with addresses: a hash of (seed, purpose, step, name, position), with no state to save.

An added draw shifts no other, a stacked row draws what its seed draws alone, and a resumed run draws what an
uninterrupted one would have drawn. Two families of constants are used: `fold` derives keys and `bits` draws from them, so
that a child key is never another key's output. Everything is arithmetic on int64 tensors of fixed shape: it runs on
any device, under `torch.func.vmap`, and inside a captured graph.

Source of the mixers: splitmix64's finaliser (Steele, Lea, Flood 2014) and murmur3's (Appleby), on wrapping int64.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .seeds import CHILD as _CHILD  # an odd constant that keeps `fold(key, 0)` from being a fixed point
from .seeds import GOLDEN as _GOLDEN  # 2⁶⁴ / golden ratio, as int64: splitmix64's increment
from .seeds import MURMUR as _MURMUR
from .seeds import SPLITMIX as _SPLITMIX
from .tracing import untraced

_SHIFTS = (33, 33, 33)  # of murmur3
_WORD = 2**64 - 1
_KEPT = 2**16  # positions up to so many are kept, a list for each count


def shift_right(x: Tensor, n: int) -> Tensor:
    """Logical shift; torch's `>>` on int64 keeps the sign."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def _mix(x: Tensor, constants: tuple[int, int], shifts: tuple[int, int, int]) -> Tensor:
    x = (x ^ shift_right(x, shifts[0])) * constants[0]
    x = (x ^ shift_right(x, shifts[1])) * constants[1]
    return x ^ shift_right(x, shifts[2])


def fold(key: Tensor, data: int | str | Tensor) -> Tensor:
    """Derive a child of each key, same shape (broadcast with `data`). A name is folded by its CRC-32."""
    mixed = _mix(data + _CHILD, _MURMUR, _SHIFTS) if isinstance(data, Tensor) else _mixed(data)
    return _mix(key ^ mixed, _MURMUR, _SHIFTS)


@lru_cache(maxsize=4096)
def _mixed(data: int | str) -> int:
    """Mix a number or a name in Python's integers: on a device it would be ten launches for one constant."""
    number = zlib.crc32(data.encode()) if isinstance(data, str) else operator.index(data)
    x = (number + _CHILD) & _WORD
    for factor, shift in zip((*_MURMUR, 1), _SHIFTS, strict=True):
        x = ((x ^ x >> shift) * factor) & _WORD
    return x - (x >> 63 << 64)  # as int64


def root_key(seed: int, device: torch.device | str = "cpu") -> Tensor:
    return fold(torch.tensor(operator.index(seed), dtype=torch.int64, device=device), "seed")


def root_keys(seed: int | Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Return the key of one seed, shape (), or of S seeds, shape (S,). Integers of NumPy are seeds too."""
    return torch.stack([root_key(s, device) for s in seed]) if isinstance(seed, Iterable) else root_key(seed, device)


def bits(key: Tensor, count: int) -> Tensor:
    """Hash each key `count` times: (…,) int64 to (…, count) int64, every bit random."""
    return bits_at(key[..., None], _positions(count, key.device))


def _positions(count: int, device: torch.device) -> Tensor:
    """0 … count - 1, as numbers that lie in memory.

    Compiled, an `arange` becomes a loop's counter, and the compiler works out its product with a 64-bit constant as an index. On a
    CPU such a product overflows, which is undefined in C++: torch 2.13's programs gave other numbers, and wrote to memory beyond
    theirs. On a GPU a counter has 32 bits, and Triton refuses the constant.
    """
    if device.type == "cpu":
        return _kept_positions(count) if count <= _KEPT else torch.from_numpy(np.arange(count))
    return _positions_on(count, device)


@lru_cache(maxsize=256)
def _kept_positions(count: int) -> Tensor:
    return torch.from_numpy(np.arange(count))


@lru_cache(maxsize=256)
def _positions_on(count: int, device: torch.device) -> Tensor:
    """Keep them on the device: while a graph is captured nothing can be copied there."""
    with untraced():
        return torch.from_numpy(np.arange(count)).to(device)


def bits_at(key: Tensor, position: Tensor) -> Tensor:
    """Hash keys at given positions, as `bits` does; keys and positions broadcast."""
    return _mix(key + (position + 1) * _GOLDEN, _SPLITMIX, (30, 27, 31))


def uniform(key: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw uniformly from (0, 1), open at both ends: (…,) keys to (…, *shape)."""
    values = (shift_right(bits(key, math.prod(shape)), 11).to(torch.float64) + 0.5) * 2.0**-53
    if dtype != torch.float64:  # rounding must not reach 1
        values = values.to(dtype).clamp(max=1 - torch.finfo(dtype).eps / 2)
    return values.reshape(*key.shape, *shape)


def normal(key: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw standard normal numbers by Box and Muller, computed in float64: (…,) keys to (…, *shape)."""
    count = math.prod(shape)
    half = (count + 1) // 2
    u = uniform(key, (2 * half,), torch.float64)
    radius, angle = (-2 * u[..., :half].log()).sqrt(), 2 * math.pi * u[..., half:]
    z = torch.cat([radius * angle.cos(), radius * angle.sin()], -1)[..., :count]
    return z.to(dtype).reshape(*key.shape, *shape)


def integers(key: Tensor, count: int, high: int | Tensor) -> Tensor:
    """Draw uniformly from [0, high): (…,) keys to (…, count) int64. The bias of the remainder is below high / 2⁶³."""
    return shift_right(bits(key, count), 1) % high


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
