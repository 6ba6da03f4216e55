"""Where looks are kept: the newest as numbers and as a page, in MLflow on the version that acts, and who is told of new alarms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...data.errors import D3rayError, StorageError
from ...data.storage.json_text import parse_json
from ..record.watch import Watched
from ..service.alarms import Alarms
from ..service.wire import Alarm
from ..storage.folders import Folder
from ..tracking.registered import is_registered, pinned, registry, tracking_uri
from .alarms import new_alarms, post
from .page import FILE as PAGE
from .page import page
from .run import look
from .settings import WatchSettings

RECORD = "watch.json"
_TAG = "d3ray.watch."
_MOST = 500  # characters of a tag, of which MLflow takes 5,000


def folder_of(settings: WatchSettings) -> Folder:
    return Folder(settings.out) if settings.out is not None else Folder(settings.log) / "watch"


def read_watched(folder: Folder) -> Watched | None:
    """The newest look that was kept; None: there is none, or one that this version cannot read."""
    content = folder.read(RECORD)
    if content is None:
        return None
    try:
        return Watched.model_validate(parse_json(content))
    except ValueError:
        return None


def watch(settings: WatchSettings, say: Callable[[str], None] = print) -> tuple[Watched, Folder]:
    """Look at a log once, keep what was found, and tell whoever is to be told.

    What is kept stands before anybody is told, so that an alarm whose webhook does not answer is not lost.

    Raises: as `look`; StorageError where the webhook or MLflow does not answer, once all else is done.
    """
    found, folder = look(settings, say), folder_of(settings)
    before = read_watched(folder)
    folder.write(RECORD, found.model_dump_json(indent=1).encode())
    folder.write(PAGE, page(found).encode())
    failures = list[str]()
    for step in (_note, _alarm, _post):
        try:
            step(settings, found, before)
        except D3rayError as error:
            failures.append(str(error))
    if failures:
        raise StorageError(" ".join(failures))
    return found, folder


def _note(settings: WatchSettings, found: Watched, before: Watched | None) -> None:
    """Tag the version that is watched: `d3ray.watch.time`, `.alarms` (kinds), `.why`, `.return`, `.lower`, `.upper`, …."""
    if settings.champion is None or not is_registered(settings.champion):
        return
    name, _, version = pinned(settings.champion, settings.tracking, settings.storage).removeprefix("models:/").partition("/")
    tags = {"time": f"{found.time:.0f}", "alarms": " ".join(one.kind for one in found.alarms)}
    tags["why"] = " ".join(one.why for one in found.alarms)[:_MOST]
    own = [one for one in found.returns if one.version in ("", version)]
    if own:
        newest = own[-1]
        tags |= {"return": repr(newest.mean), "episodes": str(newest.episodes)}
        if newest.interval is not None:
            tags |= {"lower": repr(newest.interval[0]), "upper": repr(newest.interval[1])}
    with registry(tracking_uri(settings.tracking, settings.storage)) as client:
        for key, value in tags.items():
            client.set_model_version_tag(name, version, _TAG + key, value)


def _alarm(settings: WatchSettings, found: Watched, before: Watched | None) -> None:
    """Let the fallback act, or no longer, where that is wanted."""
    if settings.set_alarm:
        why = " ".join(one.why for one in found.alarms)[:_MOST]
        Alarms(Path(settings.log)).set(Alarm(on=bool(why), why=why, policy=found.policy))


def _post(settings: WatchSettings, found: Watched, before: Watched | None) -> None:
    if settings.webhook is not None and (new := new_alarms(found, before)):
        post(settings.webhook, found, new)
