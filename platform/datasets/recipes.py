"""Datasets that are made where they cannot be downloaded: `make` follows the recipes of the catalog.

Datasets that differ only in what they take from an agent's run share it, and so do those of one script's steps. Several runs go
side by side in Ray's workers on this machine, on one thread each, as do the pieces of a script's run; a single one goes in this
process. Who is killed leaves what is whole, and the next goes on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from ...data.catalog import Catalog, Entry, catalog
from ...data.catalog.local import dataset_folder, nearest, run_folder
from ...data.dataset import Dataset
from ...data.errors import D3rayError, DataError, StorageError, reason
from ...data.storage.manifest import MANIFEST
from ...data.storage.working import Progress, no_progress
from ..cluster.session import ray_session
from ..surroundings import usable_cpus
from .recipes_run import Done, Run, Wanted
from .scripted_run import ScriptedDataset, ScriptedPiece, ScriptedRun

AnyRun = Run | ScriptedRun


@dataclass(frozen=True)
class Made:
    """Existing datasets by name, and those that could not be made, with the reason."""

    datasets: dict[str, Dataset]
    failed: dict[str, D3rayError] = field(default_factory=dict[str, D3rayError])


def make(names: str | Sequence[str], *, at_once: int | None = None, progress: Progress = no_progress) -> Made:
    """Makes datasets into the cache of this machine, where `Dataset.open(NAME)` finds them; those that are there are kept.

    The same recipe gives the same dataset, bit for bit, on machines of one kind with the same versions.

    Args:
        names: of the catalog's datasets with a recipe, or patterns such as `d3ray-mujoco/hopper-*-100k-v4`.
        at_once: runs, or pieces of a script's, side by side. None: as many as there are CPUs.
        progress: shows how far the work is, in steps of environments.

    Returns:
        The datasets. One that failed (its environment is not installed, the disk is full, the agent diverged) keeps none of another
        run from being made.

    Raises:
        DataError: there is no such name (the nearest is given), or it has no recipe.
    """
    entries = find([names] if isinstance(names, str) else names)
    folders = {name: dataset_folder(name, entry) for name, entry in entries.items()}
    missing = [name for name, folder in folders.items() if not (folder / MANIFEST).exists()]
    failed: dict[str, D3rayError] = {}
    if runs := runs_of({name: entries[name] for name in missing}):
        steps = dict[Path, int]()
        pieces = [piece for run in runs if isinstance(run, ScriptedRun) for piece in run.missing]
        with progress(f"making {_count(len(missing), 'dataset')}", sum(run.steps for run in runs)) as advance:
            for run, said in chain(_side_by_side(pieces, at_once), _side_by_side(runs, at_once)):
                if isinstance(said, D3rayError):
                    if not isinstance(run, ScriptedPiece):  # else its run tries it again, and then says why
                        failed |= {wanted.name: said for wanted in run.wanted if not (wanted.folder / MANIFEST).exists()}
                    continue
                steps[run.folder] = said.steps
                advance(to=sum(steps.values()), note=said.note)
    return Made({name: Dataset.open(folder) for name, folder in folders.items() if name not in failed}, failed)


def find(names: Iterable[str]) -> dict[str, Entry]:
    """The entries that names and patterns mean, in order. Raises DataError as `make` does."""
    known, found = catalog(), dict[str, Entry]()
    for name in names:
        if set("*?[") & set(name):
            fitting = {n: entry for n in recipe_names(known) if fnmatchcase(n, name) and (entry := known.find(n))}
            if not fitting:
                raise DataError(f"No dataset with a recipe has a name that fits {name!r}{nearest(name, known)}")
            found |= fitting
        elif (entry := known.find(name)) is None:
            raise DataError(f"There is no dataset {name!r}{nearest(name, known)}")
        elif entry.making is None:
            raise DataError(
                f"{name} has no recipe, for it can be had as it is: d3ray inspect {name} shows it.{_of_ogbench(name, known)}"
            )
        else:
            found[name] = entry
    return found


def recipe_names(known: Catalog) -> Iterator[str]:
    singles = (name for name in known.single_names() if (entry := known.find(name)) is not None and entry.making is not None)
    yield from singles
    for family in known.families:
        if {"recipe", "script"} & family.entry.keys():
            yield from family.names()


def _of_ogbench(name: str, known: Catalog) -> str:
    """Add to a sentence what is made in place of a file of OGBench's, or why nothing is."""
    group, _, dataset = name.partition("/")
    if group != "ogbench":
        return ""
    if known.find(like := f"d3ray-ogbench/{dataset}") is not None:
        return f" Where its server cannot be reached, d3ray make {like} makes its like by the same script."
    why = {
        "ant": "walkers that its authors trained and do not give",
        "humanoid": "walkers that its authors trained and do not give",
    }
    needs = next((needs for start, needs in why.items() if dataset.removeprefix("visual-").startswith(start)), "")
    return (
        f" It cannot be made here: that takes {needs}."
        if needs
        else " It has no recipe here; d3ray datasets d3ray-ogbench has those."
    )


def runs_of(entries: dict[str, Entry]) -> list[AnyRun]:
    """The runs that datasets need, each with its datasets."""
    shared: dict[str, list[str]] = {}
    for name, entry in entries.items():
        shared.setdefault(entry.run_key, []).append(name)
    return [_run({name: entries[name] for name in names}) for names in shared.values()]


def _run(entries: dict[str, Entry]) -> AnyRun:
    first = next(iter(entries.values()))
    assert first.environment is not None
    if first.script is not None:
        return ScriptedRun(run_folder(first), first.script, tuple(_scripted(name, entry) for name, entry in entries.items()))
    assert first.recipe is not None
    wanted = [Wanted(name, entry.recipe.kind, dataset_folder(name, entry)) for name, entry in entries.items() if entry.recipe]
    return Run(run_folder(first), first.environment, first.recipe, tuple(wanted))


def _scripted(name: str, entry: Entry) -> ScriptedDataset:
    assert entry.environment is not None
    assert entry.script is not None
    return ScriptedDataset(name, entry.script.task, entry.environment, dataset_folder(name, entry))


Said = Done | D3rayError
Work = TypeVar("Work", bound=AnyRun | ScriptedPiece)


def _side_by_side(runs: Sequence[Work], at_once: int | None) -> Iterator[tuple[Work, Said]]:
    """Yield the reports of runs as they come."""
    limit = min(at_once or usable_cpus(), len(runs))
    if limit <= 1:
        for run in runs:
            yield from ((run, said) for said in follow(run))
        return
    with ray_session():
        yield from _in_workers(runs, limit)


def follow(run: AnyRun | ScriptedPiece) -> Generator[Said]:
    """Yield a run's reports, and last the error that a user can mend, if any: raised in a worker, it would come wrapped."""
    try:
        yield from run.make()
    except D3rayError as error:
        yield error


def _in_workers(runs: Sequence[Work], limit: int) -> Iterator[tuple[Work, Said]]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # The cache is this machine's, which as the head of a cluster offers no CPU; how many go at once is counted here.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    task: Any = ray.remote(num_cpus=0, max_retries=0)(follow)
    waiting, going = list(runs), dict[Any, Work]()
    try:
        while waiting or going:
            while waiting and len(going) < limit:
                run = waiting.pop(0)
                going[task.options(scheduling_strategy=here).remote(run)] = run
            streams: list[Any] = ray.wait(list(going), num_returns=1, fetch_local=False)[0]
            for stream in streams:
                said = _next_of(stream, going[stream])
                if said is None:
                    del going[stream]
                else:
                    yield going[stream], said
    finally:
        for left in going:
            ray.cancel(left, force=True)


def _next_of(stream: Any, run: AnyRun | ScriptedPiece) -> Said | None:
    """Return a worker's next report; None: no more."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return cast("Said", ray.get(next(stream)))
    except StopIteration:
        return None
    except RayTaskError:  # a bug, with its traceback
        raise
    except RayError as error:
        where = f"The worker that {'trained' if isinstance(run, Run) else 'acted'} in {_environment(run)} is gone"
        return StorageError(f"{where} ({reason(error)}): once more, d3ray make goes on.")


def _environment(run: AnyRun | ScriptedPiece) -> str:
    return run.environment.id if isinstance(run, Run) else run.script.environment


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"
