"""Packages out of MLflow's registry. Imports MLflow when it is asked for one, and never torch."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...algos.export.model_package import is_model_package
from ...algos.export.package import is_package
from ...data.errors import ConfigError, StorageError
from ...data.storage.claims import scratch_names
from ...data.uris import without_password

_URI = re.compile(r"models:/[^/@]+(@[^/@]+|/[^/@]+)")


def is_registered(source: str) -> bool:
    return source.startswith("models:")


@contextmanager
def registered_package(uri: str, tracking: str | None = None, storage: str = "./d3ray_results") -> Generator[Path]:
    """The package of a registered model, a policy's or a model's of the dynamics, on this machine while the context lasts.

    Args:
        uri: `models:/NAME@ALIAS` or `models:/NAME/VERSION`.
        tracking: MLflow's tracking URI; None: MLFLOW_TRACKING_URI, else the database in `storage`.
        storage: A local results folder.

    Raises:
        ConfigError: the URI is of another form, or no tracking server is known.
        StorageError: the server has no such model or cannot be reached, or the model holds no package.
    """
    if not _URI.fullmatch(uri):
        raise ConfigError(f"{uri} names no registered model: write models:/NAME@champion or models:/NAME/VERSION.")
    server = tracking_uri(tracking, storage)
    import requests
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory(prefix=scratch_names("model")) as scratch:
        try:
            with as_global(server):
                download_artifacts(artifact_uri=uri, dst_path=scratch)
        except (MlflowException, requests.RequestException, OSError) as error:
            first = str(error).strip().splitlines()[0][:200].rstrip(".:")
            raise StorageError(f"{uri} cannot be fetched from {without_password(server)}: {first}.") from error
        root = Path(scratch)
        folders = (root, *sorted(path for path in root.rglob("*") if path.is_dir()))
        found = next((folder for folder in folders if is_package(folder) or is_model_package(folder)), None)
        if found is None:
            raise StorageError(f"{uri} holds no policy package: d3ray did not register it.")
        yield found


@contextmanager
def as_global(uri: str) -> Generator[None]:
    """Set MLflow's global tracking URI for a while: `models:/…` is looked up there, whatever a client says."""
    from mlflow import set_tracking_uri

    before = os.environ.get("MLFLOW_TRACKING_URI")  # not what MLflow takes without it: that would be set for good afterwards
    set_tracking_uri(uri)  # sets the variable too, which would name the place of the next experiment
    try:
        yield
    finally:
        set_tracking_uri(before)  # pyright: ignore[reportArgumentType] - None unsets it


def tracking_uri(tracking: str | None, storage: str) -> str:
    """Where the registry is; MLflow is imported afterwards, and told to be quiet and quick here.

    Args:
        tracking: Named; None: MLFLOW_TRACKING_URI, else the database in `storage`.
        storage: A local results folder.

    Raises:
        ConfigError: there is neither.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # a package is fetched in a moment
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the default waits for minutes
    if named := tracking or os.environ.get("MLFLOW_TRACKING_URI"):
        return named
    database = Path(storage).absolute() / "mlflow.db"
    if not database.is_file():
        raise ConfigError(
            f"There is no {database}: name the tracking server with tracking=URI or MLFLOW_TRACKING_URI, or storage=FOLDER."
        )
    return f"sqlite:///{database}"


@contextmanager
def registry(uri: str) -> Generator[Any]:
    """A client of runs and the model registry. Raises StorageError where it does not answer."""
    import requests
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield MlflowClient(uri)
    except (MlflowException, requests.RequestException, SQLAlchemyError) as error:
        first = str(error).strip().splitlines()[0][:200].rstrip(".:")
        raise StorageError(f"The MLflow server {without_password(uri)} does not answer: {first}.") from error


def pinned(uri: str, tracking: str | None = None, storage: str = "./d3ray_results") -> str:
    """`models:/NAME/VERSION` of the version that an alias is on now; arguments as `registered_package`'s.

    Raises:
        ConfigError: there is no such model or alias, or the URI is of another form.
        StorageError: the server does not answer.
    """
    if not _URI.fullmatch(uri):
        raise ConfigError(f"{uri} names no registered model: write models:/NAME@champion or models:/NAME/VERSION.")
    name, at, alias = uri.removeprefix("models:/").partition("@")
    if not at:
        return uri
    from mlflow.exceptions import MlflowException

    with registry(tracking_uri(tracking, storage)) as client:
        try:
            return f"models:/{name}/{client.get_model_version_by_alias(name, alias).version}"
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
    raise ConfigError(f"There is no model {name!r} with the alias {alias!r}.", missing=True)
