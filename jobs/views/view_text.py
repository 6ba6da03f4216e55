"""Draws how an experiment stands, for a terminal of any size, and says it in one line for a log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ...platform.results.status import ConfigurationView, TrialView, View

_STYLES = {"RUNNING": "cyan", "PENDING": "dim", "FINISHED": "green", "FAILED": "red", "KILLED": "yellow", "STOPPED": "yellow"}
_ORDER = ("RUNNING", "PENDING", "FINISHED", "STOPPED", "KILLED", "FAILED")
_FEWEST = 3  # rows of the table, however low the terminal
_MOST_FAULTS = 3


@dataclass(frozen=True)
class Drawing:
    """A view as rich draws it: as wide and as high as it may be.

    Args:
        view: What is drawn.
        rows: Of the table at most; None: as many as the terminal has room for.
        advice: Whether what to do next is said.
    """

    view: View
    rows: int | None = None
    advice: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        head, faults = _head(self.view, width, advice=self.advice), _faults(self.view, width)
        height = options.height or console.size.height - 1
        if self.rows is None and height < len(head) + len(faults) + _FEWEST + 3:
            faults = faults[1:3]
        free = height - len(head) - len(faults) - 2  # a blank line, the table's heading
        yield from head
        if self.view.trials:
            yield Text()
            yield from _table(self.view, width, max(free, _FEWEST) if self.rows is None else self.rows)
        yield from faults


# ---- in parts


def _head(view: View, width: int, *, advice: bool) -> list[Text | Table]:
    """What is said of the whole: three to six lines."""
    doing = "running for" if view.is_running else "took" if view.state == "FINISHED" else "after"
    state = _state(view.state) if view.state != "RUNNING" else Text()
    left = Text.assemble((view.name, "bold"), "  ", state, *(["  "] if state else []), f"{doing} {duration(view.elapsed)}")
    lines: list[Text | Table] = [*_two_sided(left, Text(time_left(view), style="dim" if view.eta is None else ""), width)]
    if view.reason and view.state != "RUNNING":
        lines.append(_cropped(Text(sentence(view.reason), style=_STYLES[view.state]), width))
    if advice and view.advice:
        lines += Text(view.advice, style="bold").wrap(Console(width=width), width)
    if view.trials:
        speed = f"  {view.rate:,.0f} updates/s" if view.rate else ""
        percent = f"  {_percent(view.share)}"
        bar = Table.grid()
        bar.add_column(width=max(width - len(speed) - len(percent), 5))
        bar.add_row(ProgressBar(total=1.0, completed=view.share, complete_style="cyan", finished_style="green"), percent + speed)
        lines.append(bar)
        lines += Text(counted(view)).wrap(Console(width=width), width)
    if (best := best_words(view)) and len(view.configurations) > 1:
        lines.append(_cropped(Text.assemble("Best so far: ", (best, "bold")), width))
        if view.best is not None and view.best.label:
            lines.append(_cropped(Text(f"             {_named(view.best)}"), width))
    elif best:
        lines.append(_cropped(Text.assemble("Mean over seeds: ", (best, "bold")), width))
    lines += [_cropped(Text(trouble, style="red"), width) for trouble in list(view.trouble)[:2]]
    return lines


def _faults(view: View, width: int) -> list[Text]:
    """The last errors, the newest first, each in a line."""
    found = [
        Text.assemble(
            (f"{_clock(fault.at)}  ", "dim"),
            (f"{'' if fault.number is None else f'#{fault.number} '}{seeds_words(fault.seeds)}: {fault.reason}", "red"),
        )
        for fault in view.faults[:_MOST_FAULTS]
    ]
    more = len(view.faults) - len(found)
    title = f"Last errors{f' ({more} more)' if more > 0 else ''}:"
    return [Text(), Text(title), *(_cropped(line, width) for line in found)] if found else []


def _table(view: View, width: int, n_rows: int) -> list[Table | Text]:
    """Rows and what is left out of them: a row a seed where there is one configuration, else a row a configuration."""
    if len(view.configurations) == 1:
        rows = [(trial, seed) for trial in view.trials for seed in trial.seeds]
        shown = rows if len(rows) <= n_rows else rows[: n_rows - 1]
        return [_seed_table(view, shown, width), *_more(len(rows) - len(shown), "seeds")]
    everything = list(view.configurations)
    if len(everything) <= n_rows:
        return [_sweep_table(view, everything, width)]
    chosen = _telling(view, n_rows - 1)
    return [_sweep_table(view, chosen, width), *_more(len(everything) - len(chosen), "configurations")]


def _telling(view: View, n: int) -> list[ConfigurationView]:
    """What runs, in order, at most half of the rows while there are others; then the best of the others."""
    running = [one for one in view.configurations if one.state == "RUNNING"]
    others = [one for one in view.ranked if one.state != "RUNNING"]
    n_running = min(len(running), max(n - len(others), -(-n // 2)))
    return [*running[:n_running], *others[: n - n_running]]


def _more(n: int, what: str) -> list[Text]:
    return [Text(f"… and {n:,} {what} more", style="dim")] if n else []


def _columns(width: int, *names: tuple[str, int, int, bool]) -> tuple[Table, list[bool]]:
    """A table of the columns that fit: (heading, width, from which width of the terminal on, on the right)."""
    kept = [width >= least for _, _, least, _ in names]
    stretches = any(keep and not size for (_, size, _, _), keep in zip(names, kept, strict=True))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=stretches, header_style="dim")
    for (name, size, _, right), keep in zip(names, kept, strict=True):
        if keep:
            align, ratio = "right" if right else "left", None if size else 1
            table.add_column(name, justify=align, no_wrap=True, overflow="ellipsis", width=size or None, ratio=ratio)
    return table, kept


def _seed_table(view: View, rows: Sequence[tuple[TrialView, int]], width: int) -> Table:
    metric = _short_metric(view)
    names = (("seed", 5, 0, True), ("state", 8, 0, False), ("step", 11, 0, True), ("done", 5, 50, True))
    valued = ((metric, max(len(metric), 9), 0, True),) if view.metric else ()
    room = 72 if valued else 60  # the width from which the first loss fits beside the rest
    titles = [name.rpartition("/")[2][:16] for name in view.losses]
    losses = [(title, max(len(title), 9), room + 20 * k, True) for k, title in enumerate(titles)]
    table, kept = _columns(width, *names, *valued, *losses, ("updates/s", 9, 60, True), ("", 0, 0, False))
    for trial, seed in rows:
        state = "FAILED" if seed in trial.failed else trial.state
        rate = trial.rate / len(trial.seeds) if trial.rate and trial.state == "RUNNING" else None
        cells = [str(seed), _state(state), f"{trial.step:,}", _percent(trial.step / trial.n_steps)]
        cells += [number(trial.scores.get(seed))] if view.metric else []
        cells += [number(trial.losses.get(seed, {}).get(name)) for name in view.losses]
        cells += [f"{rate:,.0f}" if rate else "", _remark(trial, seed)]
        table.add_row(*(cell for cell, keep in zip(cells, kept, strict=True) if keep))
    return table


def _remark(trial: TrialView, seed: int) -> str:
    if seed in trial.failed:
        return trial.failed[seed]
    if trial.reason and not trial.failed:
        return trial.reason
    return f"attempt {trial.attempts}" if trial.attempts > 1 and not trial.ended else ""


def _sweep_table(view: View, rows: Sequence[ConfigurationView], width: int) -> Table:
    from ...platform.statistics import interval_name

    metric = _short_metric(view)
    names = (("#", 5, 0, True), ("state", 8, 0, False), ("step", 9, 45, True))
    valued = (
        ((metric, max(len(metric), 9), 0, True), (interval_name(*(len(one.scores) for one in rows)), 20, 90, True))
        if view.metric
        else ()
    )
    columns = (*names, *valued, ("updates/s", 9, 100, True))
    free = width - sum(size + 2 for _, size, least, _ in columns if width >= least)
    searched = _searched(rows, free)
    table, kept = _columns(width, *columns, *((name, size, 0 if size else 50, size > 0) for name, size in searched))
    for one in rows:
        state = "STOPPED" if one.was_stopped else one.state
        cells: list[Text | str] = ["" if one.number is None else str(one.number), _state(state), f"{one.step:,}"]
        cells += [number(one.value), interval(one.interval)] if view.metric else []
        cells += [f"{one.rate:,.0f}" if one.rate else ""]
        cells += [one.chosen.get(name, "") for name, size in searched if size] or [one.label]
        style = "bold" if one is view.best else ""
        table.add_row(*(cell for cell, keep in zip(cells, kept, strict=True) if keep), style=style)
    return table


def _searched(rows: Sequence[ConfigurationView], free: int) -> list[tuple[str, int]]:
    """A column for each setting, with its width, where they fit; else one of all that is left, in which names stand too."""
    names = {name: None for one in rows for name in one.chosen}
    sizes = {name: max(len(name), *(len(one.chosen.get(name, "")) for one in rows)) for name in names}
    fits = names and sum(size + 2 for size in sizes.values()) <= free
    return [*sizes.items()] if fits else [("searched", 0)]


# ---- in words


def line(view: View) -> str:
    """Everything that matters in one line, for logs."""
    words = [f"{_percent(view.share)} of {_work(view)}"] if view.trials else [view.state.lower()]
    if view.rate:
        words.append(f"{view.rate:,.0f} updates/s")
    if view.is_running:
        words.append(time_left(view))
    words = [", ".join(words), _by_state(view)]
    if best := best_words(view):
        which = _named(view.best) if view.best is not None and len(view.configurations) > 1 else ""
        words.append(f"best {best}{f', {which}' if which else ''}")
    elif len(view.configurations) == 1:
        words.append(losses_words([losses for trial in view.trials for losses in trial.losses.values()]))
    return f"{view.name}: {'; '.join(word for word in words if word)}"


def end_of(view: View, trial: TrialView) -> str:
    """How a trial ended, in one line."""
    named = (f"{trial.title}, " if trial.title else "") if trial.number is None else f"#{trial.number} ({trial.label}), "
    which = f"{named}{seeds_words(trial.seeds)}"
    state = "STOPPED" if trial.was_stopped else trial.state
    scores = ", ".join(number(trial.scores[seed]) for seed in trial.seeds if seed in trial.scores)
    measured = f", {view.metric} {scores}" if scores else ""
    if not scores and (losses := losses_words(list(trial.losses.values()))):
        measured = f", {losses}"
    return f"{view.name}: {which} {state.lower()} at step {trial.step:,}{measured}{f': {trial.reason}' if trial.reason else ''}"


def summary(view: View) -> str:
    """An experiment among others, in one line."""
    best = best_words(view)
    words = [f"{view.name}: {view.state.lower()}", _percent(view.share) if view.trials else "no trials yet", _by_state(view)]
    return ", ".join(word for word in [*words, f"best {best}" if best else ""] if word)


def best_words(view: View) -> str:
    """The best value so far with its interval."""
    from ...platform.statistics import interval_name

    if (best := view.best) is None:
        return ""
    words = [
        f"{view.metric} {number(best.value)}",
        *([f"{interval_name(len(best.scores))} {interval(best.interval)}"] if best.interval else []),
    ]
    words.append(f"{len(best.scores)} seed{'s' * (len(best.scores) > 1)}")
    going = best.state != "FINISHED" and len(view.configurations) > 1
    return ", ".join(words + ([f"step {best.step:,}"] if going else []))


def losses_words(seeds: Sequence[Mapping[str, float]]) -> str:
    """Losses of some seeds, their mean where there are several: critic_loss 0.3120, actor_loss -1.250."""
    shown: list[str] = []
    for name in dict.fromkeys(name for losses in seeds for name in losses):
        values = [losses[name] for losses in seeds if name in losses]
        shown.append(f"{name.rpartition('/')[2]} {number(sum(values) / len(values))}")
    return ", ".join(shown)


def counted(view: View) -> str:
    """How many there are of each state, and the limits of a sweep."""
    return f"{_work(view)}: {_by_state(view)}{_limits(view)}"


def _work(view: View) -> str:
    n, expected = len(view.configurations), view.expected
    if n == 1 and expected is None:
        seeds = sum(len(trial.seeds) for trial in view.trials)
        return f"{seeds} seed{'s' * (seeds > 1)} of {view.trials[0].n_steps:,} updates"
    of = f" of {expected:,}" if expected is not None and expected != n else ""
    return f"{n:,}{of} configuration{'s' * (n > 1 or bool(of))}"


def _by_state(view: View) -> str:
    """In configurations where there are several, else in trials."""
    if len(view.configurations) > 1:
        states = ["STOPPED" if one.was_stopped else one.state for one in view.configurations]
        counts = {state: states.count(state) for state in _ORDER}
    else:
        counts = view.counts
    return ", ".join(f"{counts[state]:,} {state.lower()}" for state in _ORDER if counts.get(state))


def _limits(view: View) -> str:
    words = [
        f"{view.spent.get(name, 0.0):.3g} of {view.budget[name]:g} {unit}"
        for name, unit in (("hours", "hours"), ("gpu_hours", "GPU hours"))
        if name in view.budget
    ]
    return "".join(f"; {word}" for word in words)


def time_left(view: View) -> str:
    """The time left and when that is, or why nobody knows."""
    if not view.is_running:
        return ""
    if view.trials and view.share >= 1:
        return "finishing"
    if view.eta is None:
        return f"time left: unknown before {'training goes on' if view.updates else 'the first epoch'}"
    if view.eta == 0 and not view.may_stop:
        return "time left: unknown, this epoch takes longer than those before it"
    at = time.strftime("%H:%M" if view.eta < 20 * 3600 else "%d %b %H:%M", time.localtime(view.now + view.eta))
    return f"{'at most' if view.may_stop else 'about'} {duration(view.eta)} left, until {at}"


def seeds_words(seeds: Sequence[int]) -> str:
    """Seeds in a few words: seed 3; seeds 0-4, 7."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    listed = [", ".join(map(str, run)) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(listed)}"


def sentence(text: str) -> str:
    """Text as a sentence of its own."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def duration(seconds: float) -> str:
    """Seconds in words, two digits or more of them: 45 s, 8 min 5 s, 18 min, 1 h 20 min, 2 d 3 h."""
    s = round(seconds)
    for name, size, below, small in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if s >= size:
            rest = s % size // small
            return f"{s // size} {name}" + (f" {rest} {below}" if rest and s < 10 * size else "")
    return f"{s} s"


def number(value: float | None) -> str:
    """A value, short; nothing for None."""
    if value is None:
        return ""
    size = abs(value)
    for least, below, decimals in ((1e5, 1e9, 0), (1e3, 1e5, 1), (10, 1e3, 2), (1, 10, 3)):
        if least <= size < below:
            return f"{value:,.0f}" if decimals == 0 else f"{value:.{decimals}f}"
    return f"{value:.4g}"


def interval(ends: tuple[float, float] | None) -> str:
    """An interval in brackets; nothing for None."""
    return "" if ends is None else f"[{', '.join(number(end) if abs(end) >= 1e5 else f'{end + 0.0:.4g}' for end in ends)}]"


def _named(one: ConfigurationView) -> str:
    return one.label if one.number is None else f"#{one.number} {one.label}".rstrip()


def _short_metric(view: View) -> str:
    return (view.metric or "").rpartition("/")[2][:16]


def _percent(share: float) -> str:
    return f"{int(100 * share + 1e-9)} %"  # 100 only when all is done


def _state(state: str) -> Text:
    return Text(state.lower(), style=_STYLES[state])


def _clock(at: float | None) -> str:
    return time.strftime("%H:%M", time.localtime(at)) if at else "     "


def _cropped(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def _two_sided(left: Text, right: Text, width: int) -> list[Text]:
    """Both in a line, or in two where they do not fit."""
    gap = width - left.cell_len - right.cell_len
    if gap >= 2:
        return [Text.assemble(left, " " * gap, right)]
    return [_cropped(text, width) for text in (left, right) if text]
