"""What jobs that let a policy act have in common: which one, where, for how long, and whether it fits there."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.errors import ConfigError
from ...data.spec import Dict, Discrete, Environment, MultiDiscrete, ObservationSpace, Spec, Tuple, kinds_text, space_columns
from ...platform.words import POLICY
from ..command.base import JobConfig, option

if TYPE_CHECKING:
    from ...algos.environments.vector import Policy, VectorEnvironment


class PolicyConfig(JobConfig):
    """Which policy acts where."""

    policy: str = option(..., f"{POLICY}; also an .onnx file", operand=True, example="d3ray_results/hopper-first")
    environment: Environment | str | None = option(
        None,
        "gymnasium id, or {id: …, kwargs: {…}}; null: the one that the experiment or the package names",
        example="Hopper-v4",
        also="env_id",
    )
    episodes: int = option(1, "episodes to play", gt=0, also="n_episodes")
    seed: int = option(0, "decides how every episode is reset")
    epsilon: float = option(0.0, "share of uniform random actions, as 0.001 on Atari", ge=0, le=1)
    target_return: float | None = option(
        None, "return that a policy which acts for one is asked for; null: the first that it was trained to be asked for"
    )
    policy_seed: int | None = option(None, "which seed, where POLICY holds several; null: the best of a trial or an experiment")
    tracking: str | None = option(
        None, "MLflow's tracking URI for models:/…; null: MLFLOW_TRACKING_URI, else the database in storage"
    )
    storage: str = option("./d3ray_results", "results folder whose experiments may be named alone, and its MLflow database")

    def opened(self) -> AbstractContextManager[Opened]:
        """The policy, for as long as the context lasts. Raises as `opened`."""
        return opened(self.policy, self.environment, seed=self.policy_seed, tracking=self.tracking, storage=self.storage)


class ActingConfig(PolicyConfig):
    """A policy that is watched."""

    max_steps: int | None = option(None, "steps after which an episode is cut; null: the environment's own limit", gt=0)


@dataclass(frozen=True)
class Opened:
    """A policy that is ready to act.

    Attributes:
        policy: Raw observations in, raw actions out.
        environment: Where it is to act.
        algorithm: Name of the algorithm that made it.
        settings: The algorithm's.
    """

    policy: Any
    environment: Environment
    algorithm: str
    settings: dict[str, Any]


@contextmanager
def acting(config: ActingConfig) -> Generator[tuple[Any, Environment]]:
    """The policy, and where it is to act.

    Raises:
        ConfigError: it is no policy, acts for no return though one is asked for, or no environment is named.
        StorageError: it is damaged or cannot be fetched.
    """
    with config.opened() as one:
        yield asked_for(one.policy, config.target_return, config.policy), one.environment


@contextmanager
def opened(
    source: str,
    environment: Environment | str | None,
    *,
    seed: int | None = None,
    tracking: str | None = None,
    storage: str = "./d3ray_results",
) -> Generator[Opened]:
    """A policy, for as long as the context lasts.

    Args:
        source: As for `platform.tracking.policies.open_policy`, and so are seed, tracking and storage; or an ONNX file of anyone's,
            whose spaces are the environment's.
        environment: Where it is to act; None: where its experiment or package says.
        seed: Which one, where there are several.
        tracking: MLflow's tracking URI.
        storage: A results folder.

    Raises:
        ConfigError: it is no policy, or no environment is named.
        StorageError: it is damaged or cannot be fetched.
    """
    from ...algos.environments.goals import aimed
    from ...algos.export.package import read_package
    from ...platform.tracking.policies import open_policy

    if Path(source).suffix == ".onnx":
        from ...algos.acting.foreign_onnx import ForeignOnnxPolicy
        from ...algos.environments.make import make

        place = chosen_environment(environment, None, source)
        with make(place) as vector:
            spec = vector.spec
        yield Opened(ForeignOnnxPolicy.read(Path(source), spec), place, "ONNX", {})
        return
    with open_policy(source, seed=seed, tracking=tracking, storage=storage) as found:
        if found.algorithm is not None:
            one = found.algorithm
            place = chosen_environment(environment, found.environment, source)
            yield Opened(one.policy(), aimed(place, one.spec_), one.name, one.config_.model_dump(mode="json"))
            return
        policy = read_package(found.package or "")
        place = chosen_environment(environment, found.environment or policy.about["environment"], source)
        yield Opened(policy, aimed(place, policy.spec), policy.about["algorithm"], policy.about["config"])


def chosen_environment(said: Environment | str | None, named: Any, policy: str) -> Environment:
    """The environment that was said, else the one that the policy names. Raises ConfigError: there is neither."""
    if isinstance(said, str):
        return Environment(id=said)
    if said is not None:
        return said
    if named is None:
        raise ConfigError(f"{policy} names no environment: write environment=ID.")
    return named if isinstance(named, Environment) else Environment.checked(named)


def asked_for(policy: Any, target_return: float | None, name: str) -> Any:
    """The policy, asked for a return where one is said. Raises ConfigError: it acts for none."""
    if target_return is None:
        return policy
    from ...algos.acting.remembering import Remembering

    if not isinstance(policy, Remembering):
        raise ConfigError(f"{name} acts for no return: target_return is for policies as DecisionTransformer's.")
    return policy.asking(target_return)


def check_fits(policy: Policy, vector: VectorEnvironment, name: str) -> None:
    """Raises ConfigError where a policy sees or does what an environment does not have."""
    from ...algos.environments.vector import facing

    fitted = getattr(policy, "spec", None)
    if not isinstance(fitted, Spec):
        return
    shown = facing(policy, vector.spec)  # stacks of the frames that the environment shows, where the policy acts on such
    _check_spaces(fitted, vector.spec if shown is policy else shown.spec, name)


def _check_spaces(policy: Spec, environment: Spec, name: str) -> None:
    """Raises ConfigError where the policy cannot act in the environment."""
    for what in ("observation", "action"):
        ours, theirs = _describe(getattr(policy, what)), _describe(getattr(environment, what))
        if ours != theirs:
            verb = "sees" if what == "observation" else "chooses"
            raise ConfigError(f"The policy {verb} {ours}, and {name} has {theirs}: it was trained for another environment.")


def _describe(space: ObservationSpace) -> str:
    match space:
        case Discrete() | MultiDiscrete():
            return f"one of {kinds_text(space)}"
        case Dict() | Tuple():
            leaves = {name.partition("/")[2]: leaf for name, leaf in sorted(space_columns(space).items())}
            return (
                "{"
                + ", ".join(f"{key}: {_describe(leaf).removeprefix('arrays of the shape ')}" for key, leaf in leaves.items())
                + "}"
            )
        case _:
            return f"arrays of the shape {space.shape}"
