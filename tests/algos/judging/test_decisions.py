"""What a policy would have done in a dataset: beside one that is asked row by row, whatever runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d3ray import BC, DQN, Dataset, DecisionTransformer, DiscreteBC
from d3ray.algos.acting.remembering import StatefulWrapper
from d3ray.algos.judging.decisions import decisions, policy_of
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError, DataError, StorageError

DATA = tiny_dataset(discrete=False)


def episodes(data: Dataset) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Observations [T + 1], actions [T], rewards [T] of each, by the rows of the columns."""
    found = []
    for first, steps in zip(data.episodes.first_row, data.episodes.steps, strict=True):
        rows = slice(int(first), int(first) + int(steps))
        found.append(
            (data.columns["observation"][rows.start : rows.stop + 1], data.columns["action"][rows], data.columns["reward"][rows])
        )
    return found


def test_decisions_are_made_at_every_observation_and_told_by_steps(tmp_path: Path) -> None:
    judged = maker(BC)(observation_scaler="standard").fit(DATA, 20, 20)
    judged.save_policy(tmp_path / "package")
    judged.save_policy(tmp_path / "policy.onnx")
    judged.save(tmp_path / "saved")
    taken = np.concatenate([judged.predict(seen[:-1]) for seen, _, _ in episodes(DATA)])
    closing = np.concatenate([judged.predict(seen[-1:]) for seen, _, _ in episodes(DATA)])
    following = np.concatenate([judged.predict(seen[1:]) for seen, _, _ in episodes(DATA)])
    for given in (judged, judged.policy(), *(str(tmp_path / name) for name in ("package", "policy.onnx", "saved"))):
        found = decisions(policy_of(given, DATA.spec), DATA)
        for ours, theirs in ((found.taken, taken), (found.closing, closing), (found.following(), following)):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
    drawable = np.maximum(found.steps - 1, 0)
    short = np.concatenate([judged.predict(seen[1:])[:k] for (seen, _, _), k in zip(episodes(DATA), drawable, strict=True)])
    np.testing.assert_allclose(found.following(drawable), short, atol=1e-6)


def test_a_policy_that_remembers_is_led_along_the_episodes_as_they_were_recorded() -> None:
    judged = maker(DecisionTransformer)(target_returns=(3.0,)).fit(DATA, 5, 5)
    found = decisions(policy_of(judged, DATA.spec), DATA)
    wanted: list[Any] = []
    for seen, action, reward in episodes(DATA):
        one = StatefulWrapper(judged.policy())
        wanted += [one.predict(x, reward=r, action=a) for x, r, a in zip(seen, (0.0, *reward), (None, *action), strict=True)]
    ends = np.cumsum(found.steps + 1) - 1
    np.testing.assert_allclose(found.closing, np.array(wanted)[ends], atol=1e-5)
    np.testing.assert_allclose(found.taken, np.delete(np.array(wanted), ends, 0), atol=1e-5)


class Scores(nn.Module):
    """What others export: a score for each action, or the action as a column."""

    def __init__(self, *, column: bool) -> None:
        super().__init__()
        self.column = column

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x[:, :3] * 2
        return scores.argmax(1, keepdim=True) if self.column else scores


class Number(nn.Module):
    """One number for each observation, as what is no action."""

    def __init__(self, scale: float, kind: torch.dtype) -> None:
        super().__init__()
        self.scale, self.kind = scale, kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.scale * torch.sigmoid(x[:, 0])).to(self.kind)


@pytest.mark.parametrize("column", [False, True])
def test_an_onnx_file_of_others_acts_by_scores_or_by_numbers(tmp_path: Path, column: bool) -> None:
    data = tiny_dataset(discrete=True)
    graph, shapes = Scores(column=column).eval(), ({0: torch.export.Dim("batch")},)
    torch.onnx.export(graph, (torch.zeros(2, 5),), tmp_path / "scores.onnx", dynamo=True, dynamic_shapes=shapes, verbose=False)
    found = decisions(policy_of(tmp_path / "scores.onnx", data.spec), data)
    wanted = np.concatenate([seen[:-1, :3].argmax(1) for seen, _, _ in episodes(data)])
    np.testing.assert_array_equal(found.taken, wanted)
    others = tiny_dataset(discrete=False, actions=2)
    with pytest.raises(ConfigError, match="of the shape"):
        decisions(policy_of(tmp_path / "scores.onnx", others.spec), others)
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    for name, said in (("broken.onnx", "onnxruntime cannot read"), ("none.onnx", "cannot be read")):
        with pytest.raises(StorageError, match=said):
            policy_of(tmp_path / name, data.spec)


@pytest.mark.long
def test_numbers_that_are_no_actions_are_refused(tmp_path: Path) -> None:
    data, shapes = tiny_dataset(discrete=True), ({0: torch.export.Dim("batch")},)
    graphs = {"share": Number(1.0, torch.float32), "large": Number(9.0, torch.int64)}
    for name, graph in graphs.items():
        told: Any = {"dynamo": True, "dynamic_shapes": shapes, "verbose": False}
        torch.onnx.export(graph.eval(), (torch.zeros(2, 5),), tmp_path / f"{name}.onnx", **told)
    with pytest.raises(ConfigError, match=r"gives a number each, such as 0\.\d+, which is no action"):
        decisions(policy_of(tmp_path / "share.onnx", data.spec), data)
    with pytest.raises(DataError, match=r"acts as nobody can in 'tiny': Actions are whole numbers from 0 to 2 here"):
        decisions(policy_of(tmp_path / "large.onnx", data.spec), data)


def test_a_policy_that_ignores_a_mask_is_refused() -> None:
    data = tiny_dataset(discrete=True, masked="some")
    knows = maker(DQN)().fit(data, 5, 5)
    assert decisions(policy_of(knows, data.spec), data).taken.shape == (len(data.columns["reward"]) - len(data.episodes),)
    ignores = maker(DiscreteBC)().fit(tiny_dataset(discrete=True), 5, 5)
    with pytest.raises(DataError, match=r"chooses an illegal action at \d+ of \d+ observations"):
        decisions(policy_of(ignores, data.spec), data)
