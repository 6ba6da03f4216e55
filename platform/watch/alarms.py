"""What of a look at a log is an alarm, and who is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from ...data.errors import ConfigError, StorageError
from ..record.watch import Changed, Returns, Traffic, WatchAlarm, Watched, WatchedValue
from .settings import AlarmSettings
from .traffic import FALLBACK

SHOWN = 3  # columns that an alarm names
SECONDS = 10  # that a webhook has to answer


def alarms(
    settings: AlarmSettings,
    drift: Sequence[Changed],
    returns: Sequence[Returns],
    traffic: Sequence[Traffic],
    values: Sequence[WatchedValue],
) -> tuple[WatchAlarm, ...]:
    return (
        *_drift(settings, drift),
        *_outside(settings, drift),
        *_returns(settings, returns),
        *_fallback(settings, traffic),
        *_support(settings, values),
    )


def _drift(settings: AlarmSettings, drift: Sequence[Changed]) -> Iterator[WatchAlarm]:
    there = [one for one in drift if one.shown and one.group in settings.groups]
    if there:
        named = ", ".join(f"{one.name} ({one.old:.3g} to {one.new:.3g})" for one in there[:SHOWN])
        more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
        yield WatchAlarm(kind="drift", why=f"Changed since the data were recorded: {named}{more}.")


def _outside(settings: AlarmSettings, drift: Sequence[Changed]) -> Iterator[WatchAlarm]:
    there = sorted((-one.outside, one.name) for one in drift if one.outside is not None and one.outside > settings.outside)
    if there:
        named = ", ".join(f"{name} in {-share:.0%} of the steps" for share, name in there[:SHOWN])
        yield WatchAlarm(kind="outside", why=f"Beyond all that was recorded: {named}.")


def _returns(settings: AlarmSettings, returns: Sequence[Returns]) -> Iterator[WatchAlarm]:
    if settings.returns is None or not returns:
        return
    newest = returns[-1]
    if newest.interval is not None and newest.interval[1] < settings.returns:
        low, high = newest.interval
        found = f"{newest.mean:.4g} ({low:.4g} to {high:.4g})"
        why = f"The newest {newest.episodes} episodes returned {found}, below {settings.returns:g}."
        yield WatchAlarm(kind="returns", why=why)


def _fallback(settings: AlarmSettings, traffic: Sequence[Traffic]) -> Iterator[WatchAlarm]:
    acted = [one for one in traffic if one.role != "shadow"]
    total, fell = sum(one.decisions for one in acted), sum(one.decisions for one in acted if one.role == FALLBACK)
    if total and fell / total > settings.fallback:
        yield WatchAlarm(kind="fallback", why=f"The fallback made {fell:,} of {total:,} decisions, {fell / total:.0%}.")


def _support(settings: AlarmSettings, values: Sequence[WatchedValue]) -> Iterator[WatchAlarm]:
    for one in values:
        if settings.ess is not None and one.ess is not None and one.ess < settings.ess:
            why = f"{one.source} is judged by {one.ess:.1f} effective episodes of {one.episodes:,}, fewer than {settings.ess:g}."
            yield WatchAlarm(kind="support", why=why)


def new_alarms(found: Watched, before: Watched | None) -> tuple[WatchAlarm, ...]:
    """Return the alarms of kinds that the look before had none of."""
    known = {one.kind for one in before.alarms} if before is not None else set[str]()
    return tuple(one for one in found.alarms if one.kind not in known)


def check_webhook(address: str | None) -> None:
    """Raise ConfigError where alarms cannot be posted to an address."""
    if address is not None and (urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname):
        raise ConfigError("webhook is no address: write one such as https://example.com/alarms.")  # what it says may be a secret


def post(address: str, found: Watched, new: Sequence[WatchAlarm]) -> None:
    """Post new alarms as JSON: `{"log", "policy", "time", "alarms": [{"kind", "why"}]}`.

    Raises StorageError where nobody takes them; it names the host alone, since the rest of an address may be a secret.
    """
    import requests

    told = {"log": found.log, "policy": found.policy, "time": found.time, "alarms": [one.model_dump() for one in new]}
    try:
        answer = requests.post(address, json=told, timeout=SECONDS, allow_redirects=False)
    except requests.RequestException as error:
        raise StorageError(f"The webhook of {urlsplit(address).hostname} was not reached: {type(error).__name__}.") from None
    if not answer.ok:
        raise StorageError(f"The webhook of {urlsplit(address).hostname} answered {answer.status_code}.")
