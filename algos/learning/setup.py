"""Completes an algorithm's settings by data or spaces, and checks that the two go together."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...data.augmentation import AugmentationPipeline
from ...data.dataset import Dataset
from ...data.errors import DataError, advised
from ...data.operations.goals import check_goals, has_goals
from ...data.sampling import stacked_spec
from ...data.sampling_settings import RecurrentSampling, UniformSampling
from ...data.scalers.action import MinMaxActionScaler
from ...data.spec import Box, Spec
from ..definition import Definition
from ..recurrence import remembers
from ..registry import algorithm_class, algorithm_names
from ..wants import Opens
from .resolution import check_resolution

_REACH = 1 + 1e-3  # of policies, and what rounding may add


def sampling(config: Any) -> Any:
    """The sampler that the settings name; without one that of recurrent encoders, or the uniform one."""
    return getattr(config, "sampler", None) or (RecurrentSampling() if remembers(config) else UniformSampling())


def seen_spec(config: Any, spec: Spec) -> Spec:
    """The spaces as networks see them: with frames stacked as the settings say."""
    return stacked_spec(spec, sampling(config).frames)


def config_for_dataset(algorithm: Definition, dataset: Dataset) -> Any:
    """The checked settings with scalers fitted to the data; looks at statistics only.

    Raises:
        ConfigError: a setting cannot be used.
        DataError: actions are of the other kind, a scaler or an augmentation does not suit the data, scaled actions lie outside
            [-1, 1], or observations lie too close together for the float type.
    """
    config = algorithm.check_settings()
    check_actions(algorithm, dataset.spec, dataset.name)
    if (statistics := dataset.statistics.action) is not None:
        config = _reaching(config, algorithm.name, dataset.name, dataset.spec, np.min(statistics.min), np.max(statistics.max))
    seen = seen_spec(config, dataset.spec).observation
    AugmentationPipeline(augmentations=config.augmentation).check_space(seen, dataset.name)
    scalers = ("observation_scaler", "action_scaler", "reward_scaler")
    fitted = {n: getattr(config, n).fit(dataset) for n in scalers if getattr(config, n, None)}
    check_range(algorithm.name, fitted.get("action_scaler"), dataset)
    check_resolution(algorithm, config, dataset)
    return algorithm.completed(config.model_copy(update=fitted), dataset)


def config_for_spaces(algorithm: Definition, spec: Spec, name: str, *, as_seen: bool = False) -> Any:
    """The checked settings without data: actions are scaled by their space, all else by the numbers that the scalers were given.

    Args:
        algorithm: Whose settings.
        spec: The spaces.
        name: What has them, for errors.
        as_seen: Whether observations of `spec` are what networks see, with their frames stacked already.

    Raises:
        ConfigError, DataError: as `config_for_dataset`.
    """
    config = algorithm.check_settings()
    check_actions(algorithm, spec, name)
    observation = (spec if as_seen else seen_spec(config, spec)).observation
    AugmentationPipeline(augmentations=config.augmentation).check_space(observation, name)
    if config.observation_scaler is not None:
        config = config.model_copy(update={"observation_scaler": config.observation_scaler.for_space(spec.observation, name)})
    bounds = spec.action.bounds() if isinstance(spec.action, Box) else None
    if bounds is not None:
        config = _reaching(config, algorithm.name, name, spec, np.min(bounds), np.max(bounds))
    action_scaler = getattr(config, "action_scaler", None)
    if action_scaler is not None and isinstance(spec.action, Box):
        config = config.model_copy(update={"action_scaler": action_scaler.fit_space(spec.action)})
    elif bounds is not None and np.abs(bounds).max() > _REACH:
        raise _out_of_reach(algorithm.name, name, float(np.min(bounds)), float(np.max(bounds)))
    return algorithm.completed_online(config, spec, name)


def _reaching(config: Any, algorithm: str, name: str, spec: Spec, low: float, high: float) -> Any:
    """The settings, with the scaler of actions that they lack where actions from `low` to `high` have bounds; says so."""
    if not isinstance(spec.action, Box) or max(-low, high) <= _REACH or getattr(config, "action_scaler", 0) is not None:
        return config
    scaler = MinMaxActionScaler().fit_space(spec.action)
    if scaler.minimum is None or scaler.maximum is None or max(-min(scaler.minimum), *scaler.maximum) <= _REACH:
        return config
    logging.getLogger("d3ray").warning(
        "%s acts in [-1, 1], and actions of %r have bounds from %.3g to %.3g: they are scaled by these, as %s says.",
        *(algorithm, name, min(scaler.minimum), max(scaler.maximum), advised("action_scaler", "min_max")),
    )
    return config.model_copy(update={"action_scaler": scaler})


def trained_on(algorithm: Definition, given: Any) -> Any:
    """A dataset: what is given, what lies at a place, or a copy of episodes; with goals, where they are wanted.

    What an algorithm opens itself is left as it is.
    """
    wants = algorithm.wants(algorithm.check_settings())
    if isinstance(wants, Opens) and not wants.reads_data and not isinstance(given, Dataset):
        return given
    if isinstance(given, str | Path):
        given = Dataset.open(given)
    elif not isinstance(given, Dataset):
        given = Dataset.from_episodes(given)
    return aimed(algorithm, given)


def aimed(algorithm: Definition, given: Any) -> Any:
    """The same data with goals beside observations, where the algorithm is told one and they have none.

    Raises DataError where goals that they have cannot be compared with what is reached.
    """
    if not algorithm.goal_conditioned or not isinstance(given, Dataset):
        return given
    config: Any = algorithm.check_settings()
    found = given if has_goals(given.spec) else given.with_goals(config.goal_part)
    check_goals(found, config.goal_part, config.observation_scaler)
    return found


def check_actions(algorithm: Definition, spec: Spec, name: str) -> None:
    """Raises DataError when the data's actions are of another kind, or have several axes."""
    kind = spec.action_kind
    if kind not in algorithm.action_kinds():
        others = {name: algorithm_class(name) for name in algorithm_names()}
        fit = [name for name, other in others.items() if kind in other.action_kinds() and other.acts() == algorithm.acts()]
        cure = f"choose from {', '.join(fit)}" if fit else "no algorithm takes those yet"
        needs = " or ".join(algorithm.action_kinds())
        raise DataError(f"{algorithm.name} needs {needs} actions, and {name!r} has {kind} ones; {cure}.")
    _check_vectors(algorithm, spec, name)


def _check_vectors(algorithm: Definition, spec: Spec, name: str) -> None:
    if isinstance(spec.action, Box) and len(spec.action.shape) != 1:
        raise DataError(
            f"{algorithm.name} acts by vectors, and actions of {name!r} have the shape {list(spec.action.shape)}: make them "
            f"vectors of {spec.action.size}, as actions.reshape(len(actions), -1) does. Environments of such actions take those."
        )


def check_range(name: str, scaler: Any, dataset: Dataset) -> None:
    """Continuous policies cover [-1, 1]. Raises DataError when scaled actions of the data lie outside by more than 1e-3."""
    statistics = dataset.statistics.action
    if dataset.spec.discrete or statistics is None:
        return
    low, high = (torch.tensor(np.asarray(part), dtype=torch.float64) for part in (statistics.min, statistics.max))
    if scaler is not None:
        affine = scaler.affine(torch.float64, torch.device("cpu"))
        low, high = affine.transform(low), affine.transform(high)
    if float(torch.maximum(-low, high).max()) > _REACH:
        bounded = isinstance(space := dataset.spec.action, Box) and MinMaxActionScaler().fit_space(space).minimum is not None
        scaled = scaler is not None or bounded  # by these bounds, which data that lie beyond them are not within
        raise _out_of_reach(name, dataset.name, float(low.min()), float(high.max()), scaled=scaled, clip=True)


def _out_of_reach(algorithm: str, data: str, low: float, high: float, *, scaled: bool = False, clip: bool = False) -> DataError:
    """Says how to mend actions from `low` to `high`, of which some cannot be taken."""
    cures = [] if scaled else [f"set {advised('action_scaler', 'min_max')}, which takes these bounds"]
    cures += ["clip them before you import"] * clip
    sentence = f"{algorithm} acts in [-1, 1], and actions of {data!r} lie from {low:.3g} to {high:.3g}: {', or '.join(cures)}."
    return DataError(sentence, mends={} if scaled else {"action_scaler": "min_max"})
