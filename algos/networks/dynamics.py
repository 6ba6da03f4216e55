"""An ensemble of normal distributions over what follows an action, and the errors by which its members are told apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ...data.errors import ConfigError, DataError
from ...data.spec import Box, Discrete, Spec
from .encoders import Encoder
from .encoding import PerceptronConfig
from .perceptrons import Linear, one_hot
from .training import current_training

_LATEST = 0.01  # share of a step's error that enters the running one
_BETTER = 0.99  # an error below this share of the lowest so far counts as lower: Janner et al. 2019, the authors' code


@dataclass(frozen=True)
class Predicted:
    """The predictions of several members: normal distributions over changes of the observation, and after them the reward.

    Attributes:
        mean: [members, B, D + 1].
        log_variance: [members, B, D + 1], of each entry by itself.
        end_logit: [members, B], of the probability that the MDP ends there.
    """

    mean: Tensor
    log_variance: Tensor
    end_logit: Tensor


class HeldOutErrors(nn.Module):
    """Running errors of members on transitions that none of them learns from; they are kept with the network that has them.

    Attributes:
        error: [members], mean squared error of each member's mean.
        naive: (), the same of the mean of all targets, which says what the model is worth.
        lowest: (), the lowest mean of `error` so far.
        since: (), gradient steps since it was.
    """

    error: Tensor
    naive: Tensor
    lowest: Tensor
    since: Tensor
    center: Tensor
    trains = True

    def __init__(self, members: int, outputs: int) -> None:
        super().__init__()
        self.path = ""  # the learner writes the layer's dotted name here
        self.register_buffer("error", torch.zeros(members))
        self.register_buffer("center", torch.zeros(outputs))
        for name in ("naive", "lowest", "since"):
            self.register_buffer(name, torch.zeros(()))

    def forward(self, error: Tensor, goal: Tensor, held_out: Tensor) -> None:
        """Takes note of squared errors [members, B] and targets [members, B, D + 1], where `held_out` [members, B] is 1."""
        now = current_training()
        if now is None or now.statistics is None:
            return
        count = held_out.sum(-1)
        shown = (error.detach() * held_out).sum(-1) / count.clamp(min=1)
        center = (goal * held_out[..., None]).sum((0, 1)) / count.sum().clamp(min=1)
        apart = ((goal - self.center).square().mean(-1) * held_out).sum() / count.sum().clamp(min=1)
        found = _running(self.error, shown, count)
        total = found.mean()
        better = (self.lowest == 0) | (total < _BETTER * self.lowest)
        told = {
            "error": found,
            "center": _running(self.center, center, count.sum()),
            "naive": _running(self.naive, apart, count.sum() * (self.center != 0).any()),
            "lowest": torch.where(better, total, self.lowest),
            "since": torch.where(better, torch.zeros_like(self.since), self.since + 1),
        }
        now.statistics.update({f"{self.path}.{name}": value for name, value in told.items()})

    def best(self, n: int) -> Tensor:
        return self.error.argsort()[:n]


def _running(old: Tensor, shown: Tensor, count: Tensor) -> Tensor:
    """A running mean, which the first that is shown begins, and nothing changes where nothing is shown."""
    return torch.where(count > 0, torch.where(old == 0, shown, old.lerp(shown, _LATEST)), old)


class EnsembleDynamics(nn.Module):
    """Members side by side, each of which makes a normal distribution of an observation and an action; all is scaled.

    Logarithms of variances lie softly between two bounds for each entry, which are learnt (Chua et al. 2018, appendix A.1).

    Args:
        encoder: The hidden layers of each member.
        spec: Observations are vectors.
        members: How many.

    Raises:
        DataError: observations are no vectors.
        ConfigError: the encoder is no perceptron.
    """

    def __init__(self, encoder: Encoder, spec: Spec, members: int) -> None:
        super().__init__()
        if not isinstance(space := spec.observation, Box) or len(space.shape) != 1:
            raise DataError(
                "Models of the dynamics predict vectors, and these observations are none: encode them first, "
                "as docs/datasets.md shows for images."
            )
        if not isinstance(encoder, PerceptronConfig):
            raise ConfigError(f"A model of the dynamics has the encoder vector or dense, not {encoder.label}.")
        self.members, self.outputs = members, space.size + 1
        self.n_actions = spec.action.n if isinstance(spec.action, Discrete) else 0
        self.layers = encoder.begun(encoder.layers(space.size + (self.n_actions or spec.action.size), members))
        self.head = Linear(encoder.hidden_units[-1], 2 * self.outputs + 1, members)
        self.highest = nn.Parameter(torch.full((self.outputs,), 0.5))
        self.lowest = nn.Parameter(torch.full((self.outputs,), -10.0))
        self.held_out = HeldOutErrors(members, self.outputs)

    def forward(self, observation: Tensor, action: Tensor) -> Predicted:
        """Of [B, D] and [B, A], or int64 [B], what every member expects; or of [members, B, …] each of its own."""
        taken = one_hot(action, self.n_actions).to(observation.dtype) if self.n_actions else action
        mean, raw, end = self.head(self.layers(torch.cat((observation, taken), -1))).split((self.outputs, self.outputs, 1), -1)
        below = self.highest - softplus(self.highest - raw)
        return Predicted(mean, self.lowest + softplus(below - self.lowest), end[..., 0])

    def note(self, error: Tensor, goal: Tensor, held_out: Tensor) -> None:
        self.held_out(error, goal, held_out)

    def spread(self) -> Tensor:
        """Σ (b - c), (): how far apart the bounds of log σ² are."""
        return (self.highest - self.lowest).sum()

    def held_out_error(self) -> Tensor:
        """The mean over members of their running errors on what is held out, ()."""
        return self.held_out.error.mean()

    def worn_out(self, patience: int) -> Tensor:
        """Tells whether errors on held-out data have not fallen for so many gradient steps, bool ()."""
        return self.held_out.since >= patience
