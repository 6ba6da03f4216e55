"""Augmentation while training: averaged copies, stacks, resuming, online, and nowhere else."""

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from d3ray.algos import testing
from d3ray.algos.actor_critic.td3_plus_bc import TD3PlusBC
from d3ray.algos.imitation.bc import BC
from d3ray.algos.imitation.discrete_bc import DiscreteBC
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.testing import maker
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError

BOTH = ["single_amplitude_scaling", {"name": "multiple_amplitude_scaling", "minimum": 0.5, "maximum": 1.5}]


def images(discrete=True, n=60):
    rng = np.random.default_rng(2)
    action = rng.integers(0, 3, n) if discrete else rng.uniform(-1, 1, (n, 2)).astype("f4")
    seen = rng.integers(0, 256, (n, 3, 8, 8)).astype(np.uint8)
    return Dataset.from_arrays(seen, action, rng.normal(size=n).astype("f4"), np.arange(n) % 10 == 9, name="images")


@pytest.mark.parametrize("algorithm", [BC, DQN])
def test_losses_of_copies_are_averaged(algorithm):
    """The loss and every gradient on a batch of three copies are the means of those on each copy alone."""
    data = testing.data_for(maker(algorithm))
    made = maker(algorithm, dtype="float64", augmentation=BOTH, n_augmentations=3)().fit(data, 0)
    learner, batch = made.fit_.learner, made.fit_.sources.augmented(made.fit_.sampler(data)).sample(4)
    loss, name = (made.imitation_loss, "policy") if algorithm is BC else (made.critic_loss, "critic")
    whole = learner.gradients(loss, (name,), batch, learner.address(loss))
    parts = []
    for k in range(3):
        copy = pytree.tree_map(lambda part, k=k: part[16 * k : 16 * (k + 1)], batch)
        parts.append(learner.gradients(loss, (name,), copy, learner.address(loss)))
    assert len(batch.reward) == 48
    assert len({float(part[1].detach()) for part in parts}) == 3  # they are augmented apart
    torch.testing.assert_close(whole[1], torch.stack([part[1] for part in parts]).mean(), rtol=1e-13, atol=0)
    for k, gradient in enumerate(whole[0]):
        torch.testing.assert_close(gradient, torch.stack([part[0][k] for part in parts]).mean(0), rtol=1e-11, atol=1e-15)


# One of each way to draw, to wrap copies and to learn from a batch; `make test-all` has the others.
QUICK = {"AWR", "BC", "CQL", "DecisionTransformer", "DQN", "IQL", "Rainbow", "TD3PlusBC"}
EVERY = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name in algorithm_names()
    if not algorithm_class(name).goal_conditioned  # which refuse it
]


@pytest.mark.long
@pytest.mark.parametrize("name", EVERY)
def test_stacks_rows_and_resumed_runs_keep_the_contract(name):
    algorithm = algorithm_class(name)
    make = maker(
        algorithm,
        augmentation=BOTH,
        n_augmentations=2,
        observation_scaler="standard",
        reward_scaler="return_based",
        **({} if "context" in algorithm.Config.model_fields else {"td_steps": 2}),
    )
    testing.check_row_equals_single_run(make, n_steps=30)
    testing.check_resumes_bit_for_bit(make)


def test_training_sees_it_and_acting_does_not():
    data = images()
    settings = {"observation_scaler": "pixel", "batch_size": 16, "encoder": testing.SMALL}
    plain = DiscreteBC(**settings).fit(data, 5)
    shifted = DiscreteBC(**settings, augmentation=["random_shift", {"name": "intensity", "scale": 0.3}]).fit(data, 5)
    assert testing.largest_difference(plain.state()[0], shifted.state()[0])[1] > 1e-4
    seen = data.columns["observation"][:20]
    with torch.no_grad():
        by_hand = shifted.fit_.learner.modules["policy"](torch.from_numpy(seen) / 255).argmax(-1)
    assert shifted.predict(seen).tolist() == by_hand.tolist()
    assert torch.equal(  # the sampler that tools look at is not augmented either
        shifted.fit_.sampler(data).sample(3).observation, plain.fit_.sampler(data).sample(3).observation
    )


def test_an_update_is_one_of_the_augmented_source():
    data = images()
    make = maker(DQN, augmentation=["cutout", "horizontal_flip"], n_augmentations=2, observation_scaler="pixel")
    by_hand = make().fit(data, 0)
    source = by_hand.fit_.sources.augmented(by_hand.fit_.sampler(data))
    for step in range(3):
        by_hand.update(source.sample(step))
    name, gap = testing.largest_difference(by_hand.state()[0], make().fit(data, 3).state()[0])
    assert gap == 0, name


def test_online_too():
    settings = {"batch_size": 8, "encoder": testing.SMALL, "learning_rate": 1e-2, "seed": 1}
    online = {"n_steps": 12, "n_steps_per_epoch": 6, "random_steps": 40}

    def run(**more):
        return DQN(**settings, **more).fit_online("CartPole-v1", **online).state()[0]

    first = run(augmentation=BOTH, n_augmentations=2)
    assert testing.largest_difference(first, run(augmentation=BOTH, n_augmentations=2))[1] == 0
    assert testing.largest_difference(first, run())[1] > 1e-5
    assert testing.largest_difference(first, run(augmentation=BOTH))[1] > 1e-5


def test_frames_that_are_stacked_when_drawn_are_shifted_alike():
    rng = np.random.default_rng(0)
    row = np.tile(
        rng.integers(0, 256, (8, 8)).astype(np.uint8), (60, 1, 1)
    )  # the same frame throughout, without an axis of channels
    data = Dataset.from_arrays(row, np.zeros(60, int), np.zeros(60), np.arange(60) % 10 == 9)
    stacked = {"name": "uniform", "frames": 3, "frame_padding": "repeat"}
    made = maker(DiscreteBC, sampler=stacked, augmentation=["random_shift"], observation_scaler="pixel")().fit(data, 2)
    seen = made.fit_.sources.augmented(made.fit_.sampler(data)).sample(0).observation
    assert seen.shape == (16, 3, 8, 8)
    assert torch.equal(seen, seen[:, :1].expand_as(seen))
    assert len(seen.unique(dim=0)) > 5


def test_priorities_go_on_with_copies_too():
    make = maker(DQN, sampler="prioritized", augmentation=BOTH, n_augmentations=2)
    testing.check_row_equals_single_run(make, n_steps=30)
    testing.check_resumes_bit_for_bit(make)


def test_what_does_not_suit_is_refused_before_training():
    data = testing.tiny_dataset(discrete=False)
    with pytest.raises(DataError, match="'random_shift' needs images, and observations of 'tiny' have none"):
        TD3PlusBC(augmentation=["random_shift"]).fit(data, 1)
    with pytest.raises(DataError, match="'cutout' needs images, and observations of 'CartPole-v1' have none"):
        DQN(augmentation=["cutout"]).fit_online("CartPole-v1", n_steps=1)
    with pytest.raises(ConfigError, match="there is no such augmentation; did you mean 'cutout'"):
        TD3PlusBC(augmentation=["cutut"]).fit(data, 1)


def test_settings_come_back_from_a_checkpoint(tmp_path):
    from d3ray import load

    made = maker(BC, augmentation=BOTH, n_augmentations=2)().fit(testing.tiny_dataset(discrete=False), 2)
    made.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.config_.augmentation == made.config_.augmentation
    assert [a.get_type() for a in again.config_.augmentation] == ["single_amplitude_scaling", "multiple_amplitude_scaling"]
    assert again.config_.n_augmentations == 2
