"""Ray's cluster launcher: what is wrong with a cluster file, or missing on this machine, is said before anything starts."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from ...data.errors import ConfigError, StorageError
from .token import keep_token_private

_HOW: dict[
    str, tuple[dict[str, str], str]
] = {  # by provider: modules with what to install for them, and where credentials come from
    "aws": ({"boto3": "boto3"}, "`aws configure`"),
    "gcp": (
        {"googleapiclient": "google-api-python-client==1.7.8", "google.auth": "google-auth"},
        "`gcloud auth application-default login`",
    ),
}
_CREDENTIALS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # variables, and files
    "aws": (("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"), ("~/.aws/credentials", "~/.aws/config")),
    "gcp": (("GOOGLE_APPLICATION_CREDENTIALS",), ("~/.config/gcloud/application_default_credentials.json",)),
}
_TO_FILL_IN = ("YOUR-", "HEAD-ADDRESS", "WORKER-ADDRESS")


@dataclass(frozen=True)
class ClusterFile:
    """A file of Ray's cluster launcher that Ray accepts."""

    path: Path
    config: dict[str, Any]  # as it is written
    prepared: dict[str, Any]  # with what Ray adds to it

    @classmethod
    def read(cls, path: str | Path) -> ClusterFile:
        """Reads and checks it, offline. Raises ConfigError: there is none, or Ray does not accept it; the sentence says why."""
        path = Path(path)
        try:
            config = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError:
            raise ConfigError(
                f"There is no cluster file {str(path)!r}; `d3ray cluster new aws` writes one, and examples/clusters has some."
            ) from None
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is no YAML: {' '.join(str(error).split())}.") from None
        if isinstance(config, dict) and "apiVersion" in config:
            raise ConfigError(f"{path} is for Kubernetes: kubectl apply -f {path}, and kubectl delete -f {path} to end it.")
        return cls(path, config, _prepared(path, config))

    @property
    def provider(self) -> str:
        """Whose machines they are: aws, gcp, local (those that the file names), or another of Ray's."""
        return str(self.prepared["provider"]["type"])

    def lacking(self, action: Literal["up", "down"] = "up") -> list[str]:
        """List what must be done here, or in the file, before it can be used; one sentence each.

        To end a cluster, whose machines cost money, its provider has to be reached, and no more: the token and whatever goes to
        the nodes may be gone, and the rest of the file may have been changed since.
        """
        parts = self.config if action == "up" else {part: self.config.get(part) for part in ("provider", "auth")}
        found = [f"{place} still says {value!r}: CHANGE it." for place, value in _strings(parts, "") if _to_fill_in(value)]
        modules, login = _HOW.get(self.provider, ({}, ""))
        if absent := [package for module, package in modules.items() if not _importable(module)]:
            found.append(f"Ray needs {' and '.join(absent)} for {self.provider}: pip install {' '.join(absent)}.")
        variables, files = _CREDENTIALS.get(self.provider, ((), ()))
        if variables and not any(map(os.environ.get, variables)) and not any(Path(file).expanduser().exists() for file in files):
            found.append(f"There are no credentials for {self.provider}: {login} makes them.")
        if self.provider == "local":
            found += self._lacking_ssh()
        for there, here in self.config.get("file_mounts", {}).items() if action == "up" else ():
            source = self.path.parent / Path(here).expanduser()
            if not source.exists():
                made = ": ray get-auth-token --generate makes it" if Path(here).name == "auth_token" else ""
                found.append(f"{there} on the nodes shall be {here} of this machine, which is not there{made}.")
        return found

    def _lacking_ssh(self) -> list[str]:
        found: list[str] = []
        if shutil.which("ssh") is None:
            found.append("Ray reaches the machines over ssh, which is not installed here.")
        key = self.config.get("auth", {}).get("ssh_private_key")
        if key and not Path(key).expanduser().exists():
            found.append(f"There is no key {key!r} for ssh: ssh-keygen makes one, and ssh-copy-id takes it to the machines.")
        return found

    def launch(self, action: Literal["up", "down"]) -> None:
        """Runs Ray's launcher, whose output goes to this terminal. Raises StorageError: it failed."""
        keep_token_private()
        command = [sys.executable, "-m", "ray.scripts.scripts", action, "--yes", str(self.path.absolute())]
        environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
        done = subprocess.run(command, cwd=self.path.absolute().parent, env=environment, check=False)  # where its paths start
        if done.returncode:
            raise StorageError(f"`ray {action}` failed with exit status {done.returncode}; what it said stands above.")


def _prepared(path: Path, config: Any) -> dict[str, Any]:
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    said = io.StringIO()
    logging.getLogger("ray.autoscaler").setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            prepared = prepare_config(deepcopy(config))
            validate_config(prepared)
    except ValidationError as error:
        place = ".".join(map(str, error.absolute_path))
        raise ConfigError(f"Ray does not accept {path}: {f'{place}: ' if place else ''}{error.message}.") from None
    except SystemExit:  # how its launcher complains of machines that are not named
        lines = [line.strip() for line in said.getvalue().splitlines() if line.strip()]
        raise ConfigError(f"Ray does not accept {path}: {lines[0] if lines else 'it does not say why'}") from None
    except Exception as error:  # it raises whatever it comes across: KeyError, AttributeError, AssertionError, ...
        raise ConfigError(f"Ray does not accept {path}: {type(error).__name__}: {error}.") from None
    return prepared


def _strings(values: Any, place: str) -> list[tuple[str, str]]:
    if isinstance(values, str):
        return [(place, values)]
    if isinstance(values, dict):
        return [one for name, value in values.items() for one in _strings(value, f"{place}.{name}" if place else str(name))]
    if isinstance(values, list):
        return [one for value in values for one in _strings(value, place)]
    return []


def _to_fill_in(value: str) -> bool:
    return any(value.startswith(word) for word in _TO_FILL_IN)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
