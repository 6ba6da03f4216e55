"""The `d3ray` command, also `python -m d3ray.jobs`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its status, or answers a shell that asks what may stand on it."""
    if (line := os.environ.get("D3RAY_COMPLETE")) is not None:
        from .command import completion

        completion.main(line)
        return
    from .command import running

    running.main(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    main()
