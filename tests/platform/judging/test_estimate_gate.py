"""Champions by estimates from logs, in a real registry: which version is taken, what it has to be above, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from d3ray.data.errors import ConfigError
from d3ray.jobs.command.running import run_command
from d3ray.platform.api.policies import promote
from d3ray.platform.judging.noting import note
from d3ray.platform.record.policies import Estimated, EstimateTable, Evidence, Judged, Judgement
from d3ray.platform.tracking.estimate_gate import promote_by_estimate
from d3ray.platform.tracking.gate import decide, passed_by
from d3ray.platform.tracking.promotion import rollback
from d3ray.platform.tracking.runs import Tracking


class Registry:
    """A registered model `shop` of some versions, in a storage of its own."""

    def __init__(self, storage: Path) -> None:
        self.storage = str(storage)
        self.client: MlflowClient = Tracking.open(self.storage).client
        self.client.create_registered_model("shop")
        for _ in range(3):
            self.client.create_model_version("shop", source=(storage / "policy").as_uri())

    def judge(self, time: str, lower: dict[str, float], data: float = 1.0, **more: Any) -> None:
        """A judgement of versions by their lower bounds."""
        for version, bound in lower.items():
            about = {"by": "WDR", "value": bound + 1, "lower": bound, "data": data, "judgement": "there", "time": time, **more}
            for key, value in about.items():
                self.client.set_model_version_tag("shop", version, f"d3ray.estimate.{key}", str(value))

    def promote(self) -> Any:
        return promote_by_estimate("shop", storage=self.storage)

    @property
    def champion(self) -> str | None:
        return {k: str(v) for k, v in self.client.get_registered_model("shop").aliases.items()}.get("champion")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path)


def test_the_first_champion_has_a_lower_bound_above_what_the_logs_returned(registry: Registry) -> None:
    assert "No version of shop has an estimate" in registry.promote().why
    registry.judge("2026-01-01", {"1": 0.5, "2": 0.9})
    found = registry.promote()
    assert not found.passed
    assert found.above == 1.0
    assert found.why.endswith("lower bound 0.90 (95%), is not above what the logs returned, 1.00: 0.10 short.")
    assert registry.champion is None
    registry.judge("2026-01-02", {"1": 1.0})  # as much is not above
    assert not registry.promote().passed
    registry.judge("2026-01-03", {"1": 1.5, "2": 1.2})
    assert registry.promote().passed
    assert registry.champion == "1"
    assert registry.client.get_model_version("shop", "1").tags["d3ray.gate.by"] == "WDR"
    assert "is the champion already" in registry.promote().why


def test_what_decides_is_told_with_how_much_stands_behind_it(registry: Registry) -> None:
    registry.judge("2026-01-01", {"1": 1.5}, episodes=19, ess=19.0)
    assert "stands on too few: the gate needs at least 20 episodes" in registry.promote().why
    registry.judge("2026-01-02", {"1": 1.0042, "2": 0.3}, episodes=4000, ess=1203.25, level=0.9)
    found = promote("shop", by="estimate", storage=registry.storage)
    assert found.candidate is not None
    told = {"version": "1", "by": "WDR", "mean": 2.0042, "lower": 1.0042, "level": 0.9, "episodes": 4000, "ess": 1203.25}
    assert found.candidate.model_dump() == {**told, "source": "there", "cost": None}
    assert (found.above, found.what) == (1.0, "what the logs returned")
    assert "from 4,000 logged episodes, of which 1,203.2 count effectively, its WDR of 2.0042, lower" in found.why
    assert "lower bound 1.0042 (90%), is above what the logs returned, 1.0000." in found.why
    tags = registry.client.get_model_version("shop", "1").tags
    assert {key: tags[f"d3ray.gate.{key}"] for key in ("by", "episodes", "ess", "above")} == {
        "by": "WDR",
        "episodes": "4000",
        "ess": "1203.25",
        "above": "1.0",
    }
    registry.judge("2026-01-03", {"1": 1.0, "2": 1.5}, episodes=50)
    found = promote("shop", by="estimate", storage=registry.storage)
    assert found.passed
    assert found.champion is not None
    assert found.champion.lower == found.above == 1.0


def test_a_version_keeps_how_it_passed_last_and_nothing_of_before(registry: Registry) -> None:
    registry.judge("2026-01-01", {"1": 1.5}, episodes=400, ess=120.5)
    assert registry.promote().passed
    client = registry.client
    by_play = Evidence(version="1", by="play", mean=9.0, lower=8.0, level=0.9, episodes=50)
    client.delete_registered_model_alias("shop", "champion")  # by hand; then it is promoted by what it plays
    assert decide(client, client.get_registered_model("shop"), by_play, None, (1.0, "what its data returned"), {"seed": 3}).passed
    tags = client.get_model_version("shop", "1").tags
    kept = {key.removeprefix("d3ray.gate."): value for key, value in tags.items() if key.startswith("d3ray.gate.")}
    told = {"by": "play", "mean": "9.0", "lower": "8.0", "level": "0.9", "episodes": "50", "above": "1.0", "seed": "3"}
    assert kept == told
    found = passed_by("1", tags)
    assert found is not None
    assert found.candidate == by_play


def test_what_the_newest_judgement_does_not_decide_has_no_estimate_any_more(registry: Registry) -> None:
    one, data = Estimated(value=2.0, interval=(1.5, 2.5)), Estimated(value=1.0, interval=(0.9, 1.1))
    estimates = EstimateTable(rows={"WDR": one}, data=data, n_episodes=9, n_steps=9)
    verdict = Judged(label="shop", source="models:/shop/2", path="there", estimates=estimates)
    for trusted, passes in (("WDR", True), (None, False)):
        judgement = Judgement(name="judge", dataset="logs", trusted=trusted, verdicts=(verdict,), folder="there")
        note(judgement, registry.storage, None)
        tags = registry.client.get_model_version("shop", "2").tags
        assert ("d3ray.estimate.lower" in tags) is passes
        assert tags.get("d3ray.estimate.episodes") == ("9" if passes else None)
    assert "No version of shop has an estimate" in registry.promote().why


def test_the_next_one_is_above_the_champion_in_the_same_judgement(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    registry.judge("2026-01-02", {"1": 1.5})
    assert registry.promote().passed
    registry.judge("2026-01-03", {"2": 9.0})
    found = registry.promote()
    assert not found.passed
    assert "version 1, was not judged with version 2: d3ray judge models:/shop/2 models:/shop/1 DATASET" in found.why
    registry.judge("2026-01-04", {"1": 2.0, "2": 2.0})  # not above
    assert registry.promote().why == "Version 1 of shop is the champion already, and has the largest lower bound."
    registry.judge("2026-01-05", {"1": 2.0, "2": 2.5, "3": 2.4})
    assert run_command("promote", ["shop", "by=estimate", f"storage={registry.storage}"]) == 0
    assert "Version 2 of shop is the champion: its WDR of 3.50, lower bound 2.50 (95%), is above" in capsys.readouterr().out
    assert registry.champion == "2"
    assert rollback("shop", storage=registry.storage).version == "1"
    with pytest.raises(ConfigError, match="'shop'"):
        promote_by_estimate("shp", storage=registry.storage)


def test_none_passes_whose_upper_bound_of_cost_is_above_the_limit(registry: Registry) -> None:
    limit = {"cost_value": 8.0, "cost_limit": 10.0}
    registry.judge("2026-01-01", {"1": 1.5}, cost_upper=12.345, **limit)
    found = registry.promote()
    assert not found.passed
    assert found.why == ("Version 1 of shop is not promoted: the upper bound of its cost, 12.35 (95%), is above the limit, 10.")
    assert registry.champion is None
    registry.judge("2026-01-02", {"1": 1.5}, cost_upper=12.345, **limit)  # the better one by returns
    registry.judge("2026-01-02", {"2": 1.2}, cost_upper=9.5, **limit)
    assert registry.promote().passed
    assert registry.champion == "2"
    assert registry.client.get_model_version("shop", "2").tags["d3ray.gate.cost_upper"] == "9.5"
    for key in ("cost_value", "cost_upper"):
        registry.client.delete_model_version_tag("shop", "2", f"d3ray.estimate.{key}")
    registry.judge("2026-01-03", {"2": 1.2, "3": 2.0}, cost_limit=10.0)  # where no estimate of costs decides
    assert registry.promote().why == ("Version 3 of shop is not promoted: no estimate of its cost decides, and it may cost 10.")
