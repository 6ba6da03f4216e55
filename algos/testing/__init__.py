"""The contract that every algorithm keeps, as named checks: `check_algorithm(MyAlgorithm)` gives a user's own the same tests.

Each check is a sentence about an algorithm; what it raises says where to look.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.dataset import Dataset
from ...data.errors import ConfigError, DataError
from ...data.random import normal, root_key, uniform
from ..base import Algorithm
from ..checkpoint import read_checkpoint
from ..learner import Learner, Loss
from ..networks.encoders import VectorEncoder
from ..stack import Stack

Make = Callable[..., Algorithm]  # (**run) -> an algorithm with the settings under test
Check = Callable[[Make], None]
SMALL = VectorEncoder(hidden_units=(16, 16))


class ContractError(AssertionError):
    """An algorithm breaks the contract; the message says which part, by how much, and where to look."""


def tiny_dataset(*, discrete: bool, n: int = 400, observation_size: int = 5, actions: int = 3) -> Dataset:
    """Random transitions in episodes of 1 to 20 steps with every kind of end; the same at every call."""

    def draw(name: int, shape: tuple[int, ...]) -> np.ndarray:
        return normal(root_key(name), shape).numpy()

    chance = uniform(root_key(9), (n, 2)).numpy()
    end = chance[:, 0] < 1 / 8
    end[19::20] = True
    terminated = end & (chance[:, 1] < 0.6)
    action = (chance[:, 1] * 1e4 % actions).astype(np.int64) if discrete else np.tanh(draw(2, (n, actions)))
    following = draw(4, (n, observation_size))
    finals = following[np.flatnonzero(end | (np.arange(n) == n - 1))]
    return Dataset.from_arrays(
        draw(1, (n, observation_size)), action, draw(3, (n,)), terminated, end & ~terminated, final_observations=finals, name="tiny"
    )


def maker(algorithm: type[Algorithm], **settings: Any) -> Make:
    """Makes `algorithm` with small networks and `settings`; arguments of a call come on top."""
    fields = algorithm.Config.model_fields
    small: dict[str, Any] = {name: SMALL for name in fields if name.endswith("encoder") and name != "share_encoder"} | {
        "batch_size": 16
    }
    if "target_update_interval" in fields and fields["target_update_interval"].default is not None:
        small["target_update_interval"] = 7  # so that the copy happens within a check
    return lambda **run: algorithm(**{**small, **settings, **run})


def check_algorithm(algorithm: type[Algorithm], **settings: Any) -> None:
    """Runs every check. Raises ContractError at the first that fails."""
    for check in CHECKS:
        check(maker(algorithm, **settings))


def data_for(make: Make) -> Dataset:
    """The tiny dataset of the right kind of actions."""
    return tiny_dataset(discrete=make().actions == "discrete")


def largest_difference(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> tuple[str, float]:
    """The tensor where two states differ most, and by how much; infinite where one has other names or a value is NaN."""
    if a.keys() != b.keys():
        return min(a.keys() ^ b.keys()), float("inf")
    gaps = {
        name: float((a[name].double() - b[name].double()).abs().nan_to_num(nan=float("inf")).max()) for name in a if a[name].numel()
    }
    worst = max(gaps, key=gaps.__getitem__)
    return worst, gaps[worst]


# ---- the checks


def check_settings_are_described(make: Make) -> None:
    """Every setting has a description, every preset a source and settings that are accepted; the signature shows the defaults."""
    algorithm = make()
    for name, field in algorithm.Config.model_fields.items():
        if not field.description:
            raise ContractError(f"{algorithm.name}: the setting {name!r} has no description.")
    for name, preset in algorithm.presets.items():
        if not preset.source:
            raise ContractError(f"{algorithm.name}: the preset {name!r} does not say where its values come from.")
        type(algorithm).from_preset(name).check_settings()
    shown = inspect.signature(type(algorithm).__init__).parameters
    if missing := [name for name in algorithm.Config.model_fields if name not in shown]:
        raise ContractError(f"{algorithm.name}: the constructor's signature lacks {missing}.")


def check_settings_round_trip(make: Make) -> None:
    """Settings come back from JSON and from get_params as they went; unknown ones are refused."""
    algorithm = make(seed=3)
    config = algorithm.check_settings()
    if type(config).model_validate_json(config.model_dump_json()) != config:
        raise ContractError(f"{algorithm.name}: its config does not come back from JSON as it went.")
    twin = type(algorithm)(**algorithm.get_params())
    if twin.get_params() != algorithm.get_params():
        raise ContractError(f"{algorithm.name}: a clone made from get_params() differs.")
    for attempt in (lambda: make(no_such_setting=1), lambda: algorithm.set_params(no_such_setting=1)):
        try:
            attempt()
        except ConfigError:
            continue
        raise ContractError(f"{algorithm.name} accepts a setting that it does not have.")


def check_refuses_other_actions(make: Make) -> None:
    """Data with the other kind of actions are refused before anything is trained."""
    algorithm = make()
    try:
        algorithm.fit(tiny_dataset(discrete=algorithm.actions == "continuous"), n_steps=1)
    except DataError:
        return
    raise ContractError(f"{algorithm.name} trains on actions of the wrong kind.")


def check_learns_something(make: Make) -> None:
    """Every trained network moves within 20 updates, stays finite, and losses are reported by name."""
    algorithm, dataset = make(), data_for(make)
    algorithm.fit(dataset, n_steps=0)
    algorithm.fit_.sampler(dataset)
    before = algorithm.state()[0]
    epochs = list(algorithm.fitter(dataset, n_steps=20, n_steps_per_epoch=20))
    after = algorithm.state()[0]
    for name in algorithm.fit_.learner.networks:
        mine = [n for n in before if n.startswith(f"live/{name}/")]
        if all(torch.equal(before[n], after[n]) for n in mine):
            raise ContractError(f"{algorithm.name}: the network {name!r} never moves; does a kind in the schedule minimise it?")
    if bad := [name for name, tensor in after.items() if not tensor.isfinite().all()]:
        raise ContractError(f"{algorithm.name}: {bad[0]!r} is not finite after 20 updates.")
    if not [name for name in epochs[-1].metrics if name.startswith("train/") and name.endswith("_loss")]:
        raise ContractError(f"{algorithm.name} reports no loss: {sorted(epochs[-1].metrics)}.")


def check_row_equals_single_run(make: Make, n_steps: int = 300) -> None:
    """Row k of a stack learns what seed k learns alone: float64, every tensor of the state within 2e-14."""
    dataset, seeds = data_for(make), (3, 4, 5)
    stack = Stack(make(dtype="float64"), seeds).fit(dataset, n_steps)
    for k, seed in enumerate(seeds):
        alone = make(dtype="float64", seed=seed).fit(dataset, n_steps)
        name, gap = largest_difference(stack.seed(k).state()[0], alone.state()[0])
        if not gap <= 2e-14:  # so that NaN fails too
            raise ContractError(
                f"{alone.name}: row {k} of the stack differs from seed {seed} alone by {gap:.1e} in {name!r}. "
                "Look for a draw outside nets.noise, a sum over the stack, or a shape that counts seeds."
            )


def check_one_update_in_float32(make: Make) -> None:
    """From equal state one update's losses and gradients of a row are those of its single run: float32, 1e-5 of the norm."""
    dataset, seeds = data_for(make), (3, 4)
    stack = Stack(make(), seeds).fit(dataset, n_steps=0)
    stacked = recorded_gradients(stack.fit_.learner, stack.fit_.sampler(dataset))
    for k, seed in enumerate(seeds):
        alone = make(seed=seed).fit(dataset, n_steps=0)
        for name, whole in recorded_gradients(alone.fit_.learner, alone.fit_.sampler(dataset)).items():
            gap = float((stacked[name][k] - whole).norm() / whole.norm().clamp(min=1e-12))
            if not gap <= 1e-5:
                raise ContractError(
                    f"{alone.name}: in float32 row {k}'s {name} differs from its single run's by {gap:.1e} of its norm."
                )


def check_resumes_bit_for_bit(make: Make) -> None:
    """Saved after 15 updates, loaded and trained 15 more is the same, to the last bit, as 30 in one go."""
    dataset = data_for(make)
    with tempfile.TemporaryDirectory() as folder:
        make(seed=1).fit(dataset, 15, 10).save(Path(folder) / "saved")
        tensors, meta, _ = read_checkpoint(Path(folder) / "saved")
    resumed = make(seed=1).load_state(tensors, meta).fit(dataset, 15, 10)
    name, gap = largest_difference(resumed.state()[0], make(seed=1).fit(dataset, 30, 10).state()[0])
    if gap != 0:
        raise ContractError(
            f"{resumed.name}: a resumed run differs by {gap:.1e} in {name!r}. Look for state outside learner.state()."
        )


def check_update_reads_no_value(make: Make) -> None:
    """Every loss runs on meta tensors, stacked: nothing reads a value, so nothing waits for the device and shapes are fixed."""
    dataset = data_for(make)
    stack = Stack(make(), (3, 4)).fit(dataset, n_steps=0)
    learner = stack.fit_.learner
    alone = make().fit(dataset, n_steps=0)
    calls = recorded_calls(alone.fit_.learner, alone.fit_.sampler(dataset), updates=20)

    def to_meta(tree: Any) -> Any:
        return pytree.tree_map(lambda t: t.to("meta") if isinstance(t, Tensor) else t, tree)

    batch = to_meta(stack.fit_.sampler(dataset).sample(0))
    learner.live, learner.buffers, learner.target, learner.hyper = map(
        to_meta, (learner.live, learner.buffers, learner.target, learner.hyper)
    )
    for loss, names in calls.values():
        try:
            gradients, *_ = learner.gradients(loss, names, batch, to_meta(learner.address(loss)))
        except Exception as error:
            raise ContractError(
                f"{stack.algorithm.name}.{loss.__name__} reads a value or makes a shape from one ({error}). "
                "Look for .item(), if on a tensor, a boolean mask, or a tensor made on the CPU."
            ) from error
        if not all(g.is_meta for g in gradients):
            raise ContractError(f"{stack.algorithm.name}.{loss.__name__} gives gradients that were made on another device.")


def check_predictions(make: Make) -> None:
    """Predictions have the data's shape and kind for 1 and 7 observations; a lone observation is refused in one sentence."""
    dataset = data_for(make)
    algorithm = make(observation_scaler="standard").fit(dataset, n_steps=2)
    shape = dataset.spec.action.shape
    for count in (1, 7):
        action = algorithm.predict(dataset.columns["observation"][:count])
        if action.shape != (count, *shape):
            raise ContractError(f"{algorithm.name}.predict gives the shape {action.shape} for {count} observations.")
    if algorithm.actions == "discrete" and not np.issubdtype(action.dtype, np.integer):
        raise ContractError(f"{algorithm.name}.predict gives discrete actions of type {action.dtype}.")
    if algorithm.actions == "continuous" and not (np.abs(action) <= 1 + 1e-6).all():
        raise ContractError(f"{algorithm.name}.predict leaves [-1, 1].")
    try:
        algorithm.predict(dataset.columns["observation"][0])
    except DataError:
        return
    raise ContractError(f"{algorithm.name}.predict takes an observation without a batch axis.")


CHECKS: tuple[Check, ...] = (
    check_settings_are_described,
    check_settings_round_trip,
    check_refuses_other_actions,
    check_learns_something,
    check_row_equals_single_run,
    check_one_update_in_float32,
    check_resumes_bit_for_bit,
    check_update_reads_no_value,
    check_predictions,
)


# ---- looking into an update


def recorded_calls(learner: Learner, source: Any, updates: int) -> dict[str, tuple[Loss, tuple[str, ...]]]:
    """Every loss that runs within some updates, by name, with the networks that it trains. The learner is trained by it."""
    calls: dict[str, tuple[Loss, tuple[str, ...]]] = {}
    original = learner.minimise

    def spy(loss: Loss, network: str | tuple[str, ...], batch: Any) -> None:
        calls.setdefault(loss.__name__, (loss, (network,) if isinstance(network, str) else network))
        original(loss, network, batch)

    learner.minimise = spy
    try:
        for _ in range(updates):
            learner.update(source.sample(learner.step))
    finally:
        del learner.minimise
    return calls


def recorded_gradients(learner: Learner, source: Any) -> dict[str, Tensor]:
    """Losses and gradients by name at the learner's present state, every loss on the batch of step 0; nothing is stepped."""
    state, step = learner.state(), learner.step
    calls = recorded_calls(learner, source, updates=20)
    learner.load_state(state, step)
    found: dict[str, Tensor] = {}
    for name, (loss, names) in calls.items():
        gradients, value, *_ = learner.gradients(loss, names, source.sample(0), learner.address(loss))
        found[f"{name}'s value"] = value.detach()
        for i, gradient in enumerate(gradients):
            found[f"{name}'s gradient {i}"] = gradient.detach()
    return found
