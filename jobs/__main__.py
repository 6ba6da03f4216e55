"""The `d3ray` command, also `python -m d3ray.jobs`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .command import completion


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its status, or answers a shell that asks what may stand on it."""
    if (line := os.environ.get(completion.VARIABLE)) is not None:
        completion.main(line)
        return
    from .command.application import run  # slow beside an answer

    run(sys.argv[1:] if arguments is None else arguments, ends_process=arguments is None)


if __name__ == "__main__":
    main()
