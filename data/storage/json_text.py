"""JSON of files that anybody may have written."""

from __future__ import annotations

import json
from typing import Any


class TooDeepError(ValueError):
    """Arrays and objects within each other that are more than the parser can follow."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON as `json.loads`. Raises ValueError: `TooDeepError` where it nests so deep that `json` ends in a RecursionError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise TooDeepError("it nests too deep") from None
