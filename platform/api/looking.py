"""`python -m d3ray.platform.api.looking JOB`: looks at the settings on stdin where plugins may be imported, and answers in JSON."""

from __future__ import annotations

import json
import sys
from typing import cast

from ..record.jobs import JobName
from ..record.settings import Checked
from .configs import look


def main() -> None:
    """Prints what `look` gives as the last line: an object, or a list of problems."""
    found = look(json.load(sys.stdin), cast("JobName", sys.argv[1]))
    print("\n" + (found.model_dump_json() if isinstance(found, Checked) else json.dumps([one.model_dump() for one in found])))


if __name__ == "__main__":
    main()
