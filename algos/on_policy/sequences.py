r"""Rollouts for recurrent networks: read from one end to the other, and learned from in sub-sequences with the memories of then.

    h_t = f(s_t, (1 - b_t) h_{t-1})         b_t: whether step t begins an episode; h_{-1}: what the rollout before had left

A rollout [T, n] is read once with the networks that acted, which gives every h_t: V(s_t) and log π(a_t|s_t) go on from h_{t-1},
which is what the policy remembered when it acted, and V of what followed goes on from h_t, at the end of an episode too. Losses go
through sub-sequences: pieces of K steps of an environment, which may go over the ends of episodes, or whole episodes. Each begins
with its h_{t-1} of then, through which no gradient goes; so the first minibatch of a rollout sees the policy that acted, and later
ones begin with memories of networks that are some gradient steps old, as in PFRL.

PFRL      0.4.0, agents/ppo.py, `recurrent` and `max_recurrent_sequence_len`. Read, not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree  # it has no public name yet

from ...data.batch import Batch
from ...data.histories import Histories
from ..nets import Nets
from ..networks.recurrent import recalling
from ..recurrence import recurrent_parts

Columns = dict[str, Tensor]
BEFORE, AFTER = "memory", "remembered"  # what a network remembers before each step, and after it: "memory/policy"


# ---- networks


def said(nets: Nets, name: str, batch: Batch) -> Any:
    """Calls a network on a minibatch; a recurrent one goes on from its memories where sub-sequences begin."""
    with recalling(handed(nets, name, batch.extra)):
        return getattr(nets, name)(batch.observation)


def handed(nets: Nets, name: str, columns: Mapping[str, Tensor], when: str = BEFORE) -> dict[nn.Module, Tensor]:
    """Memories among some columns, by the network that they are of; empty where none of it is recurrent."""
    parts = recurrent_parts(name, nets.network(name))
    return {layer: columns[f"{when}/{part}"] for part, layer in parts.items() if f"{when}/{part}" in columns}


def memories(nets: Nets, name: str, rollout: Columns) -> Columns:
    """A network's memories before and after each step of a rollout, [T, n, ...]; nothing where none of it is recurrent.

    Args:
        nets: Networks.
        name: Of the network.
        rollout: Has `begins`, [T, n], and what was remembered after the rollout before it, [n, ...], where there was one.
    """
    if not (parts := recurrent_parts(name, nets.network(name))):
        return {}
    begins, found = rollout["begins"], Columns()
    seen = pytree.tree_map(lambda part: part.transpose(0, 1), joined(rollout, "observation"))
    with recalling(handed(nets, name, rollout, AFTER)) as recall:
        getattr(nets, name)(Histories(seen, torch.ones_like(begins.mT), 0, begins.mT))
    for part, layer in parts.items():
        after = recall.left[layer].transpose(0, 1)
        first = rollout.get(f"{AFTER}/{part}", torch.zeros_like(after[0]))
        before = torch.cat((first[None], after[:-1]))
        fresh = begins.reshape(*begins.shape, *[1] * (after.ndim - 2))
        found |= {f"{BEFORE}/{part}": torch.where(fresh, 0, before), f"{AFTER}/{part}": after}
    return found


# ---- rollouts as sub-sequences


class Pieces(NamedTuple):
    """Which rows of a flat rollout S sub-sequences of at most K steps have, [S, K].

    Attributes:
        rows: int64; in padding, which comes before the steps that are there, the first of these.
        mask: Bool: which steps there are.
    """

    rows: Tensor
    mask: Tensor


def pieces(steps: int, n: int, length: int, device: torch.device) -> Pieces:
    """Of a rollout [T, n], each environment's T steps in as few pieces of `length` as they take; the first may be shorter."""
    count = -(-steps // length)
    at = torch.arange(count * length, device=device) - (count * length - steps)
    rows = at.clamp(min=0) * n + torch.arange(n, device=device)[:, None]
    return Pieces(rows.reshape(n * count, length), (at >= 0).expand(n, -1).reshape(n * count, length))


def episodes(ends: Tensor) -> Pieces:
    """Of whole episodes one after the other, whose last steps `ends` [N] says: each by itself."""
    last = ends.nonzero()[:, 0]
    length = last.diff(prepend=last.new_tensor([-1]))
    back = torch.arange(int(length.max()) - 1, -1, -1, device=ends.device)
    return Pieces(torch.maximum(last[:, None] - back, (last - length + 1)[:, None]), back < length[:, None])


def cut(rollout: Columns, wanted: Pieces) -> Columns:
    """A flat rollout's columns [N, ...] as those of sub-sequences [S, K, ...]; of memories those at their beginnings, [S, ...]."""
    rows = (wanted.rows, wanted.rows[:, 0])
    return {
        **{name: column[rows[_of_beginning(name)]] for name, column in rollout.items()},
        "mask": wanted.mask,
        "index": wanted.rows,
    }


def batch_of(picked: Columns) -> Batch:
    """The minibatch of some sub-sequences: N = S · K steps, of which those that are padding weigh nothing."""
    mask, flat = picked["mask"], {name: column if _of_beginning(name) else column.flatten(0, 1) for name, column in picked.items()}
    counted = flat["mask"].to(flat["reward"].dtype)
    histories = Histories(joined(picked, "observation"), mask, 0, picked["begins"])
    known = {name: flat[name] for name in ("action", "reward", "discount", "index")}
    extra = {name: column for name, column in flat.items() if name not in (*known, "mask", "begins") and "observation" not in name}
    return Batch(
        histories, next_observation=joined(flat, "next_observation"), **known, weight=counted / counted.mean(), extra=extra
    )


def _of_beginning(name: str) -> bool:
    """Tells whether a column has a row for each sub-sequence, and not for each step."""
    return name.partition("/")[0] == BEFORE


def joined(columns: Columns, name: str) -> Any:
    """An observation among some columns, or a dict of its parts."""
    if name in columns:
        return columns[name]
    return {column.partition("/")[2]: rows for column, rows in columns.items() if column.startswith(f"{name}/")}
