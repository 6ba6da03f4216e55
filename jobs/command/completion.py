"""What a shell offers after Tab: jobs, their settings and values, read from a table, so that nothing slow is imported.

`d3ray --completion SHELL` prints what a shell has to read. It asks by the variable D3RAY_COMPLETE, which holds the line up to the
cursor, and gets a word a line.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

VARIABLE = "D3RAY_COMPLETE"
TABLE = Path(__file__).with_name("completion.json")  # docs/generate.py writes it
RESULTS = "d3ray_results"
_CONFIG, _ACTIONS = "--config", ("--config", "--example", "--help", "--print-config")
_NAMED = re.compile(r"^algorithm:\s*(?:\{\s*)?(?:name:\s*)?[\"']?([\w/]+)", re.MULTILINE)  # in a config file
SCRIPTS = {
    "bash": r"""
_d3ray() {
    local IFS=$'\n' line="${COMP_LINE:0:COMP_POINT}"
    COMPREPLY=($(D3RAY_COMPLETE="$line" D3RAY_BREAKS="$COMP_WORDBREAKS" d3ray 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace
}
complete -o default -F _d3ray d3ray
""",
    "zsh": r"""
_d3ray() {
    local -a found
    found=("${(@f)$(D3RAY_COMPLETE="${(j: :)words[1,CURRENT-1]} $PREFIX" d3ray 2>/dev/null)}")
    found=(${found:#})
    if (( $#found )); then
        compadd -Q -S '' -- ${(M)found:#*[=./]}
        compadd -Q -- ${found:#*[=./]}
    else
        compset -P '*='
        _files
    fi
}
compdef _d3ray d3ray
""",
    "fish": r"""
complete -c d3ray -a '(D3RAY_COMPLETE=(commandline -cp | string collect) d3ray 2>/dev/null)'
""",
}


def answer(line: str, breaks: str = "") -> list[str]:
    """The words that may stand where a line ends.

    Args:
        line: from the command to the cursor.
        breaks: characters at which the shell begins a new word: of words that have some, only what comes after the last is given.
    """
    try:
        words = shlex.split(line)
    except ValueError:  # within quotes there is YAML, which nobody can foresee
        return []
    typed = words.pop() if words and not line[-1:].isspace() else ""
    found = sorted(dict.fromkeys(word for word in offered(words[1:], typed) if word.startswith(typed)))
    cut = 1 + max((typed.rfind(mark) for mark in "=:" if mark in breaks), default=-1)
    return [word[cut:] for word in found]


def _table() -> dict[str, Any]:
    return json.loads(TABLE.read_text("utf-8"))


def offered(words: Sequence[str], typed: str) -> Iterator[str]:
    """Words that begin as `typed` may begin, and perhaps others, after some words."""
    table = _table()
    if not words:
        yield from [*table["jobs"], *(["--completion", "--help", "--version"] if typed.startswith("-") else [])]
        return
    if words[0] == "--completion":
        yield from SCRIPTS
        return
    job, words = words[0], list(words[1:])
    if job == "submit" and (begins := next((at for at, word in enumerate(words) if word in table["jobs"]), None)) is not None:
        yield from offered(words[begins:], typed)
        return
    if job == "resume" and any("=" not in word and not word.startswith("-") for word in words):
        job = "train"
    if job not in table["jobs"]:
        return
    known: dict[str, Any] = table["jobs"][job]
    settings: dict[str, Any] = dict(known["settings"])
    if "algorithm" in settings:
        settings |= _of_algorithm(table, words)
    before = words[-1] if words else ""
    if before == _CONFIG:
        return
    if before.startswith("--") and (key := before[2:].replace("-", "_")) in settings:
        yield from _values(table, settings, words, key)
        return
    key, equals, _ = typed.partition("=")
    if equals:
        of = key.removeprefix("--").replace("-", "_") if key.startswith("--") else key
        yield from (f"{key}={value}" for value in _values(table, settings, words, of))
    elif typed.startswith("-"):
        yield from [*_ACTIONS, *(f"--{flag}" for flag in known["flags"])]
        yield from (f"--{name.replace('_', '-')}" for name in settings if "." not in name)
    else:
        n_alone = sum("=" not in word and not word.startswith("-") for word in words)
        for name in known["operands"][n_alone : n_alone + 1] or known["operands"][-1:] * known["several"]:
            yield from _values(table, settings, words, name)
        yield from _keys(settings, typed)


def _keys(settings: Mapping[str, Any], typed: str) -> Iterator[str]:
    """Settings at the depth of what is typed, once more with a dot where some are below."""
    below = {name.rpartition(".")[0] for name in settings}
    for name in (name for name in settings if name.count(".") == typed.count(".")):
        yield f"{name}="
        if name in below:
            yield f"{name}."


def _of_algorithm(table: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Settings of the algorithm that is chosen, on the line or in the config file; of none, those of all."""
    given = [word.partition("=")[2] for word in words if word.partition("=")[0] in ("algorithm", "algorithm.name", "--algorithm")]
    given += [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--algorithm"]
    for at, word in enumerate(words[:-1]):
        file = Path(words[at + 1])
        if word == _CONFIG and file.is_file() and (named := _NAMED.search(file.read_text("utf-8", errors="replace"))):
            given.append(named[1])
    chosen = next((table["own"][name] for name in given if name in table["own"]), None)
    every = {
        name: values for name, values in table["values"].items() if chosen is None or name.partition(".")[0] in chosen["settings"]
    }
    found = {"name": "algorithms", "preset": chosen["presets"] if chosen else [], **every}
    return {f"algorithm.{name}": values for name, values in found.items()}


def algorithm_settings(name: Any) -> list[str]:
    """Full names of the settings of one of d3ray's algorithms; of all of them, where it is none."""
    return [setting for setting in _of_algorithm(_table(), [f"algorithm={name}"]) if setting.count(".") == 1]


def _values(table: Mapping[str, Any], settings: Mapping[str, Any], words: Sequence[str], key: str) -> Sequence[str]:
    known = settings.get(key, [])
    if known == "experiments":
        return _experiments(words)
    return table[known] if isinstance(known, str) else known


def _experiments(words: Sequence[str]) -> list[str]:
    """Names of those that lie in the storage that is said, or in the usual one."""
    storage = next((word.partition("=")[2] for word in words if word.partition("=")[0] in ("storage", "--storage")), RESULTS)
    try:
        return [folder.name for folder in Path(storage).expanduser().iterdir() if (folder / "experiment.json").exists()]
    except OSError:
        return []


def main(line: str) -> None:
    """Answers a shell."""
    for word in answer(line, os.environ.get("D3RAY_BREAKS", "")):
        print(word)
