"""d3rlpy's `ope`: fitted Q evaluation of a trained policy."""

from __future__ import annotations

from typing import Any

from .algos import algorithm_of, config_of, settings_in_d3rlpys_words
from .constants import device_of, drawn_seed

FQEConfig = config_of("FQE")


def _judge(name: str, algo: Any, config: Any, device: Any) -> Any:
    settings = settings_in_d3rlpys_words(name, config.params)
    made = algorithm_of(name)(**settings, algo=algo, device=device_of(device), seed=drawn_seed())
    made.config = config
    return made


def FQE(algo: Any, config: Any, device: Any = False) -> Any:  # noqa: N802 - d3rlpy's name
    """Q-functions of `algo`'s policy, trained by `fit`; `predict_value` gives them."""
    return _judge("FQE", algo, config, device)


def DiscreteFQE(algo: Any, config: Any, device: Any = False) -> Any:  # noqa: N802
    """The same for discrete actions."""
    return _judge("DiscreteFQE", algo, config, device)
