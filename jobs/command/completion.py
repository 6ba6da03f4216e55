"""What a shell offers after Tab: commands, their settings and values.

`d3ray --completion SHELL` prints what a shell has to read. It asks by the variable D3RAY_COMPLETE, which holds the line up to the
cursor, and gets a word a line. What had to be imported to be known is kept in the cache folder until d3ray changes, for to import
it takes up to seconds.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .commands import COMMANDS, FROM_HERE, load

Values = Sequence[str] | str  # of a setting: words, or what they are a list of
_ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"^algorithm:\s*(?:\{\s*)?(?:name:\s*)?[\"']?([\w/]+)", re.MULTILINE)  # in a config file
_LISTS = {  # by setting, or by command and setting, what its values are a list of
    "dataset": "datasets",
    "suite": "suites",
    "algorithm": "algorithms",
    **dict.fromkeys(("experiment", "experiments", "model", "policies", "policy", "runs"), "experiments"),
    **dict.fromkeys(("export source", "promote name", "rollback name"), "experiments"),
    **dict.fromkeys(("derive source", "diff a", "diff b", "datasets pattern"), "datasets"),
    "algorithms name": "algorithms",
    "submit job": "jobs",
}
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
    """The words that may stand where a line, from the command to the cursor, ends.

    Of words that have some of `breaks`, at which the shell begins a new one, only what comes after the last is given.
    """
    try:
        words = shlex.split(line)
    except ValueError:  # within quotes there is YAML, which nobody can foresee
        return []
    typed = words.pop() if words and not line[-1:].isspace() else ""
    found = sorted(dict.fromkeys(word for word in _offered(words[1:], typed) if word.startswith(typed)))
    cut = 1 + max((typed.rfind(mark) for mark in "=:" if mark in breaks), default=-1)
    return [word[cut:] for word in found]


def _offered(words: Sequence[str], typed: str) -> Iterator[str]:
    """Words that begin as `typed` may begin, and perhaps others, after some words."""
    if not words:
        yield from [*COMMANDS, *(["--completion", "--help", "--version"] if typed.startswith("-") else [])]
        return
    if words[0] == "--completion":
        yield from SCRIPTS
        return
    command, *words = words
    if command == "submit" and (begins := next((at for at, word in enumerate(words) if word in COMMANDS), None)) is not None:
        yield from _offered(words[begins:], typed)
        return
    n_alone = sum("=" not in word and not word.startswith("-") for word in words)
    command = "train" if command == "resume" and n_alone else command  # what is said of it is now otherwise
    before = words[-1] if words else ""
    if command not in COMMANDS or before == "--config":
        return
    known = _remembered(command, _command)
    settings: dict[str, Values] = known["settings"]
    if "algorithm" in settings and "algorithm." in f"{before} {typed}":
        settings = settings | _of_algorithm(words)

    def values(key: str) -> Sequence[str]:
        found = settings.get(key.removeprefix("--").replace("-", "_") if key.startswith("--") else key, ())
        return found if not isinstance(found, str) else _experiments(words) if found == "experiments" else _remembered(found, _list)

    key, equals, _ = typed.partition("=")
    if before.startswith("--") and list(given := values(before)) not in ([], ["true", "false"]):
        yield from given
    elif equals:
        yield from (f"{key}={value}" for value in values(key))
    elif typed.startswith("-"):
        yield from ("--config", "--example", "--help", "--print-config")
        yield from (f"--{name.replace('_', '-')}" for name in settings if "." not in name)
    else:
        for name in known["operands"][n_alone : n_alone + 1] or known["operands"][-1:] * known["several"]:
            yield from values(name)
        for name in (name for name in settings if name.count(".") == typed.count(".")):
            yield f"{name}="
            if any(other.startswith(f"{name}.") for other in settings):
                yield f"{name}."


def _of_algorithm(words: Sequence[str]) -> dict[str, Values]:
    """Settings of the algorithm that is chosen, on the line or in the config file; where none is, those that all have."""
    given = [word.partition("=")[2] for word in words if word.partition("=")[0] in ("algorithm", "algorithm.name", "--algorithm")]
    for before, word in itertools.pairwise(words):
        given += [word] if before == "--algorithm" else []
        with suppress(OSError):
            given += _NAMED.findall(Path(word).read_text("utf-8", errors="replace"))[:1] if before == "--config" else []
    found = _remembered(f"algorithm {next(iter(given), '')}", _algorithm)
    return {f"algorithm.{name}": values for name, values in {"name": "algorithms", **found}.items()}


def _experiments(words: Sequence[str]) -> list[str]:
    """Names of those that lie in the storage that is said, or in the usual one."""
    said = (word.partition("=")[2] for word in words if word.partition("=")[0] in ("storage", "--storage"))
    try:
        return [one.name for one in Path(next(said, "d3ray_results")).expanduser().iterdir() if (one / "experiment.json").exists()]
    except OSError:
        return []


def _remembered(key: str, make: Callable[[str], Any]) -> Any:
    """Return `make(key)`, from the cache if d3ray has not changed since."""
    cache = Path(os.environ.get("D3RAY_CACHE") or "~/.cache/d3ray").expanduser() / "completion.json"
    known = dict[str, Any]()
    with suppress(OSError, ValueError):
        known = json.loads(cache.read_text("utf-8"))
    if known.get("of") != _stamp():
        known = {"of": _stamp()}
    if key not in known:
        known[key] = make(key)
        with suppress(OSError):
            cache.parent.mkdir(parents=True, exist_ok=True)
            aside = cache.with_suffix(f".{os.getpid()}")
            aside.write_text(json.dumps(known), "utf-8")
            aside.replace(cache)
    return known[key]


@functools.cache
def _stamp() -> list[Any]:
    """Which d3ray this is: where, and when a file of it was changed last."""
    files = (file for room in ("data", "algos", "platform", "jobs") for file in (_ROOT / room).rglob("*.py"))
    return [str(_ROOT), max(file.stat().st_mtime_ns for file in files)]


def _command(name: str) -> dict[str, Any]:
    from .options import operands

    config_class = load(name)[1]
    marks = operands(config_class)
    alone = [operand for operand, mark in marks.items() if mark != "rest"]
    return {"settings": _values_of(config_class, name), "operands": alone, "several": "several" in marks.values()}


def _algorithm(key: str) -> dict[str, Values]:
    from ...algos import registry
    from ...algos.config import AlgorithmConfig

    name = key.partition(" ")[2]
    if name not in (*registry.algorithm_names(), *registry.online_names()):
        return _values_of(AlgorithmConfig)
    found = registry.algorithm_class(name)
    return {"preset": list(found.presets), **_values_of(found.Config)}


def _values_of(config_class: Any, command: str = "") -> dict[str, Values]:
    """By setting the words that it may be, or what it names one of."""
    from .describe import settings

    found = dict[str, Values]()
    for name, schema in settings(config_class):  # members of a union may each have one of that name
        kind = (_LISTS.get(f"{command} {name}") or _LISTS.get(name)) if command else None
        found[name] = kind or list(dict.fromkeys([*found.get(name, ()), *schema["values"]]))
        found |= {schema["also"]: found[name]} if "also" in schema else {}
    return found


def _list(name: str) -> list[str]:
    if name == "datasets":
        from ...data.catalog import catalog

        return catalog().single_names()
    if name == "suites":
        from ...platform.benchmark.suite import suite_names

        return suite_names()
    if name == "algorithms":
        from ... import algos  # noqa: F401  # pyright: ignore[reportUnusedImport] - makes d3ray's own known by their names
        from ...platform.subjects.kind import subject_names

        return subject_names()
    return [command for command in COMMANDS if command not in FROM_HERE]


def main(line: str) -> None:
    for word in answer(line, os.environ.get("D3RAY_BREAKS", "")):
        print(word)
