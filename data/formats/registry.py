"""All formats by name, and which of them a file is in: decided by what the file holds, never by its name."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ..config import Config, setting
from ..errors import ConfigError, D3rayError, DataError, did_you_mean, reason
from ..spec import Spec
from ..storage.legal import IllegalActions, keeping_illegal_actions
from ..storage.schema import as_amounts, infer_spec, kinds_of, largest_numbers
from ..storage.steps import counting_from, exact_floats
from .actions import ActionsOutside, adjust_actions
from .arrays import existing_file
from .format import Format, Imported, Plan
from .untrusted.unpacking import unpacking, unpacks_in_parts


class _Formats(UserDict[str, Any]):
    """Format classes by name; where one is `MODULE:CLASS`, it is imported when it is asked for."""

    def __getitem__(self, name: str) -> type[Format]:
        found = self.data[name]
        if isinstance(found, str):
            module, _, kind = found.partition(":")
            found = self.data[name] = getattr(import_module(f".{module}", __package__), kind)
        return found


FORMATS = _Formats(  # in the order in which they are asked about a file: the particular before the general
    {
        "d4rl": "hdf5.d4rl:D4RL",
        "d3rlpy": "hdf5.d3rlpy:D3rlpy",
        "ogbench": "npz.ogbench:OGBench",
        "dreamer": "npz.dreamer:Dreamer",
        "pfrl": "npz.pfrl:PFRL",
        "decisions": "decisions.decision_log:DecisionLog",
        "csv": "tabular.csv_table:CSV",
        "open_bandit": "tabular.open_bandit:OpenBandit",
        "npz": "npz.steps:NPZ",
        "tianshou": "tianshou:Tianshou",
        "pickled_paths": "pickled_paths:PickledPaths",
        "rllib_json": "rllib.json_lines:RLlibJSON",
        "rllib_parquet": "rllib.parquet:RLlibParquet",
        "dqn_replay": "dqn_replay:DQNReplay",
        "rlds": "rlds.folder:RLDS",
        "minari": "minari.folder:Minari",
        "lerobot": "tabular.lerobot:LeRobot",
        "parquet": "tabular.flat_parquet:FlatParquet",
    }
)


def register_format(new: type[Format]) -> type[Format]:
    """Add a format of a user's own, which is asked after those that are there; decorates its class. Raises ConfigError."""
    if new.name in FORMATS:
        raise ConfigError(f"There is a format {new.name!r} already; give yours another name.")
    FORMATS[new.name] = new
    return new


class Adjustments(Config):
    """Adjustments to steps of any format, made after reading."""

    actions: ActionsOutside = setting("keep", "actions out of the space's bounds: keep them, clip them, or refuse the file")
    action_scale: float | tuple[float, ...] | None = setting(
        None,
        "what continuous actions are multiplied by, one number or one an entry, before bounds are looked at; bounds that the file "
        "itself gives are multiplied too, those of spec are not",
    )
    keep_float64: bool = setting(False, "keep float64 observations, actions and further columns; else they become float32")
    illegal_actions: IllegalActions = setting("refuse", "steps whose action was illegal by the file's action_mask")
    spec: Spec | None = setting(None, "spaces of the environment; null: those that the file gives, if it does", exclude=True)
    amounts: frozenset[str] = setting(
        frozenset(),
        "columns of observations that are no numbers of kinds, though they are integers and none is negative",
        exclude=True,
    )


def detect(path: Path | str) -> str:
    """Name the format that a file is in, or a folder that is one dataset."""
    path = Path(path)
    folder = path.is_dir()
    path = path if folder else existing_file(path)
    for name, known in FORMATS.items():
        with _unforeseen(path, name):
            if (not folder or "parts" in vars(known)) and known.detect(path):
                return name
    if not folder and (name := _nearest(path, renamed=False)):
        try:
            FORMATS[name]().read(path)
        except DataError as error:
            hint = f" Where it has another name, import with format={name} and rename.USUAL=NAME."
            raise DataError(f"{error}{'' if name in ('csv', 'parquet') else hint}") from None
    choices = "; ".join(f"{name} ({f.description})" for name, f in FORMATS.items())
    raise DataError(f"{path} {'is a folder in no known format' if folder else _seen(path)}; the formats are: {choices}.")


def _nearest(path: Path, *, renamed: bool) -> str | None:
    """Find the format of which a file has most, to say what it lacks."""
    for name, known in FORMATS.items():
        with suppress(DataError):
            if known.nearly(path, renamed=renamed):
                return name
    return None


def parts_of(folder: Path, format: str | None = None) -> list[Path]:
    """List what is read one by one of a folder that is a dataset of that format, or of any; else nothing."""
    for name in FORMATS if format is None else [format] if format in FORMATS else []:
        with _unforeseen(folder, name):
            if parts := FORMATS[name].parts(folder):
                return parts
    return []


def check_options(format: str, options: Iterable[str]) -> None:
    """Raise ConfigError where no format has that name, or it has no such option."""
    if format not in FORMATS:
        raise ConfigError(f"There is no format {format!r}{did_you_mean(format, FORMATS)}")
    known = FORMATS[format].model_fields
    for option in options:
        if option not in known:
            raise ConfigError(f"The format {format!r} has no option {option!r}{did_you_mean(option, known)}")


def read(path: Path | str, format: str | None = None, **options: Any) -> Imported:
    """Read the steps in a file (or a folder that is one dataset), by the importer named or, with None, the one that knows the file.

    `options` are fields of `Adjustments` and of the format, such as `timeout_at`; they are in the provenance.
    """
    with unpacking():  # what is made of the file to plan it counts as well
        return plan(path, format, **options).whole()


def plan(path: Path | str, format: str | None = None, *, n_bytes: int | None = None, **options: Any) -> Plan:
    """How a file is read in parts of whole episodes, of which each goes through the same as a whole file does; see `read`.

    `n_bytes` are those of a part, in formats that can be read in parts, and where no episode has more; None: one part.
    """
    path = Path(path)
    adjust = Adjustments.checked({name: options.pop(name) for name in Adjustments.model_fields if name in options}, title="ingest")
    try:
        name = detect(path) if format is None else format
    except DataError as error:
        if not options.get("rename"):
            raise
        if path.is_dir() or (name := _nearest(path, renamed=True)) is None:
            raise DataError(f"{error} Where columns are renamed, name the format as well.") from None
    check_options(name, options)
    importer = FORMATS[name].checked(options, title=f"The format {name!r}")
    with _unforeseen(path, name):
        found = importer.plan(path, n_bytes)
        if len(found.parts) > 1:
            unpacks_in_parts(str(path), sum(found.bytes))
    asked = {**importer.model_dump(mode="json", exclude_unset=True), **adjust.model_dump(mode="json", exclude_defaults=True)}
    asked = {key: value for key, value in asked.items() if value is not None}
    about = {"format": name, "file": path.name, **found.provenance} | ({"options": asked} if asked else {})
    return replace(found, parts=tuple(partial(_read, one, path, about, adjust) for one in found.parts), provenance=about)


def _read(read: Callable[[], Imported], path: Path, about: dict[str, Any], adjust: Adjustments) -> Imported:
    keeping = keeping_illegal_actions() if adjust.illegal_actions == "keep" else nullcontext()
    counting = counting_from(adjust.spec.starts()) if adjust.spec else nullcontext()
    with exact_floats() if adjust.keep_float64 else nullcontext(), keeping, counting, _unforeseen(path, about["format"]):
        imported = read()
    if adjust.amounts:
        kinds = as_amounts(kinds_of(imported.steps.columns), adjust.amounts)
        columns = {name: column.reshape(-1, *kinds[name][1]) for name, column in imported.steps.columns.items()}
        imported = replace(imported, steps=replace(imported.steps, columns=columns))
    try:
        infer_spec(kinds_of(imported.steps.columns), largest_numbers(imported.steps.columns))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    imported = replace(imported, provenance=about | imported.provenance)
    return adjust_actions(imported, str(path), actions=adjust.actions, scale=adjust.action_scale, spec=adjust.spec)


@contextmanager
def _unforeseen(path: Path, format: str) -> Generator[None]:
    """Turn an importer's unforeseen errors into a `DataError`: files are damaged in more ways than anyone lists.

    The unpacked sizes of all files that it reads are added up.
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


def _seen(path: Path) -> str:
    """Describe an unknown file, as far as can be seen."""
    from .hdf5.arrays import is_hdf5, listed, open_hdf5
    from .untrusted.archives import head, is_zip

    if is_hdf5(path):
        with open_hdf5(path) as file:
            return f"is HDF5 but in no known layout (it has {listed(file)})"
    if is_zip(path):
        return "is a zip archive, but none with arrays of steps"
    if (start := head(path, 6)) == b"\x93NUMPY":
        return "is a single NumPy array"
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "is text in UTF-16, which no importer reads; save it as UTF-8"
    return "is in no known format"
