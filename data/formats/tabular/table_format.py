"""What all formats of tables have alike: their options, and steps made of columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np

from ...config import setting
from ...masks import ACTION_MASK, masked
from ...storage.flat import RECORDED, steps_in_order
from ...storage.steps import StepTable
from ..arrays import Array, log_probability, one_column
from ..format import RENAME, StepFormat
from ..runs import Runs
from .table_rows import Order, flags_of


class TableFormat(StepFormat):
    """Where an episode ends, and in what order rows are read, is as of every table: see `order_of`."""

    rename: Mapping[str, str] = RENAME
    ends: Literal["truncated", "terminated"] = setting(
        "truncated", "what the end of an episode is where the file has no column terminated"
    )

    def on_task(self, there: Collection[str]) -> list[str]:
        """Say so where none of the columns tells which episodes the task ended."""
        other = "terminated" if self.ends == "truncated" else "truncated"
        said = f"all were taken as {self.ends} (options.ends={other} changes that)"
        return [] if "terminated" in there else [f"The file does not say which episodes the task ended: {said}."]

    def steps_of(
        self, source: str, called: Mapping[str, str], columns: Mapping[str, Array], order: Order
    ) -> tuple[StepTable, list[str]]:
        """The steps of a table, and notes.

        A row with `closing` is no step: it holds the final observation of the episode before it. Without such rows the final
        observation is the `next_observation` of the last step, where there is one (and `next_recorded` does not say otherwise).

        `columns` [N, ...] have usual names, and `called` is what the file calls them; further ones become columns of the dataset,
        `action_prob` its logarithm, `log_prob`, where that is not there.
        """
        given = flags_of(source, called, columns)
        found = {name: column for name, column in columns.items() if name not in given}
        for word in ("reward", "log_prob", "action_prob", RECORDED):
            if word in found:
                found[word] = one_column(source, called[word], found[word])
        if order.rows is not None:
            source = f"{source}, its rows in order"
            found, given = ({name: column[order.rows] for name, column in part.items()} for part in (found, given))
        n = len(order.ends)
        closing = given.get("closing", np.zeros(n, bool))
        notes: list[str] = []
        if (chances := found.pop("action_prob", None)) is not None and "log_prob" in found:
            notes.append(f"The column {called['action_prob']!r} was not read: {called['log_prob']!r} is read in its place.")
        elif chances is not None:
            found["log_prob"] = np.zeros(n, np.float32)
            found["log_prob"][~closing] = log_probability(source, called["action_prob"], chances[~closing], found["action"])
        step, last = ~closing, (order.ends | np.r_[closing[1:], False])[~closing]
        truncated = given.get("truncated", np.zeros(n, bool))[step]
        terminated = given["terminated"][step] if "terminated" in given else last & ~truncated & (self.ends == "terminated")
        following = [name for name in found if name.startswith("next_observation")]
        if following and not closing.any():
            truncated = (truncated | last) & ~terminated
            terminated, truncated = self.limited(source, terminated, truncated, notes)
            table = steps_in_order(found | {"terminated": terminated, "truncated": truncated}, last, source=source)
            return table, notes
        if following:
            notes.append(f"Left out, as closing rows hold final observations: {', '.join(following)}.")
        found = {name: column for name, column in found.items() if not name.startswith("next_")}
        seen = {name.partition("/")[2]: found.pop(name) for name in list(found) if name.partition("/")[0] == "observation"}
        shown = masked(seen.get("", seen), found.pop(ACTION_MASK, None))
        action, reward = (found.pop(name)[step] for name in ("action", "reward"))
        extra = {name: column[step] for name, column in found.items()}
        steps, said = Runs(shown, closing, last, action, reward, terminated, truncated, extra).steps(source, self.timeout_at)
        return steps, [*notes, *said]
