"""Between Tune and what it calls of ours: an error of ours ends the run as itself, not as a text of Tune's.

Tune turns what a callback, a searcher or a scheduler raises into a traceback, prints it, and takes it for a death of the trial that
it was about, which it then begins again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ray import tune

from ...data.errors import D3rayError, StorageError


class Guard(tune.Callback):
    """Keeps the first error of the parts that it stands before, and raises it where Tune passes errors on.

    As a context it raises what was kept, however Tune ended; and a full disk under Tune's own notes, at `place`, as a StorageError.
    """

    def __init__(self, place: str) -> None:
        self.place, self.error = place, None

    def before(self, part: Any, **calls: Any) -> Any:
        """The part, of whose methods each is guarded that is named; its value is what Tune gets where there is an error."""
        for name, instead in calls.items():
            setattr(part, name, self._guarded(getattr(part, name), instead))
        return part

    def _guarded(self, call: Callable[..., Any], instead: Any) -> Callable[..., Any]:
        def guarded(*arguments: Any, **options: Any) -> Any:
            if self.error is None:
                try:
                    return call(*arguments, **options)
                except Exception as error:
                    self.error = error
            return instead

        return guarded

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.error is not None and (error is None or isinstance(error, Exception)) and error is not self.error:
            raise self.error from None
        if isinstance(error, OSError) and not isinstance(error, D3rayError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageError(f"{self.place} cannot be written: there is no space left on its disk.") from None

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps a pickle of its callbacks, which nobody reads
