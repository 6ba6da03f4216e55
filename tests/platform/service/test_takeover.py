"""A new champion takes over while clients ask; what cannot be read leaves who acts, and says why."""

from __future__ import annotations

import itertools
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from d3ray.data.errors import ConfigError, StorageError

from .packages import Registry, serving, until, write_policy

pytestmark = pytest.mark.long  # MLflow makes a database


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture
def registry(database: Path, request: pytest.FixtureRequest) -> Registry:
    return Registry(database, request.node.name)


def test_no_request_is_lost_while_a_champion_is_promoted(registry: Registry, discrete: Path, other: Path) -> None:
    registry.crown(registry.add(discrete))
    replies: list[dict[str, Any]] = []
    over = threading.Event()
    with serving(registry.source, poll_seconds=0.05, **registry.place) as (client, _):

        def ask() -> None:
            while not over.is_set():
                replies.append(client.act())

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: len(replies) > 20)
        registry.crown(registry.add(other))
        until(lambda: any(reply["version"] == "2" for reply in list(replies)))
        so_far = len(replies)
        until(lambda: len(replies) > so_far + 20)
        over.set()
        for thread in threads:
            thread.join()
    versions = [reply["version"] for reply in sorted(replies, key=lambda reply: int(reply["id"].rpartition("-")[2]))]
    assert set(versions) == {"1", "2"}
    assert sum(a != b for a, b in itertools.pairwise(versions)) == 1, "versions change once"


def test_a_canary_comes_and_goes_with_its_alias(registry: Registry, discrete: Path, other: Path) -> None:
    registry.crown(registry.add(discrete))
    canary = f"models:/{registry.name}@canary"
    with serving(registry.source, canary=canary, canary_share=1.0, **registry.place) as (client, service):
        (policy,) = service.policies.values()
        assert (client.act()["version"], client.act()["role"]) == ("1", "champion")
        version = registry.add(other)
        registry.client.set_registered_model_alias(registry.name, "canary", version)
        assert policy.look() == [f"{policy.name}: version 2 is the canary, in place of nobody."]
        assert (client.act()["version"], client.act()["role"]) == ("2", "canary")
        registry.client.delete_registered_model_alias(registry.name, "canary")
        assert policy.look() == [f"{policy.name}: nobody is the canary, in place of version 2."]
        assert (client.act()["version"], client.act()["role"]) == ("1", "champion")
        assert client.ask("/status")[1]["trouble"] == {}


def test_what_cannot_take_over_leaves_who_acts(
    registry: Registry, discrete: Path, continuous: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry.crown(registry.add(discrete))
    damaged = tmp_path / "damaged"
    shutil.copytree(discrete, damaged)
    (damaged / "policy.onnx").write_bytes((damaged / "policy.onnx").read_bytes()[:-9])
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "readme").write_text("no package")
    with serving(registry.source, **registry.place) as (client, service):
        (policy,) = service.policies.values()
        for package, part in ((damaged, "damaged"), (continuous, "other spaces"), (empty, "holds no policy package")):
            registry.crown(registry.add(package))
            for _ in range(2):
                assert policy.look() == []
            assert part in client.ask("/status")[1]["trouble"]["champion"]
            assert client.act()["version"] == "1"
            assert len([r for r in caplog.records if part in r.getMessage()]) == 1, "it is said once"
        registry.client.delete_registered_model_alias(registry.name, "champion")
        policy.look()
        assert f"no model {registry.name!r} with the alias 'champion'" in client.ask("/status")[1]["trouble"]["champion"]
        registry.crown("1")
        policy.look()
        assert client.ask("/status")[1]["trouble"] == {}


def test_an_episode_that_is_remembered_goes_on_with_its_version(registry: Registry, looks_back: Path, folder: Path) -> None:
    later = [write_policy("DecisionTransformer", folder / f"later-{k}", seed=k) for k in (7, 8, 9)]
    registry.crown(registry.add(looks_back))
    with serving(registry.source, **registry.place) as (client, service):
        (policy,) = service.policies.values()
        first = client.act(episode="old")
        for k, package in enumerate(later):
            registry.crown(registry.add(package))
            assert len(policy.look()) == 1
            fresh, old = client.act(episode=f"new-{k}"), client.act(state=first["state"])
            assert (fresh["version"], fresh["restarted"]) == (str(k + 2), False)
            assert (old["version"], old["restarted"]) == (("1", False) if k < 2 else (str(k + 2), True)), k
            assert old["step"] == 1


def test_a_source_that_is_not_there(registry: Registry, tmp_path: Path, discrete: Path) -> None:
    for source, part in (
        (registry.source, "no model"),
        (f"models:/{registry.name}", "write models:/NAME@champion"),
        (str(tmp_path / "nothing"), "nothing is there"),
        (str(tmp_path), "is no policy package"),
    ):
        with pytest.raises((ConfigError, StorageError), match=part), serving(source, **registry.place):
            pass
