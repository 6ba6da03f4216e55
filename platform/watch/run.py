"""One look at the log of a served policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from ...algos.judging.decisions import decisions as asked
from ...algos.judging.decisions import policy_of
from ...algos.judging.estimates import estimate
from ...algos.judging.logs import LOG_PROB, Logs, logged
from ...data.dataset import Dataset
from ...data.decision_log import read_log
from ...data.drift import Drift, drift
from ...data.errors import ConfigError, D3rayError, DataError
from ...data.uris import is_remote, label
from ..record.watch import Changed, Watched, WatchedValue
from ..tracking.registered import is_registered, pinned, registered_package
from .alarms import alarms, check_webhook
from .episodes import episodes_of, newest
from .returns import returns_over_time
from .settings import WatchSettings
from .traffic import COLUMNS, reasons, traffic

DECIDING = ("SNIPS", "WPDIS")  # estimators that need no critic: of logs of one step, and of longer episodes
NEEDED = "A value by the whole log needs the probability of each decision: serve with explore={name: epsilon, epsilon: 0.05}."

CONTINUOUS = "A policy's own continuous actions have no probability to weigh with: d3ray judge asks critics."


def look(settings: WatchSettings, say: Callable[[str], None] = print) -> Watched:
    """Look at a log once.

    Raises:
        ConfigError: the webhook is no address, there is no such dataset or model, or no folder for an alarm.
        DataError: it is no log of decisions, or the reference has other spaces.
        StorageError: something cannot be read.
    """
    check_webhook(settings.webhook)
    if settings.set_alarm and is_remote(settings.log):
        raise ConfigError(f"set_alarm writes a file that the service looks at, and {settings.log} is no folder: leave it out.")
    seen = read_log(settings.log, "decisions", columns=COLUMNS)
    data, versions, notes = episodes_of(settings)
    package = settings.champion
    if package is not None and is_registered(package):
        package = pinned(package, settings.tracking, settings.storage)
    values, named = _asked(settings, package, data)
    reference = _reference(settings, named, say)
    compared = None
    if reference is not None and data is not None:
        try:
            compared = drift(reference, newest(data, settings.last))
        except DataError as error:
            notes = [*notes, str(error)]
    changed = () if compared is None else _changed(compared, settings)
    returns = () if data is None else returns_over_time(data, versions, settings.windows)
    counts = traffic(seen)
    return Watched(
        log=settings.log,
        policy=str(seen["policy"][0]) if len(seen) else label(settings.log),
        time=time.time(),
        reference=None if reference is None else reference.name,
        compared=(0, 0) if compared is None else (compared.n_old, compared.n_new),
        traffic=counts,
        waiting=sum(one.decisions for one in counts if one.role != "shadow") - (0 if data is None else data.n_transitions),
        notes=tuple(notes),
        reasons=reasons(seen),
        drift=changed,
        returns=returns,
        values=values,
        alarms=alarms(settings.alarms, changed, returns, counts, values),
    )


def _changed(found: Drift, settings: WatchSettings) -> tuple[Changed, ...]:
    shown = {one.name for one in found.changed(settings.alarms.level, settings.alarms.distance)}
    return tuple(Changed(**vars(one), shown=one.name in shown) for one in found.columns)


def _reference(settings: WatchSettings, named: str | None, say: Callable[[str], None]) -> Dataset | None:
    """Open what the log is compared with; of a package's own data, which may be elsewhere, where they are found."""
    if settings.reference is not None:
        return Dataset.open(settings.reference)
    if named is not None:
        with suppress(D3rayError):
            return Dataset.open(named)
        say(f"{named}, which the policy learned from, is not on this machine: reference=DATASET says where it is.")
    return None


def _asked(settings: WatchSettings, source: str | None, data: Dataset | None) -> tuple[tuple[WatchedValue, ...], str | None]:
    """Estimate what a policy would return by the log, and say the name of what it learned from."""
    if source is None:
        return (), None
    if not is_registered(source):
        return _valued(settings, source, Path(source), data)
    with registered_package(source, settings.tracking, settings.storage) as package:
        return _valued(settings, source, package, data)


def _valued(
    settings: WatchSettings, source: str, package: Path, data: Dataset | None
) -> tuple[tuple[WatchedValue, ...], str | None]:
    from ...algos.export.package import read_record

    trained = read_record(package).data
    named = None if trained is None else trained.name
    empty = WatchedValue(source=source, gamma=settings.gamma, episodes=0 if data is None else data.n_episodes)
    if data is None or data.n_episodes < 2:
        return (empty.model_copy(update={"refused": "There are no two complete episodes yet."}),), named
    if LOG_PROB not in data.kinds:
        return (empty.model_copy(update={"refused": NEEDED}),), named
    if not data.spec.discrete:
        return (empty.model_copy(update={"refused": CONTINUOUS}),), named
    acts = asked(policy_of(package, data.spec), data)
    greedy = np.where(acts.taken == logged(data, "action"), 0.0, -np.inf)
    name = DECIDING[0] if data.episodes.steps.max() == 1 else DECIDING[1]
    one = estimate(Logs.of(data, greedy, gamma=settings.gamma), [name])[name]
    found = {"estimator": name, "value": one.value, "interval": one.interval, "ess": one.ess, "refused": one.refused or ""}
    return (empty.model_copy(update=found),), named
