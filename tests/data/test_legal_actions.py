"""The column `action_mask`: how data carry which actions were legal, what is refused, and what batches have of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray import Dataset, MDPDataset, ReplayBuffer
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.exporters.registry import EXPORTERS
from d3ray.data.formats.registry import read
from d3ray.data.masks import Masked
from d3ray.data.sampling import Mixture, SequenceSampler, TransitionSampler
from d3ray.data.spec import Box, Discrete, Spec

N, A = 60, 4
RNG = np.random.default_rng(0)
MASK = RNG.random((N, A)) < 0.5
MASK[np.arange(N), np.arange(N) % A] = True
FINAL = np.eye(A, dtype=bool)[[0, 1, 2, 3, 0, 1]]
ACTION = np.array([RNG.choice(np.flatnonzero(row)) for row in MASK])
ARRAYS: dict[str, Any] = {
    "observations": RNG.normal(size=(N, 3)).astype(np.float32),
    "actions": ACTION,
    "rewards": RNG.normal(size=N),
    "terminated": np.arange(N) % 20 == 9,
    "truncated": np.arange(N) % 20 == 19,
    "final_observations": RNG.normal(size=(6, 3)).astype(np.float32),
}


def masked_dataset(**more: Any) -> Dataset:
    return Dataset.from_arrays(**{**ARRAYS, "action_mask": MASK, "final_action_mask": FINAL, **more})


def test_datasets_carry_the_mask_through_folders_views_and_joins(tmp_path: Path) -> None:
    dataset = masked_dataset()
    assert dataset.spec.action_mask
    assert dataset.spec.n_actions == A
    for same in (dataset.write(tmp_path / "log"), Dataset.open(tmp_path / "log"), dataset.relabel("reward * 2")):
        masks = [np.asarray(episode.action_masks) for episode in same.episodes]
        np.testing.assert_array_equal(np.concatenate([mask[:-1] for mask in masks]), MASK)
        np.testing.assert_array_equal([mask[-1] for mask in masks], FINAL)
        assert same.spec.action_mask
    joined = Dataset.concat([dataset, Dataset.open(tmp_path / "log").take([5, 1])])
    assert joined.spec.action_mask
    np.testing.assert_array_equal(joined.columns["action_mask"][-11:-1], MASK[10:20])
    with pytest.raises(DataError, match="Column 'action_mask' is uint8 \\[4\\] in the first and missing in number 2"):
        Dataset.concat([dataset, Dataset.from_arrays(**ARRAYS)])
    assert "action_mask" not in Dataset.from_arrays(**ARRAYS).spec.model_dump()  # what knows no mask is written as it was


def test_a_mask_may_be_a_key_an_argument_or_a_further_column() -> None:
    wanted = masked_dataset().fingerprint
    keys = {"observations": {"observation": ARRAYS["observations"], "action_mask": MASK}}
    keys |= {"final_observations": {"observation": ARRAYS["final_observations"], "action_mask": FINAL.astype(np.int64)}}
    assert Dataset.from_arrays(**{**ARRAYS, **keys}).fingerprint == wanted
    further = {"extra": {"action_mask": MASK.astype(float), "final_action_mask": FINAL}}
    assert Dataset.from_arrays(**ARRAYS, **further).fingerprint == wanted
    following = np.zeros((N, A))
    following[9::10] = FINAL
    assert Dataset.from_arrays(**ARRAYS, extra={"action_mask": MASK, "next_action_mask": following}).fingerprint == wanted
    plain = MDPDataset(
        ARRAYS["observations"], ACTION, ARRAYS["rewards"], ARRAYS["terminated"], ARRAYS["truncated"], action_mask=MASK
    )
    np.testing.assert_array_equal(np.asarray(plain.action_mask), MASK)
    assert all(np.asarray(episode.action_masks)[-1].all() for episode in plain)  # what is not told is legal
    plain.append(ARRAYS["observations"], ACTION, ARRAYS["rewards"], ARRAYS["terminated"], action_mask=MASK)
    assert len(np.asarray(plain.action_mask)) == 2 * N
    assert MDPDataset.from_episodes(list(plain)).spec.action_mask


ILLEGAL = ACTION.copy()
ILLEGAL[[17, 30, 31]] = MASK[[17, 30, 31]].argmin(1)
NONE = MASK.copy()
NONE[5] = False


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"actions": ILLEGAL}, f"action {ILLEGAL[17]} of row 17 is illegal by its action_mask, as are those of 2 more rows"),
        ({"action_mask": NONE}, "action_mask has no legal action in row 5"),
        ({"action_mask": MASK[:-1]}, "action_mask has 59 rows; 60 are needed, one a step"),
        ({"action_mask": MASK[:, 0]}, r"action_mask is bool of shape \[60\]; one flag an action is needed"),
        ({"action_mask": 2 * MASK}, "action_mask is .* in row 0; flags are 0 or 1"),
        ({"action_mask": MASK[:, :2], "final_action_mask": None}, "action_mask is of 2 actions, 0 to 1, and there is action 3"),
        ({"final_action_mask": FINAL[:, :2]}, "action_mask is of 4 actions and that of what follows of 2"),
        ({"final_action_mask": 0 * FINAL}, "the mask after the last step has no legal action in episode 1"),  # 0 terminated
        ({"action_mask": None}, "there is a final_action_mask and no action_mask"),
        ({"actions": RNG.normal(size=(N, 2))}, "action_mask is for discrete actions, one integer a step, and these are others"),
        ({"spec": Spec(observation=Box(shape=(3,)), action=Discrete(n=6))}, "has 6 actions and the data has an action_mask of 4"),
    ],
)
def test_bad_masks_are_refused_in_a_sentence(more: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        masked_dataset(**more)


def test_a_spec_with_a_mask_needs_discrete_actions_and_illegal_actions_a_known_word() -> None:
    with pytest.raises(ConfigError, match="an action_mask goes with discrete actions, and these are continuous"):
        Spec.checked({"observation": Box(shape=(3,)), "action": Box(shape=(2,)), "action_mask": True})
    with pytest.raises(ConfigError, match="illegal_actions is 'drop'; choose 'refuse' or 'keep'"):
        masked_dataset(illegal_actions="drop")


@pytest.mark.parametrize("td_steps", [1, 3])
def test_batches_have_the_masks_of_both_observations_for_every_seed(td_steps: int) -> None:
    """Beside a loop over steps; what was done counts as legal where it was done, though the log says otherwise."""
    dataset = masked_dataset(actions=ILLEGAL, illegal_actions="keep")
    batch = TransitionSampler(dataset, 64, [3, 4], td_steps=td_steps).sample(2)
    for row in range(2):
        alone = TransitionSampler(dataset, 64, [3, 4][row], td_steps=td_steps).sample(2)
        for seen, single in ((batch.observation, alone.observation), (batch.next_observation, alone.next_observation)):
            assert isinstance(seen, Masked)
            assert seen.action_mask.dtype == torch.bool
            assert torch.equal(seen.action_mask[row], single.action_mask)
        for b, t in enumerate(alone.index.tolist()):
            end = t - t % 10 + 10
            after = FINAL[t // 10] if t + td_steps >= end else MASK[t + td_steps]
            here = MASK[t] | (np.arange(A) == ILLEGAL[t])
            np.testing.assert_array_equal(alone.observation.action_mask[b].numpy(), here)
            np.testing.assert_array_equal(alone.next_observation.action_mask[b].numpy(), after)
            np.testing.assert_array_equal(alone.observation.observation[b].numpy(), ARRAYS["observations"][t])


def test_stretches_have_masks_and_mixtures_agree_on_them() -> None:
    dataset = masked_dataset()
    drawn = SequenceSampler(dataset, 16, 4, 0, next_observation=True).sample(0)
    for b, t in enumerate(drawn.index.tolist()):
        steps = min(t % 10 + 1, 4)
        np.testing.assert_array_equal(drawn.observation.action_mask[b, -steps:].numpy(), MASK[t - steps + 1 : t + 1])
        assert not drawn.observation.action_mask[b, :-steps].any()
    with pytest.raises(ConfigError, match="A mixture needs samplers whose sources all have an action_mask, or none of them"):
        Mixture([TransitionSampler(dataset, 4), TransitionSampler(Dataset.from_arrays(**ARRAYS), 4)], [1, 1])


def test_replay_buffers_keep_masks() -> None:
    """A buffer that was given the episodes of a dataset draws the same, and becomes the same dataset."""
    dataset = masked_dataset()
    buffer = ReplayBuffer(100, dataset.spec)
    ends = dict(zip(range(9, N, 10), range(6), strict=True))
    for t in range(N):
        final = (
            {"final_observation": ARRAYS["final_observations"][ends[t]], "final_action_mask": FINAL[ends[t]]} if t in ends else {}
        )
        flags = bool(ARRAYS["terminated"][t]), bool(ARRAYS["truncated"][t])
        buffer.add(ARRAYS["observations"][t], ACTION[t], ARRAYS["rewards"][t], *flags, action_mask=MASK[t], **final)
    assert buffer.to_dataset().fingerprint == dataset.fingerprint
    batch, rows = buffer.sampler(32, 5, td_steps=2).sample(1), dataset.columns["action_mask"]
    place = batch.index.numpy()
    after = np.minimum(place + 2, place - place % 11 + 10)
    np.testing.assert_array_equal(batch.observation.action_mask.numpy(), rows[place])
    np.testing.assert_array_equal(batch.next_observation.action_mask.numpy(), rows[after])
    buffer.add({"observation": ARRAYS["observations"][0], "action_mask": MASK[0]}, ACTION[0], 0.0)
    buffer.add(ARRAYS["observations"][0], 3, 0.0)  # where a mask is not told all actions are legal
    np.testing.assert_array_equal(buffer.columns["action_mask"][buffer.current_episode()], [MASK[0], np.ones(A)])
    with pytest.raises(DataError, match="action_mask has no legal action in row 0"):
        buffer.add(ARRAYS["observations"][0], 3, 0.0, action_mask=np.zeros(A))


@pytest.mark.parametrize("format", ["npz", "parquet", "d4rl", "minari"])
def test_formats_carry_masks_there_and_back(tmp_path: Path, format: str) -> None:
    dataset, target = masked_dataset(), tmp_path / {"npz": "a.npz", "parquet": "a.parquet", "d4rl": "a.hdf5"}.get(format, "a")
    assert EXPORTERS[format].write(dataset, target) == []
    found = read(target)
    again = Dataset.from_steps(found.steps, name="again", spec=found.spec)
    assert (again.fingerprint, again.spec.action_mask) == (dataset.fingerprint, True)


def test_csv_and_rllib_tell_masks_as_columns_and_keys(tmp_path: Path) -> None:
    names = [f"action_mask:{k}" for k in range(A)]
    rows = [["episode", "observation:0", "action", "reward", *names]]
    rows += [[t // 10, t, ILLEGAL[t], 1, *MASK[t].astype(int)] for t in range(N)]
    (tmp_path / "log.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    with pytest.raises(DataError, match=f"log.csv, action {ILLEGAL[17]} of row 17 is illegal by its action_mask"):
        read(tmp_path / "log.csv")
    steps = read(tmp_path / "log.csv", illegal_actions="keep").steps
    np.testing.assert_array_equal(steps.columns["action_mask"][~steps.columns["closing"]], MASK)
    seen = {"observations": ARRAYS["observations"].tolist(), "action_mask": MASK.astype(float).tolist()}
    batch = {"type": "SampleBatch", "actions": ACTION.tolist(), "rewards": [1.0] * N, "dones": [False] * N, "eps_id": [1] * N}
    (tmp_path / "log.json").write_text(json.dumps({**batch, "obs": seen, "t": list(range(N))}))
    columns = read(tmp_path / "log.json").steps.columns
    np.testing.assert_array_equal(columns["action_mask"][:N], MASK)
    np.testing.assert_allclose(columns["observation"][:N], ARRAYS["observations"])
