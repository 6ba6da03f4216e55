"""Gradient steps as programs of tensors: traced from the learner's own update, then run again without Python.

An update reads tensors, draws by the addresses of steps that are tensors too, and writes parameters, sums and counts where they
lie. So what it does at one step is, but for what the schedule names, what it does at the next:

    replayed   on a GPU the kernels of some tens of steps are captured as one CUDA graph, and launched by one call
    compiled   the operations of a step are recorded, and torch's compiler joins those that go over the same numbers

What a step's number decides, which kinds of update are due, is unrolled: `pattern` says how far the same few repeat.
"""

from __future__ import annotations

import shutil
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree  # it has no public name yet
from torch.utils._triton import has_triton

from ...data.batch import Drawn, Steps
from ...data.errors import reason
from ...data.tracing import traced
from ..definition import COMPILED_FROM, Definition
from .learner import Learner
from .recording import Recording

LONGEST = 32  # steps of a program: beyond some tens a launch costs nothing beside what it launches
_LARGEST = 256 << 20  # bytes that the batches of a program may take
_AROUND = 1024  # steps of which it is counted how many have which kinds of update
_KEPT = 64  # programs of a training
_PERIOD = LONGEST // 2  # steps after which a schedule has to repeat itself, for several to be one program

Kinds = tuple[tuple[str, ...], ...]


class Captured(Protocol):
    def replay(self) -> None:
        """Does it again: what it reads and writes lies where it lay."""
        ...


class Graphs(Protocol):
    def warm(self, work: Callable[[], None]) -> None:
        """Does work for the first time, where libraries set themselves up: what they then allocate cannot be captured."""
        ...

    def capture(self, work: Callable[[], None]) -> Captured:
        """Work as what can be replayed; it is not done yet."""
        ...


class CudaGraphs:
    """Captures work of one GPU as CUDA graphs, which share the memory that they need beside state."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._pool: Any = None

    def warm(self, work: Callable[[], None]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            work()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def capture(self, work: Callable[[], None]) -> Captured:
        graph = torch.cuda.CUDAGraph()
        # The backward pass launches from a thread of its own: what other threads do is none of this capture's business.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            work()
        self._pool = graph.pool()
        return graph


class _Unit:
    def __init__(self, run: Callable[..., Sequence[Tensor]], tally: Counter[str]) -> None:
        self._run, self._tally = run, tally

    def __call__(self, learner: Learner, arguments: Sequence[Tensor] = ()) -> None:
        found = self._run(*arguments)
        learner.errors = found[0] if found else None
        learner.counts.update(self._tally)


class _Replay:
    def __init__(self, captured: Captured, tally: Counter[str], errors: Tensor | None) -> None:
        self._captured, self._tally, self._errors = captured, tally, errors

    def __call__(self, learner: Learner) -> None:
        self._captured.replay()
        learner.errors = self._errors
        learner.counts.update(self._tally)


class Programs:
    """Runs gradient steps of a learner as programs.

    Args:
        learner: Whose steps.
        compiled: Whether steps are compiled; an attribute, False once they cannot be.
        graphs: What captures work on the learner's device; None: nothing is captured, as on a CPU.
    """

    def __init__(self, learner: Learner, *, compiled: bool, graphs: Graphs | None) -> None:
        self._learner, self.compiled, self._graphs = learner, compiled, graphs
        self._source: Any = None
        self._most = 0  # steps of the source's that are drawn together
        self._units: dict[tuple[Hashable, ...], _Unit] = {}
        # None: done once, as libraries set themselves up at the first time.
        self._replays: dict[tuple[Hashable, ...], _Replay | None] = {}
        self._often: tuple[int, Counter[tuple[str, ...]]] = (-1, Counter())
        self._given: dict[tuple[Hashable, ...], list[Tensor]] = {}  # batches that are handed in lie there
        self._clock = torch.zeros((), dtype=torch.int64, device=learner.device)  # the step, where programs read it
        self._offsets = torch.from_numpy(np.arange(LONGEST)).to(learner.device)  # in memory, as `random` has positions
        self._shown = 0  # the step that the clock shows

    def advance(self, source: Any, most: int) -> bool:
        """Up to `most` gradient steps whose batches the program draws itself; False: it cannot draw from this source."""
        learner = self._learner
        if self._graphs is None:  # a call costs little beside a step, and what is drawn for many steps at once costs least
            return False
        if source is not self._source:
            self._source, self._most = source, self._drawn_together(source) if self.draws_from(source) else 0
            for known in (self._units, self._replays):  # of the last source, whose columns they would keep
                for key in [key for key in known if key[0] == "drawn"]:
                    del known[key]
        if not self._most:
            return False
        kinds, period = pattern(learner.algorithm.schedule, learner.step, min(most, self._most))
        key = "drawn", kinds, getattr(source, "fixed", None), learner.arrangement
        part = kinds[:period] if self.compiled and period else kinds
        unit = ("drawn", part, *key[2:]) if self.compiled and period else None
        self._do(key, unit, lambda: self.steps(part, source), len(part), len(kinds) // len(part))
        return True

    def feed(self, batch: Drawn) -> None:
        """One gradient step on a batch."""
        learner = self._learner
        if not self.compiled and self._graphs is None:
            learner.update(batch)
            return
        kinds = learner.algorithm.schedule(learner.step)
        leaves, tree = pytree.tree_flatten(batch)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        key = "fed", kinds, tree, tuple((t.shape, t.stride(), t.dtype) for t in tensors), learner.arrangement
        if self._graphs is not None and (key in self._replays or len(self._replays) < _KEPT):
            # A graph reads where it read: batches are copied there.
            there = self._given.setdefault(key, [])
            if not there:
                there += [torch.empty_like(tensor) for tensor in tensors]
            _copy(there, tensors)
            tensors, batch = there, _with_tensors(leaves, tree, there)
        self._do(key, key if self.compiled and self._is_often(kinds) else None, lambda: self.fed(kinds, batch), 1, 1, tensors)

    # ---- inside

    def _do(
        self,
        key: tuple[Hashable, ...],
        unit: tuple[Hashable, ...] | None,
        work: Callable[[], None],
        steps: int,
        times: int,
        arguments: Sequence[Tensor] = (),
    ) -> None:
        """Work of so many steps, so many times: `key` names all of it, `unit` what is to be compiled, which is one time."""
        learner = self._learner
        if self._shown != learner.step:
            self._clock.fill_(learner.step)
        with learner.products():  # of what is compiled the products are chosen here, and outside of any step
            self._done(key, unit, work, times, arguments)
        learner.passed(steps * times)
        self._shown = learner.step

    def _done(
        self,
        key: tuple[Hashable, ...],
        unit: tuple[Hashable, ...] | None,
        work: Callable[[], None],
        times: int,
        arguments: Sequence[Tensor],
    ) -> None:
        """Does that work, compiled and captured as far as it can be."""
        if unit is None:
            self._replayed(key, work)
        elif (known := self._unit(unit, work, arguments)) is None:
            for _ in range(times):
                self._replayed(unit, work)
        else:

            def again() -> None:
                for _ in range(times):
                    known(self._learner, arguments)

            self._replayed(key, again)

    def _replayed(self, key: tuple[Hashable, ...], work: Callable[[], None]) -> None:
        """Does work: by its graph where it was done before, and something captures graphs."""
        learner, graphs = self._learner, self._graphs
        with traced("replayed"):
            if graphs is None:
                work()
                return
            if key not in self._replays:
                graphs.warm(work)
                if len(self._replays) < _KEPT:  # of shapes that hardly come again, as whole episodes are, none is worth a graph
                    self._replays[key] = None
                return
            replay = self._replays[key]
            if replay is None:
                before = learner.counts.copy()
                try:
                    captured = graphs.capture(work)
                except Exception as error:
                    learner.counts, self._graphs = before, None
                    self._say(f"cannot be captured as a graph ({reason(error)}), and is launched step by step, which is slower")
                    work()
                    return
                replay = _Replay(captured, learner.counts - before, learner.errors)
                learner.counts, self._replays[key] = before, replay
        replay(learner)

    def _unit(self, unit: tuple[Hashable, ...], work: Callable[[], None], arguments: Sequence[Tensor]) -> _Unit | None:
        """Work, compiled; it is not done yet. None where it cannot be compiled, which is said."""
        if unit in self._units:
            return self._units[unit]
        learner, before = self._learner, self._learner.counts.copy()
        recording = Recording(arguments)
        with traced("compiled"), recording:
            work()
        recording.undo()
        tally, learner.counts = learner.counts - before, before
        try:
            run = recording.compiled([] if learner.errors is None else [learner.errors])
        except Exception as error:
            self.compiled = False
            lacks = f": it needs {missing}" if (missing := lacking(learner.device)) else ""
            how = "run as they stand" if self._graphs is None else "are captured, and not compiled"
            self._say(f"cannot be compiled for {learner.device} ({reason(error)}){lacks}; its steps {how}")
            return None
        return self._units.setdefault(unit, _Unit(run, tally))

    def _say(self, what: str) -> None:
        warnings.warn(f"{self._learner.algorithm.name} {what}.", stacklevel=2)

    def steps(self, kinds: Kinds, source: Any) -> None:
        """Steps of these kinds with the batches that are theirs: a program of tensors."""
        learner, steps = self._learner, Steps(self._clock + self._offsets[: len(kinds)])
        with learner.counted_by(steps):
            for k, (batch, due) in enumerate(zip(source.along(steps.numbers), kinds, strict=True)):
                steps.at = k
                learner.run(due, batch)
        self._clock.add_(len(kinds))

    def fed(self, kinds: tuple[str, ...], batch: Drawn) -> None:
        """A step of these kinds on a batch: a program of tensors."""
        learner = self._learner
        with learner.counted_by(Steps(self._clock.reshape(1).clone())):
            learner.run(kinds, batch)
        self._clock.add_(1)

    def _is_often(self, kinds: tuple[str, ...]) -> bool:
        """Tells whether steps of these kinds are so many around here that compiling pays: it follows from the step alone."""
        around = self._learner.step // _AROUND
        if self._often[0] != around:
            steps = range(around * _AROUND, (around + 1) * _AROUND)
            self._often = around, Counter(map(self._learner.algorithm.schedule, steps))
        return self._often[1][kinds] >= _AROUND // LONGEST

    def draws_from(self, source: Any) -> bool:
        """Tells whether a program can draw batches from a source without the host."""
        return getattr(source, "along", None) is not None and source.along(self._clock.reshape(1).clone()) is not None

    def _drawn_together(self, source: Any) -> int:
        """How many steps' batches a program draws at once."""
        batches = source.along(self._clock.reshape(1).clone())
        size = sum(t.numel() * t.element_size() for t in pytree.tree_leaves(batches[0]) if isinstance(t, Tensor))
        return 1 << min(LONGEST, max(1, _LARGEST // max(size, 1))).bit_length() - 1


def programs_of(learner: Learner, *, compiled: bool) -> Programs | None:
    """Makes what runs a learner's steps as programs: on a GPU they are captured. None: they run as they stand."""
    on_gpu = on_accelerator(learner.device)
    if learner.algorithm.reads_values is not None or learner.ranks is not None or not (on_gpu or compiled):
        return None
    return Programs(learner, compiled=compiled, graphs=CudaGraphs(learner.device) if on_gpu else None)


def on_accelerator(device: torch.device) -> bool:
    """Tells whether work on a device is captured: it is a GPU of NVIDIA's, or of AMD's, which torch calls the same."""
    return device.type == "cuda"


def pattern(schedule: Callable[[int], tuple[str, ...]], step: int, most: int) -> tuple[Kinds, int]:
    """The kinds of update of the next steps, up to `most`, as far as the same few repeat; and after how many they do.

    They are a multiple of the period by a power of two, so that few such programs occur. What is due at one step alone, a hard copy
    of a target every 8,000 steps, and what is left of a period where `most` ends it, is a step for itself, of period 0.
    """
    kinds = [schedule(step + k) for k in range(LONGEST)]
    found = 0, 0
    for period in range(1, _PERIOD + 1):
        same = next((k for k in range(LONGEST) if kinds[k] != kinds[k % period]), LONGEST)
        if same >= 2 * period and same // period * period > found[0]:
            found = same // period * period, period
    length, period = found
    times = min(length, most) // period if period else 0
    return (tuple(kinds[: period << times.bit_length() - 1]), period) if times else ((kinds[0],), 0)


def compiling_pays(algorithm: Definition, device: torch.device, n_steps: int) -> bool:
    """Tells whether a training of so many steps in all ends earlier compiled, and the machine can do that."""
    least = algorithm.compiled_from if device.type == "cpu" else COMPILED_FROM
    return least is not None and n_steps >= least and not algorithm.data_parallel and lacking(device) is None


def lacking(device: torch.device) -> str | None:
    """Names what a machine lacks to compile for a device; None: nothing."""
    if device.type != "cpu":
        return None if has_triton() else "Triton, which comes with torch's builds for CUDA and is not here"
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        return "a C++ compiler"
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return None if headers.exists() else f"Python's headers, as of Debian's python3-dev: there is no {headers}"


def _with_tensors(leaves: Sequence[Any], tree: pytree.TreeSpec, tensors: Sequence[Tensor]) -> Any:
    others = iter(tensors)
    return pytree.tree_unflatten([next(others) if isinstance(leaf, Tensor) else leaf for leaf in leaves], tree)


_copy: Callable[..., None] = torch._foreach_copy_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
