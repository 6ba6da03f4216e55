"""Judging by weights alone, beside a sum by hand: what is kept, told and refused, and the page in a browser's eyes."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d3ray import BC, Dataset, DiscreteBC, ProbabilisticEnsemble
from d3ray.algos.export.packing import write_package
from d3ray.algos.judging.estimates import Estimate, Estimates, estimate
from d3ray.algos.judging.logs import Logs, logged
from d3ray.algos.judging.models import model_returns
from d3ray.algos.judging.values import PolicyValues
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.jobs.command.running import run_command
from d3ray.platform.judging.costs import discounted_limit, not_below_0
from d3ray.platform.judging.judgement import chosen_estimator, unsettled, widened
from d3ray.platform.judging.noting import _tags
from d3ray.platform.judging.run import judge
from d3ray.platform.judging.settings import JudgeSettings
from d3ray.platform.judging.training import fqe_experiment
from d3ray.platform.judging.verdicts import Critics, _beyond, believed
from d3ray.platform.judging.words import lead
from d3ray.platform.judging.words import said as said_of
from d3ray.platform.record.policies import EstimateTable, Judged, Judgement


class First(nn.Module):
    """Acts by which of the first observations is largest."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = sign

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sign * x


def bandit(n: int = 400, *, log_prob: bool = True) -> Dataset:
    """One-step logs of a uniform behaviour; the reward is the observation's entry of the action."""
    rng = np.random.default_rng(0)
    seen, action = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(3, size=n)
    extra = {"log_prob": np.full(n, np.log(1 / 3))} if log_prob else None
    return Dataset.from_arrays(seen, action, seen[np.arange(n), action], np.ones(n, bool), extra=extra, name="bandit")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs, and two policies of others: the best, and the worst."""
    folder = tmp_path_factory.mktemp("judging")
    bandit().write(folder / "logs")
    shapes = ({0: torch.export.Dim("batch")},)
    for name, sign in (("best", 1.0), ("worst", -1.0)):
        graph = First(sign).eval()
        torch.onnx.export(graph, (torch.zeros(2, 3),), folder / f"{name}.onnx", dynamo=True, dynamic_shapes=shapes, verbose=False)
    return folder


def test_weights_alone_tell_the_best_from_the_worst_and_the_page_shows_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = [str(place / "worst.onnx"), str(place / "best.onnx"), str(place / "logs"), "n_steps=0", f"storage={place / 'r'}"]
    assert run_command("judge", [*told, "interval=student"]) == 0
    record = json.loads((place / "r/judge-logs/judgement.json").read_text())
    data = bandit()
    reward, action, seen = (data.columns[name][:-1:2] for name in ("reward", "action", "observation"))
    for verdict, best in zip(record["verdicts"], (seen.argmax(1), seen.argmin(1)), strict=True):
        rows = verdict["estimates"]["rows"]
        weight = 3.0 * (action == best)
        assert rows["IPS"]["value"] == pytest.approx((weight * reward).mean())
        assert rows["SNIPS"]["value"] == pytest.approx((weight * reward).sum() / weight.sum())
        assert rows["DM"]["refused"].startswith("There is no estimate of the judged policy's values")
    assert [verdict["label"] for verdict in record["verdicts"]] == ["best.onnx", "worst.onnx"]
    out = capsys.readouterr().out
    assert "best.onnx has the largest lower bound" in out
    table = out.splitlines()[1:18]
    assert table[0].split("  ")[1] == "policy"
    assert re.fullmatch(r"  policy +estimator +value +95% interval +effective episodes", table[0])
    assert [line[: len("  worst.onnx")].strip() for line in table[1::8]] == ["best.onnx", "worst.onnx"]
    ess = record["verdicts"][0]["estimates"]["rows"]["IPS"]["ess"]
    assert re.search(rf"best.onnx +IPS +\S+ +\S+ to \S+ +{ess:,.1f} of 400 +decides", table[1])
    assert max(map(len, table)) < 90
    assert "  DM, DR, SNDR, DRos, Switch-DR refused: There is no estimate of the judged policy's values" in out
    page = (place / "r/judge-logs/judgement.html").read_text()
    shown = [row["value"] for verdict in record["verdicts"] for row in verdict["estimates"]["rows"].values()]
    assert page.count("<circle") == 2 + sum(value is not None for value in shown)
    assert len(re.findall(r"DM, DR, SNDR, DRos, Switch-DR refused", page)) == 2
    assert len(list((place / "r/judged-policies").iterdir())) == 2


def test_costs_are_estimated_as_returns_are_and_held_against_the_limit(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy of three actions, the first of which costs 1, costs a third, by the weights of the logs."""
    data = bandit()
    action, seen = (data.columns[name][:-1:2] for name in ("action", "observation"))
    cost = (action == 0).astype(np.float32)
    mine = {"log_prob": np.full(400, np.log(1 / 3)), "cost": cost}
    costly = Dataset.from_arrays(seen, action, data.columns["reward"][:-1:2], np.ones(400, bool), extra=mine, name="costly")
    costly.write(place / "costly")
    told = [str(place / "best.onnx"), str(place / "costly"), "n_steps=0", f"storage={place / 'r'}", "interval=student"]
    for name, limit in (("strict", 0.3), ("loose", 0.9)):
        assert run_command("judge", [*told, f"cost_limit={limit}", f"name={name}"]) == 0
        record = Judgement.model_validate_json((place / f"r/{name}/judgement.json").read_text())
        (one,) = record.verdicts
        assert one.costs is not None
        weight = 3.0 * (action == seen.argmax(1))
        assert one.costs["IPS"].value == pytest.approx((weight * cost).mean())
        assert one.estimates["IPS"].value != one.costs["IPS"].value
        bound = record.cost(one)
        assert bound is not None
        assert bound.limit == pytest.approx(limit)  # of one step nothing is discounted
        assert bool(bound.broken(0.95)) == (name == "strict")
        out = " ".join(capsys.readouterr().out.split())
        kept = "whose upper bound does not keep" if name == "strict" else "which keeps"
        assert f"{kept} the limit, {said_of(bound.limit)}." in out
        assert _tags(record, one, "now")["cost_upper"] == repr(bound.upper)
    with pytest.raises(DataError, match="'bandit' has no column 'cost', so nothing can be held against cost_limit"):
        judge(
            JudgeSettings(policies=str(place / "best.onnx"), dataset=str(place / "logs"), cost_limit=1.0, storage=str(place / "r2"))
        )


def test_values_of_costs_that_lie_slightly_below_0_are_raised_and_others_stay() -> None:
    shape: dict[str, Any] = {"observations": np.zeros((8, 1)), "actions": np.zeros((8, 1)), "terminated": np.arange(8) % 4 == 3}
    costs, first = np.tile([2.0, 0, 0, 0], 2), np.array([0, 4])
    slight, wrong = np.tile([-0.05, 1.0, -0.5, 2.0], 2), np.tile([-0.2, 1.0, -0.5, 2.0], 2)  # the logs cost 2, a twentieth is 0.1
    seeds = [PolicyValues(v, v, np.zeros(2), first) for v in (slight, wrong)]
    (found,) = not_below_0([Critics(seeds, (), "", 10)], Dataset.from_arrays(rewards=costs, **shape), 0.9)
    assert found is not None
    assert found.values[0].value.tolist() == [0, 1, 0, 2] * 2
    assert found.values[0].first.tolist() == [0, 4]
    assert found.values[1] is seeds[1]
    (other,) = not_below_0([Critics(seeds, (), "", 10)], Dataset.from_arrays(rewards=costs - 1, **shape), 0.9)
    assert other is not None
    assert other.values[0].value is slight  # where costs may be negative so may values


def test_a_limit_of_costs_is_discounted_as_estimates_are() -> None:
    ends = np.isin(np.arange(12), [3, 11])
    shape: dict[str, Any] = {"observations": np.zeros((12, 1)), "actions": np.zeros((12, 1)), "rewards": np.zeros(12)}
    ended = Dataset.from_arrays(**shape, terminated=ends)
    cut = Dataset.from_arrays(**shape, terminated=ends & (np.arange(12) < 5), truncated=ends, final_observations=np.zeros((2, 1)))
    sums = [sum(0.9**k for k in range(n)) for n in (4, 8)]
    assert discounted_limit(ended, 3.0, 0.9, "DM") == pytest.approx(3 / 6 * np.mean(sums))
    assert discounted_limit(cut, 3.0, 0.9, "IS") == pytest.approx(3 / 6 * np.mean(sums))
    assert discounted_limit(cut, 3.0, 0.9, "DM") == pytest.approx(3 / 6 * np.mean([sums[0], 10]))
    assert discounted_limit(cut, 3.0, 1.0, "DM") == 3.0


@pytest.mark.long
def test_policies_are_followed_in_a_model_that_is_named(tmp_path: Path) -> None:
    """The estimate is the mean over members, its interval reaches over all of theirs, and the decision does not stand on it."""
    data = Dataset.open("d3ray/cartpole-replay")
    few = {"name": "vector", "hidden_units": [16]}
    model = ProbabilisticEnsemble(encoder=few, n_members=3, n_elites=2, seed=1).fit(data, 400, 400)
    model.save(tmp_path / "model")
    policy = DiscreteBC(encoder=few).fit(data, 50, 50)
    policy.save(tmp_path / "policy")
    asked: dict[str, Any] = {"policies": str(tmp_path / "policy"), "dataset": "d3ray/cartpole-replay", "n_steps": 0}
    asked |= {"storage": str(tmp_path / "r"), "model": str(tmp_path / "model"), "interval": "student"}
    found = judge(JudgeSettings.checked(asked)).verdicts[0].estimates
    by_member = model_returns(model.model(), policy.policy(), data, 0.99)
    assert by_member.shape == (2, data.n_episodes)
    row = found["MB"]
    assert row.value == pytest.approx(by_member.mean())
    alone = [estimate(Logs.of(data, None, model_value=told), ["MB"], interval="student")["MB"].interval for told in by_member]
    assert row.interval == (min(low for low, _ in alone), max(high for _, high in alone))  # type: ignore[misc]
    assert row.caveat is not None
    assert "MB" in (tmp_path / "r/judge-cartpole-replay/judgement.html").read_text()
    with pytest.raises(ConfigError, match=r"^model: .* is no model: name a trained ProbabilisticEnsemble\.$"):
        judge(JudgeSettings.checked({**asked, "model": str(tmp_path / "policy"), "name": "other"}))


def judged(estimates: Estimates) -> Judged:
    return Judged(label="a", source="b", path="c", estimates=EstimateTable.model_validate(asdict(estimates)))


def test_what_leans_on_values_that_still_move_is_refused() -> None:
    rows = {"DM": Estimate(value=1.0, interval=(0.9, 1.2)), "DR": Estimate(value=1.0, interval=(0.5, 1.5))}
    estimates = estimate(Logs.of(bandit(), np.zeros(400)), ["SNIPS"])
    estimates.rows.update(rows)
    wide = widened(estimates, [(1.0, (0.7, 1.1)), (1.1, (0.9, 1.3))])
    assert wide["DM"].interval == (0.7, 1.3)
    assert unsettled(wide, 0.3, 1.0, 100) is wide
    refused = unsettled(wide, 0.31, 1.0, 100)
    assert refused["DM"].refused == (
        "FQE has not settled: its values moved by 0.31 over the last third of 100 steps; set a larger n_steps."
    )
    assert refused["DR"] is rows["DR"]
    assert chosen_estimator([judged(estimates).estimates]) == "DM"
    point = replace(wide, rows={"DM": Estimate(value=8.47, interval=(8.469, 8.471))})
    assert unsettled(point, 0.08, 8.47, 100) is point  # it moved by less than a hundredth of what values are
    assert "has not settled" in (unsettled(point, 0.09, 8.47, 100)["DM"].refused or "")
    assert believed(wide, 0.0, 1.0, 100, "") is wide
    assert believed(wide, 0.0, 1.0, 100, "values diverge")["DM"].refused == "FQE diverged: values diverge."
    for interval, refused in (((1.2, 2.0), None), ((1.4, 2.0), "The intervals of DM and WDR do not meet")):
        estimates.rows["WDR"] = Estimate(value=1.7, interval=interval)
        told = believed(widened(estimates, [(1.0, (0.7, 1.3))]), 0.0, 1.0, 100, "")["DM"].refused
        assert told is refused or (told is not None and refused is not None and told.startswith(refused))


def test_it_is_said_where_many_episodes_were_cut() -> None:
    data = tiny_dataset(discrete=True)
    share = 1 - data.episodes.terminated.mean()
    cut, steps = ~data.episodes.terminated, data.episodes.steps
    zeros = np.zeros(data.n_transitions)
    logs = Logs.of(data, None, gamma=0.9, q_value=zeros, value=zeros, final_value=np.where(cut, 5.0, 0.0))
    found = estimate(logs, ["DM"])
    assert found.continued is not None
    assert found.continued.value == pytest.approx(np.mean(logs.returns + cut * 0.9**steps * 5.0))
    assert found.against("DM") is found.continued
    assert found.against("PDIS") is found.data
    assert _beyond(data, found).startswith(f"{share:.0%} of the episodes were cut: ")
    assert _beyond(bandit(50), found) == ""
    one = Estimate(value=2.0, interval=(1.5, 2.5))
    decided = Judgement(name="one", dataset="logs", trusted="DM", verdicts=(judged(replace(found, rows={"DM": one})),))
    assert _tags(decided, decided.verdicts[0], "now")["data"] == repr(
        found.continued.value
    )  # what a first champion has to be above
    assert "expected to make of the episodes that were cut" in lead(decided)


def settings(place: Path, *policies: str, **more: Any) -> JudgeSettings:
    named = tuple(str(place / one) for one in policies)
    return JudgeSettings.checked(
        {"policies": named, "dataset": str(place / "logs"), "n_steps": 0, "storage": str(place / "other"), **more}
    )


def test_what_cannot_be_judged_is_refused_in_a_sentence(place: Path) -> None:
    bandit(50, log_prob=False).write(place / "bare")
    bandit(1).write(place / "one")
    maker(DiscreteBC)().fit(tiny_dataset(discrete=True), 2, 2).save_policy(place / "narrow")
    maker(BC)().fit(tiny_dataset(discrete=False), 2, 2).save_policy(place / "continuous")
    cases: dict[str, tuple[JudgeSettings, type[Exception]]] = {
        "'bandit' has one episode": (settings(place, "best.onnx", dataset=str(place / "one")), DataError),
        "no environment 'CartPol-v1'": (settings(place, "best.onnx", environment="CartPol-v1"), ConfigError),
        "environment: 'bandit' has .* CartPole-v1 has": (settings(place, "best.onnx", environment="CartPole-v1"), ConfigError),
        "s3://nowhere/x with credentials, which Tune would keep": (
            settings(place, "best.onnx", storage="s3://KEY:SECRET@nowhere/x"),
            ConfigError,
        ),
        "cannot be a folder's": (settings(place, "best.onnx", name="a b"), ConfigError),
        "no setting 'n_critic'": (settings(place, "best.onnx", n_steps=10, fqe={"n_critic": 3}), ConfigError),
        "are the same policy": (settings(place, "best.onnx", "best.onnx"), ConfigError),
        "narrow: 'bandit' has observations of shape": (settings(place, "narrow"), DataError),
        "continuous: 'bandit' has": (settings(place, "continuous"), DataError),
        "has no column 'log_prob'": (settings(place, "best.onnx", dataset=str(place / "bare"), behaviour="recorded"), ConfigError),
        "is no policy": (settings(place, "logs"), ConfigError),
    }
    for said, (asked, error) in cases.items():
        with pytest.raises(error, match=said):
            judge(asked)
    assert not (place / "other" / "judge-bare").exists()
    for name in ("reward_scaler", "algo", "gamma"):
        with pytest.raises(ConfigError, match=f"fqe.{name} cannot be set"):
            settings(place, "best.onnx", fqe={name: 1})
    for said, more in {
        "there is no estimator 'WDRR'.*'WDR'": {"estimators": ["WDRR"]},
        "estimators": {"estimators": []},
        "bounds are 3 and 1": {"bounds": [3, 1]},
    }.items():
        with pytest.raises(ConfigError, match=said):
            settings(place, "best.onnx", **more)


def test_a_judgement_is_written_over_only_if_that_is_said(place: Path) -> None:
    asked = settings(place, "best.onnx", storage=str(place / "over"), estimators=["IPS"])
    first = judge(asked)
    with pytest.raises(ConfigError, match=r"There is a judgement 'judge-logs' in .* already: say --resume .* --replace"):
        judge(asked)
    assert judge(asked, replace=True) == judge(asked, resume=True) == first
    kept = json.loads((place / "over/judge-logs/judgement.json").read_text())
    assert Judgement.model_validate(kept) == first
    older = {name: kept[name] for name in ("dataset", "trusted", "verdicts")}  # an earlier d3ray kept less
    assert Judgement.model_validate(older).data == first.data
    (place / "over/judge-logs/experiment.json").write_text("{}")
    for again in (False, True):
        with pytest.raises(ConfigError, match=r"an experiment.* another name"):
            judge(asked, replace=again)


def test_one_step_logs_are_not_judged_into_an_experiment_of_that_name(place: Path) -> None:
    """They train no FQE, so what there is to go on with or to replace is somebody else's."""
    asked = settings(place, "best.onnx", storage=str(place / "theirs"), n_steps=10)
    theirs = place / "theirs/judge-logs"
    theirs.mkdir(parents=True)
    (theirs / "experiment.json").write_text("{}")
    for again in ("resume", "replace"):
        with pytest.raises(ConfigError, match=r"an experiment, with whose training this judgement.* another name"):
            judge(asked, **{again: True})
    assert [one.name for one in theirs.iterdir()] == ["experiment.json"]


def test_policies_of_one_name_are_told_apart(place: Path) -> None:
    (place / "worse").mkdir()
    (place / "worst.onnx").rename(other := place / "worse/best.onnx")
    found = judge(settings(place, "best.onnx", "worse/best.onnx", storage=str(place / "named")))
    assert {verdict.label for verdict in found.verdicts} == {str(place / "best.onnx"), str(other)}
    other.rename(place / "worst.onnx")


def test_what_training_kept_back_judges(place: Path, tmp_path: Path) -> None:
    """A policy that learned from the logs but for a share is judged by that share, as trials cut it off; or by all, if asked."""
    data = Dataset.open(place / "logs")
    train, test = data.split(0.25, seed=0)
    policy = maker(DiscreteBC)().fit(train, 5, 5)
    for name, holdout in (("quarter", 0.25), ("nothing", 0.0)):
        write_package(policy, tmp_path / name, data, holdout=holdout)

    told: list[str] = []

    def ask(*policies: str, **more: Any) -> Judgement:
        named = {"policies": tuple(str(tmp_path / one) for one in policies), "dataset": str(place / "logs"), "n_steps": 0}
        told.clear()
        found = judge(JudgeSettings.checked({**named, "storage": str(tmp_path / "r"), **more}), replace=True, say=told.append)
        assert [f"Judging by the {found.verdicts[0].estimates.n_episodes} episodes" in line for line in told] == [True] * len(told)
        return found

    found = ask("quarter")
    assert (found.fingerprint, found.verdicts[0].estimates.n_episodes) == (test.fingerprint, 100)
    assert found.verdicts[0].estimates.data.value == pytest.approx(logged(test, "reward").mean())
    assert not [one for one in found.verdicts[0].estimates.warnings if one.startswith("The policy was trained on these")]
    assert ask("quarter", holdout=0).fingerprint == data.fingerprint
    whole = ask("nothing")
    assert whole.fingerprint == data.fingerprint
    assert [one for one in whole.verdicts[0].estimates.warnings if one.startswith("The policy was trained on these")]
    ask("quarter")
    assert "that training kept back" in told[0]
    said = ask("nothing", holdout=0.25)  # which its package denies
    assert said.fingerprint == test.fingerprint
    assert [one for one in said.verdicts[0].estimates.warnings if one.startswith("The policy was trained on these")]
    assert "of holdout=0.25, which not every policy is known to have kept back; holdout=0 takes all." in told[0]
    less = ask("quarter", holdout=0.125)  # a part of what it kept back
    assert not [one for one in less.verdicts[0].estimates.warnings if one.startswith("The policy was trained on these")]
    assert "that training kept back" in told[0]


def test_fqe_is_scaled_to_returns_of_one_and_trained_as_long_as_values_travel(tmp_path: Path) -> None:
    """Whatever the unit of rewards, of which bounds are too; the more seldom a task ends, the more often the target has to move."""
    rng, found = np.random.default_rng(0), list[Any]()
    for scale, length in ((1.0, 4), (500.0, 4), (1.0, 50)):
        ends = np.arange(400) % length == length - 1
        data = Dataset.from_arrays(rng.normal(size=(400, 2)), np.arange(400) % 2, np.full(400, scale), ends, name="visits")
        asked = {"policies": "nobody", "dataset": "visits", "gamma": 0.99, "fqe": {"value_bounds": [0, 10 * scale]}}
        config = fqe_experiment(JudgeSettings.checked(asked), data, "visits", "nobody")
        settings, size = config.algorithm.settings, np.sqrt(np.square(Logs.of(data, None, gamma=0.99).returns).mean())
        multiplier = settings["reward_scaler"]["multiplier"]
        assert multiplier * size == pytest.approx(1.0, rel=0.5)
        assert settings["value_bounds"] == [0, pytest.approx(10 * scale * multiplier)]
        found.append(config.n_steps)
    assert found == [10_000, 10_000, 17_510]  # log 0.005 / log (0.99 · 49 / 50) moves of the target, each 100 steps
