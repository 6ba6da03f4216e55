"""What a service is told: which policies, how they act, what it keeps and what it allows."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ...data.config import Config, setting
from ...data.errors import ConfigError
from ...data.uris import label
from ..tracking.registered import is_registered
from .exploring import ExploreSetting, Greedy

TAKEN = ("act", "outcome", "alarm", "status", "health", "ready", "docs", "openapi.json")  # paths beside those of policies


def _as_text(value: Any) -> Any:
    """What a command line or YAML has read as a number or a list, as the JSON that it was."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


class ActingSettings(Config):
    """How a policy acts."""

    explore: ExploreSetting = setting(
        Greedy(), "none, epsilon, softmax or gaussian, as {name: epsilon, epsilon: 0.05}: how it departs from what it proposes"
    )
    shadow: str | None = setting(None, "a policy that decides beside it, which is only logged")
    canary: str | None = setting(None, "a policy that acts in a share of the episodes")
    canary_share: float = setting(0.1, "share of the episodes, by a hash of their keys", ge=0, le=1)
    fallback: Annotated[str | None, BeforeValidator(_as_text)] = setting(
        None,
        "what acts where the policy may not: an action as JSON, module:function of (observation, action_mask), or an older policy",
    )
    reference: str | None = setting(None, "dataset that the policy learned from, to say how far an observation is from it")
    reference_rows: int = setting(2000, "observations of it that are kept to compare with", gt=0, le=100_000)
    outside: float | None = setting(
        None, "the fallback acts where an entry is beyond the reference's range by more than so many times its width", ge=0
    )
    stacked: bool = setting(False, "of policies on stacks of frames: clients send whole stacks, not single frames")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.outside is not None and (self.reference is None or self.fallback is None):
            missing = "reference=DATASET" if self.reference is None else "fallback=…"
            raise ValueError(f"outside says where the fallback acts, by the range of the reference: say {missing} too")
        return self


class PolicySettings(ActingSettings):
    """One policy."""

    title: ClassVar[str] = "A policy of the service"

    source: str = setting(..., "models:/NAME@champion, models:/NAME/VERSION or the folder of a policy package")


class LogSettings(Config):
    """Where decisions are kept."""

    title: ClassVar[str] = "log"
    shorthand: ClassVar[str] = "folder"

    folder: str = setting(..., "folder or URI of the log")
    rotate_mb: float = setting(64.0, "a file is closed when it has so many megabytes", gt=0)
    rotate_seconds: float = setting(300.0, "or is so old", gt=0)
    fsync: bool = setting(False, "reach the disk before the reply leaves, so that a power cut loses nothing either; costs time")


class Bounds(Config):
    """What a request may take."""

    title: ClassVar[str] = "bounds"

    request_mb: float = setting(8.0, "megabytes of a request's body", gt=0)
    decisions: int = setting(256, "observations of a request", gt=0, le=100_000)
    seconds: float = setting(2.0, "within which a request is answered; later the fallback acts, or the answer is 504", gt=0)
    waiting: int = setting(256, "requests that a replica has in hand at once; one more is answered 503", gt=0)


class Replicas(Config):
    """How many processes answer. The names are Ray Serve's, which has them in its documentation."""

    title: ClassVar[str] = "replicas"

    min_replicas: int = setting(1, "of each policy, at least", gt=0)
    max_replicas: int | None = setting(None, "at most, by load; null: min_replicas, always", gt=0)
    target_ongoing_requests: float = setting(8.0, "requests in hand of a replica, on the mean, that it is scaled towards", gt=0)
    upscale_delay_s: float = setting(30.0, "seconds of more load before there are more", ge=0)
    downscale_delay_s: float = setting(600.0, "seconds of less load before there are fewer", ge=0)
    num_cpus: float = setting(1.0, "CPUs that Ray reserves for each", ge=0)
    max_batch_size: int = setting(64, "requests that are acted on together, at most", gt=0)
    batch_wait_timeout_s: float = setting(0.0, "seconds that a request waits for others to join it", ge=0)

    @model_validator(mode="after")
    def _at_least(self) -> Self:
        if self.max_replicas is not None and self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas is {self.max_replicas}, less than min_replicas, {self.min_replicas}")
        return self


def _no_path(policies: dict[str, PolicySettings]) -> dict[str, PolicySettings]:
    for name in policies:
        check_name(name)
    return policies


class ServiceSettings(ActingSettings):
    """The whole service. What is said of acting holds for every policy of `sources`; those of `policies` have their own."""

    title: ClassVar[str] = "service"

    sources: str | tuple[str, ...] = Field(
        (),
        description="models:/NAME@champion, models:/NAME/VERSION or the folder of a policy package; several are asked by name",
        json_schema_extra={"operand": "several", "example": "models:/hopper@champion"},
    )
    policies: Annotated[dict[str, PolicySettings], AfterValidator(_no_path)] = setting(
        {}, "further ones by name, each with settings of its own, as {NAME: {source: …, explore: …}}"
    )
    log: LogSettings | None = setting(None, "folder or URI that every decision is logged to before it is answered; null: none is")
    seed: int = setting(0, "that exploration is addressed by", ge=0)
    poll_seconds: float = setting(10.0, "between looks whether an alias of the registry is on another version; 0: never", ge=0)
    bounds: Bounds = setting(Bounds(), "what a request may take")
    tracking: str | None = setting(None, "MLflow's tracking URI; null: MLFLOW_TRACKING_URI, else the database in storage")
    storage: str = setting("./d3ray_results", "results folder, for its MLflow database")

    def served(self) -> dict[str, PolicySettings]:
        """Every policy by name. Raises ConfigError where there is none, or two have one name."""
        acting = {name: getattr(self, name) for name in ActingSettings.model_fields}
        sources = (self.sources,) if isinstance(self.sources, str) else self.sources
        found: dict[str, PolicySettings] = {}
        for source in sources:
            name = name_of(source)
            check_name(name)
            if name in found or name in self.policies:
                raise ConfigError(f"Two policies are called {name!r}: name them in policies: {{NAME: {{source: {source}}}}}.")
            found[name] = PolicySettings(source=source, **acting)
        if not (found := {**found, **self.policies}):
            raise ConfigError("Nothing is to be served: name models:/NAME@champion or the folder of a policy package.")
        return found


class ServeSettings(ServiceSettings):
    """The service as Ray Serve runs it."""

    title: ClassVar[str] = "serve"

    host: str = setting("127.0.0.1", "address that it binds; another than this machine's own is open to the network")
    port: int = setting(8000, "where it listens; 0: any that is free", ge=0, le=65535)
    token: str | None = setting(
        None,
        "file whose first line clients show; null: what D3RAY_SERVE_TOKEN says, on this machine alone else ~/.d3ray/serve_token",
    )
    replicas: Replicas = setting(Replicas(), "how many processes answer, of each policy")
    metrics: int | None = setting(
        None,
        "port where Ray tells Prometheus of requests and decisions, to the whole network and without a token; null: it does not",
        gt=0,
        le=65535,
    )
    address: str | None = setting(None, "Ray cluster to run on; null: RAY_ADDRESS, else a Ray of this machine's own")


def name_of(source: str) -> str:
    """What a policy is called in a service: the registered model, or the folder's name."""
    return source.removeprefix("models:/").partition("@")[0].partition("/")[0] if is_registered(source) else label(source)


def check_name(name: str) -> None:
    """Raises ConfigError where a name cannot be a part of an address, or is one already."""
    if not name or name in TAKEN or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
        known = ", ".join(TAKEN)
        raise ConfigError(f"{name!r} cannot be the name of a policy: it is letters, digits, - _ and ., and none of {known}.")
