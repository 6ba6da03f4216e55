"""Batches of which a share was generated: the policy acts in a model, from observations of the data on, every so many steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.random import fold, integers, root_keys
from ...data.sampling_settings import PrioritizedSampling, RecurrentSampling, StreamSampling
from ...data.scalers import index_affines
from ...data.spec import Spec
from ..environments.spaces import check_spaces
from ..nets import Hyper, Nets
from ..ports import Tensors, memories, noises
from ..recurrence import remembers
from ..wants import Looks, Material, Transitions
from .held_out import PartlyHeldOut
from .model import Outcomes
from .settings import ModelRollouts
from .terminations import family

Columns = dict[str, Tensor]

_APART = 2**32  # steps between the draws of batches and those of starts
_NUMBERED = 2**40  # from where on the generated are numbered, beyond all data


@dataclass(frozen=True)
class Generated:
    """Transitions of which a share comes from a model, `extra["real"]` [B] being 1 for the data and 0 for the generated.

    Rollouts go on from what the model says to the horizon; one whose MDP ends goes on from another observation of the data. The
    policy acts as it explores by itself: by its draws, where it is stochastic. `judge` says what becomes of rewards and ends, [B]
    each, given with what members expect; None: they stay. `taught` is what the algorithm's own model learns from, as
    `extra["model/…"]`; None: its model is learnt elsewhere. Before gradient step `begins` batches are data alone.
    """

    page: Any = field(repr=False)
    config: Any = field(repr=False)
    rollouts: ModelRollouts
    transitions: Transitions
    judge: Callable[[Outcomes, Tensor, Tensor, Hyper], tuple[Tensor, Tensor]] | None = None
    taught: PartlyHeldOut | None = None
    begins: int = 0
    reads_data: ClassVar = True

    @property
    def members(self) -> int:
        return self.transitions.members

    @property
    def following(self) -> bool:
        return self.transitions.following

    def open(self, material: Material, learner: Looks) -> GeneratedSource:
        """Open the source.

        Raises ConfigError where there is no model, the policy remembers, or the model was trained on data of another environment;
        DataError where it is of other spaces.
        """
        name, given = self.page.name, material.given
        if self.config.dynamics is None and self.taught is None:
            raise ConfigError(no_model(name))
        if isinstance(self.config.sampler, PrioritizedSampling | StreamSampling | RecurrentSampling):
            raise ConfigError(
                f"{name}: sampler {self.config.sampler.name!r} and dynamics do not go together: leave one of them out."
            )
        if remembers(self.config) or memories(self.page.ports(given.spec, self.config)):
            raise ConfigError(f"The policy of {name} remembers, and rollouts begin in the middle of episodes: leave dynamics out.")
        if given.spec.action_mask:
            raise ConfigError(f"{name}: no model says which actions are legal, which changes here: leave dynamics out.")
        if self.taught is None and isinstance(given, Dataset):
            check_model(self.page.given_model(self.config), given.spec, given.name, given.environment and given.environment.id)
        return GeneratedSource(self, material, learner)


class GeneratedSource:
    """Draws from the data and from what was generated; the model is a guest of the learner, whose policy acts."""

    def __init__(self, wants: Generated, material: Material, learner: Looks) -> None:
        config, rollouts = wants.config, wants.rollouts
        kind: Any = learner.dtype, learner.device
        self.wants, self.learner = wants, learner
        self._ports = wants.page.ports(material.given.spec, config)
        self._n_real = round(rollouts.real * wants.transitions.size)
        self._n_generated = wants.transitions.size - self._n_real
        self._real: Any = material.ordinary(replace(wants.transitions, size=max(self._n_real, 1)))
        self._starts: Any = material.ordinary(
            Transitions(rollouts.n_transitions * rollouts.horizon, following=wants.transitions.following)
        )
        self._observation = config.observation_scaler.affines(*kind).get("observation") if config.observation_scaler else None
        scaler = getattr(config, "action_scaler", None)
        counted = index_affines(material.given.spec, learner.device)
        self._action = counted.get("action") or (scaler.affine(*kind) if scaler else None)
        self._reward = config.reward_scaler.reward_transform() if config.reward_scaler else None
        seeds: Any = learner.seeds if learner.stacked else learner.seeds[0]
        self._key = fold(root_keys(seeds, learner.device), "generated")
        self._taught = None if wants.taught is None else wants.taught.open(material, learner)
        self._columns: Columns = {}  # [(S,) rows, ...]
        self._rounds, self._begun = 0, -1  # how many there were, and the gradient step of the latest

    # ---- drawing

    @property
    def batch_size(self) -> int:
        return self._real.batch_size

    @property
    def n_windows(self) -> int:
        return self._real.n_windows

    def sample(self, step: int, size: int | None = None) -> Batch:
        """The batch of a gradient step. One that is a multiple of the interval generates first."""
        real: Batch = self._real.sample(step)
        taught = {} if self._taught is None else _taught(self._taught.sample(step))
        if step < self.wants.begins:
            return replace(real, extra={"real": torch.ones_like(real.reward), **taught})
        if not self._columns or (step % self.wants.rollouts.interval == 0 and step != self._begun):
            self._generate(step)
        n = self._filled()
        at = integers(fold(self._key, step), self._n_generated, n)
        made = {name: self._rows(column, at) for name, column in self._columns.items()}
        made["index"] = at + _NUMBERED
        columns = {name: getattr(real, name) for name in made}
        of_data = torch.ones_like(real.reward)
        if not self._n_real:
            columns = {name: column[..., :0, :] if column.ndim > at.ndim else column[..., :0] for name, column in columns.items()}
            of_data = of_data[..., :0]
        lead = at.ndim - 1
        joined = {name: torch.cat((column, made[name]), lead) for name, column in columns.items()}
        generated = torch.zeros_like(made["reward"])
        weight = None
        if real.weight is not None:
            weight = torch.cat((real.weight[..., : self._n_real], torch.ones_like(made["reward"])), lead)
        return Batch(**joined, weight=weight, extra={"real": torch.cat((of_data, generated), lead), **taught})

    def _rows(self, column: Tensor, at: Tensor) -> Tensor:
        if not self.learner.stacked:
            return column[at]
        return column[torch.arange(len(at), device=at.device)[:, None], at]

    def between_epochs(self, epoch: int) -> None:
        self._real.between_epochs(epoch)

    # ---- generating

    def _filled(self) -> int:
        rollouts = self.wants.rollouts
        return min(self._rounds * rollouts.horizon * rollouts.n_transitions, rollouts.rows)

    def _generate(self, step: int) -> None:
        starts = self._starts.sample(step + _APART).observation
        made: Columns = self.learner.look(self.rollout, starts)
        rows, lead = self.wants.rollouts.rows, made["reward"].ndim - 1
        n = made["reward"].shape[lead]
        if not self._columns:
            self._columns = {
                name: column.new_zeros((*column.shape[:lead], rows, *column.shape[lead + 1 :])) for name, column in made.items()
            }
        at = torch.arange(self._rounds * n, (self._rounds + 1) * n, device=self.learner.device) % rows
        for name, column in made.items():
            self._columns[name].index_copy_(lead, at, column)
        self._rounds, self._begun = self._rounds + 1, step

    def rollout(self, nets: Nets, starts: Tensor, h: Hyper) -> Columns:
        """Generate for one seed from scaled observations [n horizon, D]: [n horizon, ...] by column, scaled; step after step."""
        wants, rollouts = self.wants, self.wants.rollouts
        n = rollouts.n_transitions
        begins = starts.unflatten(0, (rollouts.horizon, n))
        raw = begins if self._observation is None else self._observation.reverse(begins)
        state, steps = raw[0], list[Columns]()
        for t in range(rollouts.horizon):
            seen = self._seen(state)
            action, _ = wants.page.act(nets, seen, {}, self._noise(nets, t, n))
            taken = action if self._action is None else self._action.reverse(action)
            found: Outcomes = nets.dynamics(state, taken)
            member = (nets.uniform(f"member {t}", (n,)) * len(found.reward)).long()
            noise = nets.noise(f"outcome {t}", (n, state.shape[-1] + 1)).to(found.deviation.dtype)
            following, reward, end = found.drawn(member, noise)
            following, reward = following.to(state.dtype), reward.to(state.dtype)
            ended = nets.dynamics.ends(following, end, nets.uniform(f"end {t}", (n,)))
            reward = reward - rollouts.lam * self.penalty(nets, found, action).to(reward.dtype)
            if wants.judge is not None:
                reward, ended = wants.judge(found, reward, ended, h)
            steps.append(
                {
                    "observation": seen,
                    "action": action,
                    "reward": reward if self._reward is None else self._reward.transform(reward),
                    "next_observation": self._seen(following),
                    "discount": h.gamma * (~ended).to(reward.dtype),
                }
            )
            state = torch.where(ended[:, None], raw[(t + 1) % rollouts.horizon], following)
        return {name: torch.cat([step[name] for step in steps]) for name in steps[0]}

    def penalty(self, nets: Nets, found: Outcomes, action: Tensor) -> Tensor:
        """u(s, a), [B], in raw units; "bellman": the deviation over members of the value that each expects (Sun et al. 2023)."""
        if self.wants.rollouts.penalty != "bellman":
            return found.uncertainty(self.wants.rollouts.penalty)
        members, n = found.reward.shape
        seen = self._seen(found.following.to(self.learner.dtype)).flatten(0, 1)
        then, _ = self.wants.page.act(nets, seen, {}, {})
        values = self.wants.page.values(nets.target, seen, then).amin(0).unflatten(0, (members, n))
        return values.std(0, correction=0)

    def _seen(self, state: Tensor) -> Tensor:
        return state if self._observation is None else self._observation.transform(state)

    def _noise(self, nets: Nets, t: int, n: int) -> Tensors:
        draw = {"normal": nets.noise, "uniform": nets.uniform}
        found = noises(self._ports, exploring=True)
        return {name: draw[port.kind](f"{name} {t}", (n, *port.shape)) for name, port in found.items()}

    # ---- state

    def state(self) -> Mapping[str, Tensor]:
        """Keep what was generated, which cannot be had again once the policy has changed."""
        lead = (len(self.learner.seeds),) if self.learner.stacked else ()
        counts = torch.tensor([self._rounds, self._begun]).expand(*lead, 2)
        return {**self._columns, "counts": counts} if self._columns else {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self._columns = {name: tensor.clone() for name, tensor in tensors.items() if name != "counts"}
        self._rounds, self._begun = tensors["counts"].reshape(-1, 2)[0].tolist()


def generated(page: Any, config: Any, wants: Any) -> Any:
    """Give what an algorithm wants, with a share that is generated where its settings say so.

    Raises ConfigError where what it wants is more than a model can give.
    """
    if isinstance(wants, Generated) or getattr(config, "dynamics", None) is None:
        return wants
    if not isinstance(wants, Transitions):
        raise ConfigError(f"{page.name} learns from more than single transitions, which a model cannot give: leave dynamics out.")
    if wants.td_steps != 1:
        raise ConfigError(f"{page.name}: generated transitions are single steps, and td_steps is {wants.td_steps}: set it to 1.")
    if wants.next_action or wants.extra or wants.ahead:
        more = "what was done next" if wants.next_action else "what came later" if wants.ahead else f"the column {wants.extra[0]!r}"
        raise ConfigError(f"{page.name} asks for {more} in the data, which nobody knows of generated ones: leave dynamics out.")
    return Generated(page, config, config.rollouts, wants)


def _taught(batch: Batch) -> Columns:
    """Name what a model learns from as its loss finds it."""
    columns = {name: getattr(batch, name) for name in ("observation", "action", "reward", "next_observation", "discount", "weight")}
    return {f"model/{name}": column for name, column in {**columns, **batch.extra}.items()}


def all_real(batch: Batch) -> Batch:
    return batch.with_extra(real=torch.ones_like(batch.reward))


def no_model(name: str) -> str:
    return (
        f"{name} learns in a model: train a ProbabilisticEnsemble on the data, and give it, or its path, as dynamics; one in "
        "memory is not saved along."
    )


def check_model(model: Any, spec: Spec, name: str, environment: str | None) -> None:
    """Warn of a model that is worse than none, for a dataset or an environment `name` of spaces `spec`.

    Raises DataError where the model's spaces are others, ConfigError where its data were of another environment, as far as both are
    known.
    """
    check_spaces(spec, model.spec, name, "the model of the dynamics")
    if environment and model.environment and family(environment) != family(model.environment):
        raise ConfigError(f"The model of the dynamics is of {model.environment}, and {name!r} of {environment}.")
    error, naive = model.held_out
    if error > naive > 0:
        warnings.warn(
            f"The model's error on episodes that were held out, {error:.3g}, is above that of the mean of all that it predicts, "
            f"{naive:.3g}: it is worse than none. Train it longer, or on more data.",
            stacklevel=2,
        )
