"""Packages that many tests act by."""

from __future__ import annotations

from pathlib import Path

import pytest

from .packages import write_policy


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


@pytest.fixture(scope="session")
def discrete(folder: Path) -> Path:
    """Three actions, of which a mask may say which are legal; with values."""
    return write_policy("DQN", folder / "dqn")


@pytest.fixture(scope="session")
def other(folder: Path) -> Path:
    """The same spaces as the discrete one's, other networks."""
    return write_policy("DQN", folder / "other", seed=5)


@pytest.fixture(scope="session")
def continuous(folder: Path) -> Path:
    """Three numbers within ± 1; with values."""
    return write_policy("TD3PlusBC", folder / "td3")


@pytest.fixture(scope="session")
def looks_back(folder: Path) -> Path:
    """Acts for a return, on its latest steps."""
    return write_policy("DecisionTransformer", folder / "transformer")


@pytest.fixture(scope="session")
def draws(folder: Path) -> Path:
    """Always draws its actions."""
    return write_policy("IDQL", folder / "idql")
