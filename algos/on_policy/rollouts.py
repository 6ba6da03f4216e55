"""Rollouts of the present policy: what an on-policy algorithm wants, and the source over an online run that gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.errors import ConfigError
from ...data.random import bits, fold, root_key
from ...data.spec import value_columns
from ..environments.rollout import Rollout
from ..nets import Hyper, Nets
from ..wants import Looks, Material
from .sequences import AFTER, Columns, batch_of, cut, episodes, joined, pieces


class Page(Protocol):
    """The algorithm as a source sees it."""

    def complete(self, nets: Nets, rollout: Columns, h: Hyper) -> Columns:
        """Completes a rollout [T, n, ...] by further columns for losses, [T, n] each, worked out at the policy that acted.

        It is given `observation`, `action`, `reward`, `next_observation`, `discount`, all scaled, `ends` and `begins`, and what
        recurrent networks remembered before it, of which it gives what they remember afterwards: see `sequences.memories`.
        """
        ...


@dataclass(frozen=True)
class Rollouts:
    """Minibatches of what the policy did last; `OnlineRun` collects it.

    Attributes:
        page: Completes a rollout.
        steps: Of all environments together, at least; each makes its share, rounded up. 0: whole episodes, `episodes` of them.
        batch_size: Transitions of a minibatch; None: all of them.
        passes: How often a rollout is gone through, in an order of its own each time.
        episodes: Where `steps` is 0: how many have to have ended.
        whole: Whether all of a rollout comes first, in a gradient step of its own, before the passes.
        recurrent: Whether minibatches are of sub-sequences, as many as have `batch_size` steps, and at least one.
        sequence_length: Their steps; None: all that an environment makes in a rollout. Of whole episodes each is one.
    """

    page: Any
    steps: int
    batch_size: int | None = None
    passes: int = 1
    episodes: int = 1
    whole: bool = False
    recurrent: bool = False
    sequence_length: int | None = None
    reads_data: ClassVar = False
    following: ClassVar = True

    def rows(self, n_envs: int) -> int | None:
        """Rows of a buffer that holds a rollout of n environments, however short its episodes are; None: of any length."""
        return 2 * n_envs * (self.length(n_envs) + 1) if self.steps else None

    def length(self, n_envs: int) -> int:
        """Steps of each of n environments in a rollout; 0: as many as whole episodes take."""
        return -(-self.steps // n_envs)

    def open(self, material: Material, learner: Looks) -> RolloutSource:
        if not isinstance(material.given, Rollout):
            name = self.page.name
            raise ConfigError(
                f"{name} learns from what its own policy has just done, so data are of no use to it: call fit_online."
            )
        if learner.stacked:
            raise ConfigError(
                f"{self.page.name} acts for itself, one seed at a time: train every seed with a fit_online of its own."
            )
        return RolloutSource(self, material.given, learner)


class RolloutSource:
    """The minibatches of one rollout after another.

    Args:
        wants: What is wanted.
        rollout: Where environments stand, and the buffer that remembers.
        learner: Whose policy acts.
    """

    def __init__(self, wants: Rollouts, rollout: Rollout, learner: Looks) -> None:
        self.wants, self.rollout, self.learner = wants, rollout, learner
        self._scaling = wants.page.fit_.scaling
        self._key = fold(root_key(learner.seeds[0], learner.device), "order")
        n = rollout.n
        self.length = wants.length(n)  # steps of each environment
        self._piece = min(wants.sequence_length or self.length, self.length) if wants.recurrent else 1  # steps of a sub-sequence
        self._columns: Columns = {}  # [N, ...] of the present rollout, flat; of sub-sequences [S, K, ...]
        self._remembered: Columns = {}  # [n, ...]: what recurrent networks remember where the next rollout begins
        self._begin = learner.step  # the gradient step at which it began
        self._paid = np.zeros(n)  # G of each environment, by which rewards are scaled that are scaled by what was paid so far
        self._since = [0] * n  # what of the buffer earlier rollouts have read, where whole episodes are wanted
        self._order: tuple[int, Columns] | None = None

    # ---- when

    def due(self) -> int:
        """Gradient steps that are due, now that the environments have made a step."""
        if self.wants.steps:
            items = self.rollout.n * -(-self.length // self._piece)
            return self._updates(items) if self.rollout.steps % self.length == 0 else 0
        return self._updates(sum(map(len, self._finished()[0]))) if self._ended() >= self.wants.episodes else 0

    def _updates(self, items: int) -> int:
        """Gradient steps of so many transitions, or sub-sequences."""
        return self.wants.whole + self.wants.passes * -(-items // self._size(items))

    def _size(self, items: int) -> int:
        """How many of them a minibatch has."""
        return items if self.wants.batch_size is None else max(1, self.wants.batch_size // self._piece)

    def _finished(self) -> tuple[list[np.ndarray], list[int]]:
        """Rows of steps of episodes that ended since the last rollout, by environment."""
        buffer = self.rollout.buffer
        found = [buffer.finished_rows(e, since) for e, since in enumerate(self._since)]
        return [rows[~buffer.columns["closing"][rows]] for rows, _ in found], [stop for _, stop in found]

    def _ended(self) -> int:
        buffer = self.rollout.buffer
        ends = [buffer.columns["closing"][buffer.finished_rows(e, since)[0]].sum() for e, since in enumerate(self._since)]
        return int(sum(ends))

    # ---- what

    def begins(self, step: int) -> bool:
        return step == self._begin

    def sample(self, step: int) -> Batch:
        """The minibatch of a gradient step; the first of a rollout makes it."""
        rows = len(self._columns["reward"]) if self._columns else 0
        if not rows or step - self._begin >= self._updates(rows):
            self._make()
            self._begin, rows = step, len(self._columns["reward"])
        part, size = 0, rows
        if not (self.wants.whole and step == self._begin):
            size = self._size(rows)
            part = (step - self._begin - self.wants.whole) % -(-rows // size)
        picked = {name: column[part * size : (part + 1) * size] for name, column in self._ordered(step - part, size).items()}
        return batch_of(picked) if self.wants.recurrent else as_batch(picked)

    def _ordered(self, begun: int, size: int) -> Columns:
        """The rollout in the order in which a pass that began at a gradient step goes through it, `index` among its columns."""
        if self._order is None or self._order[0] != begun:
            rows = len(self._columns["reward"])
            if size == rows:
                ordered = {"index": torch.arange(rows, device=self.learner.device), **self._columns}
            else:  # once for all of its minibatches, which are parts of it
                order = bits(fold(self._key, begun), rows).argsort(-1)
                ordered = {"index": order, **{name: column[order] for name, column in self._columns.items()}}
            self._order = begun, ordered
        return self._order[1]

    def between_epochs(self, epoch: int) -> None:
        """Rollouts are made when they are due."""

    def _make(self) -> None:
        """Reads the latest steps, and has the algorithm complete them."""
        slots = self.rollout.buffer.latest(self.length) if self.wants.steps else self._episodes()
        rollout = self._read(slots)
        known = {name: memory for name, memory in self._remembered.items() if len(memory) == slots.shape[1]}
        rollout |= self.learner.look(self.wants.page.complete, {**rollout, **known})
        self._remembered = {name: rollout.pop(name)[-1] for name in list(rollout) if name.split("/")[0] == AFTER}
        self._follow(rollout)
        self._lay_out(rollout)

    def _lay_out(self, rollout: Columns) -> None:
        """Lays a rollout out as minibatches take it: flat, or in sub-sequences."""
        if not self.wants.recurrent:
            self._columns = flattened(rollout)
            return
        flat = {name: column.flatten(0, 1) for name, column in rollout.items()}
        ends = flat.pop("ends")
        wanted = pieces(self.length, self.rollout.n, self._piece, ends.device) if self.wants.steps else episodes(ends)
        self._columns = cut(flat, wanted)

    def _follow(self, rollout: Columns) -> None:
        """Scales by what was seen up to now, if asked for: what the policy does next, and what losses see of the rollout."""
        if (scaler := self.wants.page.config_.observation_scaler) is None or not scaler.is_running:
            return
        self._keep(observation_scaler=(scaler := scaler.after(self._shown)))
        self._scaling.follow(scaler)
        shape = rollout["reward"].shape
        for name, rows in self._shown.items():
            rollout[name] = _scaled(self._scaling, name.removeprefix("next_"), rows).unflatten(0, shape)

    def _keep(self, **scaler: Any) -> None:
        """Notes what a scaler has become in the fitted settings, which checkpoints and policies have."""
        fit = self.wants.page.fit_
        fit.config = fit.config.model_copy(update=scaler)

    def _scaled_rewards(self, reward: np.ndarray, ends: np.ndarray, *, new: bool) -> np.ndarray:
        """Rewards [T, n] as values see them; by new ones a scaler that follows what was paid is brought up to date."""
        scaler = self.wants.page.config_.reward_scaler
        if scaler is None:
            return reward
        if scaler.is_running and new:
            sums, paid = np.empty(reward.shape), self._paid if self.wants.steps else np.zeros(1)
            for t, row in enumerate(reward):
                paid = sums[t] = self.wants.page.config_.gamma * paid + row
                paid = np.where(ends[t], 0.0, paid)
            self._paid = paid
            scaler = scaler.after(sums.reshape(-1))
            self._keep(reward_scaler=scaler)
        return scaler.reward_transform().transform(torch.as_tensor(reward)).numpy()

    def _episodes(self) -> np.ndarray:
        """Whole episodes one after the other, as of one environment, [N, 1]."""
        rows, self._since = self._finished()
        return np.concatenate(rows)[:, None]

    def _read(self, slots: np.ndarray, *, new: bool = True) -> Columns:
        """Steps at slots [T, n] of the buffer, as networks see them; `new` ones were not read before."""
        buffer, config, scaling = self.rollout.buffer, self.wants.page.config_, self._scaling
        columns, (t, n) = buffer.columns, slots.shape
        terminated, cut = columns["terminated"][slots], columns["truncated"][slots]
        ends = terminated | cut
        reward = self._scaled_rewards(columns["reward"][slots], ends, new=new)
        ends[-1] = True  # the rollout's own end
        after = buffer.after(slots)
        seen = {name: columns[name] for name in columns if name.split("/")[0] == "observation"}
        shown = value_columns(self.rollout.observation)
        read: Columns = {}
        self._shown = dict[str, np.ndarray]()  # raw, [T n, ...] by column
        for name, column in seen.items():
            following = column[np.where(after < 0, 0, after)]
            following[after < 0] = shown[name][np.nonzero(after < 0)[1]]  # where the environments stand now
            for prefix, rows in (("", column[slots]), ("next_", following)):
                key, self._shown[f"{prefix}{name}"] = f"{prefix}{name}", rows.reshape(t * n, *rows.shape[2:])
                read[key] = _scaled(scaling, name, self._shown[key]).unflatten(0, (t, n))
        action = columns["action"][slots]
        read["action"] = scaling.action(action.reshape(t * n, *action.shape[2:])).unflatten(0, (t, n))
        read["reward"] = torch.as_tensor(reward).to(self.learner.device, self.learner.dtype)
        live = torch.as_tensor(~terminated, device=self.learner.device)
        read["discount"] = config.gamma * live.to(self.learner.dtype)
        edges = {"ends": ends, "begins": buffer.begins(slots)}
        return read | {name: torch.as_tensor(rows, device=self.learner.device) for name, rows in edges.items()}

    # ---- state

    def state(self) -> Mapping[str, Tensor]:
        """The present rollout, which cannot be worked out again once the policy has changed, nor what was remembered after it."""
        counts = torch.tensor([self._begin, *self._since])
        own = {**self._columns, **self._remembered}
        return {**own, "counts": counts, "paid": torch.from_numpy(self._paid)} if self._columns else {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        rows = {name: tensor for name, tensor in tensors.items() if name not in ("counts", "paid")}
        self._remembered = {name: tensor for name, tensor in rows.items() if name.split("/")[0] == AFTER}
        self._columns = {name: tensor for name, tensor in rows.items() if name not in self._remembered}
        self._begin, *self._since = tensors["counts"].tolist()
        self._paid = tensors["paid"].numpy().copy()


def _scaled(scaling: Any, name: str, rows: np.ndarray) -> Tensor:
    key = name.partition("/")[2]
    seen = scaling.observation({key: rows} if key else rows)
    return seen[key] if key else seen


def flattened(rollout: Columns) -> Columns:
    """Flattens the columns of a rollout that losses see, [T, n, ...] to [T n, ...]."""
    return {name: column.flatten(0, 1) for name, column in rollout.items() if name not in ("begins", "ends")}


def as_batch(columns: Columns) -> Batch:
    """Rows of a rollout, and where they are in it: `index`."""
    picked = dict(columns)
    at = picked.pop("index")
    parts = {name: joined(picked, name) for name in ("observation", "next_observation")}
    known = {name: picked[name] for name in ("action", "reward", "discount")}
    extra = {name: column for name, column in picked.items() if name not in known and "observation" not in name}
    return Batch(**parts, **known, index=at, extra=extra)
