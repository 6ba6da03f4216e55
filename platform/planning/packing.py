"""How many trials share a GPU, and how many seeds a trial has: from the memory that one was seen to need."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...data.errors import ConfigError
from ..driver.node_maps import first_nodes, prepare_node_maps
from ..driver.work import Work
from ..storage.experiments import Experiment
from ..storage.trials import Trial
from ..words import size_text
from ..worker.trial_config import program, what_to_lower
from .probe import Measured, TooLargeError, probe
from .rehearsal import proposed, rehearsal

HEAD_ROOM = 0.1  # of a GPU's memory that a pack leaves free: allocators round up, and later steps may need a little more
_SECONDS = 20.0  # that measuring may take
_KINDS = 8  # of trials that are measured at most


def pack(work: Work, *, kept: bool = False, tell: Callable[[str], None] | None = None) -> Work:
    """The work with the share of a GPU that its trials need in place of `gpu: auto`. Ray must be initialised.

    A trial of each of the first kinds is trained for some steps on a GPU of its own, as many kinds as there is time for; the one
    that needs most decides. Where a whole GPU is too small for a stack of seeds, `seeds_per_trial` is halved, and they are measured
    again. A kind that does not fit with one seed either decides nothing: its trials fail by themselves. Where no node has a GPU,
    and none will, trials get none.

    Args:
        work: Whose trials.
        kept: Whether stacks have to stay as they are, for trials were begun with them.
        tell: Called with a sentence for the user where stacks are split; None: it is logged.

    Raises:
        ConfigError, DataError, StorageError: what a trial would raise in its first seconds, or a whole GPU is too small for every
            kind; or no node came up.
    """
    if work.config.resources.gpu != "auto":
        return work
    wanted = {"CPU": work.config.resources.cpu, "GPU": 1.0}
    try:
        ids = first_nodes(wanted)
    except ConfigError:
        return _with_gpu(work, 0.0)
    import ray

    node, has = max(((n["NodeID"], n["Resources"]) for n in ray.nodes() if n["NodeID"] in ids), key=lambda one: one[1]["GPU"])
    feeds = int(has["CPU"] / wanted["CPU"] / has["GPU"])
    alone = _with_gpu(work, 1.0)
    prepare_node_maps(*work.datasets, resources=wanted, mapped=not work.streams)
    with rehearsal(alone) as experiment:
        first: dict[str, Trial] = {}
        for trial in proposed(alone, experiment, 64)[0]:
            first.setdefault(program(alone.told(trial)), trial)
        trials = list(first.values())[:_KINDS]
        n, seen = max(len(trial.seeds) for trial in trials), list[_Seen]()
        while True:
            told = [alone.told(_part(experiment, trial, n), in_full=True) for trial in trials]
            if seen:  # there may not be time for all: what was too large comes first
                told.sort(key=lambda one: _kind(one) not in seen[-1].large)
            seen.append(_measured(n, told, max(min(int(has["GPU"]), int(has["CPU"] / wanted["CPU"]), len(told)), 1), node))
            if not (last := seen[-1]).large or n == 1 or kept or work.undivided:
                break
            n = (n + 1) // 2
    if last.memory is None:
        raise _too_large(last, told[0]["algorithm"], work.undivided, kept=kept)
    fits = next(one for one in seen if one.large.keys() <= last.large.keys())  # the largest stacks that smaller ones do not better
    if fits is not seen[0]:
        work = work.stacked(fits.n_seeds)
        size = max(one.gpu_bytes for one in seen[0].large.values())
        (tell or logging.getLogger("d3ray").warning)(
            f"Stacks of {seen[0].n_seeds} seeds do not fit into {f'a GPU of {size_text(size)}' if size else 'a whole GPU'}: "
            f"they are split into {f'stacks of {fits.n_seeds}' if fits.n_seeds > 1 else 'trials of one seed'}."
        )
    assert fits.memory is not None
    return _with_gpu(work, share(fits.memory, feeds))


def has_begun(work: Work, experiment: Experiment) -> bool:
    """Return whether an experiment with `gpu: auto` has trials that were begun, so that their stacks have to stay."""
    return work.config.resources.gpu == "auto" and any(trial.is_begun for trial in experiment.trials())


@dataclass(frozen=True)
class _Seen:
    """Observed needs of kinds of trial.

    Attributes:
        n_seeds: Of the largest.
        memory: Part of its GPU's memory that the neediest one had; None: a whole GPU is too small for every one.
        large: Why a whole GPU is too small, by kind, its seeds not counted.
    """

    n_seeds: int
    memory: float | None
    large: Mapping[str, TooLargeError]


def _measured(n_seeds: int, told: Sequence[Mapping[str, Any]], side: int, node: str) -> _Seen:
    kinds = list({program(one): one for one in told}.values())
    try:
        found = probe(kinds, side=side, node=node, seconds=_SECONDS)
    except TooLargeError as error:
        return _Seen(n_seeds, None, dict.fromkeys(map(_kind, kinds), error))
    large = {_kind(one): why for one, why in zip(kinds, found, strict=True) if isinstance(why, TooLargeError)}
    return _Seen(n_seeds, max(one.gpu_memory for one in found if isinstance(one, Measured)), large)


def _part(experiment: Experiment, trial: Trial, n: int) -> Trial:
    told: dict[str, Any] = {"dataset": trial.dataset, "number": trial.number, "choice": trial.choice}
    return experiment.trial(trial.configuration, trial.seeds[:n], **told)


def _kind(told: Mapping[str, Any]) -> str:
    return program({**told, "seeds": ()})


def _too_large(seen: _Seen, algorithm: Mapping[str, Any], undivided: str, *, kept: bool) -> ConfigError:
    n, little = seen.n_seeds, f"{algorithm['name']}: a whole GPU has too little memory for a trial"
    if n > 1 and kept:
        return ConfigError(
            f"{little} of {n} seeds, and trials were begun with as many, so they are not split: go on where a GPU is larger, or "
            "begin anew with --replace or another name."
        )
    if n > 1 and undivided:
        lower = what_to_lower(n, algorithm, "the number of seeds")
        return ConfigError(f"{little}, and its seeds are not split, for {undivided}: {lower}.")
    return next(iter(seen.large.values()))


def _with_gpu(work: Work, gpu: float) -> Work:
    resources = work.config.resources.model_copy(update={"gpu": gpu})
    return replace(work, config=work.config.model_copy(update={"resources": resources}))


def share(memory: float, most: int) -> float:
    """The share of a GPU that a trial gets.

    Args:
        memory: The part of a GPU's memory that it was seen to hold; 0: none was seen, and it gets a GPU of its own.
        most: Trials that a GPU's part of the CPUs can feed; more would wait for CPUs and not for the GPU.

    Returns:
        1 / n of n trials, rounded down to the ten-thousandths that Ray counts in, so that n of them fit.
    """
    n = 1 if memory <= 0 else max(1, min(math.floor((1 - HEAD_ROOM) / memory + 1e-9), max(most, 1)))
    return math.floor(10_000 / n) / 10_000
