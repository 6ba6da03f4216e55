"""Settings of RLlib's algorithms: those of their own `training()`, and the few that d3ray adds."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from ...data.config import Config, setting
from ...data.errors import ConfigError, did_you_mean
from .names import OFFLINE, ONLINE, PREFIX, rllib_names

_OLD = frozenset(  # of RLlib's old API stack, or objects, or decided by how a trial runs
    (
        "model",
        "optimizer",
        "train_batch_size",
        "num_sgd_iter",
        "max_requests_in_flight_per_sampler_worker",
        "learner_class",
        "learner_connector",
        "add_default_connectors_to_learner_pipeline",
        "learner_config_dict",
        "num_aggregator_actors_per_learner",
        "max_requests_in_flight_per_aggregator_actor",
        "lr_schedule",
        "entropy_coeff_schedule",
        "vf_share_layers",
        "q_model_config",
        "policy_model_config",
        "before_learn_on_batch",
        "optimization_config",
        "clip_actions",
        "num_gpu_loader_threads",
        "num_multi_gpu_tower_stacks",
        "minibatch_buffer_size",
        "replay_proportion",
        "replay_buffer_num_slots",
        "learner_queue_timeout",
        "timeout_s_sampler_manager",
        "timeout_s_aggregator_manager",
        "opt_type",
        "decay",
        "momentum",
        "num_aggregation_workers",
        "max_requests_in_flight_per_aggregator_worker",
        "target_update_frequency",
        "noisy",
        "sigma0",
        "hiddens",
        "bc_logstd_coeff",
    )
)
_OURS: dict[str, dict[str, Any]] = {  # defaults that differ from RLlib's
    "CQL": {"lr": None},  # RLlib's own validation refuses its default
    "DQN": {"store_buffer_in_checkpoints": True},  # a resumed run has its data
    "SAC": {"store_buffer_in_checkpoints": True},
}


class RllibSettings(Config):
    """Settings beside a name; those of `AlgorithmConfig.training()` stand here too, or under `training`."""

    model_config = ConfigDict(frozen=True, extra="allow", validate_default=True, allow_inf_nan=False)
    title: ClassVar[str] = "rllib"

    model: dict[str, Any] = setting({}, "networks: settings of RLlib's DefaultModelConfig, as {fcnet_hiddens: [64, 64]}")
    env_runners: int = setting(0, "processes that collect beside the trial's own; each is given a CPU", ge=0)
    num_envs_per_env_runner: int = setting(1, "environments of each that are stepped at once", gt=0)
    observation_filter: Literal["none", "mean_std"] = setting(
        "none", "mean_std: observations are brought to mean 0 and deviation 1 as they are seen (online algorithms)"
    )
    fragment_length: int = setting(50, "longest piece of an episode over which MARWIL works out advantages", gt=0)

    @property
    def training(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


@cache
def algorithm_config(name: str) -> Any:
    """RLlib's own default config of an algorithm. Not to be changed: `copy` it."""
    from ray.rllib.algorithms.registry import ALGORITHMS

    return ALGORITHMS[name]()[1]


def training_settings(name: str) -> dict[str, Any]:
    """Settings that the `training()` of an algorithm takes, with RLlib's defaults; those that are JSON and of the new API stack."""
    config, found = algorithm_config(name), dict[str, Any]()
    for cls in type(config).__mro__:
        if "training" not in vars(cls):
            continue
        for setting_name in inspect.signature(vars(cls)["training"]).parameters:
            if setting_name in _OLD or setting_name in ("self", "kwargs") or setting_name.startswith("_"):
                continue
            value = getattr(config, setting_name, inspect.Parameter.empty)
            if _is_json(value):
                found[setting_name] = value
    return found | _OURS.get(name, {})


def check_settings(algorithm: str, given: Mapping[str, Any]) -> RllibSettings:
    """Settings of `rllib/NAME`, defaults written out.

    Args:
        algorithm: As a config names it, with the prefix.
        given: What stands beside the name.

    Raises:
        ConfigError: there is no such algorithm or setting (the nearest is named), or RLlib refuses a value.
    """
    name = algorithm.removeprefix(PREFIX)
    if name not in (*ONLINE, *OFFLINE):
        raise ConfigError(f"There is no algorithm {algorithm!r}{did_you_mean(algorithm, rllib_names())}")
    settings = {key: value for key, value in given.items() if key != "dtype"}
    if settings.pop("preset", None) is not None:
        raise ConfigError(f"{algorithm} has no presets: say its settings.")
    inner = settings.pop("training", None) or {}
    if not isinstance(inner, Mapping):
        raise ConfigError(f"{algorithm}: training is {inner!r}; it must be a mapping of settings, as {{lr: 3.0e-4}}.")
    if twice := sorted(inner.keys() & settings.keys()):
        raise ConfigError(f"{algorithm}: {twice[0]} stands there twice, once under training.")
    known, own = training_settings(name), set(RllibSettings.model_fields)
    for key in (*settings, *inner):
        if key not in known and (key not in own or key in inner):
            raise ConfigError(f"{algorithm} has no setting {key!r}{did_you_mean(key, [*known, *sorted(own)])}")
    checked = RllibSettings.checked({**known, **settings, **inner}, title=algorithm)
    _check_own(algorithm, checked)
    build_config(algorithm, checked)
    return checked


def build_config(algorithm: str, settings: RllibSettings) -> Any:
    """RLlib's AlgorithmConfig with these settings, learner and sampling in this process unless env_runners are asked for.

    Raises:
        ConfigError: RLlib refuses a value.
    """
    import gymnasium
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    logging.getLogger("ray.rllib").setLevel(logging.ERROR)  # it says at every start which API stack this is
    name = algorithm.removeprefix(PREFIX)
    changed = {key: value for key, value in settings.training.items() if value != algorithm_config(name).__dict__.get(key)}
    try:
        config = algorithm_config(name).copy(copy_frozen=False)
        config.training(**{key: _points(value) for key, value in changed.items()})
        config.api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
        config.framework("torch").learners(num_learners=0).reporting(
            min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0, min_train_timesteps_per_iteration=0
        )
        config.env_runners(
            num_env_runners=settings.env_runners,
            num_envs_per_env_runner=settings.num_envs_per_env_runner,
            num_cpus_per_env_runner=0,  # the trial has them
        )
        if settings.model:
            config.rl_module(model_config=DefaultModelConfig(**settings.model))
        if name in OFFLINE:
            config.offline_data(input_="d3ray", dataset_num_iters_per_learner=1)
            box = gymnasium.spaces.Box(-1, 1, (1,))  # in the place of the dataset's, which are not known yet
            config.environment(observation_space=box, action_space=box)
        config.validate()
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"{algorithm}: RLlib refuses these settings: {_sentence(error)}.") from error
    return config


def _check_own(algorithm: str, settings: RllibSettings) -> None:
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    known = [field.name for field in fields(DefaultModelConfig)]
    for key in settings.model:
        if key not in known:
            raise ConfigError(f"{algorithm}: model has no setting {key!r}{did_you_mean(key, known)}")
    if settings.model.get("use_lstm"):
        raise ConfigError(f"{algorithm}: model.use_lstm is true; policies with memory are not supported here.")
    if algorithm.removeprefix(PREFIX) in OFFLINE:
        for key in ("env_runners", "num_envs_per_env_runner", "observation_filter"):
            if getattr(settings, key) != RllibSettings.model_fields[key].default:
                raise ConfigError(f"{algorithm}: {key} is {getattr(settings, key)!r}, and it learns from a dataset alone.")


def _points(value: Any) -> Any:
    """A schedule as JSON has it, [[step, value], …], as RLlib wants it."""
    if isinstance(value, list | tuple) and value and all(isinstance(point, list | tuple) for point in value):
        return [tuple(point) for point in value]
    return value


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _sentence(error: BaseException) -> str:
    """The first line of what RLlib says that is not a rule of dashes."""
    lines = [line.strip() for line in str(error).splitlines() if any(c.isalnum() for c in line)]
    return (lines[0] if lines else type(error).__name__).rstrip(".:")
