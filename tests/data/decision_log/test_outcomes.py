"""An outcome is recorded once, whoever tells it how often, and whatever was killed meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from d3ray.data.decision_log import DecisionWriter, Outcome, OutcomeLedger, read_log
from d3ray.data.errors import DataError
from d3ray.data.formats.registry import read
from d3ray.data.storage.files import Place

from .logs import POINT, decisions

# Records the outcome of one step after the other of an episode that is in the log, beginning at 0 and telling each twice.
LEDGER = """
import sys
from d3ray.data.decision_log import Outcome, OutcomeLedger
ledger = OutcomeLedger(sys.argv[1], rotate_bytes=5000)
for k in range(10**6):
    first, again = (ledger.record([Outcome(k / 2, "a", k)])[0].status for _ in range(2))
    print(first, again, flush=True)
"""


def statuses(ledger: OutcomeLedger, *outcomes: Outcome) -> list[str]:
    return [answer.status for answer in ledger.record(outcomes)]


def test_what_a_ledger_answers(tmp_path: Path) -> None:
    with DecisionWriter(tmp_path, POINT, policy="p") as writer, OutcomeLedger(tmp_path) as ledger:
        assert statuses(ledger, Outcome(1.0, "a", 0)) == ["unmatched"]
        ids = writer.append(decisions(["a", "a", None], [0, 1, 0]))
        assert statuses(ledger, Outcome(1.0, "a", 0), Outcome(1.0, "a", 0), Outcome(2.0, "a", 0)) == [
            "recorded",
            "known",
            "conflict",
        ]
        assert statuses(ledger, Outcome(1.0, decision=ids[0]), Outcome(2.0, decision=ids[0])) == ["known", "conflict"]
        end = Outcome(3.0, "a", 1, terminated=True, observation=[1, 2], cost=0.5)
        assert statuses(ledger, end, end) == ["recorded", "known"]
        others = [
            Outcome(3.0, "a", 1, truncated=True, observation=[1, 2], cost=0.5),
            Outcome(3.0, "a", 1, terminated=True, observation=[1, 3], cost=0.5),
            Outcome(3.0, "a", 1, terminated=True, observation=[1, 2]),
        ]
        answers = ledger.record(others)
        assert [answer.status for answer in answers] == ["conflict"] * 3
        assert answers[0].reason.startswith("The outcome of step 1 of episode 'a' was recorded with terminated True, which counts")
        assert "with another observation, which" in answers[1].reason
        assert "with cost 0.5, which" in answers[2].reason
        assert statuses(ledger, Outcome(1.0, ids[2], 0)) == ["recorded"]  # the key of what named no episode is its id
        answers = ledger.record([Outcome(1.0, "a", 7), Outcome(1.0, decision="x-1"), Outcome(1.0, "b", decision=ids[0])])
        assert [answer.reason for answer in answers] == [
            "The log has no decision for step 7 of episode 'a'.",
            "The log has no decision for decision 'x-1'.",
            f"The decision {ids[0]!r} is step 0 of episode 'a' of 'p', and the outcome names another.",
        ]
        table = read_log(tmp_path, "outcomes")
    assert table["status"].to_pylist() == ["recorded", "conflict", "recorded", "conflict", "conflict", "conflict", "recorded"]
    assert table["observation"].to_pylist()[2:5] == [[1, 2], [1, 2], [1, 3]]
    with OutcomeLedger(tmp_path) as ledger:  # as another process, later
        assert statuses(ledger, Outcome(1.0, "a", 0), Outcome(2.0, "a", 0), end, others[1]) == [
            "known",
            "conflict",
            "known",
            "conflict",
        ]
    assert read_log(tmp_path, "outcomes").num_rows == 7


def test_a_shadow_has_no_outcome_and_two_policies_are_told_apart(tmp_path: Path) -> None:
    with (
        DecisionWriter(tmp_path, POINT, policy="p") as one,
        DecisionWriter(tmp_path, POINT, policy="q") as other,
        OutcomeLedger(tmp_path) as ledger,
    ):
        (shadow,) = one.append(decisions("s", 0, role="shadow"))
        one.append(decisions("a", 0))
        other.append(decisions("a", 0))
        answers = ledger.record([Outcome(1.0, decision=shadow), Outcome(1.0, "a", 0)])
        assert [answer.status for answer in answers] == ["unmatched"] * 2
        assert answers[1].reason == "Several policies have step 0 of episode 'a': name the policy of the outcome."
        assert statuses(ledger, Outcome(1.0, "a", 0, policy="p"), Outcome(2.0, "a", 0, policy="q")) == ["recorded"] * 2


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ({"reward": float("nan"), "episode": "a", "step": 0}, "The reward of step 0 of episode 'a' is nan; a finite number"),
        ({"reward": 1.0, "cost": float("inf"), "decision": "d"}, "The cost of decision 'd' is inf"),
        ({"reward": 1.0, "episode": "a"}, "An outcome names its decision: give episode and step, or decision"),
        ({"reward": 1.0, "episode": "a", "step": 0, "observation": [1, 2]}, "has an observation and ends nothing"),
    ],
)
def test_a_wrong_outcome_is_refused(outcome: dict[str, object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Outcome(**outcome)  # pyright: ignore[reportArgumentType]


def test_one_wrong_observation_refuses_all_and_writes_nothing(tmp_path: Path) -> None:
    with DecisionWriter(tmp_path, POINT, policy="p") as writer, OutcomeLedger(tmp_path) as ledger:
        writer.append(decisions(["a", "a"], [0, 1]))
        for wrong, said in (([1, 2, 3], r"of shape \[1, 3\]; a batch of \[2\]"), ([1, np.nan], "NaN or infinity")):
            with pytest.raises(DataError, match=f"The outcome of step 1 of episode 'a': observation .*{said}"):
                ledger.record([Outcome(1.0, "a", 0), Outcome(1.0, "a", 1, terminated=True, observation=wrong)])
        assert read_log(tmp_path, "outcomes").num_rows == 0
        with pytest.raises(DataError, match="has observation/x, not observation"):
            ledger.record([Outcome(1.0, "a", 1, terminated=True, observation={"x": [1, 2]})])


def test_a_killed_ledger_knows_what_it_answered(tmp_path: Path) -> None:
    with DecisionWriter(tmp_path, POINT, policy="p") as writer:
        writer.append(decisions(["a"] * 400, range(400)))
    counts = list[int]()
    for answers in (20, 45):
        with subprocess.Popen([sys.executable, "-c", LEDGER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(answers)]
            process.send_signal(signal.SIGKILL)
            said += process.stdout.readlines()
        pairs = [line.split() for line in said if line.endswith("\n")]
        known = counts[-1] if counts else 0
        assert [first for first, _ in pairs[:known]] == ["known"] * known
        assert {again for _, again in pairs} == {"known"}
        counts.append(len(pairs))
        steps = read_log(tmp_path, "outcomes")["step"].to_pylist()
        assert steps == list(range(len(steps)))  # each once, though it was told four times
        assert len(pairs) <= len(steps) <= len(pairs) + 1


def test_two_ledgers_record_an_outcome_once(tmp_path: Path) -> None:
    n, found = 150, list[str]()
    with DecisionWriter(tmp_path, POINT, policy="p") as writer:
        writer.append(decisions(["a"] * n, range(n)))

    def tell() -> None:
        with OutcomeLedger(tmp_path, rotate_bytes=4000) as ledger:
            for k in range(n):
                found.extend(statuses(ledger, Outcome(1.0, "a", k)))

    threads = [threading.Thread(target=tell) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["known"] * n + ["recorded"] * n
    assert sorted(read_log(tmp_path, "outcomes")["step"].to_pylist()) == list(range(n))


def test_a_bucket_holds_outcomes_whose_decisions_come_later(tmp_path: Path) -> None:
    uri = f"fsspec+memory://{tmp_path.name}/log"
    with (
        DecisionWriter(uri, POINT, policy="p", spool=tmp_path / "one") as writer,
        OutcomeLedger(uri, POINT, spool=tmp_path / "two") as ledger,
    ):
        (first, _) = writer.append(decisions(["a", "a"], [0, 1]))
        end = Outcome(2.0, "a", 1, truncated=True)
        assert statuses(ledger, Outcome(1.0, decision=first), end, end, Outcome(9.0, "b", 0)) == [
            "recorded",
            "recorded",
            "known",
            "recorded",
        ]
    with OutcomeLedger(uri, spool=tmp_path / "three") as ledger:
        assert statuses(ledger, end, Outcome(3.0, decision=first)) == ["known", "conflict"]
    for name in ("decisions", "outcomes"):
        (tmp_path / "copy" / name).mkdir(parents=True)
    for name in (place := Place(uri)).tree():
        place.fetch(name, tmp_path / "copy" / name)
    found = read(tmp_path / "copy")
    assert found.steps.columns["reward"].tolist() == [1, 2, 0]
    assert [note.partition(",")[0] for note in found.notes] == [
        "1 outcomes say something else than an earlier one of their decision",
        "1 outcomes are of no decision in the log",
    ]
