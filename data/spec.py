"""What observations and actions look like: shapes, types and ranges, as they are written into every saved file."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from .config import Config, setting
from .errors import did_you_mean
from .masks import ACTION_MASK, Masked, masked

_MNIH = "Mnih et al. 2015, Methods and Extended Data Table 1"
_BASELINES = "OpenAI Baselines, common/atari_wrappers.py"
_LONGEST_NAME = 80  # letters of an entry's name; a file may hold anything


class _Entries(Config):
    """Optional names of a leaf's entries, such as the columns of a table."""

    names: tuple[str, ...] | None = Field(default=None, exclude_if=lambda names: names is None)  # what has none is as it always was


class Box(_Entries):
    """Arrays of a fixed shape.

    Attributes:
        low, high: One number, one for each entry in C order, or None where nothing is known.
        taken_as: Of actions that are vectors here and have several axes in the environment: their shape there. None: `shape`.
    """

    kind: Literal["box"] = "box"
    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | tuple[float, ...] | None = None
    high: float | tuple[float, ...] | None = None
    taken_as: tuple[int, ...] | None = Field(default=None, exclude_if=lambda value: value is None)

    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return low and high as float64 arrays of `shape`; None where one of them is unknown."""
        if self.low is None or self.high is None:
            return None
        low, high = (np.broadcast_to(np.asarray(b, np.float64).reshape(-1), (self.size,)) for b in (self.low, self.high))
        return low.reshape(self.shape), high.reshape(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def taken_shape(self) -> tuple[int, ...]:
        """The shape of actions in the environment."""
        return self.taken_as or self.shape

    @property
    def channels(self) -> Literal["first", "last"] | None:
        """Where an image has its channels: on the shorter of its outer axes, the first where both are as long. None: no image.

        Images are uint8 with three axes.
        """
        if not self.is_image or len(self.shape) != 3:
            return None
        return "last" if self.shape[2] < self.shape[0] else "first"

    @property
    def is_image(self) -> bool:
        """True for frames of bytes: uint8 with three axes, or with two, without one for channels."""
        return self.dtype == "uint8" and len(self.shape) in (2, 3)


class Discrete(_Entries):
    """Integers start … start + n - 1."""

    kind: Literal["discrete"] = "discrete"
    n: int = Field(gt=0)
    dtype: str = "int64"
    start: int = Field(default=0, exclude_if=operator.not_)  # so that what begins at 0 is written as it always was

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def size(self) -> int:
        return 1

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and the last of them."""
        return np.asarray(float(self.start)), np.asarray(self.start + self.n - 1.0)


def _unless_zeros(start: tuple[int, ...]) -> tuple[int, ...]:
    return start if any(start) else ()


class MultiDiscrete(_Entries):
    """Vectors of integers, entry k of them start[k] … start[k] + nvec[k] - 1; an empty `start` is one of zeros."""

    kind: Literal["multi_discrete"] = "multi_discrete"
    nvec: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1)
    dtype: str = "int64"
    start: Annotated[tuple[int, ...], AfterValidator(_unless_zeros)] = Field(default=(), exclude_if=operator.not_)

    @model_validator(mode="after")
    def _start_of_each(self) -> Self:
        if self.start and len(self.start) != len(self.nvec):
            raise ValueError(f"start has {len(self.start)} entries and nvec {len(self.nvec)}")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    @property
    def size(self) -> int:
        return len(self.nvec)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        low = np.asarray(self.start or (0,) * len(self.nvec), np.float64)
        return low, low + np.asarray(self.nvec, np.float64) - 1


class MultiBinary(_Entries):
    """Vectors of n zeros and ones."""

    kind: Literal["multi_binary"] = "multi_binary"
    n: int = Field(gt=0)
    dtype: str = "uint8"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n,)

    @property
    def size(self) -> int:
        return self.n

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.shape), np.ones(self.shape)


class Dict(Config):
    """Named spaces, one column for each leaf."""

    kind: Literal["dict"] = "dict"
    spaces: dict[str, Space] = Field(min_length=1)


class Tuple(Config):
    """Numbered spaces, one column for each leaf."""

    kind: Literal["tuple"] = "tuple"
    spaces: tuple[Space, ...] = Field(min_length=1)


Leaf = Box | Discrete | MultiDiscrete | MultiBinary
ObservationSpace = Leaf | Dict | Tuple
Space = Annotated[ObservationSpace, Field(discriminator="kind")]
Dict.model_rebuild()
Tuple.model_rebuild()


def space_columns(space: ObservationSpace, name: str = "observation") -> dict[str, Leaf]:
    """List the leaves of a space by the columns that hold them: `observation`, or `observation/KEY`, `observation/KEY/0`, …."""
    match space:
        case Dict():
            inner: Mapping[str, ObservationSpace] = space.spaces
        case Tuple():
            inner = {str(k): part for k, part in enumerate(space.spaces)}
        case _:
            return {name: space}
    return {column: leaf for key, part in inner.items() for column, leaf in space_columns(part, f"{name}/{key}").items()}


def kinds_text(leaf: Discrete | MultiDiscrete) -> str:
    """Say how many kinds a leaf has, and from which number on where that is not 0: `3 kinds`, `3 kinds from 1`."""
    many, start = (leaf.n, leaf.start) if isinstance(leaf, Discrete) else (list(leaf.nvec), list(leaf.start))
    return f"{many} kinds from {start}" if start else f"{many} kinds"


def starts(columns: Mapping[str, Leaf]) -> dict[str, np.ndarray]:
    """Return the first numbers of leaves that count kinds from another one than 0, int64 of their shape, by column."""
    counted = {name: leaf for name, leaf in columns.items() if isinstance(leaf, Discrete | MultiDiscrete) and leaf.start}
    return {name: np.asarray(leaf.start, np.int64) for name, leaf in counted.items()}


def is_shown(column: str) -> bool:
    """Tell whether a column is of what is shown before an action: of an observation, or its mask."""
    return column.partition("/")[0] in ("observation", ACTION_MASK)


def flat_space(space: ObservationSpace) -> Leaf | Dict:
    """Flatten a nested space to a dict of one level, its keys joined by `/`, which is how batches have them."""
    if not isinstance(space, Dict | Tuple):
        return space
    return Dict(spaces={name.partition("/")[2]: leaf for name, leaf in space_columns(space).items()})


def value_columns(values: Any, name: str = "observation") -> dict[str, Any]:
    """Nested values by column, as `space_columns` names them: mappings by their keys, tuples of arrays by their places.

    The mask of what is `Masked` is `action_mask`, of a `next_observation` `next_action_mask`.
    """
    if isinstance(values, Masked):
        return value_columns(values.observation, name) | {name.removesuffix("observation") + ACTION_MASK: values.action_mask}
    if isinstance(values, Mapping):
        inner: Mapping[str, Any] = values
    elif isinstance(values, tuple) and any(isinstance(part, np.ndarray | Mapping | tuple) for part in values):
        inner = {str(k): part for k, part in enumerate(values)}
    else:
        return {name: values}
    return {column: leaf for key, part in inner.items() for column, leaf in value_columns(part, f"{name}/{key}").items()}


def from_columns(columns: Mapping[str, Any], name: str = "observation") -> Any:
    """Rebuild what `value_columns` took apart: a value, or a dict of one level; `Masked` where there is a mask."""
    rest = dict(columns)
    mask = rest.pop(name.removesuffix("observation") + ACTION_MASK, None)
    value = rest[name] if name in rest else {column.removeprefix(f"{name}/"): part for column, part in rest.items()}
    return masked(value, mask)


def typed(action: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert actions to a type; where that is of whole numbers to the nearest of them."""
    whole = dtype.kind in "iu" and action.dtype.kind == "f"
    return (np.rint(action) if whole else action).astype(dtype, copy=False)


def as_recorded(space: Leaf, action: Any) -> np.ndarray:
    """Convert actions [n, ...], in whatever type and shape a policy gives them, to what data have: of a box floats, and vectors."""
    array = np.asarray(action)
    if not isinstance(space, Box):
        return array
    return (array if array.dtype.kind == "f" else array.astype(np.float32)).reshape(len(array), *space.shape)


_KINDS = {"box": "continuous", "discrete": "discrete", "multi_discrete": "multi-discrete", "multi_binary": "binary"}


class Spec(Config):
    """The two spaces of a problem, and whether each observation comes with a mask of the discrete actions that are legal there."""

    observation: Space
    action: Annotated[Leaf, Field(discriminator="kind")]
    action_mask: bool = Field(default=False, exclude_if=operator.not_)  # so that what knows no mask is written as it always was

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.action_mask and not self.discrete:
            raise ValueError(f"an action_mask goes with discrete actions, and these are {self.action_kind}")
        for column, leaf in self.leaves().items():
            if leaf.names is not None and len(leaf.names) != leaf.size:
                raise ValueError(f"{column} has {leaf.size} entries and {len(leaf.names)} names")
        return self

    def leaves(self) -> dict[str, Leaf]:
        """List the leaves of both spaces by the columns that hold them."""
        return space_columns(self.observation) | {"action": self.action}

    def entry_names(self, column: str, n: int) -> list[str]:
        """Name the n entries of a column, else number them; "" for a single one without a name."""
        leaf = self.leaves().get(column)
        if leaf is not None and leaf.names is not None and len(leaf.names) == n:
            return list(leaf.names)
        return [""] if n == 1 else [str(k) for k in range(n)]

    def with_names(self, names: Mapping[str, Sequence[str]]) -> Self:
        """Add what the entries of columns are called; names that cannot be those of a column's entries are left out."""
        if not names:
            return self
        named = {name: _with_names(leaf, names.get(name)) for name, leaf in self.leaves().items()}
        return self.model_copy(update={"observation": _rebuilt(self.observation, named), "action": named["action"]})

    def shown(self) -> dict[str, Leaf]:
        """List what is shown before an action, by column: the leaves of an observation, and `action_mask` where there is one."""
        return space_columns(self.observation) | ({ACTION_MASK: MultiBinary(n=self.n_actions)} if self.action_mask else {})

    def starts(self) -> dict[str, np.ndarray]:
        """Return what kinds are counted from where that is not 0, by column: of observations and of `action`."""
        return starts(self.leaves())

    @property
    def discrete(self) -> bool:
        """True where an action is one of n."""
        return isinstance(self.action, Discrete)

    @property
    def action_kind(self) -> str:
        """The kind of actions in a word: continuous, discrete, multi-discrete or binary."""
        return _KINDS[self.action.kind]

    @property
    def n_actions(self) -> int:
        """How many discrete actions there are. Raises TypeError when actions are of another kind."""
        if isinstance(self.action, Discrete):
            return self.action.n
        raise TypeError(f"actions are {self.action_kind}")


def _with_names(leaf: Leaf, names: Sequence[str] | None) -> Leaf:
    if names is None or len(leaf.shape) > 1 or len(names) != leaf.size:
        return leaf
    plain = tuple("".join(c if c.isprintable() else " " for c in name).strip()[:_LONGEST_NAME] for name in names)
    return leaf.model_copy(update={"names": plain}) if all(plain) and len(set(plain)) == len(plain) else leaf


def _rebuilt(space: ObservationSpace, leaves: Mapping[str, Leaf], name: str = "observation") -> ObservationSpace:
    match space:
        case Dict():
            return Dict(spaces={key: _rebuilt(part, leaves, f"{name}/{key}") for key, part in space.spaces.items()})
        case Tuple():
            return Tuple(spaces=tuple(_rebuilt(part, leaves, f"{name}/{k}") for k, part in enumerate(space.spaces)))
        case _:
            return leaves[name]


def shapes_of(spec: Spec) -> dict[str, tuple[Any, ...]]:
    """By column, what two specs must share to be of one problem: shape, numbers of choices and the first of them.

    Types and bounds may differ.
    """
    names = ("shape", "n", "nvec", "start")
    return {column: tuple(getattr(leaf, name, None) for name in names) for column, leaf in spec.leaves().items()}


class Atari(Config):
    """How an Atari game is played: what a step is, what is seen of it, and where episodes begin and end.

    A step holds an action for `frame_skip` frames; what is seen is the larger of the last two, grey, [1, screen_size, screen_size].
    Rewards are the game's own: clipping is the learner's, `reward_scaler: clip`. Sticky actions are the id's: 0.25 in `ALE/…-v5`,
    none in `…NoFrameskip-v4`, or what `kwargs: {repeat_action_probability: …}` says.
    """

    noop_max: int = setting(30, "frames without an action that begin a game, drawn from 1 to so many", source=_MNIH, ge=0)
    frame_skip: int = setting(4, "frames of a step", source=_MNIH, gt=0)
    screen_size: int = setting(84, "height and width of what is seen", source=_MNIH, gt=0)
    fire_reset: bool = setting(True, "whether FIRE begins an episode, in games that wait for it", source=_BASELINES)
    life_loss: bool = setting(
        True, "whether a lost life ends an episode while acting to learn or to record; evaluations play whole games", source=_MNIH
    )


_PROTOCOLS: dict[str, dict[str, object]] = {
    "deepmind": {},
    "dopamine": {"noop_max": 0, "fire_reset": False, "life_loss": False},
}


def _read_protocol(value: object) -> object:
    if isinstance(value, str) and value not in _PROTOCOLS:
        raise ValueError(f"there is no such protocol{did_you_mean(value, _PROTOCOLS)}")
    return _PROTOCOLS[value] if isinstance(value, str) else value


class Goals(Config):
    """How an environment's goals are set and seen."""

    part: tuple[int, ...] | None = setting(
        None, "which entries of the environment's goal a policy is told; None: the whole of it", min_length=1
    )
    tasks: tuple[int, ...] = setting(
        (), "tasks that episodes have in turn, by number, as reset's option task_id; none: as the environment draws them"
    )


class Environment(Config):
    """A gymnasium environment by id.

    Attributes:
        id: gymnasium's, such as `CartPole-v1` or `ALE/Breakout-v5`.
        kwargs: What it is made with.
        atari: How a game of the Arcade Learning Environment is played; None: as gymnasium has it, in frames of 210 × 160 in colour.
            "deepmind" is the protocol of Mnih et al. 2015, with the settings' defaults; "dopamine" that of Machado et al. 2018,
            Castro et al. 2018 and DQN Replay, where sticky actions take the place of no-ops and only the game's end is one.
        goals: How policies see the goal that the environment sets; None: they do not.
    """

    id: str = setting(..., "gymnasium's id, as CartPole-v1 or ALE/Breakout-v5")
    kwargs: dict[str, object] = setting({}, "what it is made with")
    atari: Annotated[Atari | None, BeforeValidator(_read_protocol)] = setting(
        None, "how an Atari game is played: deepmind, dopamine or settings", exclude_if=lambda value: value is None
    )
    goals: Goals | None = setting(None, "how policies see the goal that it sets", exclude_if=lambda value: value is None)
