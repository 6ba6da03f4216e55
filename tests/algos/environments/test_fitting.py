"""In which environments recorded steps may have been taken."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import pytest

from d3ray.algos.environments import fitting
from d3ray.algos.environments.spaces import spec_of


@pytest.mark.parametrize("name", fitting._MUJOCO)
def test_the_spaces_of_mujoco_are_as_they_are_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)  # MuJoCo logs there
    environment = gymnasium.make(name)
    told, observation, action = fitting._known()[name]
    assert (told, observation, action) == (spec_of(environment), environment.observation_space, environment.action_space)
    environment.close()


def test_looking_for_what_fits_prints_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    fitting._known.cache_clear()
    assert "HalfCheetah-v5" in fitting._known()
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
