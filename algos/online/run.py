"""An online run: an algorithm, environments and a replay buffer, with everything that it goes on from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from ...data.batch import Source
from ...data.config import setting
from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.replay import EpisodicReplayBuffer, PrioritizedEpisodicReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from ...data.sampling import Mixture, PrioritizedSampler, TransitionSampler, linear
from ...data.seeds import fold, integers, root_key
from ..acting.fitted import policy as policy_of
from ..devices import AnyDevice
from ..dynamics.generated import Generated
from ..environments.explorers import EpsilonGreedy, Explorer, ExplorerSetting, GaussianNoise, PolicyDraws
from ..environments.make import AnyEnvironment, environment_of, is_given, make
from ..environments.rollout import Recorder, Rollout
from ..environments.spaces import check_spaces
from ..environments.vector import VectorEnvironment
from ..learning.callbacks import Callback, Epoch, Evaluator, Watching, watching
from ..learning.estimator import Estimator
from ..learning.fit import Fit, check_steps
from ..learning.setup import check_actions, seen_spec
from ..saving.checkpoint import read_checkpoint, write_checkpoint
from ..saving.saving import load
from ..wants import Opens
from .actors import Actors, Part, check_actors
from .rounds import RoundsRollout
from .settings import Alternation, Share

_PREFIX = "online/"


class OnlineSettings(Alternation):
    """Settings of how acting and learning alternate, and how acting explores."""

    explorer: ExplorerSetting | None = setting(None, "what replaces or disturbs the policy's actions; None: by the algorithm")


class OnlineRun:
    """An algorithm that acts in environments and learns from what it remembers.

    Args:
        algorithm: What learns; one that has learned before goes on from there.
        env: As for `make`; an object is left open. Resets are seeded with numbers that follow from the algorithm's seed and the
            gradient step at which the run begins; those of a `VectorEnvironment` with its own.
        buffer: What experience goes into; what is in it already is drawn from too. None: a new one.
        explorer: A config, its name, or a mapping, as `{"name": "gaussian", "std": 0.2}`. None: a stochastic policy explores by its
            own draws, other discrete ones epsilon-greedily from 1 to 0.1 over 10,000 steps, other continuous ones with normal noise
            of a tenth of half the range.
        dataset: Drawn from beside the buffer, see the setting `mixture`.
        capacity: Of a new buffer, in rows: transitions, and one more for each episode.
        n_envs: Environments stepped side by side.
        record: As `Rollout`'s, for a buffer with extra columns.
        actors: Where environments are stepped while the algorithm learns, each with its share of `n_envs`; None: here.
        begin: The gradient step at which the run began; None: it begins now.
        **settings: Of `OnlineSettings`.

    Attributes:
        algorithm, buffer, dataset, vector: What it is made of.
        rollout: Where the environments stand.

    Raises:
        ConfigError: a setting cannot be used, or there is no such environment.
        DataError: the environment's spaces are not those that the algorithm is for, or was fitted on.
    """

    def __init__(
        self,
        algorithm: Estimator,
        env: AnyEnvironment | VectorEnvironment,
        buffer: ReplayBuffer | None = None,
        explorer: Explorer | Mapping[str, Any] | str | None = None,
        *,
        dataset: Dataset | None = None,
        capacity: int = 1_000_000,
        n_envs: int = 1,
        record: Recorder | None = None,
        actors: Actors | None = None,
        begin: int | None = None,
        **settings: Any,
    ) -> None:
        self.settings = OnlineSettings.checked({"explorer": explorer, **settings}, title="fit_online")
        self._given = {name for name, value in self.settings if value != OnlineSettings.model_fields[name].default}
        if dataset is None and "mixture" in settings:
            raise ConfigError("fit_online: a mixture is one of a dataset and the replay buffer; give the dataset too.")
        _check_drawn_from(buffer)
        if actors is not None:
            check_actors(actors, n_envs, env, record)
        self.algorithm, self.dataset, self._actors = algorithm, dataset, actors
        self.begin = algorithm.step if begin is None else begin
        seed = integers(fold(fold(root_key(algorithm.seed), "online run"), self.begin), 1, 2**31 - 1)[0]
        self._owns = not is_given(env)
        self.vector = make(env, n=n_envs if actors is None else 1, seed=seed)
        try:
            self._environment = _name(self.vector)
            self._set_up_fit()
            n_envs = self.vector.n if actors is None else n_envs
            self.buffer = self._new_buffer(capacity, n_envs) if buffer is None else buffer
            explores = self.settings.explorer or default_explorer(algorithm, discrete=self.vector.spec.discrete)
            if actors is None:
                random_steps = self.settings.random_steps
                self.rollout = Rollout(self.vector, self.buffer, explores, seed=seed, random_steps=random_steps, record=record)
            else:
                self.rollout = self._elsewhere(actors, env, n_envs, explores, seed)
            self._set_up_source()
        except BaseException:
            self.close()
            raise
        self._due = 0  # gradient steps that the latest step asks for and that are not done yet
        self._asked = {"dtype": algorithm.dtype, "seed": algorithm.seed, **algorithm.check_settings().model_dump(mode="json")}

    def _new_buffer(self, capacity: int, n_envs: int) -> ReplayBuffer:
        rows: Any = getattr(self.algorithm.fit_.sources.wants, "rows", lambda _: None)
        return ReplayBuffer(rows(n_envs) or capacity, self.vector.spec, n_envs)

    def _elsewhere(self, actors: Actors, env: Any, n_envs: int, explorer: Explorer, seed: int) -> RoundsRollout:
        """A rollout by actors; of an algorithm that learns from rollouts a round is one. Raises ConfigError of whole episodes."""
        fit, wants = self.algorithm.fit_, self.algorithm.fit_.sources.wants
        ahead = not (isinstance(wants, Opens) and not wants.reads_data)
        steps = actors.steps if ahead else cast("Any", wants).length(n_envs)
        if not steps:
            raise ConfigError(f"{self.algorithm.name} learns from whole episodes, and actors make rounds: leave actors out.")
        share, key = n_envs // actors.n, fold(root_key(seed), "actor")
        parts: list[Part] = []
        for k in range(actors.n):
            own, of_actor = self.algorithm.unfitted(), integers(fold(key, k), 1, 2**31 - 1)[0]
            own.seed, own.device, own.compile_graph = of_actor, "cpu", False
            parts.append(Part(env, share, of_actor, own, fit.config, fit.spec, explorer, self.settings.random_steps, steps))
        return RoundsRollout(self.vector, self.buffer, explorer, lambda: actors.open(parts), fit, seed=seed, ahead=ahead)

    def _set_up_fit(self) -> None:
        algorithm, spec = self.algorithm, self.vector.spec
        if not hasattr(algorithm, "fit_") and self.dataset is None:
            algorithm.fit_ = Fit.start_online(algorithm, spec, self._environment)
            return
        if not hasattr(algorithm, "fit_"):
            algorithm.fit_ = Fit.start(algorithm, cast("Dataset", self.dataset), (algorithm.seed,))
        check_actions(algorithm, spec, self._environment)
        shown = seen_spec(algorithm.config_, spec)
        check_spaces(shown, algorithm.spec_, self._environment, f"this {algorithm.name}")

    def _set_up_source(self) -> None:
        fit = self.algorithm.fit_
        self.policy = policy_of(fit).facing(self.vector.spec)
        self._on_policy: Any = None  # what an algorithm opens over the rollout itself, and which says when updates are due
        wants = fit.sources.wants
        if isinstance(wants, Opens) and not wants.reads_data:
            self._on_policy = self._training = self._follow()
            return
        generates = isinstance(wants, Generated)
        if generates and self.dataset is not None:
            raise ConfigError(
                f"{self.algorithm.name} generates a share of its batches from what the buffer holds: leave the dataset out, or "
                "begin with a buffer of its episodes."
            )
        self._drawn: TransitionSampler = fit.sources.of(self.buffer) if generates else fit.sources.over(self.buffer)
        self._source: Any = self._drawn
        if self.dataset is not None:
            self._source = Mixture([fit.sampler(self.dataset), self._drawn], self._weights())
        if self.buffer.n_envs * (self.buffer.rows - 1) < self._drawn.batch_size:  # each ring has a closing row, or an open one
            raise self._too_small()
        self._training: Source = fit.sources.augmented(self._source)

    def _follow(self) -> Any:
        asked = {name for name in ("update_interval", "n_updates", "update_start_step", "random_steps") if name in self._given}
        if asked or self.dataset is not None:
            what = min(asked) if asked else "a dataset"
            raise ConfigError(f"{self.algorithm.name} learns from what its own policy just did: {what} has no place there.")
        return self.algorithm.fit_.sources.of(self.rollout)

    def _weights(self) -> Any:
        share, begin = self.settings.mixture, self.begin
        if not isinstance(share, Share):
            return (share, 1 - share)
        line = linear((share.start, 1 - share.start), (share.end, 1 - share.end), share.duration)
        return lambda step: line(step - begin)

    # ---- running

    def epochs(
        self,
        n_steps: int = 1_000_000,
        n_steps_per_epoch: int = 10_000,
        evaluators: Mapping[str, Evaluator] | None = None,
        callbacks: Sequence[Callback] = (),
        **watch: Unpack[Watching],
    ) -> Iterator[Epoch]:
        """Acts and learns for `n_steps` gradient steps more; a second call goes on from the first.

        Args:
            n_steps: Gradient steps to do.
            n_steps_per_epoch: Gradient steps between two yields; epochs end at its multiples.
            evaluators: As `Algorithm.fitter`'s.
            callbacks: As `Algorithm.fitter`'s.
            **watch: `callback`, `epoch_callback`, `logger` and `show_progress`, as `Algorithm.fitter`'s.

        Yields:
            Epoch: metrics as offline; `train/environment_steps`, of all environments together; and of the episodes that ended in
            the epoch the mean `rollout/return` and `rollout/length` and their number `rollout/episodes`.

        Raises:
            ConfigError: a count is not positive, or the buffer is full and still holds fewer transitions than a batch.
        """
        check_steps(n_steps, n_steps_per_epoch)
        with watching(self.algorithm, [("", lambda: self.algorithm)], callbacks, n_steps, n_steps_per_epoch, **watch) as (called,):
            yield from self._epochs(self.algorithm.step + n_steps, n_steps_per_epoch, evaluators, called)

    def _epochs(
        self, end: int, n_steps_per_epoch: int, evaluators: Mapping[str, Evaluator] | None, callbacks: Sequence[Callback]
    ) -> Iterator[Epoch]:
        fit, learner = self.algorithm.fit_, self.algorithm.fit_.learner
        first, begun = learner.step, time.perf_counter()
        while learner.step < end and not fit.stopped:
            if not self._due:
                self.act()
                continue
            done, within = divmod(learner.step, n_steps_per_epoch)
            if not within:
                self._training.between_epochs(done + 1)
            closes = learner.step + 1 == end or (learner.step + 1) % n_steps_per_epoch == 0
            self._due -= 1  # before callbacks see the step: one may save the run
            fit.update(self._training, closes=closes)
            if closes or fit.stopped:
                epoch = -(-learner.step // n_steps_per_epoch)
                metrics = self.metrics() | {"time/updates_per_second": (learner.step - first) / (time.perf_counter() - begun)}
                yield self.algorithm.finish_epoch(epoch, metrics, evaluators, callbacks)
                first, begun = learner.step, time.perf_counter()

    def act(self) -> None:
        self.rollout.step(self.policy)
        self.ask()

    def ask(self) -> None:
        """Ask for the gradient steps that are due now that the environments have made a step."""
        rollout, settings = self.rollout, self.settings
        if self._on_policy is not None:
            self._due = self._on_policy.due()
        elif rollout.steps >= settings.update_start_step and rollout.steps % settings.update_interval == 0:
            self._due = settings.n_updates if self._drawn.n_windows >= self._drawn.batch_size else 0
            if not self._due and self.buffer.n_transitions + int(self.buffer.columns["closing"].sum()) == self.buffer.capacity:
                raise self._too_small()  # every row is in use

    def _too_small(self) -> ConfigError:
        batch, capacity, n_envs = self._drawn.batch_size, self.buffer.capacity, self.buffer.n_envs
        return ConfigError(
            f"A replay buffer of capacity {capacity} for {n_envs} environments, when full, holds fewer transitions that can be "
            f"drawn than the batch_size {batch}, for ends of episodes, td_steps and frames take rows too: give a larger capacity."
        )

    def step(self, *, closes: bool = False) -> None:
        """`act`, and the gradient steps that it asks for; what `closes` a stretch is looked at for signs of trouble."""
        self.act()
        self.learn(closes=closes)

    def learn(self, *, closes: bool = False) -> None:
        """Make the gradient steps that are due; see `step`."""
        while self._due:
            self._due -= 1
            self.algorithm.fit_.update(self._training, closes=closes and not self._due)

    def metrics(self) -> dict[str, float]:
        (metrics,) = self.algorithm.fit_.metrics()
        acted = {f"rollout/{name}": value for name, value in self.rollout.metrics().items()}
        return metrics | {"train/environment_steps": float(self.rollout.steps * self.rollout.n)} | acted

    def close(self) -> None:
        """Close environments that were made here, and end actors."""
        if hasattr(self, "rollout"):
            self.rollout.close()
        if self._owns:
            self.vector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- keeping

    def save(self, path: str | Path) -> None:
        """Writes everything that the run goes on from, the contents of the buffer included: a folder, all of it or nothing.

        `OnlineRun.load` goes on from it; `d3ray.load` takes the algorithm out of it.

        Raises:
            StorageError: the place cannot be written, or holds something else.
        """
        write_checkpoint(Path(path), *self.state())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the run goes on from, as `going_on` takes it: the algorithm's state, and the run's beside it. JSON."""
        tensors, meta = self.algorithm.state()
        arrays, told = self.rollout.state()
        if self._on_policy is None and isinstance(self._drawn, PrioritizedSampler):
            arrays |= {f"priorities/{name}": array for name, array in self._drawn.state().items()}
        kept = {f"{_PREFIX}{name}": torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}
        online = {**told, **self._set_up(), "begin": self.begin, "due": self._due}
        return tensors | kept, {**meta, "seed": self.algorithm.seed, "online": online}

    def _set_up(self) -> dict[str, Any]:
        actors = self._actors
        return {
            "algorithm": self._asked,
            "environment": {"environment": self._environment, "n_envs": self.rollout.n, "capacity": self.buffer.capacity},
            "dataset": {"dataset": None if self.dataset is None else self.dataset.fingerprint},
            "settings": self.settings.model_dump(mode="json"),
            "actors": {"actors": actors.n, "actor_steps": actors.steps} if actors else {"actors": None},
        }

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: AnyEnvironment | VectorEnvironment,
        buffer: ReplayBuffer | None = None,
        *,
        dataset: Dataset | None = None,
        record: Recorder | None = None,
        actors: Actors | None = None,
        device: AnyDevice = None,
    ) -> Self:
        """The run that `save` wrote, which goes on as it would have without an interruption, bit for bit.

        Environments are brought back by playing their unfinished episodes again, see `Rollout.load_state`.

        Args:
            path: What `save` wrote.
            env: The environment, as it was given then.
            buffer: Gets the contents of the run's; None: a new one does, which has no extra columns.
            dataset: The run's.
            record: The run's, for a buffer with extra columns.
            actors: As many as the run's, wherever they are.
            device: Where training runs.

        Raises:
            StorageError: there is no whole checkpoint.
            ConfigError, DataError: it is of no online run, or of one in another environment or on another dataset.
        """
        online = read_checkpoint(Path(path))[1].get("online")
        if online is None:
            raise ConfigError(f"{path} holds a saved algorithm and no online run: d3ray.load opens it.")
        settings = dict(online["settings"])
        if dataset is None:
            del settings["mixture"]
        given = {"dataset": dataset, "record": record, "actors": actors, "n_envs": online["environment"]["n_envs"]}
        return cls.resume(path, load(path, device), env, buffer, asked=online["algorithm"], **given, **settings)

    @classmethod
    def resume(
        cls,
        path: str | Path,
        algorithm: Estimator,
        env: AnyEnvironment | VectorEnvironment,
        buffer: ReplayBuffer | None = None,
        *,
        asked: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Self:
        """The run that `save` wrote, which this algorithm and these arguments began; the algorithm becomes what it was then.

        Args:
            path: What `save` wrote.
            algorithm: With the settings that it had when the run began.
            env: As `load`'s.
            buffer: As `load`'s.
            asked: Those settings, where the algorithm has others by now.
            **arguments: As the constructor's.

        Raises:
            StorageError: there is no whole checkpoint.
            ConfigError: it is of no online run, or of one that was begun with other settings; one that differs is named.
        """
        tensors, meta, _ = read_checkpoint(Path(path))
        return cls.going_on(tensors, meta, algorithm, env, buffer, asked=asked, place=str(path), **arguments)

    @classmethod
    def going_on(
        cls,
        tensors: Mapping[str, Tensor],
        meta: Mapping[str, Any],
        algorithm: Estimator,
        env: AnyEnvironment | VectorEnvironment,
        buffer: ReplayBuffer | None = None,
        *,
        asked: Mapping[str, Any] | None = None,
        place: str = "the checkpoint",
        **arguments: Any,
    ) -> Self:
        """The run whose `state` it was; further arguments and errors as `resume`'s, `place` says where the state lay."""
        online: Any = meta.get("online")
        if online is None:
            raise ConfigError(f"{place} holds a saved algorithm and no online run: d3ray.load opens it.")
        mine = asked or {"dtype": algorithm.dtype, "seed": algorithm.seed, **algorithm.check_settings().model_dump(mode="json")}
        theirs, mine = (_in_present_words(algorithm, one) for one in (online["algorithm"], mine))
        online = {**online, "algorithm": theirs}
        _check_same(place, theirs, mine)
        algorithm.load_state(tensors, meta)
        run = cls(
            algorithm, env, buffer, begin=int(online["begin"]), **{"capacity": online["environment"]["capacity"], **arguments}
        )
        try:
            run._asked = dict(mine)
            for part, values in run._set_up().items():
                _check_same(place, online.get(part, {}), values)
            arrays = {n.removeprefix(_PREFIX): t.numpy() for n, t in tensors.items() if n.startswith(_PREFIX)}
            run.rollout.load_buffer(arrays)
            if run._on_policy is None and isinstance(run._drawn, PrioritizedSampler):
                run._drawn.load_state({n.removeprefix("priorities/"): a for n, a in arrays.items() if n.startswith("priorities/")})
            run.rollout.load_state(arrays, online, run.policy)  # may cut episodes, which priorities have to follow
            run._due = int(online["due"])
        except BaseException:
            run.close()
            raise
        return run


def default_explorer(algorithm: Estimator, *, discrete: bool) -> Explorer:
    if algorithm.stochastic:
        return PolicyDraws()
    return EpsilonGreedy(duration=10_000) if discrete else GaussianNoise()


def _check_drawn_from(buffer: ReplayBuffer | None) -> None:
    """Refuses buffers that would draw otherwise than training does, for what they add would never be used."""
    name = type(buffer).__name__
    if isinstance(buffer, EpisodicReplayBuffer | PrioritizedEpisodicReplayBuffer):
        raise ConfigError(f"A {name} is one to draw episodes from, and online training draws transitions: give a ReplayBuffer.")
    if isinstance(buffer, PrioritizedReplayBuffer):
        raise ConfigError(
            f"Online training draws as the algorithm's sampler says and would not use the priorities of a {name}: give a "
            "ReplayBuffer, and the algorithm sampler='prioritized', or a mapping of that name with the buffer's options."
        )


def _name(vector: VectorEnvironment) -> str:
    known = environment_of(vector.single)
    return known.id if known else "the environment"


def _in_present_words(algorithm: Estimator, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Complete what an algorithm was asked for by all settings that there are by now."""
    own = {name: value for name, value in asked.items() if name in ("dtype", "seed")}
    settings = {name: value for name, value in asked.items() if name not in own}
    return own | algorithm.read_config(settings).model_dump(mode="json")


def _check_same(place: str, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    for name in mine:
        if theirs.get(name) != mine[name]:
            given = f"{name} {theirs.get(name)!r}, not {mine[name]!r}"
            raise ConfigError(f"The run in {place} was begun with {given}: give the same, or another folder.")
