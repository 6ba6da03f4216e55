"""A trained ensemble as others use it: raw numbers in, raw numbers out, its best members alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...data.scalers import Affine
from ...data.scalers.reward import RewardTransform
from ...data.spec import Spec
from ..networks.dynamics import EnsembleDynamics, Predicted
from .settings import Penalty
from .terminations import TERMINATIONS


@dataclass(frozen=True)
class Outcomes:
    """Expectations of several members for B actions, in raw units.

    Attributes:
        following: Means of the next observation, [members, B, D].
        reward: Means of the reward, [members, B].
        deviation: Standard deviations of both, the reward's last, [members, B, D + 1].
        end: Probability that the MDP ends, by each member, [members, B]: 0 or 1 where a function says it.
    """

    following: Tensor
    reward: Tensor
    deviation: Tensor
    end: Tensor | None

    @property
    def mean(self) -> Tensor:
        """Means of next observation and reward, [members, B, D + 1]."""
        return torch.cat((self.following, self.reward[..., None]), -1)

    def uncertainty(self, kind: Penalty) -> Tensor:
        """u(s, a), [B]: how much is left open.

        - "variance": max_i ‖σ_i²‖, as d3rlpy's manual of 2020 has it;
        - "aleatoric": max_i ‖σ_i‖, as MOPO's authors compute it (Yu et al. 2020, section 4.3, and their code);
        - "difference": max_i ‖s'_i - mean_j s'_j‖, of their means, as MOPO's code has it without learned variances.
        """
        match kind:
            case "variance":
                return self.deviation.square().norm(dim=-1).amax(0)
            case "aleatoric":
                return self.deviation.norm(dim=-1).amax(0)
            case "difference":
                return (self.following - self.following.mean(0)).norm(dim=-1).amax(0)
            case _:
                return torch.zeros_like(self.reward[0])

    def disagreement(self) -> Tensor:
        """max_ij ‖s'_i - s'_j‖ of their means, [B]: MOReL's measure (Kidambi et al. 2020, equation 2)."""
        apart = self.following[:, None] - self.following[None]
        return apart.norm(dim=-1).amax((0, 1))

    def drawn(self, member: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Next observation, reward and end's probability of the member [B] that each sample asks, moved by `noise` [B, D + 1]."""
        at = member[None, :, None]
        mean = self.mean.gather(0, at.expand(1, *self.mean.shape[1:]))[0]
        found = mean + noise * self.deviation.gather(0, at.expand(1, *mean.shape))[0]
        end = None if self.end is None else self.end.gather(0, member[None])[0]
        return found[..., :-1], found[..., -1], end


class Model(nn.Module):
    """The best members of an ensemble, `best` [n] int64, with its scalers inside.

    `termination` is a name of `TERMINATIONS`, or "learned": as the members say. `held_out` has the members' mean error on episodes
    that were held out, and that of the mean of all targets; scaled, and 0 where unknown.
    """

    units: Tensor

    def __init__(
        self,
        network: EnsembleDynamics,
        best: Tensor,
        scalers: Mapping[str, Affine],
        reward: RewardTransform | None,
        termination: str,
        spec: Spec,
        environment: str | None,
    ) -> None:
        super().__init__()
        self.network = only(network, best)
        self.held_out = float(network.held_out.error[best].mean()), float(network.held_out.naive)
        self.termination, self.spec, self.environment = termination, spec, environment
        self.reward = reward or RewardTransform(1.0, 0.0)
        self.scaled = tuple(sorted(scalers))
        units = self.network.head.weight.new_ones(self.network.outputs - 1)
        units = units / scalers["observation"].scale if "observation" in scalers else units
        self.register_buffer("units", torch.cat((units, units.new_full((1,), 1 / self.reward.scale))))  # of what is predicted
        for name, affine in scalers.items():
            self.register_buffer(f"{name}_scale", affine.scale.detach().clone())
            self.register_buffer(f"{name}_shift", affine.shift.detach().clone())

    @property
    def dtype(self) -> torch.dtype:
        return self.network.head.weight.dtype

    @property
    def members(self) -> int:
        return self.network.members

    def forward(self, observation: Tensor, action: Tensor) -> Outcomes:
        """Expect what follows raw observations [B, D] and raw actions [B, A], or int64 [B]."""
        seen, found, units = observation.to(self.dtype), self.told(observation, action), self.scales()
        mean, deviation = found.mean * units, (0.5 * found.log_variance).exp() * units
        end = found.end_logit.sigmoid() if self.termination == "learned" else None
        return Outcomes(seen + mean[..., :-1], mean[..., -1] - self.reward.shift / self.reward.scale, deviation, end)

    def told(self, observation: Tensor, action: Tensor) -> Predicted:
        """Ask the members at raw observations and actions, in the scaled units that they learn in."""
        taken = action if self.network.n_actions else action.to(self.dtype)
        return self.network(self._scaled("observation", observation.to(self.dtype)), self._scaled("action", taken))

    def goal(self, observation: Tensor, following: Tensor, reward: Tensor) -> Tensor:
        """Give the members' target, [..., D + 1] in the units that they learn in, of raw numbers that followed and were paid."""
        paid = reward + self.reward.shift / self.reward.scale
        return torch.cat((following - observation, paid[..., None]), -1).to(self.dtype) / self.scales()

    def raw(self, goal: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        """The next observation and the reward of such numbers."""
        moved = goal * self.scales()
        return observation + moved[..., :-1], moved[..., -1] - self.reward.shift / self.reward.scale

    def scales(self) -> Tensor:
        """The raw size of 1 in what members say, [D + 1]."""
        return self.units

    def spread(self) -> Tensor:
        return self.network.spread()

    def ended(self, following: Tensor, end: Tensor, chance: Tensor) -> Tensor:
        """Tell ends as `ends` does, by what the members say of them only where they learned it."""
        return self.ends(following, end if self.termination == "learned" else None, chance)

    def ends(self, following: Tensor, end: Tensor | None, chance: Tensor) -> Tensor:
        """Tell whether the MDP ends, bool [B]: by a function of what follows [B, D], or where uniform numbers are below `end`."""
        return TERMINATIONS[self.termination](following) if end is None else chance < end

    def end_chance(self, following: Tensor, end: Tensor | None) -> Tensor:
        """The probability that the MDP ends, [...], of the same: 0 or 1 where a function says it."""
        return TERMINATIONS[self.termination](following).to(following.dtype) if end is None else end

    def _scaled(self, name: str, x: Tensor) -> Tensor:
        if name not in self.scaled:
            return x
        return x * self.get_buffer(f"{name}_scale") + self.get_buffer(f"{name}_shift")


def only(network: EnsembleDynamics, members: Tensor) -> EnsembleDynamics:
    """A copy of a network that has some of its members alone, [n] int64."""
    found, at = copy.deepcopy(network), members.to(network.head.weight.device)
    for layer in (*found.layers.modules(), found.head):
        for name, parameter in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, nn.Parameter(parameter.detach()[at].clone()))
        for name, buffer in list(layer.named_buffers(recurse=False)):
            setattr(layer, name, buffer[at].clone())
        if hasattr(layer, "members"):
            layer.members = len(members)  # pyright: ignore[reportArgumentType]
    found.members = len(members)
    return found
