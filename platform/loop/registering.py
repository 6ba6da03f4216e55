"""Versions of a loop's own model: the best policy of each round's experiment, and who of them acts where."""

from __future__ import annotations

from typing import Any

from ...data.errors import StorageError
from ..record.policies import Evidence, Promotion
from ..tracking.gate import CHAMPION, decide, model_of
from ..tracking.models import CANDIDATE
from ..tracking.registered import as_global, registry, tracking_uri

CANARY = "canary"  # the alias by which a service finds the version that acts in a share of the episodes
_ROUND = "d3ray.loop.round"


def register_round(storage: str, name: str, number: int, experiment: str) -> str:
    """Copy the candidate of an experiment's model to the loop's model, with its tags; once, however often it is asked.

    Where no policy was scored it is that of the first seed.

    Returns: the version.

    Raises StorageError where the experiment registered nothing, or the server does not answer.
    """
    from mlflow.exceptions import MlflowException

    uri = tracking_uri(None, storage)
    with registry(uri) as client:
        source = _best(client, experiment)
        try:
            client.create_registered_model(name, tags={"d3ray.loop": name})
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        for known in client.search_model_versions(f"name = '{name}'"):
            if known.tags.get(_ROUND) == str(number):
                version = str(known.version)
                break
        else:
            tags = {**source.tags, _ROUND: str(number)}
            with as_global(uri):
                made = client.create_model_version(name, source.source, run_id=source.run_id, model_id=source.model_id, tags=tags)
            version = str(made.version)
        client.set_registered_model_alias(name, CANDIDATE, version)
    return version


def _best(client: Any, experiment: str) -> Any:
    known = client.search_model_versions(f"name = '{experiment}'")
    if not known:
        raise StorageError(f"The experiment {experiment} registered no policy: no seed was trained to its end.")
    aliases = client.get_registered_model(experiment).aliases
    chosen = str(aliases.get(CANDIDATE, min(int(one.version) for one in known)))
    return client.get_model_version(experiment, chosen)


def champion_of(storage: str, name: str) -> str | None:
    with registry(tracking_uri(None, storage)) as client:
        champion = model_of(client, name).aliases.get(CHAMPION)
    return None if champion is None else str(champion)


def begin_canary(storage: str, name: str, version: str) -> None:
    with registry(tracking_uri(None, storage)) as client:
        client.set_registered_model_alias(name, CANARY, version)


def end_canary(storage: str, name: str) -> None:
    """Let the version act no more in a share of the episodes; once, however often it is asked."""
    with registry(tracking_uri(None, storage)) as client:
        if CANARY in model_of(client, name).aliases:
            client.delete_registered_model_alias(name, CANARY)


def promote_canary(storage: str, name: str, canary: Evidence, champion: Evidence) -> Promotion:
    """Make a version the champion by what it returned while it acted, at the gate of all promotions."""
    with registry(tracking_uri(None, storage)) as client:
        return decide(client, model_of(client, name), canary, champion, (champion.lower, ""), {})
