"""A decision log as steps: episodes by hand, by ledger and by CSV, and everything that a log may lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.decision_log import DecisionRows, DecisionWriter, Outcome, OutcomeLedger
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.format import Imported
from d3ray.data.formats.registry import detect, read
from d3ray.data.spec import Spec

from ..decision_log.logs import CHOICE, POINT, choices, decisions


def log(folder: Path, rows: Sequence[DecisionRows], outcomes: Sequence[Outcome] = (), spec: Spec = POINT) -> list[str]:
    """Write a log of one writer, and return the ids of its decisions."""
    with DecisionWriter(folder, spec, policy="p") as writer, OutcomeLedger(folder) as ledger:
        ids = [id for one in rows for id in writer.append(one)]
        assert {answer.status for answer in ledger.record(outcomes)} <= {"recorded"}
    return ids


def given_up(folder: Path, **options: Any) -> Imported:
    """Read all of it, whatever has not ended."""
    return read(folder, episode_timeout=0, **options)


def rewards(episode: str, values: Sequence[float], **last: Any) -> list[Outcome]:
    told = [Outcome(value, episode, k) for k, value in enumerate(values)]
    return [*told[:-1], replace(told[-1], **last)]


def test_three_episodes_by_hand(tmp_path: Path) -> None:
    """A ends, b is cut with a last observation and one step asked for twice, c is given up: step 2 is missing, 4 has no outcome."""
    rows = [
        replace(decisions(["a", "b"], [0, 0]), time=1234567890.125),
        decisions(["b"], [1], shift=3.0),
        decisions(["b"], [1], shift=5.0),
        decisions(["c", "c", "c", "a", "a"], [4, 0, 1, 2, 1], shift=1.0),
        decisions(["a", "b", "c"], [0, 1, 2], role="shadow"),
        decisions(["c"], [3], role="fallback", version="2", shift=2.0),
    ]
    end_of_b = rewards("b", [4, 5], truncated=True, observation=[9.0, -9.0], cost=0.5)
    outcomes = [*end_of_b, *rewards("a", [1, 2, 3], terminated=True), *rewards("c", [6, 7]), Outcome(8, "c", 3)]
    log(tmp_path, rows, outcomes)
    assert detect(tmp_path) == "decisions"
    found = given_up(tmp_path)
    columns = found.steps.columns
    # b: 0, 1 | a: 0, 1, 2 | c: 0, 1 | c: 3
    assert found.steps.steps.tolist() == [2, 3, 2, 1]
    assert columns["observation"].tolist() == [
        [0, 0], [1, 6], [9, -9],
        [0, 0], [1, 2], [2, 3], [2, 3],
        [0, 1], [1, 2], [1, 2],
        [3, 5], [4, 5],
    ]  # fmt: skip
    assert columns["action"][:, 0].tolist() == np.float32([0, 0.01, 0, 0, 0.01, 0.02, 0, 0, 0.01, 0, 0.03, 0]).tolist()
    assert columns["reward"].tolist() == [4, 5, 0, 1, 2, 3, 0, 6, 7, 0, 8, 0]
    assert columns["log_prob"].tolist() == [-1, -2, 0, -1, -2, -3, 0, -1, -2, 0, -4, 0]
    assert columns["cost"].tolist() == [0, 0.5, *[0] * 10]
    assert np.flatnonzero(columns["terminated"]).tolist() == [5]
    assert np.flatnonzero(columns["truncated"]).tolist() == [1, 8, 10]
    assert found.steps.final_recorded.tolist() == [True, False, False, True]
    assert found.provenance["log"]["versions"] == ["1", "2"]
    assert np.flatnonzero(columns["info/version"]).tolist() == [10]
    assert columns["info/time"][[0, 2, 3]].tolist() == [1234567890.125, 0, 1234567890.125]
    assert found.spec == POINT
    assert found.notes == [
        "1 decisions have no outcome and were left out, which cuts their episodes there.",
        "1 times steps of an episode are missing from the log; it is cut there.",
        "1 decisions answer a request that another answers too; the last one counts, or what an outcome names.",
    ]


def test_legal_actions_and_decisions_that_are_no_steps(tmp_path: Path) -> None:
    """Each such decision is an episode, which its outcome ends; dict observations and masks come as they were."""
    rows = [
        replace(choices([None, "a", "a", "made"], [0, 0, 1, 0], [[0, 1], None, [1, 0], None]), alone=[False, False, False, True])
    ]
    ids = log(tmp_path, rows, spec=CHOICE)
    with OutcomeLedger(tmp_path) as ledger:
        ledger.record([Outcome(1, decision=ids[0]), *rewards("a", [2, 3], truncated=True)])
    found = read(tmp_path)
    assert found.steps.columns["action_mask"].tolist() == [[0, 1], [1, 1], [1, 1], [1, 0], [1, 1]]
    assert found.steps.columns["observation/seen"].tolist() == [[0, 0], [0, 0], [0, 0], [1, -1], [1, -1]]
    assert found.steps.columns["observation/kind"].tolist() == [0, 0, 0, 1, 1]
    assert found.steps.columns["action"].tolist() == [1, 0, 0, 0, 0]
    assert found.steps.terminated.tolist() == [True, False]
    late = given_up(tmp_path, missing_reward=0)
    assert late.steps.terminated.tolist() == [True, False, True]  # nobody clicked on the last, and that is all of it
    assert late.steps.columns["reward"].tolist() == [1, 0, 2, 3, 0, 0, 0]


def test_parts_of_a_last_observation_come_by_csv(tmp_path: Path) -> None:
    log(tmp_path / "log", [choices(["a", "a"], [0, 1], [[1, 1], [1, 1]])], spec=CHOICE)
    names = "observation/kind,observation/seen:0,observation/seen:1"
    (tmp_path / "told.csv").write_text(f"episode,step,reward,truncated,{names}\na,0,1,0,,,\na,1,2,1,2,7,-7\n")
    found = read(tmp_path / "log", join=tmp_path / "told.csv")
    assert found.steps.columns["observation/kind"].tolist() == [0, 1, 2]
    assert found.steps.columns["observation/seen"].tolist() == [[0, 0], [1, -1], [7, -7]]
    assert found.steps.final_recorded.tolist() == [True]


def test_a_mask_that_the_policy_did_not_know_is_kept(tmp_path: Path) -> None:
    rows = [choices(["a", "a"], [0, 1], [None, [0, 1]])]
    log(tmp_path, rows, rewards("a", [1, 2], terminated=True), spec=CHOICE.model_copy(update={"action_mask": False}))
    assert read(tmp_path).steps.columns["action_mask"].tolist() == [[1, 1], [0, 1], [1, 1]]
    with pytest.raises(DataError, match="The log has action_mask now, and the dataset has no such column: overwrite=true"):
        read(tmp_path, taken={}, columns=("reward",))


def test_episodes_wait_until_all_of_them_is_there(tmp_path: Path) -> None:
    log(tmp_path, [decisions(["a", "a", "b", "b"], [0, 1, 0, 1])], [Outcome(2, "a", 1, terminated=True), Outcome(3, "b", 0)])
    with pytest.raises(DataError, match=r"no complete episode\. 1 episodes have not ended yet .* 1 episodes have ended and wait"):
        read(tmp_path)
    assert read(tmp_path, missing_reward=-1).steps.columns["reward"].tolist() == [-1, 2, 0]
    with OutcomeLedger(tmp_path) as ledger:
        ledger.record([Outcome(1, "a", 0)])
    assert read(tmp_path).steps.columns["reward"].tolist() == [1, 2, 0]


def test_an_ended_episode_waits_for_a_step_that_another_replica_wrote(tmp_path: Path) -> None:
    with DecisionWriter(tmp_path, POINT, policy="p") as late:
        ids = log(tmp_path, [decisions(["a", "a"], [0, 2])])
        with OutcomeLedger(tmp_path) as ledger:
            ledger.record([Outcome(1, decision=ids[0]), Outcome(3, "a", 2, terminated=True)])
            with pytest.raises(
                DataError, match="1 episodes have ended and wait for steps or outcomes that are missing, for 3600 sec"
            ):
                read(tmp_path)
            late.append(decisions("a", 1))
            ledger.record([Outcome(2, "a", 1)])
    assert read(tmp_path).steps.columns["reward"].tolist() == [1, 2, 3, 0]


def test_an_outcome_by_id_names_which_answer_counts(tmp_path: Path) -> None:
    """Else the last written; which is not what the clock of another machine says."""
    first, last = decisions("a", 0, version="1", shift=1.0), replace(decisions("a", 0, version="2", shift=2.0), time=5.0)
    ids = log(tmp_path / "named", [first, last])
    with OutcomeLedger(tmp_path / "named") as ledger:
        ledger.record([Outcome(1, decision=ids[0], terminated=True)])
    log(tmp_path / "last", [first, last], [Outcome(1, "a", 0, terminated=True)])
    assert read(tmp_path / "named").steps.columns["observation"][0].tolist() == [0, 1]
    assert read(tmp_path / "last").steps.columns["observation"][0].tolist() == [0, 2]


def test_steps_are_in_order_whatever_clocks_say(tmp_path: Path) -> None:
    with DecisionWriter(tmp_path, POINT, policy="p") as one, DecisionWriter(tmp_path, POINT, policy="p") as other:
        for k in range(6):
            (one if k % 2 else other).append(replace(decisions("a", k), time=1e9 * (2 if k % 2 else 1) - k))
        with OutcomeLedger(tmp_path) as ledger:
            ledger.record(rewards("a", range(6), terminated=True))
    found = read(tmp_path)
    assert found.steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 5]
    assert found.steps.columns["reward"].tolist() == [0, 1, 2, 3, 4, 5, 0]


def test_roles_versions_and_policies_are_chosen(tmp_path: Path) -> None:
    rows = [
        decisions(["a", "a"], [0, 1]),
        decisions("a", 2, version="2"),
        decisions("a", 3, role="canary", version="3"),
        decisions("a", 4),
    ]
    log(tmp_path, rows, rewards("a", [0, 1, 2, 3, 4], terminated=True))

    def chosen(**options: Any) -> tuple[list[int], list[bool]]:
        steps = read(tmp_path, **options).steps
        return steps.columns["reward"][~steps.columns["closing"]].astype(int).tolist(), steps.final_recorded.tolist()

    assert chosen() == ([0, 1, 2, 3, 4], [False])
    assert chosen(version="1") == ([0, 1, 4], [True, False])  # what came after step 1 is in the log
    assert chosen(version=("2", "3")) == ([2, 3], [True])
    assert chosen(role="canary") == ([3], [True])
    assert chosen(policy="p") == ([0, 1, 2, 3, 4], [False])
    with pytest.raises(DataError, match="no complete episode"):
        read(tmp_path, policy="q")
    with pytest.raises(ConfigError, match="role is 'shadow', which no decision that was acted on has; choose"):
        read(tmp_path, role="shadow")


def test_decisions_without_a_density(tmp_path: Path) -> None:
    rows = [decisions(["a", "b"], [0, 0]), replace(decisions("b", 1), log_prob=None)]
    log(tmp_path, rows, [*rewards("a", [1], terminated=True), *rewards("b", [1, 1], terminated=True)])
    found = read(tmp_path)
    assert "log_prob" not in found.steps.columns
    assert found.notes[0].startswith("1 of 3 decisions have no log_prob, so there is no such column")
    strict = read(tmp_path, log_prob=True)
    assert strict.steps.columns["log_prob"].tolist() == [-1, 0]
    assert strict.notes == ["1 episodes have decisions without log_prob and were left out."]


def test_what_comes_after_the_end_is_left_out(tmp_path: Path) -> None:
    log(tmp_path, [decisions(["a"] * 4, range(4))], [*rewards("a", [1, 1], terminated=True), Outcome(5, "a", 2)])
    found = read(tmp_path)
    assert found.steps.columns["reward"].tolist() == [1, 1, 0]
    assert found.notes == ["2 decisions came after the end of their episode and were left out."]


def test_outcomes_that_contradict_or_fit_nothing(tmp_path: Path) -> None:
    log(tmp_path, [decisions(["a", "a"], [0, 1])], rewards("a", [1, 2], terminated=True))
    with OutcomeLedger(tmp_path) as ledger:
        assert [answer.status for answer in ledger.record([Outcome(9, "a", 0), Outcome(1, "b", 0)])] == ["conflict", "unmatched"]
    found = read(tmp_path)
    assert found.steps.columns["reward"].tolist() == [1, 2, 0]
    assert found.notes == ["1 outcomes say something else than an earlier one of their decision, which counts."]


def test_a_torn_file_and_a_lost_one_are_told_of(tmp_path: Path) -> None:
    with DecisionWriter(tmp_path, POINT, policy="p", rotate_bytes=1500) as writer:
        for k in range(8):
            writer.append(decisions("a", k))
    with OutcomeLedger(tmp_path) as ledger:
        ledger.record(rewards("a", range(8), terminated=True))
    files = sorted((tmp_path / "decisions").glob("*.arrows"))
    assert len(files) > 3
    files[-1].write_bytes(files[-1].read_bytes()[:-20])
    files[1].unlink()
    found = given_up(tmp_path)
    assert "left out" in found.notes[0]
    assert files[-1].stem in found.notes[0]
    assert (
        found.notes[1]
        == f"1 files of the log are missing, the first decisions/{files[1].stem}; what was in them is not in the dataset."
    )
    assert found.steps.n_episodes == 2


CSV = """episode;step;reward;cost;done;truncated;obs_0;obs_1;comment
b;0;4;;;;;;
b;1;5;0.5;;1;9;-9;x
a;0;1;;0;0;;;
a;1;2;;false;;;;
a;2;3;;True;;;;
"""


def test_a_join_by_csv_is_a_join_by_ledger(tmp_path: Path) -> None:
    rows = [decisions(["a", "b", "a", "b", "a"], [0, 0, 1, 1, 2])]
    last_of_b = rewards("b", [4, 5], truncated=True, observation=[9.0, -9.0], cost=0.5)
    log(tmp_path / "ledger", rows, [*last_of_b, *rewards("a", [1, 2, 3], terminated=True)])
    ids = log(tmp_path / "none", rows)
    told = tmp_path / "outcomes.csv"
    told.write_text(CSV)
    by_ledger, by_csv = read(tmp_path / "ledger"), read(tmp_path / "none", join=told)
    assert by_csv.notes == ["Columns of outcomes.csv that outcomes do not have were left out: comment."]
    told.write_text(f"decision,reward,terminated\n{ids[0]},1,\n{ids[2]},2,\n{ids[4]},3,1\n")
    by_id = read(tmp_path / "none", join=str(told))
    for name, column in by_ledger.steps.columns.items():
        assert name == "info/time" or np.array_equal(by_csv.steps.columns[name], column), name
    assert by_csv.steps.final_recorded.tolist() == by_ledger.steps.final_recorded.tolist() == [True, False]
    assert by_id.steps.columns["reward"].tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("episode,reward\na,1\n", r"has no column episode and step \(or decision\), only episode, reward\."),
        ("episode,step,cost\na,0,1\n", "has no column reward, only episode, step, cost"),
        ("episode,step,reward\na,0,nan\n", "line 2: reward is nan; a finite number is needed"),
        ("episode,step,reward\na,0,\n", "line 2: reward is empty"),
        ("episode,step,reward\na,0,many\n", "line 2: reward is 'many', which is no number"),
        ("episode,step,reward\na,0.5,1\n", "line 2: step is 0.5; a whole number from 0 on"),
        ("episode,step,reward\na,0,1\na,0,1\na,0,2\n", "line 4: there is another outcome of the same decision in line 2"),
        ("episode,step,reward,done\na,0,1,perhaps\n", "line 2: terminated is 'perhaps'; 0 or 1"),
        ("episode,step,reward\na,0\n", "line 2: there are 2 cells, and the header has 3"),
        ("episode,step,reward,obs_0\na,0,1,\n", "has columns of observations and none for observation:1"),
        ("episode,step,reward,obs_0,obs_1\na,0,1,2,3\n", "line 2: it has an observation and ends nothing"),
        ("episode,step,reward,obs_0,obs_1,done\na,0,1,2,,1\n", "line 2: observation:1 is empty, and other entries are not"),
        ("episode,step,reward\nz,0,1\n", "names no decision of .*; its first outcome is of step 0 of episode 'z'"),
    ],
)
def test_a_wrong_csv_is_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    log(tmp_path / "log", [decisions("a", 0)])
    (tmp_path / "outcomes.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        given_up(tmp_path / "log", join=tmp_path / "outcomes.csv")


def test_outcomes_of_a_csv_that_fit_nothing_are_told_of(tmp_path: Path) -> None:
    log(tmp_path / "log", [decisions("a", 0)])
    (tmp_path / "outcomes.csv").write_text("episode,step,reward,done\nz,3,1,0\na,0,1,1\n")
    found = read(tmp_path / "log", join=tmp_path / "outcomes.csv")
    assert found.notes == [
        "1 outcomes are of no decision in the log, the first of step 3 of episode 'z'; they are joined once that is there."
    ]
    assert found.steps.columns["reward"].tolist() == [1, 0]


def test_an_empty_log_and_a_file_of_another(tmp_path: Path) -> None:
    log(tmp_path / "empty", [])
    with pytest.raises(DataError, match="has no decisions yet"):
        read(tmp_path / "empty")
    log(tmp_path / "a", [decisions("a", 0)])
    log(tmp_path / "b", [choices(["a"], [0], [None])], spec=CHOICE)
    (file,) = (tmp_path / "b" / "decisions").glob("*.arrows")
    file.rename(tmp_path / "a" / "decisions" / file.name)
    with pytest.raises(DataError, match="is of another log: its columns are others"):
        given_up(tmp_path / "a")
    for text, said in (
        ("{", "no decision log"),
        ('{"format": "d3ray decision log", "version": 2}', "has log version 2; this d3ray reads"),
    ):
        (tmp_path / "a" / "service.json").write_text(text)
        with pytest.raises(DataError, match=said):
            read(tmp_path / "a", format="decisions")
