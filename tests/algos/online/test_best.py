"""The best policy so far of an online run, beside its checkpoints."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import d3ray
from d3ray import DQN
from d3ray.algos.saving.checkpoint import checkpoints, read_checkpoint
from d3ray.data.errors import ConfigError

SCORES = [3.0, math.nan, 5.0, 4.0, 5.0, 6.0, math.inf, 2.0]  # of epochs 1 and on; the best by then: 1 1 3 3 3 6 6 6


def dqn(**settings):
    return DQN(**{"encoder": {"hidden_units": (16, 16)}, "batch_size": 8, "seed": 3, **settings})


def scored(algorithm, epoch):
    return {"score": SCORES[epoch - 1], "other": -epoch}


def epochs(folder, n_steps=40, **more):
    named = {"evaluators": {"mine": scored}, "checkpoint": folder, "save_best": "mine/score", "resume": True, **more}
    return dqn().fitter_online("CartPole-v1", n_steps=n_steps, n_steps_per_epoch=5, **named)


def best_epoch(folder):
    return read_checkpoint(folder / "best")[1]["best"]["epoch"]


def test_the_best_so_far_is_kept(tmp_path):
    kept = []
    for _ in epochs(tmp_path, save_interval=4):
        kept.append(best_epoch(tmp_path))
    assert kept == [1, 1, 3, 3, 3, 6, 6, 6]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "step-000000020", "step-000000040"]
    best = d3ray.load(tmp_path / "best")
    whole = dqn().fit_online("CartPole-v1", n_steps=30, n_steps_per_epoch=5)
    assert best.step == 30
    for name, tensor in whole.state()[0].items():
        assert torch.equal(best.state()[0][name], tensor), name
    with pytest.raises(ConfigError, match="holds a run already"):
        epochs(tmp_path, resume=False).__next__()


@pytest.mark.parametrize("stop", range(1, 8))
def test_a_run_that_is_gone_on_from_knows_its_best(stop, tmp_path):
    """Interrupted after any epoch, of which only every third has a checkpoint."""
    begun = epochs(tmp_path, save_interval=3)
    list(itertools.islice(begun, stop))
    begun.close()
    (tmp_path / ".tmp-best-ab12").mkdir()  # what a killed process was writing
    at = len(checkpoints(tmp_path)) and int(checkpoints(tmp_path)[-1].name[-2:]) // 5
    kept = {}
    for epoch, _ in epochs(tmp_path, save_interval=3):
        kept[epoch] = best_epoch(tmp_path)
    assert list(kept) == list(range(at + 1, 9))
    assert kept[8] == 6
    ahead = 6 if stop >= 6 and at else 3 if stop >= 3 else 1  # it may know what it will come to again
    assert all(best in (after, ahead) for best, after in zip(kept.values(), [1, 1, 3, 3, 3, 6, 6, 6][at:], strict=True))
    assert not list(tmp_path.glob(".tmp-*"))


def test_what_cannot_be_the_best_is_one_sentence(tmp_path):
    for more, message in (
        ({"save_best": "mne/score"}, "save_best is 'mne/score', and no evaluator has this name; did you mean 'mine'"),
        ({"save_best": "mine/scor"}, "save_best is 'mine/scor', which was not evaluated; did you mean 'mine/score'"),
        ({"evaluators": None}, "no evaluator has this name: give eval_env, which is 'evaluation'"),
        ({"checkpoint": None, "resume": False}, "save_best needs a folder to keep the best in: name it"),
    ):
        with pytest.raises(ConfigError, match=message):
            list(epochs(tmp_path, **more))
    list(epochs(tmp_path, 5))
    with pytest.raises(ConfigError, match=r"best was chosen by 'mine/score', not by 'mine/other': name the same"):
        list(epochs(tmp_path, 10, save_best="mine/other"))
