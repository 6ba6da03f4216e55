"""Which importer reads a file: decided by what is in it, never by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import ConfigError, D3rayError, DataError, did_you_mean, reason
from ..spec import Spec
from ..storage.legal import IllegalActions, keeping_illegal_actions
from ..storage.schema import as_amounts, infer_spec, kinds_of, largest_numbers
from ..storage.steps import counting_from, exact_floats
from .actions import ActionsOutside, adjust_actions
from .dqn_replay import dqn_replay_parts, is_dqn_replay, read_dqn_replay
from .hdf5.arrays import find, is_hdf5, listed, open_hdf5
from .hdf5.d3rlpy import is_d3rlpy, plan_d3rlpy, read_d3rlpy
from .hdf5.d4rl import REQUIRED as D4RL
from .hdf5.d4rl import is_d4rl, plan_d4rl, read_d4rl
from .imported import Imported, Plan, existing_file
from .minari.folder import is_minari, minari_parts, plan_minari, read_minari
from .npz.dreamer import is_dreamer, read_dreamer
from .npz.ogbench import is_ogbench, read_ogbench
from .npz.pfrl import is_pfrl, read_pfrl
from .npz.steps import is_npz, missing, open_npz, read_npz
from .rlds.folder import is_rlds, read_rlds, rlds_files
from .rllib.json_lines import is_rllib_json, read_rllib_json, rllib_json_parts
from .rllib.parquet import is_rllib_parquet, read_rllib_parquet, rllib_parquet_parts
from .tabular.csv_table import csv_parts, is_csv, is_table, plan_csv, read_csv
from .tabular.flat_parquet import flat_parquet_parts, is_flat_parquet, is_parquet_table, plan_flat_parquet, read_flat_parquet
from .tabular.lerobot import is_lerobot, lerobot_parts, read_lerobot
from .tabular.open_bandit import is_open_bandit, read_open_bandit
from .tabular.parquet_table import is_parquet
from .tianshou import is_tianshou, plan_tianshou, read_tianshou
from .untrusted.archives import is_zip
from .untrusted.pickled_paths import is_pickled_paths, read_pickled_paths
from .untrusted.unpacking import unpacking, unpacks_in_parts


def no_parts(folder: Path) -> list[Path]:
    """What a format says whose datasets are single files: no folder is one."""
    del folder
    return []


@dataclass(frozen=True)
class Format:
    """One importer: how a file (or folder) of its kind is known, and how it is read.

    `detect` looks at first bytes and keys: False for what it does not know, DataError for what is damaged. It is asked about a
    folder only where `parts` is given. `read(path, *, timeout_at=None, discrete_action=None)` takes keyword-only options, its own
    and `rename` (the usual name to the name in this file) where that makes sense. `parts` lists, for a folder that is a dataset
    of this format, the paths (files, or the folder itself) that `read` takes one by one, and nothing for another folder. Where a
    file can be read in parts, `plan(path, *, n_bytes, …)` says of which: it takes the options of `read`.
    """

    name: str
    description: str
    detect: Callable[[Path], bool]
    read: Callable[..., Imported]
    parts: Callable[[Path], list[Path]] = no_parts
    plan: Callable[..., Plan] | None = None


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("d4rl", "D4RL's HDF5: observations, actions, rewards, terminals, timeouts", is_d4rl, read_d4rl, plan=plan_d4rl),
        Format("d3rlpy", "d3rlpy's HDF5, of versions 0.x, 1.x and 2.x", is_d3rlpy, read_d3rlpy, plan=plan_d3rlpy),
        Format("ogbench", "OGBench's .npz: trajectories whose terminals are no ends of the task", is_ogbench, read_ogbench),
        Format(
            "dreamer",
            "Dreamer's, V-D4RL's and DrQ-v2's episodes as .npz: image or observation, action, reward, discount, is_first, …",
            is_dreamer,
            read_dreamer,
        ),
        Format("pfrl", "PFRL's replay buffer as .npz: state, action, reward, next_state, is_state_terminal", is_pfrl, read_pfrl),
        Format(
            "csv",
            "CSV with episode, observation:0, …, action:0, …, reward, also beside images",
            is_csv,
            read_csv,
            csv_parts,
            plan_csv,
        ),
        Format(
            "open_bandit",
            "Open Bandit Dataset's CSV: item_id, position, click, propensity_score, user_feature_0, …",
            is_open_bandit,
            read_open_bandit,
        ),
        Format(
            "npz", "NumPy .npz with observations, actions, rewards and terminated, or imitation's trajectories", is_npz, read_npz
        ),
        Format(
            "tianshou",
            "Tianshou's replay buffers, of save_hdf5 or pickled",
            is_tianshou,
            read_tianshou,
            plan=plan_tianshou,
        ),
        Format("pickled_paths", "pickles of paths, dicts of arrays of numbers", is_pickled_paths, read_pickled_paths),
        Format(
            "rllib_json",
            "RLlib's JSON lines of sample batches, also inside zip or gzip",
            is_rllib_json,
            read_rllib_json,
            rllib_json_parts,
        ),
        Format(
            "rllib_parquet",
            "RLlib's Parquet: a row a step, or packed episodes",
            is_rllib_parquet,
            read_rllib_parquet,
            rllib_parquet_parts,
        ),
        Format(
            "dqn_replay",
            "DQN Replay's checkpoints, $store$_observation_ckpt.N.gz and beside it",
            is_dqn_replay,
            read_dqn_replay,
            dqn_replay_parts,
        ),
        Format("rlds", "RLDS: TFRecord files of TensorFlow Datasets beside features.json", is_rlds, read_rlds, rlds_files),
        Format(
            "minari", "Minari's folder (HDF5 or Arrow storage), or its HDF5 file", is_minari, read_minari, minari_parts, plan_minari
        ),
        Format("lerobot", "LeRobot 2.x and 3.0: meta/info.json and Parquet files", is_lerobot, read_lerobot, lerobot_parts),
        Format(
            "parquet",
            "Parquet with a row a step under d3ray's names",
            is_flat_parquet,
            read_flat_parquet,
            flat_parquet_parts,
            plan_flat_parquet,
        ),
    )
}


def register_format(new: Format) -> None:
    """Adds an importer of a user's own; it is asked after those that are there.

    Raises:
        ConfigError: the name is taken.
    """
    if new.name in FORMATS:
        raise ConfigError(f"There is a format {new.name!r} already; give yours another name.")
    FORMATS[new.name] = new


def detect(path: Path | str) -> str:
    """The name of the format that a file is in, or a folder that is one dataset.

    Raises:
        DataError: there is no such file, it is damaged, or no format knows it; then the formats are listed.
    """
    path = Path(path)
    folder = path.is_dir()
    path = path if folder else existing_file(path)
    for name, known in FORMATS.items():
        with _unforeseen(path, name):
            if (known.parts is not no_parts or not folder) and known.detect(path):
                return name
    if not folder:
        _say_what_is_missing(path)
    choices = "; ".join(f"{name} ({f.description})" for name, f in FORMATS.items())
    raise DataError(f"{path} {'is a folder in no known format' if folder else _seen(path)}; the formats are: {choices}.")


def _say_what_is_missing(path: Path) -> None:
    """Raises DataError where a file has most of what steps need, and so one can say what it lacks."""
    name = None
    with suppress(DataError):
        if is_hdf5(path):
            with open_hdf5(path) as file:
                name = "d4rl" if sum(find(file, word) is not None for word in D4RL) > 2 else None
        elif is_zip(path):
            with open_npz(path) as archive:
                name = "npz" if len(missing(archive.names)) == 1 else None
        else:
            name = _table(path)
    if name is not None:
        try:
            FORMATS[name].read(path)
        except DataError as error:
            hint = f" Where it has another name, import with format={name} and rename.USUAL=NAME."
            raise DataError(f"{error}{'' if name in ('csv', 'parquet') else hint}") from None


def _table(path: Path, *, renamed: bool = False) -> str | None:
    """The format of a table whose columns may be called otherwise; None where it is none, or nothing suggests that it has steps."""
    if path.is_dir():
        return None
    return "csv" if is_table(path) else "parquet" if is_parquet(path) and (renamed or is_parquet_table(path)) else None


def parts_of(folder: Path, format: str | None = None) -> list[Path]:
    """What is read one by one of a folder that is a dataset of a format (of that one, or of any); nothing for another folder."""
    for known in FORMATS.values() if format is None else [FORMATS[format]] if format in FORMATS else []:
        with _unforeseen(folder, known.name):
            if parts := known.parts(folder):
                return parts
    return []


def check_options(format: str, options: Iterable[str]) -> None:
    """Whether an importer takes the options.

    Raises:
        ConfigError: no format has that name, or it has no such option; the nearest name is said.
    """
    if format not in FORMATS:
        raise ConfigError(f"There is no format {format!r}{did_you_mean(format, FORMATS)}")
    known = [name for name, p in inspect.signature(FORMATS[format].read).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise ConfigError(f"The format {format!r} has no option {option!r}{did_you_mean(option, known)}")


def read(
    path: Path | str,
    format: str | None = None,
    *,
    actions: ActionsOutside = "keep",
    action_scale: float | tuple[float, ...] | None = None,
    keep_float64: bool = False,
    illegal_actions: IllegalActions = "refuse",
    spec: Spec | None = None,
    amounts: Collection[str] = (),
    **options: Any,
) -> Imported:
    """The steps in a file, by the importer named or, with None, the one that knows the file.

    Args:
        path: the file, or a folder that is one dataset.
        format: a key of `FORMATS`.
        actions: what becomes of actions out of the space's bounds: "keep" them, "clip" them to the bounds, or "refuse" the file.
        action_scale: what continuous actions are multiplied by, one number or one an entry, before bounds are looked at. Bounds
            that the file itself gives are multiplied too; those of `spec` are not.
        keep_float64: keep float64 observations, actions and further columns; else they become float32.
        illegal_actions: steps whose action was illegal by the file's action_mask: "refuse" the file, or "keep" them.
        spec: the spaces of the environment; None: those that the file gives, if it does.
        amounts: columns of observations that are no numbers of kinds, though they are integers and none is negative here.
        options: what the importer takes besides, such as `timeout_at`.

    Returns:
        The steps; `provenance["options"]` has what was asked for.

    Raises:
        DataError: the file cannot be read, or `actions` is "refuse" and an action is out of bounds.
        ConfigError: no format or option has that name, or actions are to be scaled or held to bounds and cannot be.
    """
    return plan(
        path,
        format,
        actions=actions,
        action_scale=action_scale,
        keep_float64=keep_float64,
        illegal_actions=illegal_actions,
        spec=spec,
        amounts=amounts,
        **options,
    ).parts[0]()


def plan(path: Path | str, format: str | None = None, *, n_bytes: int | None = None, **options: Any) -> Plan:
    """How a file is read in parts of whole episodes, of which each goes through the same as a whole file does.

    Args:
        path: as `read`, which has the options too.
        format: a key of `FORMATS`.
        n_bytes: of a part, in formats that can be read in parts, and where no episode has more; None: all of the file.
        options: as `read`.

    Raises:
        DataError: the file cannot be read.
        ConfigError: no format or option has that name.
    """
    adjustment: dict[str, Any] = {"actions": "keep", "action_scale": None, "keep_float64": False, "illegal_actions": "refuse"}
    adjustment |= {"spec": None, "amounts": ()}
    adjustment |= {name: options.pop(name) for name in adjustment if name in options}
    try:
        name = detect(path) if format is None else format
    except DataError as error:
        if not options.get("rename"):
            raise
        if (name := _table(Path(path), renamed=True)) is None:
            raise DataError(f"{error} Where columns are renamed, name the format as well.") from None
    check_options(name, options)
    known, whole = FORMATS[name], Plan((partial(FORMATS[name].read, path, **options),), (0,))
    with _unforeseen(path, name):
        found = whole if n_bytes is None or known.plan is None else known.plan(path, n_bytes=n_bytes, **options)
        if len(found.parts) > 1:
            unpacks_in_parts(str(path), sum(found.bytes))
    parts = tuple(partial(_read, read, path, name, options, adjustment) for read in found.parts)
    return replace(found, parts=parts, provenance=found.provenance | _asked(options, adjustment))


def _read(
    read: Callable[[], Imported], path: Path | str, name: str, options: Mapping[str, Any], adjustment: Mapping[str, Any]
) -> Imported:
    """What an importer gives, checked and adjusted."""
    keeping = keeping_illegal_actions() if adjustment["illegal_actions"] == "keep" else nullcontext()
    counting = counting_from(adjustment["spec"].starts()) if adjustment["spec"] else nullcontext()
    with exact_floats() if adjustment["keep_float64"] else nullcontext(), keeping, counting, _unforeseen(path, name):
        imported = read()
    if amounts := adjustment["amounts"]:
        kinds = as_amounts(kinds_of(imported.steps.columns), amounts)
        columns = {name: column.reshape(-1, *kinds[name][1]) for name, column in imported.steps.columns.items()}
        imported = replace(imported, steps=replace(imported.steps, columns=columns))
    try:
        infer_spec(kinds_of(imported.steps.columns), largest_numbers(imported.steps.columns))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    scale, spec = adjustment["action_scale"], adjustment["spec"]
    adjusted = adjust_actions(imported, str(path), actions=adjustment["actions"], scale=scale, spec=spec)
    return replace(adjusted, provenance=adjusted.provenance | _asked(options, adjustment))


def _asked(options: Mapping[str, Any], adjustment: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, for the provenance."""
    asked = {**options, "actions": None if adjustment["actions"] == "keep" else adjustment["actions"]}
    asked |= {"action_scale": adjustment["action_scale"], "keep_float64": adjustment["keep_float64"] or None}
    asked |= {"illegal_actions": "keep" if adjustment["illegal_actions"] == "keep" else None}
    given = {key: _plain(value) for key, value in asked.items() if value is not None}
    return {"options": given} if given else {}


@contextmanager
def _unforeseen(path: Path | str, format: str) -> Generator[None]:
    """What an importer raises besides, as a `DataError`: files are damaged in more ways than anyone lists.

    What is made of all files that it reads is counted together.
    """
    try:
        with unpacking():
            yield
    except (D3rayError, OSError):
        raise
    except MemoryError:
        raise DataError(f"{path} does not fit into memory, or is damaged.") from None
    except Exception as error:
        raise DataError(f"{path} cannot be read as {format}: it is damaged, or unlike others ({reason(error)}).") from error


def _plain(value: Any) -> Any:
    """An option as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, str | int | float | bool) else str(value)


def _seen(path: Path) -> str:
    """What an unknown file is, as far as can be seen."""
    if is_hdf5(path):
        with open_hdf5(path) as file:
            return f"is HDF5 but in no known layout (it has {listed(file)})"
    if is_zip(path):
        return "is a zip archive, but none with arrays of steps"
    with path.open("rb") as file:
        head = file.read(6)
    if head == b"\x93NUMPY":
        return "is a single NumPy array"
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "is text in UTF-16, which no importer reads; save it as UTF-8"
    return "is in no known format"
