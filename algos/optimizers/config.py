"""How settings name an optimiser: `optimizer: adam`, or `optimizer: {name: rmsprop, alpha: 0.95}`.

The learning rate is a setting of the algorithm, for rows of a stack may differ in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ...data.config import Config, by_name, setting
from .schedules import Schedule

_Beta = Annotated[float, Field(ge=0, lt=1)]


class _Optimizer(Config):
    max_grad_norm: float | None = setting(
        None, "largest L2 norm of the gradient of the parameters that it steps; longer ones are scaled to it", gt=0
    )
    schedule: Schedule | None = setting(None, "how the learning rate changes: cosine, linear or warm_up; None: it does not")


class _Decaying(_Optimizer):
    weight_decay: float = setting(0.0, "L2 penalty: this times the parameter is added to its gradient", ge=0)


class Adam(_Decaying):
    """Adam (Kingma and Ba 2015), with torch's defaults."""

    name: Literal["adam"] = "adam"
    betas: tuple[_Beta, _Beta] = setting((0.9, 0.999), "decay of the first and second moment", source="torch.optim.Adam")
    epsilon: float = setting(1e-8, "added to the root of the second moment", source="torch.optim.Adam", gt=0)
    amsgrad: bool = setting(False, "divide by the largest second moment so far (Reddi et al. 2018)")


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): parameters shrink by rate · weight_decay."""

    name: Literal["adamw"] = "adamw"  # pyright: ignore[reportIncompatibleVariableOverride]
    weight_decay: float = setting(1e-2, "share that a parameter shrinks by, times the rate", source="torch.optim.AdamW", ge=0)


class RMSprop(_Decaying):
    """RMSprop (Hinton 2012): the gradient over the root of its running square."""

    name: Literal["rmsprop"] = "rmsprop"
    alpha: float = setting(0.99, "α: decay of the running square", source="torch.optim.RMSprop", ge=0, lt=1)
    epsilon: float = setting(1e-8, "ε: added to the root, or inside it", source="torch.optim.RMSprop", gt=0)
    epsilon_inside: bool = setting(False, "√(v + ε) in place of √v + ε, as in Mnih et al. 2015 and PFRL")
    centered: bool = setting(False, "subtract the square of the running mean: the divisor is a standard deviation")
    momentum: float = setting(0.0, "of the quotient", ge=0, lt=1)


class SGD(_Decaying):
    """Gradient descent."""

    name: Literal["sgd"] = "sgd"
    momentum: float = setting(0.0, "μ: share of the last direction that is kept", ge=0, lt=1)
    nesterov: bool = setting(False, "look ahead along the momentum")

    @model_validator(mode="after")
    def _has_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov looks ahead along the momentum, so momentum must be above 0.")
        return self


class Muon(_Optimizer):
    """Muon (Jordan et al. 2024): steps weight matrices by their momentum, orthogonalised.

    Matrices are the weights of affine layers, each member of an ensemble for itself; all other parameters (biases, normalisation,
    convolutions) are stepped by AdamW with its defaults, the same rate and weight decay. Newton-Schulz iterates run in the
    parameters' precision, torch.optim.Muon's in bfloat16.
    """

    name: Literal["muon"] = "muon"
    momentum: float = setting(0.95, "μ: decay of the running gradient", source="torch.optim.Muon", ge=0, lt=1)
    nesterov: bool = setting(True, "look ahead along the momentum", source="torch.optim.Muon")
    weight_decay: float = setting(0.1, "share that a parameter shrinks by, times the rate", source="torch.optim.Muon", ge=0)
    adjust: Literal["match_rms_adamw", "original"] = setting(
        "match_rms_adamw",
        "scale of a step: 0.2 √max(in, out), so that a rate for Adam suits (Liu et al. 2025), or √max(1, out / in)",
        source="Liu et al. 2025, section 2.2",
    )


_KNOWN = (Adam, AdamW, RMSprop, SGD, Muon)
Optimizer = Annotated[
    Annotated[Adam | AdamW | RMSprop | SGD | Muon, Field(discriminator="name")],
    BeforeValidator(by_name("optimizer", _KNOWN)),
]


ADAM = Adam()


@dataclass(frozen=True)
class Group:
    """Parameters of a network that an optimiser of their own steps.

    Attributes:
        prefix: What their names begin with.
        rate: Learning rate.
        optimizer: What steps them.
    """

    prefix: str
    rate: float
    optimizer: Optimizer = ADAM
