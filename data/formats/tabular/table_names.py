"""What tables call their columns, whatever file they came in: d3ray's words, synonyms, and the entries of arrays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from ...errors import ConfigError, DataError, did_you_mean
from ...storage.costs import SAID

NAMES = {  # d3ray's word: what files call it, the first found is taken
    "episode": ("episode", "episode_id", "episode_ids", "episode_index"),
    "step": ("step", "step_index", "frame_index"),
    "reward": ("reward", "rewards", "rew"),
    "terminated": ("terminated", "terminal", "terminals", "done", "dones"),
    "truncated": ("truncated", "timeout", "timeouts"),
    "closing": ("closing",),
    "next_recorded": ("next_recorded",),
    "cost": SAID,
    "log_prob": ("log_prob", "action_log_prob"),
    "action_prob": ("action_prob", "propensity", "propensity_score", "pscore"),
}
ENDS = ("episode", "terminated", "truncated")  # one of these tells where episodes end
FLAGS = ("terminated", "truncated", "closing", "next_recorded")
UNREAD = "\0"  # what the usual name of a column begins with, instead of which another one is read
_SPELLED = re.compile(
    r"(?:(next_)?(?:obs|observations?|states?)|(?:act|actions?))(?:[_.](\d+)|\[(\d+)\])?"
)  # as `obs_0`, `state[0]`
_ENTRY = re.compile(r"((?:next_)?(?:observation(?:/[^:]+)?|action_mask)|action)(?::(\d+))?")


def usual_names(names: Sequence[str], rename: Mapping[str, str], *, whole: bool) -> list[str]:
    """Columns' usual names. Where several could be one, what was renamed goes before d3ray's own word, and that before synonyms.

    `rename` has usual names by what the file calls them. `whole`: a column without a number is a whole array, "observation", and
    not its first entry, "observation:0".
    """
    found = [_usual(name, rename, whole=whole) for name in names]
    ranks: dict[str, int] = {}
    for usual, rank in found:
        for key in {usual, usual.partition(":")[0]} if whole and rank < 2 else {usual}:
            ranks[key] = min(rank, ranks.get(key, rank))

    def best(usual: str, rank: int) -> int:
        keys = (usual, usual.partition(":")[0], usual.partition("/")[0]) if whole else (usual,)
        return min(ranks.get(key, rank) for key in keys)

    return [f"{UNREAD}{name}" if rank > best(usual, rank) else usual for name, (usual, rank) in zip(names, found, strict=True)]


def _usual(name: str, rename: Mapping[str, str], *, whole: bool) -> tuple[str, int]:
    """Return a column's usual name, and its rank: renamed (0), of that name (1) or a synonym, the later the higher."""
    cut = [mark for mark in ":/" if mark in name and name.partition(mark)[0] in rename]
    root, mark, rest = name.partition(cut[0]) if cut else (name, "", "")
    said = rename.get(name) or (f"{rename[root]}{mark}{rest}" if cut else name)
    rank = 1 if said == name else 0
    for word, others in NAMES.items():
        if said in others and said != word:
            said, rank = word, rank and 1 + others.index(said)
            break
    if (spelled := _SPELLED.fullmatch(said)) and not _ENTRY.fullmatch(said):
        number, word = spelled[2] or spelled[3], "action" if said.startswith("act") else f"{spelled[1] or ''}observation"
        said, rank = word if number is None else f"{word}:{int(number)}", rank and 2
    entry = _ENTRY.fullmatch(said)
    return (f"{said}:0" if entry and entry[2] is None and not whole else said), rank


def is_told(names: Iterable[str]) -> bool:
    """Tell whether usual names have a reward, an observation, an action, and an episode or what ends one."""
    names = set(names)
    told = "reward" in names and not names.isdisjoint(ENDS)
    return told and all(any(is_entry(name, word) for name in names) for word in ("observation", "action"))


def is_entry(name: str, word: str) -> bool:
    """Tell whether a usual name is of an array, or a part or entry of it."""
    found = _ENTRY.fullmatch(name)
    return bool(found and found[1].partition("/")[0] == word)


def is_known(name: str) -> bool:
    return name in NAMES or name.startswith("info/") or _ENTRY.fullmatch(name) is not None


def check_renames(rename: Mapping[str, str], header: Sequence[str], source: str, format: str) -> dict[str, str]:
    """Return usual names by what the file calls them. Raises ConfigError where there is no such usual name."""
    there = {part for name in header for part in (name, name.partition(":")[0], name.partition("/")[0])}
    for usual, actual in rename.items():
        if usual not in NAMES and not _ENTRY.fullmatch(usual):
            raise ConfigError(f"rename: {format} has no column {usual!r}{did_you_mean(usual, [*NAMES, 'observation', 'action'])}")
        if actual not in there:
            raise DataError(f"{source} has no column {actual!r} for {usual!r}, only {some(header)}.")
    return {actual: usual for usual, actual in rename.items()}


def grouped(names: Sequence[str], source: str, header: Sequence[str], *, whole: bool) -> dict[str, list[str]]:
    """The columns of each array, `observation`, `observation/KEY`, `action` and so on, in the order of their numbers.

    Of a file that lacks some, the error names all of them, what the file has under its own names, and how to say which is which.
    """
    seen = Counter(names)
    if twice := [name for name, n in seen.items() if n > 1 and is_known(name)]:
        raise DataError(f"{source} has the column {twice[0]!r} twice.")
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        if found := _ENTRY.fullmatch(name):
            group = groups.setdefault(found[1], {})
            if (place := int(found[2] or 0)) in group:
                raise DataError(f"{source} has both {group[place]!r} and {name!r}; an array is one column, or a column an entry.")
            group[place] = name
    observed = [group for group in groups if group.startswith("observation")]
    mark = "" if whole else ":0"
    needed = {"episode": not set(names).isdisjoint(ENDS), f"observation{mark}": bool(observed)}
    needed |= {f"action{mark}": "action" in groups, "reward": "reward" in names}
    if lacking := [word for word, there in needed.items() if not there]:
        raise DataError(f"{source} has no column {', '.join(map(repr, lacking))}, {_say_which(lacking, header)}")
    if "observation" in groups and len(observed) > 1:
        name = f"observation{mark}"
        raise DataError(f"{source} has both {name!r} and {groups[observed[1]]!r}; observations are one vector, or a dict.")
    for group, entries in groups.items():
        if (gap := next(k for k in count() if k not in entries)) < max(entries):
            raise DataError(f"{source} has the column '{group}:{max(entries)}' but no '{group}:{gap}'.")
    return {group: [entries[k] for k in sorted(entries)] for group, entries in groups.items()}


def entry_names(groups: Mapping[str, Sequence[str]], theirs: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return what a file calls (`theirs`) the entries of arrays, by array; not where those are their numbers, as `obs_0`."""
    called = {group: tuple(theirs[name] for name in parts) for group, parts in groups.items()}
    return {
        group: names
        for group, names in called.items()
        if any(name != group and not _ENTRY.fullmatch(name) and not _SPELLED.fullmatch(name) for name in names)
    }


def _say_which(lacking: Sequence[str], header: Sequence[str]) -> str:
    which, say = "which is which" if len(lacking) > 1 else "which it is", " ".join(f"rename.{word}=NAME" for word in lacking)
    ends = ", or rename.terminated=NAME where a flag ends an episode" if lacking == ["episode"] else ""
    vectors = [word for word in lacking if word.endswith(":0")]
    more = f" (further entries: {', '.join(word[:-1] + '1' for word in vectors)}, …)" if vectors else ""
    return f"only {some(header)}; say {which}: {say}{more}{ends}."


def not_read(names: Iterable[str]) -> list[str]:
    left = [name for name in names if not is_known(name)]
    why = {True: "another one is read in its place", False: "it is none that d3ray knows"}
    return [f"The column {name.removeprefix(UNREAD)!r} was not read: {why[name.startswith(UNREAD)]}." for name in left]


def some(names: Iterable[str]) -> str:
    names = list(names)
    return (", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")) or "nothing"
