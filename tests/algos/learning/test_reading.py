"""How many files a reader of one gradient step goes through: few, so that the arithmetic can be followed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import d3ray
from d3ray.algos import TD3PlusBC
from d3ray.algos.testing import maker, tiny_dataset


def test_a_gradient_step_of_td3_plus_bc_reads_through_twelve_files() -> None:
    algorithm = maker(TD3PlusBC)(device="cpu").fit(tiny_dataset(discrete=False), 4, 4, show_progress=False)
    root, files = f"{Path(d3ray.__file__).parent}/", set[str]()

    def look(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(root) and "/site-packages/" not in file:
            files.add(file.removeprefix(root))

    source = algorithm.fit_.sources.opened
    sys.setprofile(look)
    try:
        for _ in range(2):  # the second one steps the policy and the targets too
            algorithm.fit_.update(source)
    finally:
        sys.setprofile(None)
    files.discard("tests/algos/learning/test_reading.py")
    assert {"algos/actor_critic/td3_plus_bc.py", "algos/learning/learner.py"} <= files
    assert len(files) <= 12, sorted(files)
