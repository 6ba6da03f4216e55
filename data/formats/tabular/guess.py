"""What columns of a table may be whose names d3ray does not know: a guess by names and first values, for somebody to put right."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..untrusted.archives import head
from .csv_cells import HEAD, header
from .table_names import ENDS, is_entry, is_known, usual_names

ROLES = (
    "episode",
    "step",
    "observation",
    "action",
    "reward",
    "terminated",
    "truncated",
    "log_prob",
    "cost",
)  # what a column may be
_ARRAYS = ("observation", "action")  # of several columns, one an entry
_SAID: Mapping[str, str] = {  # words of names that tell a role, the first of which is taken
    "episode": "episode run trajectory traj trial session game rollout patient subject user customer stay",
    "step": "step timestep tick frame t",
    "reward": "reward rew score gain profit payoff revenue utility",
    "terminated": "terminated terminal done end ended final finished died crashed",
    "truncated": "truncated timeout cut",
    "cost": "cost costs penalty violation violations",
    "action": "action act control force torque command u dose treatment decision choice motor throttle steering setpoint bid arm",
}
_FLAGS = {"0", "1", "true", "false", "0.0", "1.0"}


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str  # what the file calls it
    usual: str  # what it is read as by that name; empty: d3ray does not know it
    guess: str  # what it may be instead, one of `ROLES`; empty: nobody knows, or nothing needs to be guessed
    values: tuple[str, ...]  # its first cells


def look(path: Path, rows: int = 4) -> list[Column]:
    """List the columns of a CSV file, with guesses where its own names do not say all. Raises csv.Error and OSError."""
    names, separator = header(path)
    text = head(path, HEAD, unpacked=True).decode("utf-8-sig", "replace")
    filled = (row for row in csv.reader(io.StringIO(text), delimiter=separator) if row)
    cells = [*islice(filled, rows + 1)][1:]
    values = {name: tuple(row[k].strip()[:40] for row in cells if k < len(row)) for k, name in enumerate(names)}
    usual = dict(zip(names, usual_names(names, {}, whole=False), strict=True))
    guesses, taken, wanted = dict[str, str](), {*usual.values()}, lacking(usual.values())
    for name in names if wanted else ():
        if not is_known(usual[name]) and (role := _guess(name, values[name], taken, wanted)):
            guesses[name] = role
            taken.add(role)
    return [Column(n, usual[n] if is_known(usual[n]) else "", guesses.get(n, ""), values[n]) for n in names]


def lacking(usual: Iterable[str]) -> list[str]:
    """List which of episode, observation, action and reward none of these usual names is."""
    names = list(usual)
    there = {"episode": not set(names).isdisjoint(ENDS), "reward": "reward" in names}
    there |= {word: any(is_entry(name, word) for name in names) for word in _ARRAYS}
    return [word for word in ("episode", "observation", "action", "reward") if not there[word]]


def _guess(name: str, values: Sequence[str], taken: set[str], wanted: Sequence[str]) -> str:
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)]
    numeric = bool(values) and all(re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", value) for value in values)
    flags = bool(values) and {value.lower() for value in values} <= _FLAGS
    for role, said in _SAID.items():
        if not set(words).isdisjoint(said.split()) and (role == "action" or role not in taken):
            fits = flags if role in ("terminated", "truncated") else numeric or role == "episode"
            if fits and (role != "action" or "action" in wanted):
                return role
    return "observation" if numeric and "observation" in wanted else ""


def renames(roles: Mapping[str, str]) -> dict[str, str]:
    """Make an importer's `rename` of the role of each column of a table, empty where its name already says it.

    Entries of a vector are numbered in the order of the columns, after those that the file numbers itself.
    """
    kept = [name for name, role in zip(usual_names(list(roles), {}, whole=False), roles.values(), strict=True) if not role]
    count = {word: sum(is_entry(name, word) for name in kept) for word in _ARRAYS}
    found = dict[str, str]()
    for name, role in roles.items():
        if role in _ARRAYS:
            found[f"{role}:{count[role]}"] = name
            count[role] += 1
        elif role:
            found[role] = name
    return found
