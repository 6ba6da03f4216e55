r"""Recurrent networks: features of an observation and of all that came before it in its episode.

    GRU    r, z = σ(W x + U h),    n = tanh(W_n x + b_n + r (U_n h + c_n)),    h' = (1 - z) n + z h
    LSTM   i, f, o = σ(W x + U h),    g = tanh(W_g x + U_g h),    c' = f c + i g,    h' = o tanh(c')

x is what another encoder makes of an observation; a GRU's memory is h, an LSTM's h and c side by side, and both begin at 0. Gates
lie as in torch.nn.GRU and torch.nn.LSTM, and weights begin as theirs. They are written out because what vmaps over seeds cannot
batch torch's own.

The same network is called in three ways. Of `Histories` it reads every stretch from its first step on, and no gradient reaches the
steps before those that are learned from (R2D2's burn-in). Within `recalling`, where a policy acts, it makes one step from the
memory that it is handed there, and leaves the next; `Histories` begin with that memory there, and leave one of each step. Of other
observations it takes each for an episode's first.

GRU       Cho et al. 2014, arXiv:1406.1078, as in cuDNN; LSTM: Hochreiter and Schmidhuber 1997, with forget gates.
Burn-in   Kapturowski, Ostrovski, Quan, Munos, Dabney: Recurrent Experience Replay in Distributed RL, ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor, nn

from ...data.histories import Histories
from .perceptrons import EncoderModule, Linear, Observation, beside

Kind = Literal["gru", "lstm"]


class Recall:
    """Memories that recurrent networks are handed, [B, *shape] each, and leave: the same, or [B, L, *shape] of `Histories`."""

    def __init__(self, handed: Mapping[nn.Module, Tensor]) -> None:
        self.handed = dict(handed)
        self.left: dict[nn.Module, Tensor] = {}


_recall: ContextVar[Recall | None] = ContextVar("recall", default=None)


@contextmanager
def recalling(handed: Mapping[nn.Module, Tensor]) -> Generator[Recall]:
    """Recurrent networks called inside act on from these memories, by network; those that have none begin."""
    recall = Recall(handed)
    token = _recall.set(recall)
    try:
        yield recall
    finally:
        _recall.reset(token)


class RecurrentNetwork(EncoderModule):
    """Features [(members,) N, F] of observations and their pasts; see the module.

    Args:
        kind: Of the recurrence.
        before: Reads each observation.
        units: Entries of h.
        head_units: Width of layers with ReLU after it, which read h, and an action beside it. Where there is an action and no
            layer, there is one of `units`, for a value linear in both says the same of an action in every state.
        action_size: Entries of an action that it is called with; no memory holds it.
        members: Size of an ensemble, each with a memory of its own; None: a single encoder.
    """

    remembers = True

    def __init__(
        self, kind: Kind, before: EncoderModule, units: int, head_units: Sequence[int], action_size: int, members: int | None
    ) -> None:
        super().__init__()
        self.kind, self.units, self.members = kind, units, members
        self.before = before
        gates = units * (3 if kind == "gru" else 4)
        self.inputs, self.past = Linear(before.features, gates, members), Linear(units, gates, members)
        for parameter in (*self.inputs.parameters(), *self.past.parameters()):
            nn.init.uniform_(parameter, -(units**-0.5), units**-0.5)
        widths = tuple(head_units) or ((units,) if action_size else ())
        layers, size = list[nn.Module](), units + action_size
        for width in widths:
            layers += [Linear(size, width, members), nn.ReLU()]
            size = width
        self.head, self.features = nn.Sequential(*layers), size

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Of the memory of one environment: [entries], of an ensemble [members, entries]."""
        entries = self.units if self.kind == "gru" else 2 * self.units
        return (entries,) if self.members is None else (self.members, entries)

    def forward(self, observation: Observation | Histories, action: Tensor | None = None, first: int | None = None) -> Tensor:
        seen = self._of_histories(observation) if isinstance(observation, Histories) else self._of_one(observation)
        if first is not None and self.members is not None:
            seen = seen[:first]
        return self.head(seen if action is None else beside(seen, action))

    def _of_histories(self, histories: Histories) -> Tensor:
        """The h at each of the steps that are learned from, [(members,) N, units]."""
        mask, skip = histories.mask, histories.before
        own = self._own(histories.every()).unflatten(-2, tuple(mask.shape)).unbind(-2)
        there, recall = mask[..., None].unbind(-2), _recall.get()
        fresh = None if histories.begins is None else histories.begins[..., None].unbind(-2)

        def on(t: int, memory: Tensor) -> Tensor:
            known = memory if fresh is None else torch.where(fresh[t], 0, memory)
            return torch.where(there[t], self._next(own[t], known), memory)

        memory = self._known(recall, own[0])
        with torch.no_grad():
            for t in range(skip):
                memory = on(t, memory)
        memories: list[Tensor] = []
        for t in range(skip, len(own)):
            memory = on(t, memory)
            memories.append(memory)
        every = torch.stack(memories, -2)
        if recall is not None:
            recall.left[self] = self._outside(every)
        return self._told(every).flatten(-3, -2)

    def _of_one(self, observation: Observation) -> Tensor:
        """The h after one step from what is recalled, [(members,) B, units]."""
        own, recall = self._own(observation), _recall.get()
        memory = self._next(own, self._known(recall, own))
        if recall is not None:
            recall.left[self] = self._outside(memory)
        return self._told(memory)

    def _known(self, recall: Recall | None, own: Tensor) -> Tensor:
        """The memory to go on from, [(members,) B, entries]; handed in as [B, (members,) entries]."""
        known = None if recall is None else recall.handed.get(self)
        if known is None:
            return self._begun(own)
        return known if self.members is None else known.movedim(-2, 0)

    def _outside(self, memory: Tensor) -> Tensor:
        """[(members,) B, ..., entries] as it is handed on: [B, ..., (members,) entries]."""
        return memory if self.members is None else memory.movedim(0, -2)

    def _own(self, observation: Observation) -> Tensor:
        """W x + b, [(members,) B, gates]."""
        return self.inputs(self.before(observation))

    def _begun(self, own: Tensor) -> Tensor:
        """The memory where an episode begins, [(members,) B, entries]."""
        return torch.zeros_like(own[..., : self.memory_shape[-1]])

    def _told(self, memory: Tensor) -> Tensor:
        return memory[..., : self.units]

    def _next(self, own: Tensor, memory: Tensor) -> Tensor:
        n, past = self.units, self.past(self._told(memory))
        if self.kind == "gru":
            reset, kept = (own[..., : 2 * n] + past[..., : 2 * n]).sigmoid().chunk(2, -1)
            new = (own[..., 2 * n :] + reset * past[..., 2 * n :]).tanh()
            return new + kept * (memory - new)
        enters, stays, new, shows = (own + past).chunk(4, -1)
        cell = stays.sigmoid() * memory[..., n:] + enters.sigmoid() * new.tanh()
        return torch.cat((shows.sigmoid() * cell.tanh(), cell), -1)
