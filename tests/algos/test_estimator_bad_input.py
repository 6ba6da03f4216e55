"""What the estimator cannot use is refused in one sentence, and nothing has changed then."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d3ray
from d3ray.algos.definition import transitions
from d3ray.algos.export.package import read_package
from d3ray.algos.saving.checkpoint import read_checkpoint, write_checkpoint
from d3ray.algos.saving.loggers import CSVLogger
from d3ray.algos.saving.saving import load
from d3ray.algos.stack import Stack
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError, DataError, StorageError

CONTINUOUS, DISCRETE = tiny_dataset(discrete=False), tiny_dataset(discrete=True)
SEEN = CONTINUOUS.columns["observation"][:6]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@contextmanager
def refused(kind: type[Exception], words: str) -> Generator[None]:
    """In one sentence with these words."""
    with pytest.raises(kind, match=words) as caught:
        yield
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))


@pytest.mark.parametrize(
    "use",
    [
        lambda a: a.predict(SEEN),
        lambda a: a.sample_action(SEEN),
        lambda a: a.predict_value(SEEN, np.zeros((6, 3))),
        lambda a: a.save("nowhere"),
        lambda a: a.save_policy("nowhere.onnx"),
        lambda a: a.update(None),
        lambda a: a.observation_shape,
        lambda a: a.action_size,
        lambda a: setattr(a, "step", 3),
        lambda a: a.reset_optimizers(),
        lambda a: a.copy_from(maker(d3ray.TD3)().build_with_shapes((5,), 3), "policy"),
        lambda a: maker(d3ray.TD3)().build_with_shapes((5,), 3).copy_from(a, "critic"),
    ],
)
def test_what_is_not_trained_yet_says_so(use: Any) -> None:
    with refused(ConfigError, "This TD3 has not been trained yet: call fit, or load a saved one"):
        use(maker(d3ray.TD3)())


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda a: a.predict(np.zeros((2, 4))), r"Observations have the shape \(2, 4\); this policy takes \(batch, 5\)"),
        (lambda a: a.predict(np.zeros(4)), r"shape \(1, 4\); this policy takes \(batch, 5\)"),
        (lambda a: a.policy().step(None, np.zeros(5)), "needs a batch axis"),
        (lambda a: a.predict(np.where(SEEN > 0, np.nan, SEEN)), r"^observation is NaN or infinite in \d of 6 rows, first in row "),
        (lambda a: a.predict([0.0, 0.0, np.inf, 0.0, 0.0]), "observation is NaN or infinite in 1 of 1 rows, first in row 0"),
        (lambda a: a.sample_action(np.zeros((2, 4))), r"shape \(2, 4\)"),
        (lambda a: a.predict_value(np.zeros((2, 4)), np.zeros((2, 3))), r"shape \(2, 4\)"),
        (lambda a: a.predict_value(SEEN, np.zeros((6, 2))), r"Actions have the shape \(6, 2\); 6 observations go with \(6, 3\)"),
        (lambda a: a.predict_value(SEEN, np.zeros((5, 3))), r"Actions have the shape \(5, 3\)"),
        (lambda a: a.fit(tiny_dataset(discrete=False, observation_size=4), 1), r"has observations of shape \[4\], and this TD3"),
    ],
)
def test_other_shapes_than_those_fitted_are_refused(use: Any, message: str) -> None:
    algorithm = maker(d3ray.TD3)().fit(CONTINUOUS, 1)
    with refused(DataError, message):
        use(algorithm)


@pytest.mark.parametrize("action", [[0, 3], [-1, 0], [0.5, 1.0]])
def test_actions_that_there_are_not_have_no_value(action: Any) -> None:
    algorithm = maker(d3ray.DQN)().fit(DISCRETE, 1)
    with refused(DataError, "Actions are whole numbers from 0 to 2 here"):
        algorithm.predict_value(SEEN[:2], action)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda b: {"reward": b.reward.index_fill(0, torch.tensor([2, 4]), float("nan"))},
            "reward is NaN .* in 2 of 16 rows, first in row 2",
        ),
        (
            lambda b: {"observation": b.observation * float("inf")},
            "observation is NaN or infinite in 16 of 16 rows, first in row 0",
        ),
        (lambda b: {"next_observation": b.next_observation[:, :2]}, r"next_observation has the shape \(16, 2\); .* \(16, 5\)"),
        (lambda b: {"action": b.action[:, :1]}, r"action has the shape \(16, 1\); what was fitted takes \(16, 3\)"),
        (lambda b: {"reward": b.reward[:, None]}, r"reward has the shape \(16, 1\); what was fitted takes \(16,\)"),
        (lambda b: {"discount": b.discount[:1]}, r"discount has the shape \(1,\); what was fitted takes \(16,\)"),
        (lambda b: {"weight": torch.ones(16, 16)}, r"weight has the shape \(16, 16\); what was fitted takes \(16,\)"),
        (lambda b: {"extra": {"mine": torch.ones(())}}, r"extra/mine has the shape \(\)"),
        (lambda b: {"next_observation": None}, "lacks next_observation; what was fitted takes observation, action, "),
        (lambda b: {"observation": {"camera": b.observation}}, "lacks observation; what was fitted takes observation"),
        (lambda b: vars(b[:0]), r"has no transitions: its index has the shape \(0,\)"),
        (lambda b: {"index": torch.tensor(3)}, r"has no transitions: its index has the shape \(\)"),
    ],
)
def test_a_batch_that_cannot_be_learned_from_is_refused_and_nothing_changes(change: Any, message: str) -> None:
    algorithm = maker(d3ray.TD3)().fit(CONTINUOUS, 1)
    batch = algorithm.fit_.sampler(CONTINUOUS).sample(0)
    before = algorithm.state()[0]
    with refused(DataError, message):
        algorithm.update(type(batch)(**{**vars(batch), **change(batch)}))
    assert same(algorithm.state()[0], before)
    assert algorithm.update(batch)["critic_loss"] > 0


def test_a_batch_has_what_its_algorithm_looks_at() -> None:
    cloning = maker(d3ray.BC)().fit(CONTINUOUS, 1)
    batch = cloning.fit_.sampler(CONTINUOUS).sample(0)
    assert cloning.update(type(batch)(**{**vars(batch), "next_observation": None}))  # BC looks at no next observation

    class Asks(d3ray.TD3):
        def wants(self, config: Any) -> Any:
            return transitions(config, next_action=True, extra=("truncated",))

    asks = maker(Asks)().fit(CONTINUOUS, 1)
    asked = asks.fit_.sampler(CONTINUOUS).sample(0)
    assert asks.update(asked)["critic_loss"] > 0
    for change, message in (({"next_action": None}, "lacks next_action"), ({"extra": {}}, "lacks extra/truncated")):
        with pytest.raises(DataError, match=message):
            asks.update(type(asked)(**{**vars(asked), **change}))


def test_shapes_and_steps_are_what_they_are_called() -> None:
    for shape in (4, "4", None):
        with refused(ConfigError, r"observation_shape is .*; it is a shape"):
            maker(d3ray.TD3)().build_with_shapes(shape, 2)
    with pytest.raises(ConfigError, match=r"step is 1\.5; it counts gradient steps"):
        maker(d3ray.TD3)().build_with_shapes((4,), 2).step = 1.5


def test_nothing_is_saved_over_what_is_there_or_as_a_file(tmp_path: Path) -> None:
    algorithm, there = maker(d3ray.TD3)().fit(CONTINUOUS, 1), tmp_path / "model"
    algorithm.save(there)
    before = (there / "meta.json").read_bytes()
    with refused(ConfigError, r"model is there already: save under another name, or say overwrite=True"):
        algorithm.fit(CONTINUOUS, 1).save(there)
    assert (there / "meta.json").read_bytes() == before
    algorithm.save(there, overwrite=True)
    assert d3ray.load(there).step == 2
    for name, cure in (("model.d3", "call it 'model'"), ("model.onnx", r"save_policy, as \.onnx")):
        with pytest.raises(ConfigError, match=rf"^save writes a folder, .*{name} has the ending of a file: .*{cure}"):
            algorithm.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    maker(d3ray.TD3)().fit(CONTINUOUS, 3).save(tmp_path / "saved")
    return tmp_path / "saved"


def rewrite(folder: Path, **change: Any) -> None:
    """Writes the checkpoint again with other notes, whole as far as its manifest goes."""
    tensors, meta, _ = read_checkpoint(folder)
    names = change.pop("tensors", lambda tensors: tensors)(tensors)
    write_checkpoint(folder, names, {name: value for name, value in (meta | change).items() if value is not ...})


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda f: (f / "meta.json").write_bytes(b"{}"), StorageError, r"was damaged: meta\.json is not what was written"),
        (lambda f: (f / "tensors.safetensors").unlink(), StorageError, r"is not whole: tensors\.safetensors is missing"),
        (lambda f: (f / "manifest.json").unlink(), StorageError, "holds no checkpoint"),
        (lambda f: rewrite(f, algorithm="TD33"), ConfigError, "There is no algorithm 'TD33'; did you mean 'TD3'"),
        (lambda f: rewrite(f, algorithm=...), StorageError, "does not say 'algorithm'"),
        (lambda f: rewrite(f, state_version=9), StorageError, "The state has the version 9; this d3ray reads 1"),
        (lambda f: rewrite(f, config={"n_critic": 2}), ConfigError, "TD3 has no setting 'n_critic'; did you mean 'n_critics'"),
        (
            lambda f: rewrite(f, tensors=lambda t: {n: v for n, v in t.items() if n != "live/policy/head.bias"}),
            StorageError,
            r"TD3 has a tensor 'live/policy/head.bias' of \(3,\), and the state lacks it",
        ),
        (
            lambda f: rewrite(f, tensors=lambda t: t | {"live/policy/head.bias": torch.zeros(1)}),  # it would broadcast
            StorageError,
            r"TD3 has a tensor 'live/policy/head.bias' of \(3,\), and the state has \(1,\)",
        ),
        (
            lambda f: rewrite(f, tensors=lambda t: {n: v for n, v in t.items() if n != "optimizer/policy/head.bias:exp_avg"}),
            StorageError,
            r"The state lacks 'head.bias:exp_avg' of an optimizer of TD3",
        ),
    ],
)
def test_saved_algorithms_that_are_damaged_or_of_another_version_are_refused(
    saved: Path, damage: Any, error: Any, message: str
) -> None:
    damage(saved)
    with refused(error, message):
        d3ray.load(saved)


def test_a_model_of_another_algorithm_or_with_other_networks_is_refused(saved: Path, tmp_path: Path) -> None:
    for use in (lambda: d3ray.TD3PlusBC.load(saved), lambda: d3ray.TD3PlusBC().restore(saved)):
        with refused(ConfigError, "holds a TD3, not a TD3PlusBC"):
            use()
    other = maker(d3ray.TD3, actor_encoder={"hidden_units": [7]})().fit(CONTINUOUS, 1)
    before = other.state()[0]
    with refused(ConfigError, r"The TD3 in .*saved has other networks: 'policy/.*' is .* there and .* here"):
        other.restore(saved)
    assert same(other.state()[0], before)
    with refused(StorageError, r"There is no checkpoint '.*nothing': nothing is there\.$"):
        d3ray.load(tmp_path / "nothing")
    with pytest.raises(StorageError, match=r"There is no checkpoint '.*savd'; did you mean 'saved'\?$"):
        d3ray.load(tmp_path / "savd")
    with pytest.raises(StorageError, match=r"There is no policy package '.*savd'; did you mean 'saved'\?$"):
        read_package(tmp_path / "savd")
    (tmp_path / "policy.onnx").touch()
    with pytest.raises(StorageError, match=r"policy.onnx is a file, and a policy package is a folder\.$"):
        read_package(tmp_path / "policy.onnx")
    with pytest.raises(StorageError, match=r"There is no file '.*model.d3'\.$"):
        d3ray.load(tmp_path / "model.d3")


@pytest.mark.parametrize(
    "asked", [{"n_steps": n} for n in (0, 1.5, np.inf, np.nan, "10")] + [{"n_steps": 5, "n_steps_per_epoch": 0}]
)
def test_a_count_of_steps_that_cannot_be_is_told_alone(asked: dict[str, Any]) -> None:
    name, value = list(asked.items())[-1]
    with refused(ConfigError, rf"^{name} is {value!r}; it counts gradient steps and must be"):
        maker(d3ray.DQN)().fit_online("CartPole-v1", **asked)
    if asked["n_steps"] != 0:  # by which networks are made and nothing is trained
        with refused(ConfigError, rf"^{name} is {value!r}; it counts gradient steps and must be"):
            maker(d3ray.TD3)().fit(CONTINUOUS, **asked)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: no such file or directory"),
        ("{", "is no JSON"),
        ("[]", "does not hold the settings"),
        ("{}", "does not say 'algorithm'"),
    ],
)
def test_params_that_are_none_are_refused(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "params.json"
    if content is not None:
        file.write_text(content)
    with refused(StorageError, message):
        d3ray.DQN.from_params(file)


def test_params_of_another_algorithm_are_refused(tmp_path: Path) -> None:
    maker(d3ray.TD3)().fit(CONTINUOUS, 1, logger=CSVLogger(tmp_path))
    with pytest.raises(ConfigError, match=r"params\.json holds a TD3, not a DQN"):
        d3ray.DQN.from_params(tmp_path / "params.json")


@pytest.mark.parametrize("seed", [1.5, "a", None, -1, 1 << 63])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    for use in (lambda: d3ray.BC(seed=seed), lambda: d3ray.BC().set_params(seed=seed), lambda: Stack(d3ray.BC(), (1, seed))):
        with refused(ConfigError, r"seed is .*; it is a whole number from 0 to 2\*\*63 - 1"):
            use()


def test_a_stack_takes_several_seeds() -> None:
    with pytest.raises(ConfigError, match=r"seeds is 4; a stack takes several, as range\(4\)"):
        Stack(d3ray.BC(), 4)  # pyright: ignore[reportArgumentType]


def test_seeds_of_numpy_are_numbers_too(tmp_path: Path) -> None:
    stack = Stack(maker(d3ray.BC)(), np.arange(2)).fit(CONTINUOUS, 3)  # pyright: ignore[reportArgumentType]
    stack.seed(1).save(tmp_path / "row")
    alone = maker(d3ray.BC)(seed=np.int64(1)).fit(CONTINUOUS, 3)
    np.testing.assert_allclose(load(tmp_path / "row").predict(SEEN), alone.predict(SEEN), atol=1e-5)


@pytest.mark.parametrize(("data", "what"), [(3, "a int"), ([1], "a list")])
def test_data_are_a_dataset_or_its_episodes(data: Any, what: str) -> None:
    with refused(DataError, f"Data are a Dataset, .*, or a list of its episodes, not {what}"):
        d3ray.BC().fit(data, 1)


def test_every_dataset_is_checked_for_the_range_of_its_actions() -> None:
    made = maker(d3ray.TD3)().fit(CONTINUOUS, 1)
    with pytest.raises(DataError, match=r"actions of 'tiny' lie from .* to .*: set action_scaler='min_max'"):
        made.fit(tiny_dataset(discrete=False, reach=5.0), 1)


@pytest.mark.parametrize("several", [False, True])
def test_a_fit_that_is_not_told_for_how_long_says_so_first(several: bool) -> None:
    one = maker(d3ray.BC)()
    made: Any = Stack(one, (0, 1)) if several else one
    with pytest.warns(UserWarning, match=r"^BC: n_steps is not given, so it trains for 500,000 gradient steps"):
        next(iter(made.fitter(CONTINUOUS, n_steps_per_epoch=2)))
    assert made.step == 2
