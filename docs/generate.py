"""Writes what the documents repeat from the code: a page for each algorithm, and each job's options between two markers.

python docs/generate.py          # the tests fail where a document is not as this would write it
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import BaseModel

from d3ray.algos.behaviour_model import BehaviourConfig, BehaviourModel
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.data.doctor import KINDS, SEVERITIES
from d3ray.jobs.base import job_names, load_job
from d3ray.jobs.describe import help_text

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
PEERS = {"d3rlpy": "d3rlpy 2.8.1", "pfrl": "PFRL 0.4.0", "slow": "a slow version in float64, by loops over single samples"}
MODEL = "behaviour_model"
WIDTH = 132
LIMITS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
FINDINGS = re.compile(r"(<!-- findings of the doctor, written by generate\.py -->\n).*?(<!-- end -->)", re.DOTALL)
OPTIONS = re.compile(r"(<!-- options of (\w+), written by generate\.py -->\n).*?(<!-- end -->)", re.DOTALL)


def documents() -> dict[Path, str]:
    """Every document that is written here, with its content."""
    made = {DOCS / "algorithms" / f"{name}.md": page(name) for name in ours()}
    made[DOCS / "algorithms" / f"{MODEL}.md"] = model_page()
    for file in sorted(DOCS.glob("*.md")):
        text = file.read_text(encoding="utf-8")
        new = OPTIONS.sub(lambda found: f"{found[1]}{options(found[2])}{found[3]}", text)
        new = FINDINGS.sub(lambda found: f"{found[1]}{findings()}{found[2]}", new)
        if OPTIONS.search(text) or FINDINGS.search(text):
            made[file] = new
    return made


def ours() -> list[str]:
    """The algorithms that have a page."""
    return [name for name in algorithm_names() if algorithm_class(name).__module__.startswith("d3ray.")]


def options(job: str) -> str:
    """What `d3ray JOB --help` prints, long lines wrapped."""
    lines = help_text(job, load_job(job)[1], job_names()[job]).splitlines()
    wrapped = [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent="      ") or [""]]
    return "\n".join(["```text", *wrapped, "```", ""])


def findings() -> str:
    """The table of what the doctor finds."""
    rows = [
        f"| `{name}` | {kind.severity} | {kind.title} | {kind.meaning} | {kind.remedy} |"
        for name, kind in sorted(KINDS.items(), key=lambda item: SEVERITIES.index(item[1].severity))
    ]
    return "\n".join(["| name | at most | what is there | what it means | what mends it |", "|---|---|---|---|---|", *rows, ""])


def page(name: str) -> str:
    """An algorithm's page: its module's docstring, its class's, its settings and presets."""
    algorithm: Any = algorithm_class(name)
    module = inspect.getmodule(algorithm)
    title, _, about = inspect.getdoc(module).partition("\n")
    lines = [
        f"# {name}",
        "",
        "<!-- Written by docs/generate.py from the algorithm's file. -->",
        "",
        f"{title}",
        "",
        f"{inspect.getdoc(algorithm)}",
        "",
        f"`from d3ray import {name}`; the code is [{Path(module.__file__).name}](../../algos/{Path(module.__file__).name}).",
        "",
        *block(about, name),
        "## Settings",
        "",
        *settings(algorithm.Config),
        "",
        "## Presets",
        "",
    ]
    for preset, values in algorithm.presets.items():
        changes = ", ".join(f"`{key}` = {shown(value)}" for key, value in values.settings.items())
        lines += item(f"`{preset}`: {changes or 'the defaults'}", values.source)
    if seen := evidence(name):
        lines += ["", "## Evidence", "", *wrapped(seen)]
    return "\n".join(lines) + "\n"


def model_page() -> str:
    """The page of the behaviour model that several algorithms share."""
    module = inspect.getmodule(BehaviourModel)
    title, _, about = inspect.getdoc(module).partition("\n")
    users = ", ".join(f"[{name}]({name}.md)" for name in ours() if issubclass(algorithm_class(name), BehaviourModel))
    lines = [
        "# Behaviour model",
        "",
        "<!-- Written by docs/generate.py from the model's file. -->",
        "",
        *textwrap.wrap(title, WIDTH),
        "",
        *textwrap.wrap(f"{users} have it; the code is [{MODEL}.py](../../algos/{MODEL}.py).", WIDTH, break_long_words=False),
        "",
        *block(about, MODEL),
        "## Settings",
        "",
        "Defaults of some algorithms differ, as their pages say.",
        "",
        *settings(BehaviourConfig),
    ]
    return "\n".join(lines) + "\n"


def block(about: str, page: str) -> list[str]:
    """A docstring's text as it is, but for files that have a page, which it names instead; then links to those."""
    names = {algorithm_class(name).__module__.rpartition(".")[2]: name for name in ours()} | {MODEL: "the behaviour model"}
    named: dict[str, str] = {}

    def replaced(found: re.Match[str]) -> str:
        gap, file = found[1], found[2]
        if file not in names:
            return found[0]
        name, target = names[file], MODEL if file == MODEL else names[file]
        if target != page:
            named[name] = target
        return gap + (name.rjust(len(file) + 5) if len(gap) > 1 else name)  # what stands at a line's end stays there

    text = re.sub(r"( *)`(\w+)\.py`", replaced, about.strip("\n"))
    links = ", ".join(f"[{name}]({target}.md)" for name, target in named.items())
    return ["```text", text, "```", "", *([f"Named there: {links}.", ""] if links else [])]


def settings(config: Any) -> Iterator[str]:
    """A list of the fields of a config."""
    for setting, field in config.model_fields.items():
        yield from item(f"`{setting}` = {shown(field.default)}{limits(field)}: {field.description}", source(field))


def wrapped(lines: list[str]) -> Iterator[str]:
    """Long lines of text in several; rows of a table as they are."""
    for line in lines:
        indent = "  " if line.startswith("- ") else ""
        yield from [line] if line.startswith("|") else textwrap.wrap(line, WIDTH, subsequent_indent=indent) or [""]


def item(text: str, origin: str) -> Iterator[str]:
    """An entry of a list with where it comes from, wrapped."""
    text = f"{text}. *{origin}.*" if origin else f"{text}."
    return iter(textwrap.wrap(text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False))


def shown(value: Any) -> str:
    """A value as it is written in a config."""
    if isinstance(value, BaseModel):
        entries = {key: entry for key, entry in value.model_dump(mode="json").items() if entry not in (None, False)}
        return f"`{json.dumps(entries)}`"
    return f"`{value if isinstance(value, str) else repr(value)}`"


def limits(field: Any) -> str:
    """The range of a number, as " (> 0, ≤ 1)"."""
    found = [
        f"{sign} {getattr(limit, name):g}" for limit in field.metadata for name, sign in LIMITS.items() if hasattr(limit, name)
    ]
    return f" ({', '.join(found)})" if found else ""


def source(field: Any) -> str:
    """Where a default comes from, as its setting says."""
    return field.json_schema_extra.get("source", "") if isinstance(field.json_schema_extra, dict) else ""


# ---- what was measured, from the results that the benchmarks left


def evidence(name: str) -> list[str]:
    """Lines of a page: losses and gradients beside peers', returns, speed; what was not measured is not there."""
    return [*fidelity(name), *learning(name), *speed(name)]


def fidelity(name: str) -> list[str]:
    """The largest difference from each peer, over all tensors of all its rows."""
    rows = [row for row in read("fidelity.json")["rows"] if row["algorithm"] == name]
    lines: list[str] = []
    for peer in dict.fromkeys(row["peer"] for row in rows):
        mine = [row for row in rows if row["peer"] == peer]
        worst = max(value for row in mine for value in row["tensors"].values())
        lines.append(
            f"- Beside {PEERS[peer]}, from the same weights, batch and random numbers: losses, gradients and new weights differ by "
            f"at most {worst:.1e} of a tensor's norm ({'; '.join(row['label'] for row in mine)})."
        )
    return [*lines, ""] if lines else []


def learning(name: str) -> list[str]:
    """Last scores of its studies, and of d3rlpy's side of them."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for file in sorted((RESULTS / "learning").glob("*.json")):
        cell = json.loads(file.read_text())
        if cell["protocol"]["algorithm"]["name"].removeprefix("Open") == name:  # benchmarks/as_d3rlpy.py has those
            cells[cell["study"], cell["side"]].append(cell)
    rows = [
        f"| {study} | {side} | {found[0]['protocol']['n_steps']:,} | {len(found)} | {fmean(cell['last'] for cell in found):,.1f} | "
        f"{min(cell['last'] for cell in found):,.1f} to {max(cell['last'] for cell in found):,.1f} |"
        for (study, side), found in cells.items()
    ]
    head = [
        "| study | side | gradient steps | seeds | mean return after the last step | least to most |",
        "|---|---|---|---|---|---|",
    ]
    told = "Studies and their settings stand in [learning.md](../../benchmarks/results/learning.md)."
    return [*head, *rows, "", told, ""] if rows else []


def speed(name: str) -> list[str]:
    """Updates a second beside d3rlpy's, and what else was timed."""
    report = read("speed.json")
    lines: list[str] = []
    for row in (row for row in report["results"] if row.get("algorithm") == name):
        busy = row["load_average"] > 2 * report["machine"]["cores"] and row["processor_ratio"] is not None
        processor = f"; {row['processor_ratio']:.2f} by processor time, for the machine was busy" if busy else ""
        lines.append(
            f"- {row['label']}, {row['device']}: {row['sides']['a']} has {row['ratio']['median']:.2f} times the speed of "
            f"{row['sides']['b']} ({row['ratio']['min']:.2f} to {row['ratio']['max']:.2f}{processor})."
        )
    lines += [limit(found) for found in report["spent"] if found.get("algorithm") == name]
    told = "Both sides in one run, in turn: [speed.md](../../benchmarks/results/speed.md)."
    return [*lines, "", told] if lines else []


def limit(found: dict[str, Any]) -> str:
    """Where an update's time goes, and what the speed of matrix products leaves."""
    part, share = found["products"] / found["update"], found["flop"] / found["large"] / found["update"]
    return (
        f"- {found['label']}, {found['device']}: matrix products take {part:.0%} of an update; at the speed of a large one they "
        f"would take {share:.0%} of its time, so it could be {max(1.0, 1 / share):.2f} times as fast, "
        "were all else free."
    )


def read(name: str) -> Any:
    """A file of results."""
    return json.loads((RESULTS / name).read_text())


if __name__ == "__main__":
    for file, content in documents().items():
        file.parent.mkdir(exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != content:
            file.write_text(content, encoding="utf-8")
            print(f"wrote {file.relative_to(DOCS.parent)}")
