"""Writes what is repeated from the code: a page for each algorithm, each job's options between two markers, ray_cluster.yaml.

python docs/generate.py          # the tests fail where a document is not as this would write it
"""

from __future__ import annotations

import inspect
import json
import re
import runpy
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from d3ray.algos.behaviour.behaviour_model import BehaviourConfig, BehaviourModel
from d3ray.algos.config import AlgorithmConfig
from d3ray.algos.networks.encoders import DefaultEncoder
from d3ray.algos.registry import algorithm_class, algorithm_names, online_names
from d3ray.data.doctor import KINDS, SEVERITIES
from d3ray.jobs.command.commands import load
from d3ray.jobs.command.describe import help_text
from d3ray.platform.cluster.description import Description

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
PEERS = {
    "d3rlpy": "d3rlpy 2.8.1",
    "pfrl": "PFRL 0.4.0",
    "slow": "a slow version in float64, by loops over single samples",
    "jax": "the same equations written in JAX",
}
INTERVAL = runpy.run_path(str(RESULTS.parent / "significance.py"))["interval"]
OPEN = (
    "Studies named *open* have `decoder_output` = `linear`: the behaviour's decoder ends without tanh, like d3rlpy's. They were "
    "added after the others had been seen."
)
MODEL = "behaviour_model"
WIDTH = 132
IMAGES = " (images: convolutions first)"
LABELLED = ("batch_size", "q_function")  # settings of a speed row that its label has, as it has its layers
LIMITS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
FINDINGS = re.compile(r"(<!-- findings of the doctor, written by generate\.py -->\n).*?(<!-- end -->)", re.DOTALL)
OPTIONS = re.compile(r"(<!-- options of (\w+), written by generate\.py -->\n).*?(<!-- end -->)", re.DOTALL)


def documents() -> dict[Path, str]:
    """Every document that is written here, with its content."""
    made = {DOCS / "algorithms" / f"{name}.md": page(name) for name in ours()}
    made[DOCS / "algorithms" / f"{MODEL}.md"] = model_page()
    made[DOCS.parent / "ray_cluster.yaml"] = Description().files_for("aws")["ray_cluster.yaml"]
    for file in sorted(DOCS.glob("*.md")):
        text = file.read_text(encoding="utf-8")
        new = OPTIONS.sub(lambda found: f"{found[1]}{options(found[2])}{found[3]}", text)
        new = FINDINGS.sub(lambda found: f"{found[1]}{findings()}{found[2]}", new)
        if OPTIONS.search(text) or FINDINGS.search(text):
            made[file] = new
    return made


def ours() -> list[str]:
    """The algorithms that have a page."""
    known = sorted([*algorithm_names(), *online_names()])
    return [name for name in known if algorithm_class(name).__module__.startswith("d3ray.")]


def options(job: str) -> str:
    """What `d3ray JOB --help` prints, long lines wrapped."""
    lines = help_text(job, load(job)[1]).splitlines()
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
        f"`from d3ray import {name}`; the code is {code(module)}.",
        "",
        *block(about, name),
        "## Settings",
        "",
        *settings(algorithm.Config, algorithm.exemptions),
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


def code(module: Any) -> str:
    """A link to a module's file, from a page below docs/algorithms."""
    file = Path(module.__file__).resolve().relative_to(DOCS.parent.resolve())
    return f"[{file.name}](../../{file.as_posix()})"


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
        *textwrap.wrap(f"{users} have it; the code is {code(module)}.", WIDTH, break_long_words=False),
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


def settings(config: Any, unused: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """A list of the fields of a config; `unused`: why some have no effect."""
    for setting, field in config.model_fields.items():
        why = f"; no effect: {unused[setting]}" if setting in unused else ""
        origin = "" if why and setting in AlgorithmConfig.model_fields else source(field)
        yield from item(f"`{setting}` = {shown(field.default)}{limits(field)}: {field.description}{why}", origin)


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
        return f"`{json.dumps(entries)}`{IMAGES if isinstance(value, DefaultEncoder) else ''}"
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
    """The largest difference from each peer, over all tensors of all its rows, and what had to be brought in line for it."""
    rows = [row for row in read("fidelity.json")["rows"] if row["algorithm"] == name]
    lines: list[str] = []
    for peer in dict.fromkeys(row["peer"] for row in rows):
        mine = [row for row in rows if row["peer"] == peer]
        worst = max(value for row in mine for value in row["tensors"].values())
        lines.append(
            f"- Beside {PEERS[peer]}, from the same weights, batch and random numbers: losses, gradients and new weights differ by "
            f"at most {worst:.1e} of a tensor's norm ({'; '.join(row['label'] for row in mine)})."
        )
        for differs in dict.fromkeys(row["difference"] for row in mine if row["difference"]):
            labels = "; ".join(row["label"] for row in mine if row["difference"] == differs)
            lines.append(f"- After bringing in line what no setting can ({labels}): {differs}.")
    return [*lines, ""] if lines else []


def learning(name: str) -> list[str]:
    """Last scores of its studies, and of d3rlpy's side of them."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for cell in map(json.loads, (RESULTS / "learning.jsonl").read_text(encoding="utf-8").splitlines()):
        if cell["protocol"]["algorithm"]["name"] == name:
            cells[cell["study"], cell["side"]].append(cell)
    if not cells:
        return ["No learning study yet.", ""]
    head = ["study", "environment", "side", "settings", "gradient steps", "seeds", "mean return after the last step, 95 %"]
    head += ["least to most", "the data's mean return", "random actions"]
    rows = [head, ["---"] * len(head), *(scores(study, side, found) for (study, side), found in cells.items())]
    told = [
        "± is half of Student's 95 % interval over the seeds. Settings that are not named are each side's defaults.",
        *([OPEN] if any("-open" in study for study, _ in cells) else []),
        "Studies stand in [learning.md](../../benchmarks/results/learning.md), with what may be read from them.",
    ]
    return [*("| " + " | ".join(row) + " |" for row in rows), "", " ".join(told), ""]


def scores(study: str, side: str, cells: list[dict[str, Any]]) -> list[str]:
    """A row of that table."""
    protocol, last = cells[0]["protocol"], [cell["last"] for cell in cells]
    chosen = {key: value for key, value in protocol["algorithm"].items() if key != "name"}
    mean, half = INTERVAL(last)
    by_chance = read("at_random.json")[protocol["environment"]][str(protocol["episodes"])]
    return [
        study,
        protocol["environment"],
        side,
        ", ".join(f"`{key}` = `{value if isinstance(value, str) else json.dumps(value)}`" for key, value in chosen.items()),
        f"{protocol['n_steps']:,}",
        str(len(cells)),
        f"{mean:,.1f}" if len(cells) == 1 else f"{mean:,.1f} ± {half:,.1f}",
        f"{min(last):,.1f} to {max(last):,.1f}",
        f"{cells[0]['data_return']:,.1f}" if protocol["data"] else "",
        f"{by_chance:,.1f}",
    ]


def speed(name: str) -> list[str]:
    """Updates a second beside d3rlpy's, what else was timed, and with which settings."""
    report = read("speed.json")
    rows = [row for row in report["results"] if row.get("algorithm") == name]
    lines = [timed(row, 2 * report["machine"]["cores"]) for row in rows]
    lines += [limit(found) for found in report["spent"] if found.get("algorithm") == name]
    if not lines:
        return []
    ran = ", or ".join(dict.fromkeys(ran_with(name, row["settings"]) for row in rows))
    same = "batch, layers and warm-up" if any("warmup_steps" in row["settings"] for row in rows) else "batch and layers"
    beside = any(row["sides"]["b"] == "d3rlpy" for row in rows)
    theirs = f" d3rlpy ran with its defaults, but for the same {same}." if beside else ""
    told = f"d3ray ran with the batch and layers of the label and {ran}.{theirs}"
    return [*lines, "", f"{told} Both sides in one run, in turn: [speed.md](../../benchmarks/results/speed.md)."]


def timed(row: dict[str, Any], crowd: int) -> str:
    """A ratio in words; `crowd`: the load from which a machine is called busy."""
    ratio, sides = row["ratio"], row["sides"]
    busy = row["load_average"] > crowd and row["processor_ratio"] is not None
    processor = f"; {row['processor_ratio']:.2f} by processor time, for the machine was busy" if busy else ""
    spread = f"({ratio['min']:.2f} to {ratio['max']:.2f}{processor})"
    missed = f"; the target, {row['at_least']:g}, was NOT met" if row["met"] is False else ""
    does = f"{sides['a']} has {ratio['median']:.2f} times the speed of {sides['b']} {spread}"
    if row["unit"] == "seed-updates/s":
        seeds = int(sides["a"].partition(" ")[0])
        does = (
            f"{seeds} stacked seeds do {ratio['median']:.2f} times the seed-updates a second of one alone {spread}: "
            f"all {seeds} take {seeds / ratio['median']:.1f} times as long as one"
        )
    return f"- {row['label']}, {row['device']} ({row['cpu']}): {does}{missed}."


def ran_with(name: str, settings: dict[str, Any]) -> str:
    """The settings of a speed row, less those that its label has, and what their preset changes."""
    algorithm: Any = algorithm_class(name)
    chosen = {key: value for key, value in settings.items() if key not in ("name", "preset", *LABELLED)}
    others = ", ".join(f"`{key}` = {shown(value)}" for key, value in chosen.items())
    if "preset" not in settings:
        return f"its defaults{f' but for {others}' if others else ''}"
    changes = [
        changed(key, value, algorithm.Config.model_fields[key].default)
        for key, value in algorithm.presets[settings["preset"]].settings.items()
        if key not in (*LABELLED, *chosen) and not key.endswith("encoder")
    ]
    told = f"not its defaults: {'; '.join(changes)}" if changes else "its defaults"
    return f"preset `{settings['preset']}` ({told}){f' with {others}' if others else ''}"


def changed(key: str, value: Any, default: Any) -> str:
    """What a preset changes; of what has settings of its own the name is enough."""
    if isinstance(default, BaseModel):
        return f"`{key}`"
    return f"`{key}` = {shown(value)}, by default {shown(default)}"


def limit(found: dict[str, Any]) -> str:
    """Where an update's time goes, and what the speed of matrix products leaves to be gained."""
    part, share = found["products"] / found["update"], found["flop"] / found["large"] / found["update"]
    gain = f"; were only they left, as fast as one large product, it would be {1 / share:.2f} times as fast" if share < part else ""
    return f"- {found['label']}, {found['device']} ({found['cpu']}): matrix products take {part:.0%} of an update{gain}."


def read(name: str) -> Any:
    """A file of results."""
    return json.loads((RESULTS / name).read_text())


if __name__ == "__main__":
    for file, content in documents().items():
        file.parent.mkdir(exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != content:
            file.write_text(content, encoding="utf-8")
            print(f"wrote {file.resolve().relative_to(DOCS.parent.resolve())}")
