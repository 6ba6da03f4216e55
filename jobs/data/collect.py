"""`d3ray collect ENVIRONMENT TARGET`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import ConfigError
from ...data.spec import Discrete, Environment, Spec, kinds_text
from ..command.base import JobConfig, Result, option
from ..command.console import progress

if TYPE_CHECKING:
    from ...algos.environments.explorers import EpsilonGreedy, GaussianNoise
    from ...data.dataset import Dataset


class CollectConfig(JobConfig):
    """Who plays what for how long."""

    environment: str | Environment = option(..., "gymnasium id, or {id: …, kwargs: {…}}", operand=True, example="Hopper-v4")
    target: str = option(..., "folder of the dataset, new or empty, or a URI", operand=True, example="datasets/hopper-random")
    policy: str = option("random", "random, the folder of a saved algorithm or of a policy package, or models:/NAME@ALIAS")
    n_steps: int | None = option(None, "transitions in all; null, and no n_episodes: 10,000", ge=1)
    n_episodes: int | None = option(None, "episodes in all, instead of n_steps", ge=1)
    seed: int = option(0, "of the resets, the random actions and the exploration")
    n_envs: int = option(1, "environments stepped at once", ge=1)
    epsilon: float | None = option(None, "share of the policy's actions that a random one replaces", ge=0, le=1)
    noise: float | None = option(None, "standard deviation of normal noise on actions, in halves of their range", ge=0)
    name: str | None = option(None, "the dataset's name; null: the environment's id and the policy's kind")
    compression: Literal["zstd"] | None = option(None, "of the dataset's files; null: they are mapped as they are")
    overwrite: bool = option(False, "replace the dataset that is at the target")

    def model_post_init(self, context: Any, /) -> None:
        if self.n_steps is not None and self.n_episodes is not None:
            raise ConfigError("n_steps and n_episodes are both given; give one of them.")
        if self.epsilon is not None and self.noise is not None:
            raise ConfigError("epsilon and noise are both given; give one of them.")
        if self.policy == "random" and (self.epsilon is not None or self.noise is not None):
            raise ConfigError("Actions are random already; epsilon and noise need a policy.")


@dataclass(frozen=True, kw_only=True)
class CollectResult(Result):
    """The dataset, opened."""

    dataset: Dataset


def run(config: CollectConfig) -> CollectResult:
    """Plays, then writes all of it or nothing. Raises ConfigError, DataError or StorageError, where possible before playing."""
    from ...algos.environments.collect import collect
    from ...algos.environments.goals import aimed
    from ...algos.environments.make import make
    from ...data.storage.writing import Draft

    if not config.overwrite:
        with Draft(config.target):  # refuses a target that is taken or cannot be written; it is not committed, so nothing stays
            pass
    n_steps = 10_000 if config.n_steps is None and config.n_episodes is None else config.n_steps
    with _policy(config.policy) as policy, progress("collecting", n_steps or config.n_episodes) as advance:
        environment = aimed(config.environment, policy and policy.spec)
        with make(environment) as single:
            spec = single.spec
        if policy is not None:
            _check_actions(config.policy, policy.spec, spec)
        dataset = collect(
            environment,
            policy,
            n_steps=n_steps,
            n_episodes=config.n_episodes,
            seed=config.seed,
            n_envs=config.n_envs,
            explorer=_explorer(config),
            progress=lambda done, _: advance(to=done),
            name=config.name,
        )
    dataset.provenance["collected"] |= {"by": config.policy}
    written = dataset.write(config.target, compression=config.compression, overwrite=config.overwrite)
    returns = written.statistics.return_
    made = (
        f"{written.name}: {written.n_transitions:,} transitions in {written.n_episodes:,} episodes, mean return {returns.mean:.1f}."
    )
    return CollectResult(made=made, look={"dataset": config.target, "more": f"d3ray inspect {config.target}"}, dataset=written)


@contextmanager
def _policy(source: str) -> Generator[Any]:
    """Yield the policy, None for random actions. Raises StorageError: the folder is neither a saved algorithm nor a package."""
    from ...algos.export.package import is_package, read_package
    from ...algos.saving.saving import load
    from ...platform.tracking.registered import is_registered, registered_package

    if source == "random":
        yield None
    elif is_registered(source):
        with registered_package(source) as folder:
            yield read_package(folder)
    elif not Path(source).is_dir():
        raise ConfigError(f"There is no folder {source!r}; a policy is 'random', a saved algorithm's folder or a policy package.")
    else:
        yield read_package(source) if is_package(source) else load(source).policy()


def _check_actions(name: str, policy: Spec, environment: Spec) -> None:
    """Observations are checked by the policy itself."""
    if (policy.action.kind, policy.action.shape) != (environment.action.kind, environment.action.shape) or (
        policy.starts().get("action") != environment.starts().get("action")
    ):
        raise ConfigError(f"The actions of the policy {name} are not the environment's: {_say(policy)} and {_say(environment)}.")


def _say(spec: Spec) -> str:
    return (
        f"one of {kinds_text(spec.action)}"
        if isinstance(spec.action, Discrete)
        else f"arrays of the shape {list(spec.action.shape)}"
    )


def _explorer(config: CollectConfig) -> EpsilonGreedy | GaussianNoise | None:
    from ...algos.environments.explorers import EpsilonGreedy, GaussianNoise

    if config.epsilon is not None:
        return EpsilonGreedy(start=config.epsilon, end=config.epsilon)
    return None if config.noise is None else GaussianNoise(std=config.noise)
