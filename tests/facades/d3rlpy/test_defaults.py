"""d3rlpy 2.8.1's defaults, recorded by `tests/algos/saving/record_d3.py`, are what its configs mean here without arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from d3ray.algos.registry import algorithm_class
from d3ray.d3rlpy.settings import ALGORITHMS, settings_for

CONFIGS: dict[str, Any] = json.loads((Path(__file__).parent / "d3_files/configs.json").read_text())


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_is_not_said_is_d3rlpys_default(kind: str) -> None:
    name = "FQE" if kind == "fqe" else ALGORITHMS[kind]
    cls = algorithm_class(name)

    def checked(params: dict[str, Any]) -> Any:
        made = cls(**settings_for(kind, name, params)).get_params()
        return cls.Config.checked({field: made[field] for field in cls.Config.model_fields}, title=name)

    assert checked(CONFIGS[kind]) == checked({})


def test_every_algorithm_is_among_them() -> None:
    assert CONFIGS.keys() == {*ALGORITHMS, "fqe"}
