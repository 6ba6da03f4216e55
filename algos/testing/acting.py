"""Checks of what is predicted: its shape, its range, its units, and that an export says the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.dataset import Dataset
from ...data.episodes import observations_of
from ...data.errors import D3rayError
from ...data.masks import masked
from ...data.operations.goals import GOAL, SEEN
from ..base import Algorithm
from ..export.golden import BATCHES
from ..export.graphs import onnx_bytes, portable, torchscript_bytes
from ..ports import noises
from ..stack import Stack
from .alternatives import other_floats
from .errors import ContractError, Make, check, largest_difference, live
from .tiny import answers, counts_costs, data_for, looks_back, shown, tiny_arrays, values_alone

REACH = 2.0  # of raw actions where they are scaled


@check
def check_predictions(make: Make) -> None:
    """Predictions have the data's shape and kind, repeat, do not depend on their neighbours; a single observation has one."""
    dataset = data_for(make)
    algorithm = make(observation_scaler="standard").fit(dataset, n_steps=2)
    name, shape, observation = algorithm.name, dataset.spec.action.shape, dataset.columns["observation"][:7]
    if values_alone(algorithm):
        value = algorithm.predict_value(shown(algorithm, observation), dataset.columns["action"][:7])
        if value.shape != (7,):
            raise ContractError(f"{name}.predict_value gives the shape {value.shape} for 7 observations.")
    if not algorithm.acts():
        return
    said, predict = next(iter(answers(algorithm).items()))
    action = predict(observation)
    for count in (1, 7):
        if (found := predict(observation[:count])).shape != (count, *shape):
            raise ContractError(f"{name}.{said} gives the shape {found.shape} for {count} observations.")
    if algorithm.actions == "discrete" and not np.issubdtype(action.dtype, np.integer):
        raise ContractError(f"{name}.{said} gives discrete actions of type {action.dtype}.")
    if not np.array_equal(action, predict(observation)):
        raise ContractError(f"{name}.{said} gives two answers: `act` is greedy where its noise is not given, and draws nothing.")
    alone = np.concatenate([predict(row[None]) for row in observation])
    if not (np.allclose(alone, action, atol=1e-5) or noises(algorithm.ports_, exploring=False)):  # each row has noise of its own
        raise ContractError(f"{name}.{said} depends on the other observations of the batch.")
    if said == "predict" and (found := np.asarray(predict(observation[0]))).shape != shape:
        raise ContractError(f"{name}.{said} gives the shape {found.shape} for a single observation; an action has {shape}.")


@check
def check_actions_stay_in_their_space(make: Make) -> None:
    """Greedy and drawn actions are in the data's space however far the observation is: scaled in [-1, 1], or 0 … n - 1."""
    algorithm, observation, action = _trained(make)
    if algorithm.actions == "discrete":
        low, high = np.zeros(1), np.full(1, algorithm.spec_.n_actions - 1.0)
    else:
        low, high = (action.min(0), action.max(0)) if _scalers(make).get("action_scaler") else (-np.ones(1), np.ones(1))
    far, slack = 1e3 * np.concatenate([observation, -observation]), 1e-5 * (high - low)
    for said, act in answers(algorithm).items():
        given = act(far)
        if not ((low - slack <= given) & (given <= high + slack)).all():
            raise ContractError(
                f"{algorithm.name}.{said} leaves the space of actions: it gives {given.min():.4g} to {given.max():.4g}, "
                f"and actions lie in {low.min():.4g} to {high.max():.4g}. What `act` gives is in [-1, 1], or 0 … n - 1."
            )


@check
def check_row_acts_by_its_own_coefficients(make: Make) -> None:
    """A row of a stack acts, draws and values with its own coefficients, as its seed alone does, not with its stack's: to 1e-6."""
    row = other_floats(make)
    if not (wrong := _answered_otherwise(make, row)):
        return
    read = [name for name, value in row.items() if wrong == _answered_otherwise(make, {name: value})]
    raise ContractError(
        f"{make().name}: {wrong} of a row of a stack is not that of its settings alone{f': it is in {read[0]!r}' if read else ''}. "
        "Read coefficients where it acts, draws or values, as self.fit_.coefficients(), not where its networks are built."
    )


def _answered_otherwise(make: Make, row: dict[str, float]) -> str:
    """Name what a row with these coefficients answers otherwise than its seed alone; "" where nothing is."""
    dataset = data_for(make)
    stacked = Stack(make(dtype="float64"), (3, 4), [{}, row]).fit(dataset, 5, 5).seed(1)
    alone = make(dtype="float64", seed=4, **row).fit(dataset, 5, 5)
    observation, action = (dataset.columns[column][:8] for column in ("observation", "action"))
    pairs = zip(_asked(stacked, observation, action).items(), _asked(alone, observation, action).values(), strict=True)
    return next((said for (said, found), wanted in pairs if not np.allclose(found, wanted, 1e-6, 1e-6)), "")


def _asked(algorithm: Algorithm, observation: np.ndarray, action: np.ndarray) -> dict[str, np.ndarray]:
    found = {said: answer(observation) for said, answer in answers(algorithm).items()}
    if values_alone(algorithm):
        found["predict_value"] = algorithm.predict_value(shown(algorithm, observation), action)
    if type(algorithm).log_prob is not Algorithm.log_prob and algorithm.stochastic and not looks_back(algorithm):
        found["policy().log_prob"] = algorithm.policy().log_prob(observation, action)
    return found


@check
def check_scalers_act_once(make: Make) -> None:
    """A scaler does what scaling the data beforehand does, in training and predicting alike: it acts everywhere, and once."""
    scalers, aimed = _scalers(make), make().goal_conditioned
    arrays = _raw_arrays(make)
    algorithm = make(dtype="float64", **scalers).fit(_dataset(arrays), 5, 5)
    observation, config = arrays["observations"][:16].astype(np.float64), algorithm.config_
    wanted = next(iter(answers(algorithm).values()))(observation) if algorithm.acts() else None
    for scaler in scalers:
        fitted = getattr(config, scaler)

        def scaled(
            array: np.ndarray, fitted: Any = fitted, *, aimed: bool = aimed and scaler == "observation_scaler"
        ) -> np.ndarray:
            array = array.astype(np.float64)
            return (fitted.transform({SEEN: array, GOAL: array})[SEEN] if aimed else fitted.transform(array)).numpy()

        parts = {"observation_scaler": ("observations", "final_observations"), "action_scaler": ("actions",)}.get(
            scaler, ("rewards",)
        )
        beforehand = _dataset(arrays | {part: scaled(arrays[part]) for part in parts})
        twin = make(dtype="float64", **{**scalers, scaler: None}).fit(beforehand, 5, 5)
        name, gap = largest_difference(live(algorithm.state()[0]), live(twin.state()[0]))
        if not gap <= 1e-9:
            raise ContractError(
                f"{algorithm.name}: with the {scaler} {name!r} is trained to something else (by {gap:.1e}) than on data that were "
                "scaled beforehand. Batches are scaled already: losses scale nothing."
            )
        if wanted is None:
            continue
        found = next(iter(answers(twin).values()))(scaled(observation) if scaler == "observation_scaler" else observation)
        found = fitted.reverse_transform(found).numpy() if scaler == "action_scaler" else found
        if not np.allclose(found, wanted, atol=1e-9):
            raise ContractError(
                f"{algorithm.name}.predict scales otherwise than the {scaler} does: `act` is given scaled observations and gives "
                "scaled actions, and nothing else needs to scale."
            )


@check
def check_export_acts_as_predict(make: Make, *, onnx: bool = True) -> None:
    """The exported policy, scalers inside, acts as `predict` does: as TorchScript, and as ONNX in onnxruntime (a second or two)."""
    algorithm = _trained(make)[0]
    if not algorithm.acts():
        return
    try:
        policy = portable(algorithm.policy())
        for write in (torchscript_bytes, onnx_bytes) if onnx else (torchscript_bytes,):
            write(policy)  # compares what it wrote with golden actions
    except D3rayError as error:
        raise ContractError(f"{algorithm.name}: {error}") from error
    if looks_back(algorithm):
        return  # `predict` is refused, and `portable` has compared the whole graph
    if noises(algorithm.ports_, exploring=False):
        return  # golden noise is not that of `predict`, and `portable` has compared the graph
    for n in BATCHES:
        inputs = {name.removeprefix(f"batch_{n}/"): a for name, a in policy.golden.items() if name.startswith(f"batch_{n}/")}
        seen = masked(observations_of(inputs, slice(None)), inputs.get("action_mask"))
        if not np.allclose(algorithm.predict(seen), inputs["action"], atol=policy.tolerance):
            raise ContractError(
                f"{algorithm.name}: its exported policy acts otherwise than predict. All that predict does has to be in `act`."
            )


def _scalers(make: Make) -> dict[str, Any]:
    fields = make().Config.model_fields
    values: dict[str, Any] = {
        "observation_scaler": "standard",
        "action_scaler": "min_max",
        "reward_scaler": {"name": "multiply", "multiplier": 0.5},
    }
    return {name: value for name, value in values.items() if name in fields}


def _raw_arrays(make: Make) -> dict[str, Any]:
    arrays = tiny_arrays(make().actions == "discrete", reach=REACH, costs=counts_costs(make()))
    return arrays | {part: 4 * arrays[part] + 3 for part in ("observations", "final_observations")}


def _dataset(arrays: dict[str, Any]) -> Dataset:
    return Dataset.from_arrays(**arrays, keep_float64=True, name="tiny")


def _trained(make: Make) -> tuple[Algorithm, np.ndarray, np.ndarray]:
    dataset = _dataset(_raw_arrays(make))
    algorithm = make(**_scalers(make)).fit(dataset, 2, 2)
    return algorithm, dataset.columns["observation"][:32], dataset.columns["action"]
