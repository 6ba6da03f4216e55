"""Memory of the host that a trial's process keeps for its next update, in place of giving it back each time.

A process that is a user's own is left as it is: what is freed there may be wanted by others.

glibc returns what is freed at the end of its heap to the kernel as soon as it is twice its largest block, and has blocks of more
than 32 MiB come and go on their own. The activations of a large batch are such blocks, so each update waits for the kernel to clear
the same pages again: 19,000 in one of CQL's with 7,936 rows, which took 79 ms with them and 54 without; 190,000 in one of a stack
of four seeds, 140 ms a seed with them and 73 without (two cores, 256 × 256).
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt(3), as <malloc.h> numbers them
_KEPT = 2**31 - 1  # bytes at the end of the heap, the most that mallopt takes


@cache
def keep_freed_memory() -> None:
    """From now on freed memory, up to 2 GiB at the end of the heap, stays with the process. Without glibc nothing is done."""
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_MAX, 0)
