"""The Q-functions by name, as a setting of algorithms: `q_function: qr`, or `q_function: {name: qr, n_quantiles: 64}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, SerializeAsAny

from ..named import Named
from .categorical import Categorical
from .config import Mean, QFunctionConfig
from .fqf import FQF
from .iqn import IQN
from .qr import QR

KINDS = Named("Q-function", QFunctionConfig, (Mean, QR, IQN, FQF, Categorical))
register_q_function = KINDS.register  # makes a user's own Q-function known by its `name`; also a class decorator

QFunction = Annotated[SerializeAsAny[QFunctionConfig], BeforeValidator(KINDS.read), KINDS]


def _of_means(chosen: QFunctionConfig) -> QFunctionConfig:
    """Sets the loss that estimates a mean where a mean is chosen without a loss."""
    return chosen.model_copy(update={"loss": "squared"}) if isinstance(chosen, Mean) and chosen.loss is None else chosen


def losses_as_written(config: Any, written: Mapping[str, Any]) -> Any:
    """Settings that were written for discrete actions, as they were meant: without a `loss`, means had the Huber loss."""
    told, read = written.get("q_function"), getattr(config, "q_function", None)
    if not isinstance(read, Mean) or read.loss != "squared" or (isinstance(told, Mapping) and "loss" in told):
        return config
    return config.model_copy(update={"q_function": read.model_copy(update={"loss": "huber"})})


MeanQFunction = Annotated[QFunction, AfterValidator(_of_means)]  # of algorithms that are for means, whatever the actions
