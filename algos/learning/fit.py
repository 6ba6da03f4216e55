"""A fit: S seeds of one algorithm set up on data, and the one training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from ...data.batch import Source
from ...data.dataset import Dataset
from ...data.errors import ConfigError, StorageError
from ...data.spec import Spec
from ..definition import Definition
from ..devices import pick_device
from ..nets import Hyper, Nets
from ..recurrence import ports_of
from .divergence import Divergence
from .learner import Learner
from .programs import compiling_pays, programs_of
from .scaling import Scaling
from .setup import aimed, config_for_dataset, config_for_spaces, seen_spec
from .sources import Sources

STATE_VERSION = 1


def check_steps(n_steps: Any, n_steps_per_epoch: Any, *, least: int = 1) -> None:
    """Raises ConfigError where one of them is no whole number of gradient steps, n_steps of at least `least`."""
    for name, value, fewest in (("n_steps", n_steps, least), ("n_steps_per_epoch", n_steps_per_epoch, 1)):
        if not isinstance(value, int | float | np.integer) or not math.isfinite(value) or value != int(value):
            raise ConfigError(f"{name} is {value!r}; it counts gradient steps and must be a whole number.")
        if value < fewest:
            raise ConfigError(f"{name} is {value}; it counts gradient steps and must be at least {fewest}.")


class Fit:
    """S seeds of an algorithm with what trains them.

    Attributes:
        config: The checked settings; scalers in it are fitted.
        spec: The spaces of the data, with frames stacked.
        seeds: One for each row.
        learner: Parameters, optimisers, step count.
        compiled: Whether its steps are compiled, or were to be and cannot be.
        programs: What runs its steps as programs of tensors; None: they run as they stand.
        scaling: Between raw numbers and what networks see.
        sources: Where batches come from.
        ports: What the policy takes beside observations.
        divergence: How losing runs show themselves.
        places: Of each row its place in the stack that it was begun in, by which it has its guests.
        completed: Whether the settings have met data, as they do once.
        stopped: Whether a callback has asked to end the training.
        after_update: What looks on step by step, while there is someone.
        told: What was warned of, which is done once.
        measured: For each seed its epochs since this fit began: `epoch`, and the metrics by name.
        judged: The policy that acts for an algorithm that judges it, once it was asked for.
    """

    def __init__(
        self,
        algorithm: Definition,
        config: Any,
        spec: Spec,
        seeds: Sequence[int],
        rows: Sequence[Mapping[str, float]] | None = None,
        places: Sequence[int] | None = None,
    ) -> None:
        self.algorithm, self.config, self.spec, self.seeds = algorithm, config, spec, tuple(seeds)
        self.dtype: torch.dtype = getattr(torch, algorithm.dtype)
        self.device = pick_device(algorithm.device)
        kind: Any = {"device": self.device, "dtype": self.dtype}
        self.places = tuple(range(len(self.seeds)) if places is None else places)
        guests = [algorithm.guests(config, place) for place in self.places]
        self.learner = Learner(
            algorithm, config, lambda: algorithm.networks(spec, config), self.seeds, rows=rows, guests=guests, **kind
        )
        self.compiled = algorithm.compile_graph is True
        self.programs = programs_of(self.learner, compiled=self.compiled)
        self.scaling = Scaling(config, spec, self.dtype, self.device)
        self.sources = Sources(algorithm, config, spec, self.learner)
        self.ports = ports_of(algorithm, self.learner.modules, spec, config)
        self.divergence = Divergence(self.learner, self.ports)
        self.completed, self.stopped = False, False
        self.after_update: Callable[[], None] | None = None
        self.told = set[str]()
        self.measured: list[list[dict[str, float]]] = [[] for _ in self.seeds]
        self.judged: Any = None

    @classmethod
    def start(
        cls, algorithm: Definition, given: Any, seeds: Sequence[int], rows: Sequence[Mapping[str, float]] | None = None
    ) -> Self:
        """A fresh fit: checks the settings and the data, fits the scalers, builds the networks.

        What the algorithm opens itself may be no dataset: it has the `spec` of its spaces.
        """
        given = aimed(algorithm, given)
        if isinstance(given, Dataset):
            config = config_for_dataset(algorithm, given)
        else:
            config = config_for_spaces(algorithm, given.spec, getattr(given, "name", type(given).__name__))
        fit = cls(algorithm, config, seen_spec(config, given.spec), seeds, rows)
        fit.completed = True
        return fit

    @classmethod
    def start_online(cls, algorithm: Definition, spec: Spec, name: str, *, as_seen: bool = False) -> Self:
        """A fresh fit without data; arguments as `config_for_spaces`'."""
        config = config_for_spaces(algorithm, spec, name, as_seen=as_seen)
        return cls(algorithm, config, spec if as_seen else seen_spec(config, spec), (algorithm.seed,))

    # ---- training

    def sampler(self, given: Any) -> Any:
        """Where batches come from; kept while that is the same. The first dataset completes the settings."""
        known, sampler = self.sources.data, self.sources.of(given)
        if isinstance(given, Dataset):
            self._meet(given, new=known is not self.sources.data)
        return sampler

    def _meet(self, dataset: Dataset, *, new: bool) -> None:
        if not self.completed:  # the networks were there before any data were
            self.config, self.completed = self.algorithm.completed(self.config, dataset), True
        if new:
            rewards = dataset.statistics.reward
            self.divergence.bound(self.scaling.reward(np.asarray([rewards.min, rewards.max])))

    def epochs(self, given: Any, n_steps: int, n_steps_per_epoch: int) -> Iterator[tuple[int, list[dict[str, float]]]]:
        """Trains `n_steps` more; yields after each epoch its number and one dictionary of metrics a seed.

        A source hears of every epoch before its first step, wherever training was interrupted.
        """
        check_steps(n_steps, n_steps_per_epoch, least=0)  # none: networks are made and nothing is trained
        source = self.sources.augmented(self.sampler(given))
        end = self.learner.step + n_steps
        if self.algorithm.compile_graph is None and compiling_pays(self.algorithm, self.device, end):
            self.compile()
        while self.learner.step < end and not self.stopped:
            done, within = divmod(self.learner.step, n_steps_per_epoch)
            if not within:
                source.between_epochs(done + 1)
            yield done + 1, self.advance(source, min(end, (done + 1) * n_steps_per_epoch))

    def compile(self) -> None:
        """Has steps compiled from here on; for this nothing happens yet."""
        if not self.compiled:
            self.compiled = True
            self.programs = programs_of(self.learner, compiled=True)

    def advance(self, source: Source, stop: int) -> list[dict[str, float]]:
        """Gradient steps until the learner's step is `stop`, or a callback stops them; the means over them."""
        learner, begin, first = self.learner, time.perf_counter(), self.learner.step
        while learner.step < stop and not self.stopped:
            closes = learner.step == stop - 1
            if closes or self.programs is None or not self.programs.advance(source, self._unseen(stop)):
                self.update(source, closes=closes)
            elif self.after_update is not None:
                self.after_update()
        if learner.ranks is not None:
            learner.ranks.check_alike(learner.step, [p for network in learner.live.values() for p in network.values()])
        speed = len(self.seeds) * (learner.step - first) / (time.perf_counter() - begin)
        return [{**row, "time/updates_per_second": speed} for row in self.metrics()]

    def update(self, source: Source, *, closes: bool = False) -> None:
        """One gradient step; a prioritised source is told the errors. What closes an epoch is looked at for signs of trouble."""
        learner, batch = self.learner, source.sample(self.learner.step)
        if self.programs is None:
            learner.update(batch, diagnose=closes)
        else:
            signs = learner.diagnosed(batch) if closes else {}
            self.programs.feed(batch)
            learner.note(signs)
        if closes:
            self.divergence.look(batch)
        tell: Any = getattr(source, "update", None)
        if tell is not None and learner.errors is not None:
            tell(batch.index, learner.errors)
        elif tell is not None and learner.step > self._warm_up():
            raise ConfigError(
                f"No loss of {self.algorithm.name} gives td_error, by which transitions would be drawn: use another sampler."
            )
        if self.after_update is not None:
            self.after_update()

    def _unseen(self, stop: int) -> int:
        """Steps from here that may be one program: the one that closes is looked at, and so may all be."""
        return 1 if self.after_update is not None else stop - 1 - self.learner.step

    def _warm_up(self) -> int:
        return getattr(self.config, self.algorithm.warm_up) if self.algorithm.warm_up else 0

    def metrics(self) -> list[dict[str, float]]:
        """Means since the last call by the names they are logged under, one dictionary a seed."""
        rows = self.divergence.judged(self.learner.read_metrics())
        return [{"step": float(self.learner.step), **_named(row)} for row in rows]

    # ---- coefficients

    def coefficients(self) -> Hyper:
        """Settings that are floats, as they are now, for what acts: numbers, for any device and type. One seed only."""
        return Hyper(cast("dict[str, Tensor]", {name: rows[0] for name, rows in self.learner.values.items()}))

    def set_coefficients(self, values: Mapping[str, float]) -> None:
        """Writes coefficients in place, the same for every row: losses, acting and what is saved have them from here on."""
        for name, value in values.items():
            self.learner.set_hyper(name, [value] * len(self.seeds))
        self.config = self.config.model_copy(update=values)

    def nets(self) -> Nets:
        """The networks at rest. One seed only: `row` takes one out of a stack."""
        if len(self.seeds) > 1:
            raise ConfigError("A stack holds several policies: take one with .seed(k).")
        return Nets(self.learner.acting, {}, None, None, self.dtype, h=self.coefficients())

    # ---- state

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        meta = {
            "state_version": STATE_VERSION,
            "algorithm": self.algorithm.name,
            "config": self.config.model_dump(mode="json"),
            "spec": self.spec.model_dump(mode="json"),
            "seeds": list(self.seeds),
            "dtype": self.algorithm.dtype,
            "step": self.learner.step,
            "data": self.sources.data,
        }
        if self.places != tuple(range(len(self.seeds))):
            meta["places"] = list(self.places)
        kept = {f"sampler/{name}": tensor for name, tensor in self.sources.state().items()}
        return {**self.learner.state(), **kept}, meta

    @classmethod
    def restore(cls, algorithm: Definition, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Self:
        """The fit that `state` described.

        Raises:
            ConfigError: it is of another algorithm.
            StorageError: it is of another version, or a tensor is missing or has another shape.
        """
        if meta["algorithm"] != algorithm.name:
            raise ConfigError(f"This state is of {meta['algorithm']}, not of {algorithm.name}.")
        if meta["state_version"] != STATE_VERSION:
            raise StorageError(f"The state has the version {meta['state_version']}; this d3ray reads {STATE_VERSION}.")
        config = algorithm.read_config(meta["config"])
        algorithm.dtype = meta["dtype"]
        vars(algorithm).update(config.coefficients())  # they may have been changed on the way
        fit = cls(algorithm, config, Spec.checked(meta["spec"]), meta["seeds"], places=meta.get("places"))
        for name, tensor in fit.learner.state().items():  # what optimisers remember is not among them yet
            if (found := tensors.get(name)) is None or found.shape != tensor.shape:
                was = "lacks it" if found is None else f"has {tuple(found.shape)}"
                raise StorageError(f"{algorithm.name} has a tensor {name!r} of {tuple(tensor.shape)}, and the state {was}.")
        try:
            fit.learner.load_state(tensors, int(meta["step"]))
        except KeyError as error:
            raise StorageError(f"The state lacks {error} of an optimizer of {algorithm.name}.") from None
        kept = {n.removeprefix("sampler/"): t for n, t in tensors.items() if n.startswith("sampler/")}
        fit.sources.load_state(kept, dict(meta["data"]))
        fit.completed = bool(meta["data"])
        return fit

    def row(self, k: int, algorithm: Definition) -> Fit:
        """The k-th seed as a fit of its own, on tensors of its own."""
        fit = Fit(
            algorithm, self.config, self.spec, (self.seeds[k],), places=(self.places[k],) if self.learner.has_guests else None
        )
        fit.learner.load_state(self.learner.row_state(k), self.learner.step)
        fit.config = self.config.model_copy(update={name: value for name, (value,) in fit.learner.values.items()})
        vars(algorithm).update(fit.config.coefficients())
        fit.sources.load_state(self.sources.row_state(k), self.sources.data)
        fit.completed, fit.measured = self.completed, [list(self.measured[k])]
        return fit


def _named(row: dict[str, float]) -> dict[str, float]:
    return {f"train/{name}" if name != "first_bad_step" else name: value for name, value in row.items()}
