"""MLflow: one parent run per experiment, a child run per configuration and seed. Only the driver writes here; trials never do.

Everything lies in the MLflow experiment `d3ray` (or `MLFLOW_EXPERIMENT_NAME`). Where `MLFLOW_TRACKING_URI` is not set, it is the
database `<storage>/mlflow.db` with artifacts in `<storage>/mlartifacts`. An experiment goes on where it began (`place.py`).

No text that is sent holds an address with a user, a password or an option that may be a secret.

Tags of the parent run:
    d3ray.key            made when the experiment was created, before the run
    d3ray.kind           "experiment" or "sweep"
    d3ray.experiment     its name
    d3ray.folder         where it lies
    d3ray.dataset, d3ray.fingerprint, d3ray.algorithm
    d3ray.reason         why it failed, where it did
    d3ray.n_steps        of what was made longer: its steps now, where the parameter says those at first; children have it too
    d3ray.suite          of a benchmark: its suite; d3ray.suite_definition is what it is, d3ray.missing {dataset: why}, both JSON
    d3ray.best_configuration    in a sweep: the number of the best configuration
    d3ray.best_seed, d3ray.best_run, d3ray.best_value, d3ray.metric    its best seed, where policies were scored
Tags of a child run:
    mlflow.parentRunId   the parent's id
    d3ray.key            made when the trial was created, kept in its trial.json, before the run
    d3ray.kind           "seed"; "fit" of a run that `logger.MLflowLogger` made, which has no parent
    d3ray.experiment, d3ray.trial (its folder's name), d3ray.seed, d3ray.folder, d3ray.dataset, d3ray.fingerprint, d3ray.algorithm
    d3ray.reason         why it failed, as "diverged at step 1200: …"
    d3ray.cell           in a benchmark: the algorithm's label; d3ray.suite is there too
    d3ray.warning        what its metrics give cause to doubt, as "step 5000: values diverge: …"
    d3ray.best_value, d3ray.best_step, d3ray.metric                    where checkpoint.best is set
Parameters of a child run: `seed`, `dataset`, `n_steps`, `n_steps_per_epoch`, `algorithm` and its settings as `algorithm.NAME`, and
    `evaluation.NAME`. The parent has the same without `seed`, and `seeds`.
Metrics of a child run, by gradient step (MLflow's step): `train/NAME`, the losses and what else the algorithm reports;
    `evaluation/return`, `evaluation/length`, `evaluation/normalized_return`; `holdout/td_error`, `holdout/action_error` or
    `holdout/action_match`, and the losses there, as `holdout/critic_loss`; `scorers/NAME` of the scorers that were asked for;
    `time/updates_per_second`; `first_bad_step` where it diverged. The parent has the mean over its seeds of the last of each, once
    all have finished, if they differ in nothing else.
Dataset: an input of every run, context "training"; its digest is the first 36 digits of the fingerprint, its profile has
    n_transitions, n_episodes, environment, and return_mean and return_std of its own episodes.
Model: when the experiment ends, the policy package of each finished seed of the best configuration, as an ONNX model `policy` of
    its run with the package's files in `package/`, registered under the experiment's name (`models.py`). Tags of a version:
    d3ray.seed, d3ray.step, d3ray.trial, and d3ray.metric, d3ray.value where it was scored. The alias `candidate` is on the version
    of the best seed; `champion` is given by `d3ray promote` alone (`promotion.py`).
Statuses: FINISHED; FAILED with d3ray.reason; KILLED for what was stopped or died, as the next command that looks finds out.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sqlite3
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before MLflow is imported
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")

from filelock import FileLock

from ...data.errors import ConfigError, StorageError
from ...data.storage.files import storage_errors
from ...data.uris import without_password, without_secrets
from ..storage.folders import Folder
from ..storage.outbox import Line
from .database import make_database
from .place import named as recorded_uri
from .place import shown

MLFLOW_EXPERIMENT = "d3ray"
_SECONDS_TO_REACH = 2.0
_BATCH = 1000  # metrics in a request, which is MLflow's limit, or runs in an answer


class ServerAwayError(StorageError):
    """The tracking server cannot be reached now."""


def check_tracking(storage: str, nodes: int = 1) -> None:
    """Raises ConfigError where there is no place for runs: results elsewhere, or several nodes, and no tracking server named."""
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return
    elsewhere = "://" in storage and not storage.startswith("file://")
    why = f"the storage {storage} is not on this machine" if elsewhere else ""
    if nodes > 1:
        why = f"the cluster has {nodes} nodes"
    if why:
        raise ConfigError(
            f"MLFLOW_TRACKING_URI must name an MLflow server, because {why} and runs cannot go into a local database."
        )


def is_reached(storage: str) -> bool:
    """Return whether `Tracking.open` would reach its server, as far as can be told without it (imports: seconds).

    A local database is made where there is none. Raises StorageError: it cannot be.
    """
    uri = _uri(storage, {})
    if uri.startswith("sqlite:///"):
        with _made(Path(uri.removeprefix("sqlite:///"))):
            return True
    server = urlsplit(uri)
    with suppress(OSError, ValueError):
        socket.create_connection((server.hostname, server.port or {"http": 80}.get(server.scheme, 443)), _SECONDS_TO_REACH).close()
        return True
    return False


def _own(storage: str) -> Path | None:
    """The storage's own database; None where it is not on this machine."""
    folder = Folder(storage).local
    return None if folder is None else folder / "mlflow.db"


def _uri(storage: str, recorded: Mapping[str, Any], named: str | None = None) -> str:
    """Where the runs are: as `named`, as the environment says, as the experiment was begun, or in the storage's own database."""
    return _absolute(named or os.environ.get("MLFLOW_TRACKING_URI") or recorded_uri(recorded) or f"sqlite:///{_own(storage)}")


@contextmanager
def _made(database: Path) -> Generator[None]:
    """Inside there is such a database, and nobody else makes one: two that do it together leave it half made.

    Raises StorageError: it cannot be written, as what is raised inside says too.
    """
    with storage_errors("used as storage", database.parent):
        database.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(database.with_name(f".{database.name}.lock"), timeout=120):
            if not database.exists():
                make_database(database)
            yield
    except (OSError, sqlite3.Error) as error:  # ServerAwayError among them
        cause = error.__cause__ if isinstance(error, ServerAwayError) else error
        raise StorageError(f"The database {database} cannot be written: {_cause(cause)}.") from error


class Tracking:
    """A connection to MLflow that never blocks for long. Make one with `open`."""

    def __init__(self, uri: str, artifacts: str | None, name: str | None = None) -> None:
        from mlflow import MlflowClient

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints tracebacks of what is raised anyway
        self.uri = uri
        self.known: dict[str, str] = {}  # ids of runs by key, so that each is looked up once
        self.settled: set[str] = set()  # keys of trials that have ended and are delivered
        self._trusted: set[str] = set()  # parents whose children are as their folders say
        self._gone: set[str] = set()  # ids of runs that were deleted
        self.name = name = name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or MLFLOW_EXPERIMENT
        self._in_storage = False
        with self.answers():
            self.client: Any = MlflowClient(uri)
            found = self.client.get_experiment_by_name(name)
            if found is not None and found.lifecycle_stage == "deleted":
                self.client.restore_experiment(found.experiment_id)
            self.experiment_id: str = found.experiment_id if found else self.client.create_experiment(name, artifacts)

    @classmethod
    def open(
        cls, storage: str, recorded: Mapping[str, Any] | None = None, *, uri: str | None = None, experiment: str | None = None
    ) -> Self:
        """The tracking server of a storage; a local database is created where there is none.

        Args:
            storage: Folder or URI.
            recorded: The `tracking.json` of an experiment that goes on. Its runs stay where they are, in the MLflow experiment that
                they are in; only MLFLOW_TRACKING_URI takes them to another server. None: MLFLOW_TRACKING_URI, else the database
                in the storage.
            uri: Of the server, named outright. None: as above.
            experiment: MLflow's, by name. None: as above, else MLFLOW_EXPERIMENT_NAME, else `d3ray`.

        Raises:
            ConfigError: there is no server where it says, or it refuses.
            StorageError: the database cannot be written.
        """
        os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"  # the default blocks a call for minutes; deliveries are repeated anyway
        os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "5"
        told, before = uri or os.environ.get("MLFLOW_TRACKING_URI", ""), recorded or {}
        named, uri, own = uri, _uri(storage, before, uri), _own(storage)
        stays = "uri" in before and (not told or without_password(_absolute(told)).rstrip("/") == shown(before))
        noted = before.get("experiment")
        name = experiment or (noted if stays else os.environ.get("MLFLOW_EXPERIMENT_NAME") or noted)
        try:
            if uri.startswith("sqlite:///"):
                return cls._local(Path(uri.removeprefix("sqlite:///")), name, own)
            return cls(uri, None, name)
        except ServerAwayError as error:
            how = "or correct MLFLOW_TRACKING_URI: a storage behind a URI has no database of its own."
            if own is not None:
                how = f"correct MLFLOW_TRACKING_URI, or unset it to use {own}."
            if named:
                how = "or name another one."
            elif not told:
                how = "or name it with user and password, or another one, in MLFLOW_TRACKING_URI: this experiment's runs are there."
            raise ConfigError(f"{error} Start it (mlflow server), {how}") from error

    @classmethod
    def _local(cls, database: Path, name: str | None, own: Path | None) -> Self:
        """A database in a file."""
        uri, artifacts = f"sqlite:///{database}", database.with_name("mlartifacts")
        with _made(database):
            tracking = cls(uri, artifacts.as_uri(), name)
            with closing(sqlite3.connect(database)) as connection:
                connection.execute("PRAGMA journal_mode=wal")
            tracking.analyse()
        tracking._in_storage = database == own
        return tracking

    def analyse(self) -> None:
        """Has a local database look at how its tables are filled: where it does not know, the best of 10,000 runs takes seconds."""
        if not self.uri.startswith("sqlite:///"):
            return
        with suppress(sqlite3.Error), closing(sqlite3.connect(self.uri.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("PRAGMA analysis_limit=1000")  # rows of an index: milliseconds, however large the table is
            connection.execute("ANALYZE")

    @property
    def place(self) -> dict[str, Any]:
        """Where the runs are, as `place.py` says: `uri`, `experiment`, `experiment_id`, `in_storage`. JSON."""
        about = {"uri": without_password(self.uri).rstrip("/"), "experiment": self.name, "experiment_id": self.experiment_id}
        return {**about, "in_storage": self._in_storage}

    @contextmanager
    def answers(self) -> Generator[None]:
        """Turns what MLflow and its transport raise into ServerAwayError."""
        import requests
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (MlflowException, requests.RequestException, SQLAlchemyError, sqlite3.Error) as error:
            raise ServerAwayError(f"The MLflow server {without_password(self.uri)} does not answer: {_cause(error)}.") from error

    # ---- runs

    def find_run(self, key: str) -> str | None:
        """The id of the run with a key, or None."""
        found = self.client.search_runs([self.experiment_id], f"tags.`d3ray.key` = '{key}'", max_results=1)
        return found[0].info.run_id if found else None

    def run(self, key: str, name: str, tags: Mapping[str, str], params: Mapping[str, str], dataset: Mapping[str, Any]) -> str:
        """The run with a key, created where there is none, with these tags, its parameters and the dataset as its input.

        Without entries the dataset is none.
        """
        from mlflow.entities import Param

        run_id, known_params, has_input = self.find_run(key), {}, False
        tags = {name: without_secrets(text) for name, text in tags.items()}
        if run_id is None:
            run_id = self.client.create_run(self.experiment_id, run_name=name, tags={"d3ray.key": key, **tags}).info.run_id
        else:
            known = self.client.get_run(run_id)
            self.set_tags(run_id, {name: text for name, text in tags.items() if known.data.tags.get(name) != text})
            known_params, has_input = known.data.params, bool(known.inputs.dataset_inputs)
        new = [Param(name, without_secrets(value)) for name, value in params.items() if name not in known_params]
        for at in range(0, len(new), 100):
            self.client.log_batch(run_id, params=new[at : at + 100])
        if dataset and not has_input:
            self.client.log_inputs(run_id, datasets=[dataset_input(dataset)])
        return str(run_id)

    def trust(self, parent: str) -> None:
        """Believes what folders say of a parent's runs, but for those that were deleted since."""
        from mlflow.entities import ViewType

        found = every_run(
            self.client, self.experiment_id, f"tags.`mlflow.parentRunId` = '{parent}'", run_view_type=ViewType.DELETED_ONLY
        )
        self._gone.update(run.info.run_id for run in found)
        self._trusted.add(parent)

    def believes(self, parent: str, run_id: str) -> bool:
        """Return whether a run noted in a folder can be trusted to exist."""
        return parent in self._trusted and run_id not in self._gone

    def forget_deleted(self, keys: Iterable[str]) -> bool:
        """Forgets the runs with these keys that are not there any more; whether there were any."""
        from mlflow.exceptions import MlflowException

        before = len(self.known)
        for key in keys:
            if (run_id := self.known.get(key)) is None:
                continue
            try:
                there = self.client.get_run(run_id).info.lifecycle_stage == "active"
            except MlflowException as error:
                there = error.error_code != "RESOURCE_DOES_NOT_EXIST"
            if not there:
                del self.known[key]
                self._gone.add(run_id)
        return len(self.known) < before

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        if tags:
            self.client.log_batch(run_id, tags=[RunTag(name, without_secrets(text)[:5000]) for name, text in tags.items()])

    def send(self, run_id: str, lines: Sequence[Line]) -> None:
        """Metrics by step; what is there already stays as it is."""
        from mlflow.entities import Metric

        metrics = [Metric(name, value, line.time, line.step) for line in lines for name, value in line.metrics.items()]
        for at in range(0, len(metrics), _BATCH):
            self.client.log_batch(run_id, metrics=metrics[at : at + _BATCH], synchronous=True)

    def set_status(self, run_id: str, status: str, reason: str = "") -> None:
        from mlflow.exceptions import MlflowException

        if reason:
            self.client.set_tag(run_id, "d3ray.reason", without_secrets(reason)[:5000])
        else:
            with suppress(MlflowException):  # of an earlier attempt; mostly there is none
                self.client.delete_tag(run_id, "d3ray.reason")
        if status == "RUNNING":
            self.client.update_run(run_id, status)
        else:
            self.client.set_terminated(run_id, status, int(time.time() * 1000))

    def delete_runs(self, keys: Sequence[str]) -> None:
        """Marks the runs with these keys as deleted."""
        for key in keys:
            if (run_id := self.find_run(key)) is not None:
                self.client.delete_run(run_id)


def every_run(client: Any, experiment_id: str, query: str, **how: Any) -> list[Any]:
    """The runs of MLflow's experiment that fit a query, however many; `how` as of its `search_runs`."""
    found, token = list[Any](), None
    while True:
        page = client.search_runs([experiment_id], query, max_results=_BATCH, page_token=token, **how)
        found += page
        if not (token := page.token):
            return found


def _absolute(uri: str) -> str:
    """A local database by its full path; other URIs as they are."""
    return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).absolute()}" if uri.startswith("sqlite:///") else uri


def _cause(error: BaseException | None) -> str:
    """Shorten an error to a few words: libraries wrap it in whole paragraphs."""
    text = str(error).strip()
    if found := re.search(r"\[Errno -?\d+\] ([^:'\")]+)", text):  # what a transport says last, deep in brackets
        return found[1].lower()
    return re.split(r"\. |\n", text.removeprefix("(sqlite3.OperationalError) "))[0][:200].rstrip(".:")


def dataset_input(dataset: Mapping[str, Any]) -> Any:
    """The dataset as MLflow keeps it: by hand, because its own classes would read the data."""
    import json

    from mlflow.entities import Dataset, DatasetInput, InputTag

    entity = Dataset(
        name=str(dataset["name"])[:500],
        digest=str(dataset["fingerprint"])[:36],
        source_type="d3ray",
        source=json.dumps({"uri": without_password(dataset["source"]), "fingerprint": dataset["fingerprint"]}),
        schema=json.dumps({"d3ray": dataset["schema"]}),
        profile=json.dumps(
            {k: dataset.get(k) for k in ("n_transitions", "n_episodes", "environment", "return_mean", "return_std")}
        ),
    )
    return DatasetInput(entity, [InputTag("mlflow.data.context", "training")])
