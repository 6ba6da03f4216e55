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
    from ...platform.record.status import ConfigurationStatus, SeedStatus, Status, TrialStatus

_STYLES = {"RUNNING": "cyan", "PENDING": "dim", "FINISHED": "green", "FAILED": "red", "KILLED": "yellow", "STOPPED": "yellow"}
_ORDER = ("RUNNING", "PENDING", "FINISHED", "STOPPED", "KILLED", "FAILED")
_FEWEST = 3  # rows of the table, however low the terminal
_MOST_FAULTS = 3


@dataclass(frozen=True)
class Drawing:
    """A status as rich draws it: as wide and as high as it may be."""

    status: Status  # what is drawn
    rows: int | None = None  # of the table at most; None: as many as the terminal has room for
    advice: bool = True  # whether what to do next is said

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        head, faults = _head(self.status, width, advice=self.advice), _faults(self.status, width)
        height = options.height or console.size.height - 1
        if self.rows is None and height < len(head) + len(faults) + _FEWEST + 3:
            faults = faults[1:3]
        free = height - len(head) - len(faults) - 2  # a blank line, the table's heading
        yield from head
        if self.status.trials:
            yield Text()
            yield from _table(self.status, width, max(free, _FEWEST) if self.rows is None else self.rows)
        yield from faults


# ---- in parts


def _head(status: Status, width: int, *, advice: bool) -> list[Text | Table]:
    """Summarise the whole in three to six lines."""
    doing = "running for" if status.is_running else "took" if status.state == "FINISHED" else "after"
    state = _state(status.state) if status.state != "RUNNING" else Text()
    left = Text.assemble((status.name, "bold"), "  ", state, *(["  "] if state else []), f"{doing} {duration(status.elapsed)}")
    lines: list[Text | Table] = [*_two_sided(left, Text(time_left(status), style="dim" if status.eta is None else ""), width)]
    if status.reason and status.state != "RUNNING":
        lines.append(_cropped(Text(sentence(status.reason), style=_STYLES[status.state]), width))
    if advice and status.advice:
        lines += Text(status.advice, style="bold").wrap(Console(width=width), width)
    if status.trials:
        speed = f"  {status.rate:,.0f} updates/s" if status.rate else ""
        percent = f"  {_percent(status.share)}"
        bar = Table.grid()
        bar.add_column(width=max(width - len(speed) - len(percent), 5))
        bar.add_row(ProgressBar(total=1.0, completed=status.share, complete_style="cyan", finished_style="green"), percent + speed)
        lines.append(bar)
        lines += Text(counted(status)).wrap(Console(width=width), width)
    if (best := best_words(status)) and len(status.configurations) > 1:
        lines.append(_cropped(Text.assemble("Best so far: ", (best, "bold")), width))
        if status.best is not None and status.best.label:
            lines.append(_cropped(Text(f"             {_named(status.best)}"), width))
    elif best:
        lines.append(_cropped(Text.assemble("Mean over seeds: ", (best, "bold")), width))
    lines += [_cropped(Text(trouble, style="red"), width) for trouble in list(status.trouble)[:2]]
    return lines


def _faults(status: Status, width: int) -> list[Text]:
    found = [
        Text.assemble(
            (f"{_clock(fault.at)}  ", "dim"),
            (f"{'' if fault.number is None else f'#{fault.number} '}{seeds_words(fault.seeds)}: {fault.reason}", "red"),
        )
        for fault in status.errors[:_MOST_FAULTS]
    ]
    more = len(status.errors) - len(found)
    title = f"Last errors{f' ({more} more)' if more > 0 else ''}:"
    return [Text(), Text(title), *(_cropped(line, width) for line in found)] if found else []


def _table(status: Status, width: int, n_rows: int) -> list[Table | Text]:
    """Rows and what is left out of them: a row a seed where there is one configuration, else a row a configuration."""
    if len(status.configurations) == 1:
        rows = [(trial, seed) for trial in status.trials for seed in trial.seeds]
        shown = rows if len(rows) <= n_rows else rows[: n_rows - 1]
        return [_seed_table(status, shown, width), *_more(len(rows) - len(shown), "seeds")]
    everything = list(status.configurations)
    if len(everything) <= n_rows:
        return [_sweep_table(status, everything, width)]
    chosen = _telling(status, n_rows - 1)
    return [_sweep_table(status, chosen, width), *_more(len(everything) - len(chosen), "configurations")]


def _telling(status: Status, n: int) -> list[ConfigurationStatus]:
    """Select what runs, in order, for at most half of the rows if there are others; then the best of the others."""
    running = [one for one in status.configurations if one.state == "RUNNING"]
    others = [one for one in status.ranked if one.state != "RUNNING"]
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


def _seed_table(status: Status, rows: Sequence[tuple[TrialStatus, SeedStatus]], width: int) -> Table:
    metric = _short_metric(status)
    names = (("seed", 5, 0, True), ("state", 8, 0, False), ("step", 11, 0, True), ("done", 5, 50, True))
    valued = ((metric, max(len(metric), 9), 0, True),) if status.metric else ()
    room = 72 if valued else 60  # the width from which the first loss fits beside the rest
    titles = [name.rpartition("/")[2][:16] for name in status.losses]
    losses = [(title, max(len(title), 9), room + 20 * k, True) for k, title in enumerate(titles)]
    table, kept = _columns(width, *names, *valued, *losses, ("updates/s", 9, 60, True), ("", 0, 0, False))
    for trial, seed in rows:
        state = "FAILED" if seed.reason else trial.state
        rate = trial.rate / len(trial.seeds) if trial.rate and trial.state == "RUNNING" else None
        cells = [str(seed.seed), _state(state), f"{trial.step:,}", _percent(trial.step / trial.n_steps)]
        cells += [number(seed.score)] if status.metric else []
        cells += [number(seed.losses.get(name)) for name in status.losses]
        cells += [f"{rate:,.0f}" if rate else "", _remark(trial, seed)]
        table.add_row(*(cell for cell, keep in zip(cells, kept, strict=True) if keep))
    return table


def _remark(trial: TrialStatus, seed: SeedStatus) -> str:
    if seed.reason:
        return seed.reason
    if trial.reason and not trial.failed:
        return trial.reason
    return f"attempt {trial.attempts}" if trial.attempts > 1 and not trial.ended else ""


def _sweep_table(status: Status, rows: Sequence[ConfigurationStatus], width: int) -> Table:
    from ...platform.statistics import interval_name

    metric = _short_metric(status)
    names = (("#", 5, 0, True), ("state", 8, 0, False), ("step", 9, 45, True))
    valued = (
        ((metric, max(len(metric), 9), 0, True), (interval_name(*(len(one.scores) for one in rows)), 20, 90, True))
        if status.metric
        else ()
    )
    columns = (*names, *valued, ("updates/s", 9, 100, True))
    free = width - sum(size + 2 for _, size, least, _ in columns if width >= least)
    searched = _searched(rows, free)
    table, kept = _columns(width, *columns, *((name, size, 0 if size else 50, size > 0) for name, size in searched))
    for one in rows:
        state = "STOPPED" if one.was_stopped else one.state
        cells: list[Text | str] = ["" if one.number is None else str(one.number), _state(state), f"{one.step:,}"]
        cells += [number(one.value), interval(one.interval)] if status.metric else []
        cells += [f"{one.rate:,.0f}" if one.rate else ""]
        cells += [one.chosen.get(name, "") for name, size in searched if size] or [one.label]
        style = "bold" if one is status.best else ""
        table.add_row(*(cell for cell, keep in zip(cells, kept, strict=True) if keep), style=style)
    return table


def _searched(rows: Sequence[ConfigurationStatus], free: int) -> list[tuple[str, int]]:
    """A column for each setting, with its width, where they fit; else one of all that is left, in which names stand too."""
    names = {name: None for one in rows for name in one.chosen}
    sizes = {name: max(len(name), *(len(one.chosen.get(name, "")) for one in rows)) for name in names}
    fits = names and sum(size + 2 for size in sizes.values()) <= free
    return [*sizes.items()] if fits else [("searched", 0)]


# ---- in words


def line(status: Status) -> str:
    words = [f"{_percent(status.share)} of {_work(status)}"] if status.trials else [status.state.lower()]
    if status.rate:
        words.append(f"{status.rate:,.0f} updates/s")
    if status.is_running:
        words.append(time_left(status))
    words = [", ".join(words), _by_state(status)]
    if best := best_words(status):
        which = _named(status.best) if status.best is not None and len(status.configurations) > 1 else ""
        words.append(f"best {best}{f', {which}' if which else ''}")
    elif len(status.configurations) == 1:
        words.append(losses_words([seed.losses for trial in status.trials for seed in trial.seeds]))
    return f"{status.name}: {'; '.join(word for word in words if word)}"


def end_of(status: Status, trial: TrialStatus) -> str:
    named = (f"{trial.title}, " if trial.title else "") if trial.number is None else f"#{trial.number} ({trial.label}), "
    which = f"{named}{seeds_words([seed.seed for seed in trial.seeds])}"
    state = "STOPPED" if trial.was_stopped else trial.state
    scores = ", ".join(number(seed.score) for seed in trial.seeds if seed.score is not None)
    measured = f", {status.metric} {scores}" if scores else ""
    if not scores and (losses := losses_words([seed.losses for seed in trial.seeds])):
        measured = f", {losses}"
    return f"{status.name}: {which} {state.lower()} at step {trial.step:,}{measured}{f': {trial.reason}' if trial.reason else ''}"


def summary(status: Status) -> str:
    """An experiment among others, in one line."""
    best = best_words(status)
    words = [
        f"{status.name}: {status.state.lower()}",
        _percent(status.share) if status.trials else "no trials yet",
        _by_state(status),
    ]
    return ", ".join(word for word in [*words, f"best {best}" if best else ""] if word)


def best_words(status: Status) -> str:
    from ...platform.statistics import interval_name

    if (best := status.best) is None:
        return ""
    words = [
        f"{status.metric} {number(best.value)}",
        *([f"{interval_name(len(best.scores))} {interval(best.interval)}"] if best.interval else []),
    ]
    words.append(f"{len(best.scores)} seed{'s' * (len(best.scores) > 1)}")
    going = best.state != "FINISHED" and len(status.configurations) > 1
    return ", ".join(words + ([f"step {best.step:,}"] if going else []))


def losses_words(seeds: Sequence[Mapping[str, float | None]]) -> str:
    """Losses of some seeds, their mean where there are several: critic_loss 0.3120, actor_loss -1.250."""
    shown: list[str] = []
    for name in dict.fromkeys(name for losses in seeds for name in losses):
        values = [value for losses in seeds if (value := losses.get(name)) is not None]
        shown.append(f"{name.rpartition('/')[2]} {number(sum(values) / len(values) if values else None)}")
    return ", ".join(shown)


def counted(status: Status) -> str:
    return f"{_work(status)}: {_by_state(status)}{_limits(status)}"


def _work(status: Status) -> str:
    n, expected = len(status.configurations), status.expected
    if n == 1 and expected is None:
        seeds = sum(len(trial.seeds) for trial in status.trials)
        return f"{seeds} seed{'s' * (seeds > 1)} of {status.trials[0].n_steps:,} updates"
    of = f" of {expected:,}" if expected is not None and expected != n else ""
    return f"{n:,}{of} configuration{'s' * (n > 1 or bool(of))}"


def _by_state(status: Status) -> str:
    """In configurations where there are several, else in trials."""
    if len(status.configurations) > 1:
        states = ["STOPPED" if one.was_stopped else one.state for one in status.configurations]
        counts = {state: states.count(state) for state in _ORDER}
    else:
        counts = status.counts
    return ", ".join(f"{counts[state]:,} {state.lower()}" for state in _ORDER if counts.get(state))


def _limits(status: Status) -> str:
    words = [
        f"{status.budget.spent.get(name, 0.0):.3g} of {status.budget.limits[name]:g} {unit}"
        for name, unit in (("hours", "hours"), ("gpu_hours", "GPU hours"))
        if name in status.budget.limits
    ]
    return "".join(f"; {word}" for word in words)


def time_left(status: Status) -> str:
    """The time left and when that is, or why nobody knows."""
    if not status.is_running:
        return ""
    if status.trials and status.share >= 1:
        return "finishing"
    if status.eta is None:
        return f"time left: unknown before {'training goes on' if status.updates else 'the first epoch'}"
    if status.eta == 0 and not status.may_stop:
        return "time left: unknown, this epoch takes longer than those before it"
    at = time.strftime("%H:%M" if status.eta < 20 * 3600 else "%d %b %H:%M", time.localtime(status.now + status.eta))
    return f"{'at most' if status.may_stop else 'about'} {duration(status.eta)} left, until {at}"


def seeds_words(seeds: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    listed = [", ".join(map(str, run)) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(listed)}"


def sentence(text: str) -> str:
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
    return "" if ends is None else f"[{', '.join(number(end) if abs(end) >= 1e5 else f'{end + 0.0:.4g}' for end in ends)}]"


def _named(one: ConfigurationStatus) -> str:
    return one.label if one.number is None else f"#{one.number} {one.label}".rstrip()


def _short_metric(status: Status) -> str:
    return (status.metric or "").rpartition("/")[2][:16]


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
    gap = width - left.cell_len - right.cell_len
    if gap >= 2:
        return [Text.assemble(left, " " * gap, right)]
    return [_cropped(text, width) for text in (left, right) if text]
