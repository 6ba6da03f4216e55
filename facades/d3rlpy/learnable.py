"""What d3rlpy's users hold: d3ray's algorithms with the arguments, names and habits of d3rlpy 2.8.1 and its first versions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from d3ray.algos.base import Algorithm
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.former import METHODS
from d3ray.algos.learning.setup import trained_on
from d3ray.algos.online.run import OnlineRun
from d3ray.algos.saving.saving import params_of, read_params, save_packed
from d3ray.data.batch import Batch
from d3ray.data.errors import ConfigError, StorageError
from d3ray.data.progress import progress
from d3ray.data.storage.files import storage_errors, write_atomically
from d3ray.data.storage.json_text import parse_json

from .constants import ActionSpace, device_of
from .dataset import TransitionMiniBatch, create_fifo_replay_buffer, opened
from .explorers import seen_by
from .logging import (
    CombineAdapterFactory,
    FileAdapterFactory,
    LoggerAdapterFactory,
    LoggingStrategy,
    Metrics,
    NoopAdapterFactory,
    TensorboardAdapterFactory,
    begin,
)
from .settings import settings_of

Epochs = Iterator[tuple[int, dict[str, float]]]
_NAMES: Mapping[str, Mapping[str, str]] = {  # what d3rlpy calls our metrics, by algorithms that share it
    "BC DiscreteBC DecisionTransformer DiscreteDecisionTransformer": {"imitation_loss": "loss"},
    "DQN DoubleDQN NFQ DiscreteBCQ DiscreteCQL FQE DiscreteFQE": {"critic_loss": "loss"},
    "BCQ PLAS PLASWithPerturbation": {"imitation_loss": "vae_loss"},
    "IQL": {"value_loss": "v_loss", "critic_loss": "q_loss"},
}
_THEIRS = {name: words for names, words in _NAMES.items() for name in names.split()}


class Learnable(Algorithm):
    """d3ray's `Algorithm` as d3rlpy's users know it. What is not here is d3ray's own.

    `fit` and `fitter` count epochs and steps from their call, give and log metrics by d3rlpy's names, and write
    `d3rlpy_logs/NAME_TIME` unless `logger_adapter` says otherwise.
    """

    config: Any = None

    # ---- training

    def fit(self, dataset: Any, n_steps: int | None = None, *positional: Any, **arguments: Any) -> Any:  # pyright: ignore
        """Trains; the list of (epoch, metrics). Arguments as `fitter`'s."""
        return list(self.fitter(dataset, n_steps, *positional, **arguments))

    def fitter(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        dataset: Any,
        n_steps: int | None = None,
        n_steps_per_epoch: int | None = None,
        experiment_name: str | None = None,
        with_timestamp: bool = True,
        logging_steps: int = 500,
        logging_strategy: LoggingStrategy = LoggingStrategy.EPOCH,
        logger_adapter: LoggerAdapterFactory | None = None,
        show_progress: bool = True,
        save_interval: int = 1,
        evaluators: Mapping[str, Callable[[Any, Any], float]] | None = None,
        callback: Callable[[Any, int, int], None] | None = None,
        epoch_callback: Callable[[Any, int, int], None] | None = None,
        enable_ddp: bool = False,
        *,
        n_epochs: int | None = None,
        eval_episodes: Any = None,
        scorers: Mapping[str, Callable[[Any, Any], float]] | None = None,
        save_metrics: bool = True,
        logdir: str = "d3rlpy_logs",
        verbose: bool = True,
        tensorboard_dir: str | None = None,
    ) -> Epochs:
        """Trains, an epoch at a time.

        Args:
            dataset: A dataset or buffer, or a list of episodes.
            n_steps: Gradient steps; what is left over after whole epochs is not done.
            n_steps_per_epoch: Between two yields; 10,000.
            experiment_name: Of the folder of logs; the algorithm's name.
            with_timestamp: Whether the time follows it.
            logging_steps: Between two lines of metrics, where `logging_strategy` counts steps.
            logging_strategy: When metrics are written.
            logger_adapter: What writes them; files in `d3rlpy_logs`.
            show_progress: Whether a bar is shown.
            save_interval: Epochs between saved models.
            evaluators: By name, called after an epoch with (algorithm, dataset).
            callback: Called after a gradient step with (algorithm, epoch, steps done since the call).
            epoch_callback: The same after an epoch.
            enable_ddp: Whether the processes of `distributed` train it together; to be said in `create` too.
            n_epochs: Of d3rlpy's first versions, as those that follow: epochs, each as long as there are batches in the data.
            eval_episodes: What scorers look at.
            scorers: By name, called after an epoch with (algorithm, eval_episodes).
            save_metrics: Whether anything is written.
            logdir: Where.
            verbose: Taken, and not looked at.
            tensorboard_dir: Where TensorBoard's files go too.

        Yields:
            Epoch, from 1, and metrics.

        Raises:
            ConfigError: a setting cannot be used; DataError: the data are of the wrong kind; StorageError: logs cannot be written.
        """
        if enable_ddp and not self.data_parallel:
            raise ConfigError("enable_ddp is said in fit, and in create it was not: say it there, before networks are made.")
        self._take_picker(dataset)
        data = trained_on(self, opened(dataset))
        n_steps, per_epoch = self._steps(data, n_steps, n_steps_per_epoch, n_epochs)
        evaluators = dict(evaluators or {}) | {name: _judging(one, eval_episodes) for name, one in (scorers or {}).items()}
        if not hasattr(self, "fit_"):
            self.build_with_dataset(data)
        kept = self._named_but(evaluators)
        logs = _adapters(logger_adapter, save_metrics, logdir, tensorboard_dir)
        metrics = begin(self, logs, experiment_name or self.name, per_epoch, stamp=with_timestamp)
        first, by_steps = self.step, logging_strategy == LoggingStrategy.STEPS
        tick = math.gcd(per_epoch, logging_steps if by_steps else 0, first)  # native epochs end at multiples, whoever began

        def called(algo: Any, _: int, step: int) -> None:
            if callback is not None:
                callback(algo, -(-(step - first) // per_epoch), step - first)

        committed = dict[str, float]()
        try:
            for _, found in super().fitter(
                data,
                n_steps // per_epoch * per_epoch,
                tick,
                callback=called if callback else None,
                show_progress=show_progress,
            ):
                done, before = self.step - first, (self.step - first - 1) // per_epoch * per_epoch
                metrics.add(kept(found), weight=min(tick, done - before))
                if by_steps and done % logging_steps == 0:
                    committed = metrics.commit(-(-done // per_epoch), done)
                if done % per_epoch and not self.fit_.stopped:
                    continue
                epoch = -(-done // per_epoch)
                if epoch_callback is not None:
                    epoch_callback(self, epoch, done)
                metrics.add({name: float(evaluator(self, data)) for name, evaluator in evaluators.items()})
                if not by_steps:
                    committed = metrics.commit(epoch, done)
                if epoch % save_interval == 0:
                    metrics.adapter.save_model(done, self)
                yield epoch, committed
        finally:
            metrics.adapter.close()

    def _take_picker(self, dataset: Any) -> None:
        """What a buffer says of drawing becomes the algorithm's, before it is built."""
        picker = getattr(dataset, "transition_picker", None)
        if picker is not None and not hasattr(self, "fit_"):
            self.set_params(**picker.settings)

    def build_with_dataset(self, dataset: Any) -> Self:
        """As `d3ray.Algorithm.build_with_dataset`, of a buffer too; actions beyond [-1, 1] get a scaler, and a warning says so."""
        data = trained_on(self, opened(dataset))
        actions = data.statistics.action
        if actions is not None:
            self._reach_beyond(np.abs([actions.min, actions.max]).max(), data.name)
        return super().build_with_dataset(data)

    def build_with_env(self, env: Any) -> Self:
        """The same for an environment."""
        space: Any = getattr(env, "action_space", None)
        if hasattr(space, "high"):
            self._reach_beyond(np.abs([space.low, space.high]).max(), "the environment")
        return super().build_with_env(env)

    def _reach_beyond(self, reach: float, name: str) -> None:
        """d3rlpy trains a policy that covers [-1, 1] on whatever actions there are; here the scaler that it lacks is set."""
        if reach > 1 + 1e-3 and np.isfinite(reach) and getattr(self, "action_scaler", "none") is None:
            self.action_scaler = "min_max"
            warnings.warn(
                f"{self.name} acts in [-1, 1], and actions of {name!r} reach {reach:.3g}: action_scaler is set to 'min_max', which "
                "d3rlpy leaves to you.",
                stacklevel=3,
            )

    def _named_but(self, taken: Mapping[str, Any]) -> Callable[[Mapping[str, float]], dict[str, float]]:
        """Metrics by d3rlpy's names, without those whose names evaluators have."""
        return lambda found: {name: value for name, value in self._named(found).items() if name not in taken}

    def _named(self, found: Mapping[str, float]) -> dict[str, float]:
        """Metrics by d3rlpy's names, and the seconds of a step."""
        names = _THEIRS.get(self.name, {})
        own = {name.partition("/")[2]: value for name, value in found.items() if name.startswith("train/")}
        named = {names.get(name, name): value for name, value in own.items()}
        speed = found.get("time/updates_per_second")
        return named | ({"time_step": 1 / speed} if speed else {})

    def fit_online(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        env: Any,
        buffer: Any = None,
        explorer: Any = None,
        n_steps: int = 1_000_000,
        n_steps_per_epoch: int = 10_000,
        update_interval: int = 1,
        n_updates: int = 1,
        update_start_step: int = 0,
        random_steps: int = 0,
        eval_env: Any = None,
        eval_epsilon: float = 0.0,
        eval_n_trials: int = 10,
        save_interval: int = 1,
        experiment_name: str | None = None,
        with_timestamp: bool = True,
        logging_steps: int = 500,
        logging_strategy: LoggingStrategy = LoggingStrategy.EPOCH,
        logger_adapter: LoggerAdapterFactory | None = None,
        show_progress: bool = True,
        callback: Callable[[Any, int, int], None] | None = None,
        *,
        n_epochs: int | None = None,
        n_updates_per_epoch: int | None = None,
        eval_interval: int = 1,
        save_metrics: bool = True,
        logdir: str = "d3rlpy_logs",
        verbose: bool = True,
        tensorboard: bool = False,
    ) -> None:
        """Trains while acting; `n_steps` counts steps of the environment, as there.

        Args are `fitter`'s, and:

            env: An environment, or its id.
            buffer: What experience goes into; None: a new one.
            explorer: What disturbs the policy's actions; None: draws of a stochastic policy, of another its own actions.
            n_steps: Steps of the environment.
            n_steps_per_epoch: Of the environment, between two evaluations.
            update_interval: Steps between updates.
            n_updates: Gradient steps at each.
            update_start_step: Steps before the first.
            random_steps: First steps that are uniform draws.
            eval_env: Where the greedy policy is evaluated after an epoch, as the metric `evaluation`.
            eval_epsilon: Share of random actions then.
            eval_n_trials: Episodes then.
            save_interval: "
            experiment_name: "; the algorithm's name and `_online`.
            with_timestamp: "
            logging_steps: "
            logging_strategy: "
            logger_adapter: "
            show_progress: "
            callback: Called after every step of the environment with (algorithm, epoch, steps).
            n_epochs: Of d3rlpy's first versions: epochs in place of `n_steps`.
            n_updates_per_epoch: "; one gradient step after every so many of the environment.
            eval_interval: "; epochs between evaluations.
            save_metrics: "
            logdir: "
            verbose: "
            tensorboard: "

        Raises:
            ConfigError, DataError: as `OnlineRun`; or `eval_env` is the very environment that is trained in.
        """
        if n_epochs is not None:
            n_steps = n_epochs * n_steps_per_epoch
        if n_updates_per_epoch is not None:
            update_interval = max(1, n_steps_per_epoch // n_updates_per_epoch)
        if eval_env is not None and eval_env is env:
            raise ConfigError("eval_env is the very environment that is trained in: give another one, or its id.")
        self._take_picker(buffer)
        if not hasattr(self, "fit_"):
            self.build_with_env(env)
        ring = getattr(buffer, "ring", buffer)
        how: Any = {"update_interval": update_interval, "n_updates": n_updates, "random_steps": random_steps}
        explores = seen_by(explorer, self)
        run = OnlineRun(self, env, ring, explores, update_start_step=update_start_step + 1, **how)
        logs = _adapters(logger_adapter, save_metrics, logdir, None)
        metrics = begin(self, logs, experiment_name or f"{self.name}_online", n_steps_per_epoch, stamp=with_timestamp)
        try:
            with progress("training", n_steps) if show_progress else nullcontext() as advance:
                for step in range(1, n_steps + 1):
                    ends, epoch = step % n_steps_per_epoch == 0, step // n_steps_per_epoch
                    run.step(closes=ends)
                    if callback is not None:
                        callback(self, epoch, step)
                    if advance is not None and step % 100 == 0:
                        advance(to=step)
                    if ends and eval_env is not None and epoch % eval_interval == 0:
                        judged: Any = {"episodes": eval_n_trials, "epsilon": eval_epsilon, "seed": self.seed}
                        metrics.add({"evaluation": evaluate(self.policy(), eval_env, **judged).mean})
                    if ends and epoch % save_interval == 0:
                        metrics.adapter.save_model(step, self)
                    if step % (logging_steps if logging_strategy == LoggingStrategy.STEPS else n_steps_per_epoch) == 0:
                        self._log(metrics, run, epoch, step)
            run.buffer.cut_episodes()
        finally:
            run.close()
            metrics.adapter.close()

    def _log(self, metrics: Metrics, run: OnlineRun, epoch: int, step: int) -> None:
        found = run.metrics()
        metrics.add(self._named(found))
        if "rollout/return" in found:
            metrics.add({"rollout_return": found["rollout/return"]})
        metrics.commit(epoch, step)

    def collect(self, env: Any, buffer: Any = None, explorer: Any = None, *positional: Any, **arguments: Any) -> Any:
        """Acts, and gives the buffer; a new one where none is given. Arguments as `d3ray.Algorithm.collect`."""
        buffer = create_fifo_replay_buffer(1_000_000, env=env) if buffer is None else buffer
        if not hasattr(self, "fit_"):
            self.build_with_env(env)
        super().collect(env, getattr(buffer, "ring", buffer), seen_by(explorer, self), *positional, **arguments)
        return buffer

    def update(self, batch: Any) -> dict[str, float]:
        """One gradient step on a batch that `sample_transition_batch` gave, or on one of d3ray's."""
        if isinstance(batch, TransitionMiniBatch):
            batch = self._scaled(batch)
        return {_THEIRS.get(self.name, {}).get(name, name): value for name, value in super().update(batch).items()}

    def _scaled(self, batch: TransitionMiniBatch) -> Batch:
        fit = self.fitted
        actions = batch.actions[:, 0].astype(np.int64) if self.spec_.discrete else batch.actions
        reward, ended, interval = (torch.as_tensor(part[:, 0]) for part in (batch.rewards, batch.terminals, batch.intervals))
        scaler, dtype, device = self.config_.reward_scaler, fit.dtype, fit.device
        reward = reward if scaler is None else scaler.reward_transform().transform(reward)
        discount = self.config_.gamma**interval * (1 - ended)
        seen, following = fit.scaling.observation(batch.observations), fit.scaling.observation(batch.next_observations)
        parts = [part.to(device, dtype) for part in (reward, discount)]
        index = torch.arange(len(reward), device=device)
        return Batch(seen, fit.scaling.action(actions), parts[0], following, parts[1], index)

    # ---- keeping

    def params(self) -> dict[str, Any]:
        """The settings of this fit, as `params.json` has them."""
        return params_of(self)

    def save(self, path: str | Path, *, overwrite: bool = True) -> None:
        """Everything that training goes on from, in one file that `load_learnable` opens; replaces what is there."""
        if not overwrite and Path(path).exists():
            raise ConfigError(f"{path} is there already: save under another name, or say overwrite=True to replace it.")
        save_packed(self, path)

    def save_policy(self, path: str | Path, as_onnx: bool = False, *, overwrite: bool = True) -> None:
        """As `d3ray.Algorithm.save_policy`, which d3rlpy replaces what is there with; inputs of ONNX are `input_0` and so on.

        `as_onnx` is the word of d3rlpy's first versions for what the ending says.
        """
        path = Path(path).with_suffix(".onnx") if as_onnx else Path(path)
        super().save_policy(path, overwrite=overwrite)
        if path.suffix == ".onnx":
            _name_as_d3rlpy_does(path)

    def save_model(self, path: str | Path, *, overwrite: bool = True) -> None:
        """The same as `save`."""
        self.save(path, overwrite=overwrite)

    @classmethod
    def from_json(cls, path: str | Path, device: Any = False) -> Self:
        """The algorithm of a `params.json`, d3rlpy 2's too, with fresh networks. Raises StorageError, ConfigError or DataError."""
        try:
            with storage_errors("read", path):
                told = parse_json(Path(path).read_bytes())
        except ValueError:
            raise StorageError(f"{path} is no JSON.") from None
        if isinstance(told.get("config"), dict) and "type" in told["config"]:
            name, settings = settings_of(told["config"])
            algorithm = cls._class_called(name)(**settings, device=device_of(device))
            return algorithm.build_with_shapes(told["observation_shape"], told["action_size"])
        return cls.adopt(read_params(path, device_of(device)))

    @classmethod
    def adopt(cls, algorithm: Algorithm) -> Self:
        """An algorithm of d3ray's as this class, fit and all. Raises ConfigError where it is another."""
        made = object.__new__(cls._class_called(algorithm.name))
        made.__dict__.update(vars(algorithm))
        if hasattr(algorithm, "fit_"):
            made.fit_.algorithm = made
        return made

    @classmethod
    def _class_called(cls, name: str) -> type[Self]:
        if name != cls.__name__:
            raise ConfigError(f"It is a {name}, not a {cls.__name__}.")
        return cls

    # ---- what it tells

    @property
    def impl(self) -> Any:
        """The fit; None before there is one."""
        return getattr(self, "fit_", None)

    def get_action_type(self) -> ActionSpace:
        """The kind of its actions."""
        return ActionSpace.DISCRETE if self.action_kinds() == ("discrete",) else ActionSpace.CONTINUOUS


for _name, (_, _does) in METHODS.items():  # which are d3rlpy's words, and no former ones here
    if _name not in vars(Learnable):
        setattr(Learnable, _name, _does)


def _name_as_d3rlpy_does(path: Path) -> None:
    """Observations of an ONNX file as `input_0`, …, its action as `output_0`; memory and random numbers keep their names."""
    import onnx

    model = onnx.load(str(path))
    graph = model.graph
    seen = [one.name for one in graph.input if one.name.partition("/")[0] == "observation"]
    names = {name: f"input_{k}" for k, name in enumerate(seen)} | {graph.output[0].name: "output_0"}
    for one in (*graph.input, *graph.output):
        one.name = names.get(one.name, one.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    write_atomically(path, model.SerializeToString())


def _judging(scorer: Callable[[Any, Any], float], episodes: Any) -> Callable[[Any, Any], float]:
    return lambda algo, data: scorer(algo, data if episodes is None else opened(episodes))


def _adapters(given: LoggerAdapterFactory | None, save_metrics: bool, logdir: str, tensorboard: str | None) -> LoggerAdapterFactory:
    """What logs, in the words of all of d3rlpy's versions."""
    if not save_metrics:
        return NoopAdapterFactory()
    logs: Sequence[LoggerAdapterFactory] = [given or FileAdapterFactory(logdir)]
    return CombineAdapterFactory([*logs, TensorboardAdapterFactory(tensorboard)]) if tensorboard else logs[0]
