"""A dataset with other rewards, which are worked out block by block from its own columns.

Only the reward changes; every other column stays the parent's, where it lies. Blocks begin at fixed rows, so a function sees the
same rows together however the dataset is read, by whom, and in which shards it lies: its results and the fingerprint do not differ.
"""

from __future__ import annotations

import inspect
import mmap
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..episodes import Columns, ColumnSource, Episodes, observations_of
from ..errors import ConfigError, DataError
from ..folder import Folder
from ..recording import Derivation, Recording, say_function
from ..storage.checks import as_array
from ..storage.files import storage_errors
from ..storage.rows import BLOCK, Table, ranges, read_only
from ..storage.schema import Kinds
from .expressions import Expression

Reward = str | Callable[..., Any]
_BLOCK_BYTES = 1 << 25  # of the columns that a block reads

TRANSFORMS: dict[str, str] = {
    "success": "1 if terminated else 0",  # sparse: tasks whose MDP ends when they are done
    "cost-to-goal": "0 if terminated else -1",  # the same, shifted: every step costs one
    "delayed": "return if step == steps - 1 else 0",  # the whole return with the last step (Chen et al. 2021, section 5.3)
    "sign": "sign(reward)",  # Mnih et al. 2015 for Atari
    "clip": "min(max(reward, -1), 1)",
}
_FIELDS = ("observation", "action", "next_observation", "reward")  # what a function of four gets, in this order
_OF_EPISODE = ("step", "steps", "return", "episode")


class Transform:
    """Rewards from the columns of transitions: an expression, the name of one, or a function. Raises ConfigError."""

    def __init__(self, reward: Reward, kinds: Kinds) -> None:
        self._known = {*(name.split("/")[0] for name in kinds if name != "closing"), *_FIELDS, *_OF_EPISODE}
        self.function: Callable[..., Any] | None = None
        self.expression: Expression | None = None
        if isinstance(reward, str):
            self.expression = Expression(TRANSFORMS.get(reward, reward), self._known)
            self.names = self.expression.names
        else:
            self.function = reward
            self._arguments = self._parameters(reward)
            self.names = frozenset(self._arguments or _FIELDS)
        self._try(kinds)

    def _parameters(self, function: Callable[..., Any]) -> tuple[str, ...] | None:
        """Return the fields that a function asks for by name; None: it takes the four, in order."""
        try:
            names = tuple(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            return None
        said = tuple("return" if name == "return_" else name for name in names)
        if said and all(name in self._known for name in said):
            return said
        if len(names) != len(_FIELDS):
            raise ConfigError(
                f"A function of rewards takes (observation, action, next_observation, reward), or fields by name "
                f"({', '.join(sorted(self._known - set(_FIELDS)))}), not ({', '.join(names)})."
            )
        return None

    def __call__(self, fields: Mapping[str, np.ndarray], n: int) -> np.ndarray:
        """Work out [n] float32 from fields [n, …] by name."""
        if self.expression is not None:
            found = self.expression(fields)
        else:
            assert self.function is not None
            values = {name: _field(fields, name) for name in (self._arguments or _FIELDS)}
            found = as_array("The array of new rewards", self.function(*values.values()))
        if found.dtype.kind not in "biuf":
            raise DataError(f"The new rewards are of type {found.dtype}; numbers are needed.")
        found = found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
        if found.shape not in ((), (n,)):
            raise DataError(f"The new rewards of {n} transitions have shape {list(found.shape)}; one number each is needed.")
        with np.errstate(over="ignore"):
            return np.broadcast_to(found, (n,)).astype(np.float32)

    def _try(self, kinds: Kinds) -> None:
        """Try an expression on one row of zeros, so that a wrong subscript is said before any work."""
        if self.expression is not None:
            fields = {name: np.zeros((1, *shape), dtype) for name, (dtype, shape) in kinds.items()}
            following = {f"next_{name}": value for name, value in fields.items() if name.split("/")[0] == "observation"}
            fields |= following | {name: np.zeros(1) for name in _OF_EPISODE}
            try:
                self(fields, 1)
            except DataError:
                raise ConfigError(f"{self.expression.text!r} is an array for each transition; give one number.") from None


class RelabelledRows:
    """Rows of a table with other rewards, zeros outside the episodes. Picklable where the table and the function are.

    Where rows are not asked for in order all rewards are worked out at once, `on_disk` into an unnamed file of the cache folder.
    """

    def __init__(
        self, table: Table, episodes: _Spans, kinds: Kinds, transform: Transform, *, in_order: bool, on_disk: bool
    ) -> None:
        self._table, self._episodes, self._kinds, self._transform, self.n = table, episodes, kinds, transform, table.n
        self._in_order, self._on_disk = in_order, on_disk
        size = sum(int(np.prod(kinds[name][1], dtype=np.int64)) * np.dtype(kinds[name][0]).itemsize for name in self._read_names())
        self._rows_at_once = 1 << min(BLOCK, max(1, _BLOCK_BYTES // max(size, 1))).bit_length() - 1
        self._block: tuple[int, np.ndarray] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(RelabelledRows, in_order=self._in_order, on_disk=self._on_disk)
        return made, (self._table, self._episodes, self._kinds, self._transform)

    def names(self) -> list[str]:
        return self._table.names()

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        if name != "reward":
            return self._table.read(name, start, stop)
        if not self._in_order:
            return self.whole[start:stop]
        size = self._rows_at_once
        blocks = range(start // size, -(-stop // size))
        parts = [self._rewards(k)[max(start - k * size, 0) : stop - k * size] for k in blocks if stop > start]
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.float32), *parts])

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        if name != "reward":
            return self._table.take(name, rows)
        if not self._in_order:
            return self.whole[rows]
        out, block = np.zeros(len(rows), np.float32), rows // self._rows_at_once
        for k in np.unique(block).tolist():
            mine = block == k
            out[mine] = self._rewards(k)[rows[mine] - k * self._rows_at_once]
        return out

    @cached_property
    def whole(self) -> np.ndarray:
        """All rewards, [n] float32, mapped from an unnamed file of the cache folder where columns are on disk."""
        blocks = (self._rewards(k) for k in range(-(-self.n // self._rows_at_once)))
        if not self._on_disk:
            return read_only(np.concatenate([np.zeros(0, np.float32), *blocks]))
        from ..node_maps.cache import cache_folder

        folder = cache_folder()
        with storage_errors("written", folder), tempfile.TemporaryFile(dir=folder) as file:
            for values in blocks:
                file.write(values.data)
            file.flush()
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.float32)

    def _rewards(self, k: int) -> np.ndarray:
        """Return block `k` of the rewards, with zeros in closing rows and outside the episodes."""
        if self._block is None or self._block[0] != k:
            self._block = k, self._work_out(k * self._rows_at_once, min((k + 1) * self._rows_at_once, self.n))
        return self._block[1]

    def _work_out(self, start: int, stop: int) -> np.ndarray:
        out = np.zeros(stop - start, np.float32)
        rows, of_episode = self._episodes.between(start, stop)
        if len(rows) == 0:
            return out
        fields = dict(of_episode)
        for name in self._read_names():
            following = name.split("/")[0] == "observation"
            column = self._table.read(name, start, min(stop + following, self.n))
            fields[name] = column[rows - start]
            if following:
                fields[f"next_{name}"] = column[rows - start + 1]
        values = self._transform(fields, len(rows))
        if not (finite := np.isfinite(values)).all():
            at = int((~finite).argmax())
            step = int(of_episode["step"][at])
            raise DataError(f"The new reward is {values[at]} in row {rows[at]}, step {step} of its episode.")
        out[rows - start] = values
        return out

    def _read_names(self) -> list[str]:
        wanted = {name.removeprefix("next_") for name in self._transform.names}
        return [name for name in self._kinds if name.split("/")[0] in wanted]


class _Spans:
    """Where episodes lie, in the order of their rows, with what expressions may ask of them."""

    def __init__(self, episodes: Episodes, *, returns: bool) -> None:
        order = np.argsort(episodes.first_row, kind="stable")
        self.first, self.steps = np.asarray(episodes.first_row)[order], np.asarray(episodes.steps)[order]
        self.episode = order
        self.returns = episodes.returns[order] if returns else None

    def between(self, start: int, stop: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return rows [n] of transitions from `start` to `stop - 1`, and fields of each one's episode."""
        ends = self.first + self.steps
        i, j = int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(self.first, stop))
        low, high = np.maximum(self.first[i:j], start), np.minimum(ends[i:j], stop)
        length = np.maximum(high - low, 0)
        rows, here = ranges(low, length), np.repeat(np.arange(i, max(i, j)), length)
        fields = {"step": rows - self.first[here], "steps": self.steps[here], "episode": self.episode[here]}
        return rows, fields if self.returns is None else {**fields, "return": self.returns[here]}


class Relabelled:
    """A source with other rewards; see `RelabelledRows`."""

    def __init__(self, source: ColumnSource, episodes: Episodes, transform: Transform) -> None:
        self._source, self._episodes, self._transform = source, episodes, transform

    @property
    def kinds(self) -> Kinds:
        return self._source.kinds

    @property
    def folders(self) -> tuple[Folder, ...]:
        return self._source.folders

    @property
    def in_memory(self) -> bool:
        return self._source.in_memory

    @cached_property
    def _spans(self) -> _Spans:
        return _Spans(self._episodes, returns="return" in self._transform.names)

    def columns(self) -> Columns:
        """Return the source's columns with new rewards: in memory where the source is, else mapped from an unnamed file."""
        return self._columns

    @cached_property
    def _columns(self) -> Columns:
        return {**self._source.columns(), "reward": self._whole.whole}

    @cached_property
    def _whole(self) -> RelabelledRows:
        return self._rows(self._source.table(in_order=True), in_order=True)

    def table(self, *, in_order: bool) -> Table:
        return self._rows(self._source.table(in_order=in_order), in_order=in_order)

    def in_place(self) -> Table:
        """Open the rows in any order; all rewards are worked out at once. Raises DataError as a folder's."""
        return self._rows(self._source.in_place(), in_order=False)

    def _rows(self, table: Table, *, in_order: bool) -> RelabelledRows:
        on_disk = bool(self.folders)
        return RelabelledRows(table, self._spans, self.kinds, self._transform, in_order=in_order, on_disk=on_disk)

    def returns(self) -> np.ndarray:
        """Sum the new rewards of each episode, [E] float64; all are worked out for it."""
        rewards, episodes = self._whole.whole, self._episodes
        ends = np.cumsum(episodes.steps)
        found = [np.zeros(0)]
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
            first, steps = episodes.first_row[start:stop], episodes.steps[start:stop]
            found.append(np.add.reduceat(rewards[ranges(first, steps)].astype(np.float64), np.cumsum(steps) - steps))
            start = stop
        return np.concatenate(found)


def relabel(dataset: Recording, reward: Reward) -> Recording:
    """Return the same steps with other rewards, computed block by block.

    Args:
        dataset: whose steps.
        reward: an expression over the fields of a transition, such as `reward - 1` or `-abs(next_observation[0])`: `reward`,
            `observation[K]`, `action` or `action[K]`, `next_observation[K]`, `terminated`, `truncated`, further columns, and of
            its episode `step` (from 0), `steps`, `return` and `episode`; see `expressions`. Or one of `TRANSFORMS` by name. Or a
            function of arrays (observation, action, next_observation, reward), or of any of these fields by name, that gives [n]
            numbers; row i of them may depend on row i only.

    Raises:
        ConfigError: the expression cannot be used.
        DataError: (when rewards are worked out) one is not finite, or there is not one for each transition.
    """
    dataset = dataset.snapshot()
    source = Relabelled(dataset.source, dataset.episodes, Transform(reward, dataset.kinds))
    said = reward if isinstance(reward, str) else say_function(reward)
    return Recording(
        source,
        Episodes(dataset.episodes, source, dataset.spec, source.returns),
        name=f"{dataset.name} (relabelled)",
        spec=dataset.spec,
        environment=dataset.environment,
        provenance=Derivation("relabel", {"reward": said}, (dataset,)),
        cuts=dataset.cuts,
    )


def _field(fields: Mapping[str, np.ndarray], name: str) -> Any:
    """Return a field as a function gets it: dicts of observations as dicts."""
    prefix = "next_" if name == "next_observation" else ""
    if name in ("observation", "next_observation"):
        return observations_of({key.removeprefix(prefix): v for key, v in fields.items() if key.startswith(name)}, slice(None))
    return fields[name]
