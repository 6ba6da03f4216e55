"""What of an algorithm's settings follows from data, and whether the two go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...data.augmentation import AugmentationPipeline
from ...data.errors import DataError
from ...data.sampling import UniformSampling, stacked_spec
from ...data.spec import Spec

if TYPE_CHECKING:
    from ...data.dataset import Dataset
    from ..definition import Definition


def sampling(config: Any) -> Any:
    """The sampler that the settings name."""
    return config.sampler or UniformSampling()


def fitted_config(algorithm: Definition, dataset: Dataset) -> Any:
    """The checked settings with scalers fitted to the data; looks at statistics only.

    Raises:
        ConfigError: a setting cannot be used.
        DataError: actions are of the other kind, a scaler or an augmentation does not suit the data, or scaled actions lie
            outside [-1, 1].
    """
    config = algorithm.check_settings()
    check_actions(algorithm, dataset.spec, dataset.name)
    seen = stacked_spec(dataset.spec, sampling(config).frames).observation
    AugmentationPipeline(augmentations=config.augmentation).check_space(seen, dataset.name)
    scalers = ("observation_scaler", "action_scaler", "reward_scaler")
    fitted = {n: getattr(config, n).fit(dataset) for n in scalers if getattr(config, n, None)}
    check_range(algorithm.name, fitted.get("action_scaler"), dataset)
    return met(algorithm, config.model_copy(update=fitted), dataset)


def met(algorithm: Definition, config: Any, dataset: Dataset) -> Any:
    """Settings with fitted scalers once they have met the first data: what follows from those is filled in.

    Networks that were set up without data meet them later than their scalers were made; one that was restored does not again.
    """
    return algorithm.fitted(config, dataset)


def check_actions(algorithm: Definition, spec: Spec, name: str) -> None:
    """Raises DataError when the data's actions are of another kind."""
    kind = spec.action_kind
    if kind != algorithm.actions:
        from ..registry import algorithm_class, algorithm_names

        fit = [other for other in algorithm_names() if algorithm_class(other).actions == kind]
        cure = f"choose from {', '.join(fit)}" if fit else "no algorithm takes those yet"
        raise DataError(f"{algorithm.name} needs {algorithm.actions} actions, and {name!r} has {kind} ones; {cure}.")


def check_range(name: str, scaler: Any, dataset: Dataset) -> None:
    """Continuous policies cover [-1, 1]. Raises DataError when scaled actions of the data lie outside by more than 1e-3."""
    statistics = dataset.statistics.action
    if dataset.spec.discrete or statistics is None:
        return
    low, high = (torch.tensor(np.asarray(part), dtype=torch.float64) for part in (statistics.min, statistics.max))
    if scaler is not None:
        affine = scaler.affine(torch.float64, torch.device("cpu"))
        low, high = affine.transform(low), affine.transform(high)
    reach = float(torch.maximum(-low, high).max())
    if reach > 1 + 1e-3:
        cure = "clip them before you import" if scaler else "set action_scaler='min_max', or clip them before you import"
        raise DataError(f"{name} acts in [-1, 1], and actions of {dataset.name!r} reach {reach:.3g}: {cure}.")
