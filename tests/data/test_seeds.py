import subprocess
import sys

import pytest

from d3ray.data import random, seeds


@pytest.mark.parametrize("seed", [0, 1, -3, 12345, 2**62])
def test_seeds_are_the_tensors_numbers(seed: int) -> None:
    slow = random.fold(random.fold(random.root_key(seed), "evaluation episode"), 7)
    quick = seeds.fold(seeds.fold(seeds.root_key(seed), "evaluation episode"), 7)
    assert int(slow) % 2**64 == quick
    assert random.integers(slow, 9, 2**31 - 1).tolist() == seeds.integers(quick, 9, 2**31 - 1)


def test_evaluation_imports_no_torch() -> None:
    code = "import sys, d3ray.algos.environments.evaluate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
