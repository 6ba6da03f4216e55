"""Seeds with addresses, on plain integers: the keys and draws of `random`, number for number, where torch is not wanted.

Acting from a policy package needs no torch, and the seed of an environment's reset is not worth a tensor.
"""

from __future__ import annotations

import operator
import zlib
from typing import Any

import numpy as np

from .errors import ConfigError

# As int64, for torch; here they wrap to the same 64 bits. `random` says where they come from.
GOLDEN = -7046029254386353131
SPLITMIX = (-4658895280553007687, -7723592293110705685)
MURMUR = (-49064778989728563, -4265267296055464877)
CHILD = 7109453100751455733

_MASK = (1 << 64) - 1


def _mix(x: int, constants: tuple[int, int], shifts: tuple[int, int, int]) -> int:
    x &= _MASK
    x = (x ^ (x >> shifts[0])) * constants[0] & _MASK
    x = (x ^ (x >> shifts[1])) * constants[1] & _MASK
    return x ^ (x >> shifts[2])


def checked_seed(seed: Any) -> int:
    """Convert a seed to a plain integer, NumPy's integers too. Raises ConfigError for what is none from 0 to 2⁶³ - 1."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise ConfigError(f"seed is {seed!r}; it is a whole number from 0 to 2**63 - 1.")
    return number


def fold(key: int, data: int | str) -> int:
    """Derive a child of a key, as `random.fold`. A name is folded by its CRC-32."""
    if isinstance(data, str):
        data = zlib.crc32(data.encode())
    return _mix(key ^ _mix(data + CHILD, MURMUR, (33, 33, 33)), MURMUR, (33, 33, 33))


def root_key(seed: int) -> int:
    """Return the key of a seed, as `random.root_key`."""
    return fold(operator.index(seed), "seed")


def integers(key: int, count: int, high: int) -> list[int]:
    """Draw uniformly from [0, high), as `random.integers`."""
    return [(_mix(key + position * GOLDEN, SPLITMIX, (30, 27, 31)) >> 1) % high for position in range(1, count + 1)]


def many_integers(key: int, count: int, high: int) -> np.ndarray:
    """Draw as `integers` does, for so many that a list would be slow: int64 [count]."""
    (first, second), bits = (np.array(SPLITMIX, np.int64).view(np.uint64), np.arange(1, count + 1, dtype=np.uint64))
    bits = bits * np.int64(GOLDEN).view(np.uint64) + np.uint64(key)
    bits = (bits ^ (bits >> np.uint64(30))) * first
    bits = (bits ^ (bits >> np.uint64(27))) * second
    return ((bits ^ (bits >> np.uint64(31))) >> np.uint64(1)).astype(np.int64) % high
