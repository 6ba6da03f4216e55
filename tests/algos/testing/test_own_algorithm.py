"""The algorithm of examples/own_algorithm.py, which is written from CONTRIBUTING.md alone, keeps the contract and learns."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d3ray
from d3ray.algos import registry, testing
from d3ray.data.dataset import Dataset

SCRIPT = Path(d3ray.__file__).parent / "examples" / "own_algorithm.py"


@pytest.fixture
def own() -> Iterator[Any]:
    """The class, registered while the test runs."""
    spec = importlib.util.spec_from_file_location("own_algorithm", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_algorithm"] = module
    spec.loader.exec_module(module)
    yield module.BetterBC
    del registry._registered["BetterBC"], sys.modules["own_algorithm"]


@pytest.mark.long
def test_it_keeps_the_contract(own: Any) -> None:
    testing.check_algorithm(own, onnx=False)
    assert len(SCRIPT.read_text().splitlines()) < 150


def test_its_losses_are_the_equations(own: Any) -> None:
    algorithm = testing.maker(own, temperature=0.5)(dtype="float64")
    dataset = testing.tiny_dataset(discrete=False)
    algorithm.fit(dataset, 3, 3)
    fit = algorithm.fit_
    batch, nets = fit.sampler(dataset).sample(0), fit.nets()
    with torch.no_grad():
        value, policy = nets.state_value(batch.observation).numpy(), nets.policy(batch.observation).numpy()
        target = algorithm.state()[0]["target/state_value/head.bias"]
        live = algorithm.state()[0]["live/state_value/head.bias"]
    assert not torch.equal(target, live)
    reward, discount, action = (part.numpy() for part in (batch.reward, batch.discount, batch.action))
    with torch.no_grad():
        following = fit.learner.modules["state_value"](batch.next_observation)
    nets.target = nets  # the live network in place of the target: its value is at hand
    found, _ = algorithm.value_loss(nets, batch, fit.learner._h)
    weighed, _ = algorithm.policy_loss(nets, batch, fit.learner._h)
    for i in range(len(reward)):
        advantage = reward[i] + discount[i] * float(following[i]) - value[i]
        assert float(found[i].detach()) == pytest.approx(advantage**2, rel=1e-12)
        imitation = sum((policy[i, k] - action[i, k]) ** 2 for k in range(3)) / 3
        assert float(weighed[i].detach()) == pytest.approx(imitation / (1 + np.exp(-advantage / 0.5)), rel=1e-12)


def test_it_imitates_what_was_rewarded(own: Any) -> None:
    """Half of the actions are +0.5 and rewarded with 1, half -0.5 with -1. Imitation of all scores 0, of the better half 0.5."""
    rng, n = np.random.default_rng(0), 400
    better = rng.random(n) < 0.5
    action = np.where(better, 0.5, -0.5).astype(np.float32)[:, None]
    dataset = Dataset.from_arrays(rng.normal(size=(n, 2)).astype(np.float32), action, np.where(better, 1.0, -1.0), np.ones(n, bool))
    algorithm = own(encoder={"hidden_units": [16]}, temperature=0.1, learning_rate=1e-2, batch_size=64).fit(dataset, 300, 300)
    assert algorithm.predict(dataset.columns["observation"][:50]).mean() > 0.4


@pytest.mark.slow
def test_the_script_runs(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "20"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("BetterBC keeps the contract.\nepoch 1: ")
    assert done.stdout.count("\n") == 3
