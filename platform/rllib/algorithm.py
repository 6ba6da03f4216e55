"""One of RLlib's algorithms with one seed, as a trial runs d3ray's own: epochs, states, a policy, a package."""

from __future__ import annotations

import copy
import math
import shutil
import tempfile
import time
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from ...algos.base import Evaluator
from ...algos.learning.callbacks import Epoch
from ...data.errors import ConfigError
from ...data.spec import Box, Environment, Spec
from ...data.storage.claims import scratch_names
from ..places import Data
from .names import OFFLINE, PREFIX
from .offline import MODULE, Transitions, fitted_scaler, offline_data_class
from .policy import Bounds, Filter, RllibPolicy, RllibPolicyModule
from .random_numbers import random_numbers, set_random_numbers
from .settings import RllibSettings, build_config, check_settings
from .spaces import check_spaces
from .tree import decode, encode

_ENVIRONMENT = "d3ray"  # what RLlib knows the environment by
_LEARNED = ("curr_log_alpha", "curr_kl_coeffs_per_module", "moving_avg_sqd_adv_norms_per_module")  # what RLlib's own state lacks
_ON_POLICY = ("rllib/APPO", "rllib/IMPALA", "rllib/PPO")
_FOR_EVER = 2**62
_COUNTS = ("num_", "weights_seq_no", "diff_num_", "module_train_batch_size", "timers", "learner_connector", "last_target_update_ts")
_TIMESTAMPS = ("last_update_ts_by_mid", "_last_update_ts_by_mid")  # when target networks were last brought up to date


class RllibAlgorithm:
    """An algorithm of RLlib.

    Args:
        name: With its prefix, as `rllib/PPO`.
        settings: What stands beside the name in a config.
        seed: Of the run.
        device: As d3ray's own; None: the first accelerator, else the CPU.

    Attributes:
        step: Of algorithms that learn from a dataset: gradient steps. Of the others: environment steps, in whole epochs.
        dataset, environment: What it learns from, or where; see `for_run`.

    Raises:
        ConfigError: there is no such algorithm or setting, or RLlib refuses a value.
    """

    presets: ClassVar[Mapping[str, Any]] = {}
    models_dynamics: ClassVar[bool] = False
    goal_conditioned: ClassVar[bool] = False
    dtype = "float32"
    compile_graph = data_parallel = False

    def __init__(self, name: str, settings: Mapping[str, Any], *, seed: int = 0, device: str | None = None) -> None:
        self.name, self.seed, self.step = name, seed, 0
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.settings: RllibSettings = check_settings(name, settings)
        self.dataset: Data | None = None
        self.environment: str | Environment | None = None
        self.environment_steps = 0
        self._built: Any = None
        self._transitions: Transitions | None = None
        self._folder: str | None = None
        self._random: dict[str, Any] | None = None
        self._state: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None = None

    @property
    def is_online(self) -> bool:
        return self.name.removeprefix(PREFIX) not in OFFLINE

    @property
    def trained(self) -> RllibAlgorithm:
        """Itself: it is what trains one seed of a trial, and what evaluators see."""
        return self

    @property
    def warned(self) -> dict[int, str]:
        """Nothing is looked for beyond losses that are not finite."""
        return {}

    def check_settings(self) -> RllibSettings:
        """The settings, RLlib's defaults written out."""
        return self.settings

    def for_run(self, seed: int, dataset: Data, environment: str | Environment | None) -> RllibAlgorithm:
        """Return an unfitted copy with a seed and what it learns from: a dataset, or an environment."""
        other = copy.copy(self)
        other.seed, other.dataset, other.environment = seed, dataset, environment
        other.step = other.environment_steps = 0
        other._built = other._transitions = other._folder = other._random = other._state = None  # what this one may have begun
        return other

    def acts(self) -> bool:
        return True

    def learns_values(self) -> bool:
        """Values are not shown: RLlib's algorithms keep them in ways of their own."""
        return False

    # ---- training

    def fitter(self, n_steps: int, n_steps_per_epoch: int, evaluators: Mapping[str, Evaluator] | None = None) -> Iterator[Epoch]:
        """Trains on, an epoch at a time: until `n_steps` further steps are done.

        Yields:
            number and metrics: `train/…` as RLlib names and averages them, `time/updates_per_second`, and the evaluators'.

        Raises:
            ConfigError: RLlib cannot be set up for these spaces, or one of its iterations is longer than an epoch.
        """
        if self.name in _ON_POLICY and (at_once := self.settings.training["train_batch_size_per_learner"]) > n_steps_per_epoch:
            raise ConfigError(
                f"n_steps_per_epoch is {n_steps_per_epoch}, and {self.name} collects {at_once} environment steps at a time: raise "
                "the one, or lower train_batch_size_per_learner."
            )
        self.build()
        end = self.step + n_steps
        while self.step < end:
            target = min(self.step - self.step % n_steps_per_epoch + n_steps_per_epoch, end)
            with self._own_random_numbers():
                metrics = self._online_epoch(target) if self.is_online else self._offline_epoch(target)
            epoch = -(-self.step // n_steps_per_epoch)
            for name, evaluator in (evaluators or {}).items():
                metrics |= {f"{name}/{key}": float(value) for key, value in evaluator(self, epoch).items()}  # pyright: ignore[reportArgumentType]
            yield Epoch(epoch, metrics)

    def _offline_epoch(self, target: int) -> dict[str, float]:
        assert self._transitions is not None
        begun, first = time.perf_counter(), self.step
        cloned, held = self.settings.training.get("bc_iters", 0), vars(self._built.learner_group._learner.config)
        while self.step < target:
            if cloned:  # RLlib's own count of CQL's steps begins anew with every update, so that it would clone for ever
                held["bc_iters"] = 0 if self.step >= cloned else _FOR_EVER
            self._built.training_step()
            self.step += 1
        speed = (self.step - first) / (time.perf_counter() - begun)
        return self._metrics(self._built.metrics.compile(), first, speed)

    def _online_epoch(self, target: int) -> dict[str, float]:
        """Whole iterations of RLlib until `target` environment steps are done; the step is then `target`, whatever was overshot."""
        begun, first, collected, result = time.perf_counter(), self.step, self.environment_steps, dict[str, Any]()
        while self.environment_steps < target:
            result = self._built.train()
            self.environment_steps += int(result.get("env_runners", {}).get("num_env_steps_sampled", 0))
        self.step = target
        speed = (self.environment_steps - collected) / (time.perf_counter() - begun)
        return self._metrics(result, first, speed)

    def _metrics(self, result: Mapping[str, Any], first: int, speed: float) -> dict[str, float]:
        metrics = {f"train/{name}": value for name, value in self._losses(result).items()}
        runners = result.get("env_runners", {})
        if self.is_online:
            metrics["train/environment_steps"] = float(self.environment_steps)
            for ours, theirs in (("rollout/return", "episode_return_mean"), ("rollout/length", "episode_len_mean")):
                if math.isfinite(value := _number(runners.get(theirs))):
                    metrics[ours] = value
        if self._diverged():
            metrics["first_bad_step"] = float(first)  # within the epoch that begins there
        return metrics | {"time/updates_per_second": speed}

    def _losses(self, result: Mapping[str, Any]) -> dict[str, float]:
        """Numbers of RLlib's learner by name. What is NaN was not measured, while the weights are finite."""
        found = dict[str, float]()
        for name, value in result.get("learners", {}).get(MODULE, {}).items():
            if not name.startswith(_COUNTS) and "throughput" not in name and math.isfinite(number := _number(value)):
                found[name] = number
        return found

    def _diverged(self) -> bool:
        """Return whether a weight is not finite: what RLlib reports as NaN may be a mean over nothing."""
        module = self._built.learner_group._learner.module[MODULE]
        return not all(bool(torch.isfinite(p).all()) for p in module.parameters())

    # ---- setting up

    def build(self) -> None:
        """Makes RLlib's algorithm, and loads the state that `load_state` was given; once.

        Raises:
            ConfigError: RLlib cannot be set up for these spaces.
        """
        if self._built is not None:
            return
        config, spec = build_config(self.name, self.settings), self.spec_of()
        config.debugging(seed=self.seed & 0x7FFFFFFF, log_level="ERROR")
        config.learners(num_gpus_per_learner=0 if self.device == "cpu" else 1)
        if self.is_online:
            self._play_in(config)
        else:
            self._read_from(config, spec)
        self.spec = spec
        self._folder = tempfile.mkdtemp(prefix=scratch_names("rllib"))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # gymnasium's, that RLlib registers its environment again
                self._built = _without_results(config, self._folder)
        except (ValueError, NotImplementedError, AssertionError) as error:
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ConfigError(f"{self.name} cannot be set up: {first.rstrip('.')}.") from error
        self._random = random_numbers()
        if self._state is not None:
            self._restore(*self._state)
            self._state = None

    def spec_of(self) -> Spec:
        """The spaces that it learns on. Raises ConfigError where it cannot."""
        assert self.dataset is not None
        spec = self.dataset.spec
        if self.is_online:
            from ...algos.environments.make import make

            assert self.environment is not None
            with make(self.environment) as vector:
                spec = vector.spec
        check_spaces(self.name, spec)
        return spec

    def _play_in(self, config: Any) -> None:
        from ray.tune import register_env

        from ...algos.environments.make import make

        environment = self.environment or ""

        def single(context: Any) -> Any:
            return make(environment).single

        register_env(_ENVIRONMENT, single)
        config.environment(_ENVIRONMENT)
        if self.settings.observation_filter == "mean_std":
            from ray.rllib.connectors.env_to_module import MeanStdFilter

            config.env_runners(env_to_module_connector=lambda env, spaces, device: MeanStdFilter())

    def _read_from(self, config: Any, spec: Spec) -> None:
        import gymnasium

        dataset: Any = self.dataset

        scaler, name = fitted_scaler(dataset), self.name.removeprefix(PREFIX)
        self._transitions = Transitions(dataset, self.seed, scaler)
        self._transitions.step = self.step
        shape = cast("Box", spec.observation).shape
        observation = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
        if scaler is None:
            action: Any = gymnasium.spaces.Discrete(spec.n_actions)
        else:
            low, high = (np.asarray(bound, np.float32).reshape(spec.action.shape) for bound in (scaler.minimum, scaler.maximum))
            action = gymnasium.spaces.Box(low, high, dtype=np.float32)
        config.environment(observation_space=observation, action_space=action)
        config._is_online = False  # CQL's says otherwise, being SAC's, and then wants an environment
        fragments = self.settings.fragment_length if name == "MARWIL" else None
        config.offline_data(offline_data_class=offline_data_class(self._transitions, fragments, returns_iterator=name == "CQL"))

    # ---- state

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything to go on from: what RLlib keeps, what it does not (temperatures, replay), and random numbers. No pickle."""
        self.build()
        kept: dict[str, Any] = {"algorithm": self._built.get_state(), "random": self._random}
        learner = self._built.learner_group._learner
        kept["learned"] = {
            n: {k: float(v.detach()) for k, v in getattr(learner, n).items()} for n in _LEARNED if hasattr(learner, n)
        }
        kept["counters"] = {n: dict(getattr(learner, n)) for n in _TIMESTAMPS if hasattr(learner, n)}
        buffer = self._built.local_replay_buffer
        if buffer is not None and self.settings.training.get("store_buffer_in_checkpoints"):
            kept["replay"] = buffer.get_state()
        tensors, tree = encode(kept, "rllib")
        meta = {
            "algorithm": self.name,
            "step": self.step,
            "seeds": [self.seed],
            "environment_steps": self.environment_steps,
            "rllib": tree,
        }
        return tensors, meta

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> RllibAlgorithm:
        """Goes on from a state; where nothing is built yet, once it is."""
        self.step, self.environment_steps = int(meta["step"]), int(meta["environment_steps"])
        if self._built is None:
            self._state = (tensors, meta)
        else:
            self._restore(tensors, meta)
        return self

    def _restore(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        kept, built = decode(tensors, meta["rllib"]), self._built
        state, learner = kept["algorithm"], built.learner_group._learner
        learner._weights_seq_no = 0  # or RLlib takes older weights for newer ones
        built.learner_group.set_state(state["learner_group"])
        for name, held in kept["learned"].items():
            for module, value in held.items():
                with torch.no_grad():
                    getattr(learner, name)[module].fill_(value)
        for name, held in kept["counters"].items():
            getattr(learner, name).update(held)
        if built.env_runner_group is not None:
            if built.env_runner is not None and "env_runner" in state:
                built.env_runner.set_state(state["env_runner"])
            built.env_runner_group.sync_weights(from_worker_or_learner_group=built.learner_group, inference_only=True)
            built.env_runner_group.sync_env_runner_states(
                config=built.config,
                from_worker=built.env_runner,
                env_steps_sampled=self.environment_steps,
                env_to_module=built.env_to_module_connector,
                module_to_env=built.module_to_env_connector,
            )
        built.metrics.set_state(state["metrics_logger"])
        built._iteration = state["training_iteration"]
        if "replay" in kept:
            built.local_replay_buffer.set_state(kept["replay"])
        if self._transitions is not None:
            self._transitions.step = self.step
        self._random = kept["random"]

    @contextmanager
    def _own_random_numbers(self) -> Generator[None]:
        """RLlib draws from the process's generators: they are this algorithm's for as long as it trains, and evaluation's never."""
        before = random_numbers()
        set_random_numbers(self._random)
        try:
            yield
        finally:
            self._random = random_numbers()
            set_random_numbers(before)

    # ---- acting

    def policy(self) -> RllibPolicy:
        self.build()
        learner = self._built.learner_group._learner
        module = RllibPolicyModule(learner.module[MODULE], self.spec, self._bounds(), self._filter(), self.name)
        return RllibPolicy(module.to(learner.device), torch.device(learner.device))

    def predict(self, observation: Any) -> np.ndarray:
        return self.policy().predict(observation)

    def _bounds(self) -> Bounds | None:
        config, space = self._built.config, self._built.learner_group._learner.module[MODULE].action_space
        if not isinstance(self.spec.action, Box) or not (space.is_bounded() and (config.normalize_actions or config.clip_actions)):
            return None
        return Bounds(space.low, space.high, scales=bool(config.normalize_actions))

    def _filter(self) -> Filter | None:
        if self.settings.observation_filter == "none":
            return None
        connector = self._built.env_runner._env_to_module if self._built.env_runner else self._built.env_to_module_connector
        (state,) = next(part for part in connector if type(part).__name__ == "MeanStdFilter").get_state().values()
        (stats,) = state["running_stats"]
        from ray.rllib.utils.filter import RunningStat

        running = RunningStat.from_state(stats)
        return Filter(np.asarray(running.mean, np.float64), np.asarray(running.std, np.float64), state["clip_by_value"])

    def close(self) -> None:
        if self._built is not None:
            with suppress(Exception):
                self._built.stop()
            self._built = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _without_results(config: Any, folder: str) -> Any:
    """RLlib's algorithm, which would otherwise make a folder in the user's home."""
    base = config.algo_class

    class Quiet(base):
        def _setup_logdir(self) -> None:
            self._logdir = folder

    Quiet.__name__ = base.__name__
    return Quiet(config)


def _number(value: Any) -> float:
    """A number as a float; NaN for what is none."""
    if isinstance(value, int | float | np.number) or (isinstance(value, np.ndarray | Tensor) and value.ndim == 0):
        return float(value)
    return math.nan
