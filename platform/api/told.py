"""What is told of experiments: plain data, each a pydantic model with a JSON Schema. Moments are in seconds since 1970."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from ..storage.experiments import CANCELLED

if TYPE_CHECKING:
    from ..results.status import ConfigurationView, TrialView, View

JobName = Literal["train", "sweep", "benchmark", "judge"]
State = Literal["PENDING", "RUNNING", "FINISHED", "FAILED", "KILLED"]


class Told(BaseModel):
    """Plain data: `model_dump(mode="json")` is JSON, `model_json_schema()` says of what form."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Job(Told):
    """A process or a Ray job that runs an experiment, or ran it."""

    id: str
    state: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"]
    address: str  # of the cluster; "this machine"
    command: str
    experiment: str
    storage: str
    started: float
    ended: float | None = None
    exit_status: int | None = None  # None while it runs
    message: str = ""  # of Ray, where the job could not be started

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.state in ("PENDING", "RUNNING")


class SeedStatus(Told):
    """A seed of a trial."""

    seed: int
    score: float | None  # the newest value of the metric by which the experiment's configurations are compared
    reason: str  # why it failed; empty otherwise


class TrialStatus(Told):
    """A trial: some seeds of a configuration, trained together."""

    identity: str  # the name of its folder
    number: int | None  # of its configuration in a sweep or a benchmark
    label: str  # what tells its configuration from others, as alpha=2.5
    state: State
    reason: str
    is_final: bool  # nothing will be tried again
    step: int  # gradient steps that each of its seeds has done
    n_steps: int
    rate: float | None  # updates a second, of all its seeds
    at: float | None  # its newest sign of life
    attempts: int  # how often a worker began it
    seeds: list[SeedStatus]

    @property
    def may_go_on(self) -> bool:
        """Whether a resume can go on with it, once its experiment does not run: with one that was cancelled alone only by name."""
        return self.state not in ("RUNNING", "FINISHED") and (not self.is_final or self.reason == CANCELLED)

    @classmethod
    def of(cls, trial: TrialView) -> Self:
        """As a reader of the storage sees it."""
        seeds = [SeedStatus(seed=s, score=trial.scores.get(s), reason=trial.failed.get(s, "")) for s in trial.seeds]
        return cls(**_some(trial, cls, "seeds"), seeds=seeds)


class Best(Told):
    """The configuration with the best value so far."""

    number: int | None
    label: str
    value: float | None
    interval: tuple[float, float] | None  # of the mean over seeds
    level: float | None  # that it has: 0.95; None where there is none, or fewer than five seeds, which are too few for that
    seeds: int
    step: int

    @classmethod
    def of(cls, one: ConfigurationView) -> Self:
        """As a reader of the storage sees it."""
        return cls(**_some(one, cls, "seeds"), seeds=len(one.scores))


class Fault(Told):
    """Seeds of a trial that failed for the same reason."""

    at: float | None
    number: int | None
    seeds: tuple[int, ...]
    reason: str


class Budget(Told):
    """What an experiment may take, where that is limited: configurations, hours, gpu_hours; and what it has taken."""

    limits: dict[str, float] = {}
    spent: dict[str, float] = {}


class Status(Told):
    """How an experiment stands."""

    name: str
    folder: str
    state: State
    reason: str = ""  # why it failed or was stopped
    advice: str = ""  # what to do where it does not run and is not done
    created: float = 0.0
    since: float = 0.0  # when its state became what it is
    now: float = 0.0
    elapsed: float = 0.0  # seconds
    eta: float | None = None  # seconds until its end; None where nobody can tell
    share: float = 0.0  # how much is done, 0 to 1
    updates: int = 0  # gradient steps of all seeds together
    rate: float | None = None  # of them a second, now
    metric: str | None = None  # what scores are; None: nothing is measured but losses
    mode: Literal["max", "min"] = "max"
    expected: int | None = None  # configurations that there will be, where the budget says how many
    counts: dict[str, int] = {}  # trials by state; those that a scheduler stopped, or somebody cancelled, under "STOPPED"
    budget: Budget = Budget()
    best: Best | None = None
    errors: list[Fault] = []
    trouble: list[str] = []  # what could not be read
    datasets: list[str] = []  # what its trials learn from: folders, URIs or catalog names
    trials: list[TrialStatus] = []
    job: Job | None = None  # the newest that ran it, where one is known

    @classmethod
    def of(cls, view: View, job: Job | None = None) -> Self:
        """As a reader of the storage sees it."""
        told = _some(view, cls, "budget", "best", "errors", "trouble", "trials", "job")
        return cls(
            **told,
            budget=Budget(limits=dict(view.budget), spent=dict(view.spent)),
            best=None if view.best is None else Best.of(view.best),
            errors=[Fault(**_some(fault, Fault)) for fault in view.faults],
            trouble=list(view.trouble),
            trials=[TrialStatus.of(trial) for trial in view.trials],
            job=job,
        )

    @property
    def runs(self) -> bool:
        """Whether it runs, or is about to."""
        return self.state in ("PENDING", "RUNNING")

    @property
    def is_over(self) -> bool:
        """Whether it does not, and its job has ended too, which writes a report at last."""
        return not (self.runs or (self.job is not None and self.job.is_alive))


class Checkpoint(Told):
    """The best checkpoint of a seed, where a metric chooses one."""

    metric: str
    value: float
    step: int


class SeedResult(Told):
    """What came of a seed."""

    seed: int
    trial: str
    status: State
    reason: str
    is_final: bool  # a resume leaves it as it is
    step: int
    metrics: dict[str, float]  # the last of each
    best: Checkpoint | None
    score: float | None  # the value of the best checkpoint, else the last return; None where neither was measured
    policy: str | None  # folder of its policy package
    run_id: str | None  # in MLflow
    model_version: str | None
    warning: str  # what its metrics give cause to doubt


class ConfigurationResult(Told):
    """Seeds that differ in nothing else."""

    number: int | None
    label: str  # what tells it from others, in words
    chosen: dict[str, Any]  # the settings in which the experiment's configurations differ, by dotted name
    algorithm: str
    dataset: str
    settings: dict[str, Any]  # all that decides its results
    state: State
    value: float | None  # the objective over its seeds
    interval: tuple[float, float] | None  # of the metric's mean over seeds
    level: float | None  # that it has: 0.95; None where there is none, or fewer than five seeds, which are too few for that
    seeds: list[SeedResult]


class Results(Told):
    """What came of an experiment so far."""

    name: str
    state: State
    folder: str
    metric: str | None
    mode: Literal["max", "min"]
    configurations: list[ConfigurationResult]
    best: dict[str, int]  # by dataset the place in `configurations` of the best that went to its end
    models: list[str]  # registered in MLflow
    tracking_uri: str
    run_id: str | None  # of the parent run
    look: str  # the command or the address that shows the runs


class Metrics(Told):
    """What a seed measured in an epoch."""

    trial: str
    seed: int
    step: int
    time: float
    metrics: dict[str, float]  # NaN and infinite as they were reported; JSON has null for them


class Report(Told):
    """A page, and what lies beside it."""

    of: list[str]  # experiments
    page: str
    folder: str
    files: list[str]
    remark: str = ""  # what could not be done, in one sentence


class Policy(Told):
    """A policy that was written, or a model of the dynamics."""

    target: str
    kind: Literal["onnx", "torchscript", "torch.export", "package"]
    source: str  # which it is, in words
    noun: Literal["policy", "model"]  # what it is


class Evidence(Told):
    """What speaks for a version of a model, by which it is promoted or not."""

    version: str
    by: str  # "play", or the estimator's name
    mean: float  # return, or its estimate
    lower: float  # end of its interval
    level: float  # of that interval
    episodes: int | None  # that were played, or that the logs hold; None: not known
    ess: float | None  # effective episodes behind an estimate's weights; None: it has none
    source: str  # what was played, or the judgement's folder


class Promotion(Told):
    """How a promotion went."""

    passed: bool  # whether the candidate is the champion now
    why: str  # what decided it, in a sentence
    candidate: Evidence | None = None
    champion: Evidence | None = None
    above: float | None = None  # what the candidate's lower bound had to be above
    what: str = ""  # that in words


class Rollback(Told):
    """How going back to an earlier champion went."""

    version: str | None  # the champion now; None: there is no earlier one
    why: str


class PolicyAbout(Told):
    """What a policy takes and gives."""

    what: str  # which policy it is, in words
    algorithm: str
    seed: int
    step: int
    observation: str  # its spaces, in a few words
    action: str
    size: int | None  # entries of an observation; None where it is no array
    names: tuple[str, ...] | None  # what these entries are called, in their order; None where that is not known
    remembers: bool  # it has a memory, or draws: one observation does not settle its action
    environment: str | None
    fingerprint: str | None  # of what it learned from; None: not known


class Planned(Told):
    """What an experiment would take."""

    trials: int
    seeds: int
    at_once: int  # trials
    wall_seconds: float
    cpu_hours: float
    gpu_hours: float
    disk_bytes: int
    at_most: str  # why it may take less; empty: nothing stops a trial early
    text: str  # all of it, for people


class Expected(Told):
    """What an experiment would take, by one that was like it."""

    seconds: float  # of work, one trial after another
    gpu_hours: float
    like: str  # the experiment
    text: str  # all of it, for people


class Estimated(Told):
    """What an estimator makes of a policy's return."""

    value: float | None
    interval: tuple[float, float] | None
    ess: float | None  # effective episodes behind its weights; None: it has none
    caveat: str | None  # what the interval does not hold
    refused: str | None  # why it says nothing


class Judged(Told):
    """A policy, by what logs of another say."""

    label: str
    estimates: dict[str, Estimated]  # by estimator
    warnings: list[str]
    played: float | None  # its mean return, where it was played too


class Judgement(Told):
    """Policies by logs, the largest lower bound first."""

    dataset: str
    trusted: str | None  # the estimator that decides; None where all are refused
    episodes: int  # of the logs
    data: float | None  # the return of the logs themselves
    policies: list[Judged]


class Video(Told):
    """Episodes that a policy played, drawn."""

    file: str
    said: str  # their returns, in words


class Problem(Told):
    """What is wrong with a setting; `setting` is its dotted name, empty where it is about several."""

    setting: str
    sentence: str


class Checked(Told):
    """Settings that can be run: `config` has every default written out."""

    job: JobName
    name: str  # the experiment's
    storage: str
    config: dict[str, Any]
    plugins: list[str] = []
    files: list[str] = []  # settings that name files of this machine


class AlgorithmAbout(Told):
    """An algorithm as a form needs it."""

    name: str
    actions: Literal["continuous", "discrete", "both"]
    about: str  # one line
    settings: dict[str, Any]  # JSON Schema: default, description, range and source of each
    presets: dict[str, dict[str, Any]]  # values by preset
    preset_sources: dict[str, str]
    online: bool = False  # whether it learns from what it does alone, and not from a dataset


def _some(source: Any, kind: type[Told], *without: str) -> dict[str, Any]:
    """The attributes of a source that a model has fields for."""
    return {name: getattr(source, name) for name in kind.model_fields if name not in without}


def newest(jobs: Sequence[Job]) -> Job | None:
    """The job that was started last."""
    return max(jobs, key=lambda job: job.started, default=None)


def by_experiment(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """Jobs by what they run."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.experiment, []).append(job)
    return found
