"""A loop: rounds, one step after the other, from wherever a killed one stood."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..record.loop import LoopState, RoundEnd
from ..record.policies import Rollback
from ..record.watch import Watched
from ..tracking.promotion import rollback
from ..watch.keeping import watch
from .settings import LoopSettings
from .state import KEPT, folder_of, held, read_state, write_state
from .steps import STEPS, has_log


def run_round(settings: LoopSettings, say: Callable[[str], None] = print) -> LoopState:
    """Go on with a round to its end, or until it waits for episodes; the state says where it stands then.

    Raises:
        ConfigError: something cannot be used, or the loop runs already.
        DataError, StorageError: a step did not succeed; the next call does it again.
    """
    folder = folder_of(settings.storage, settings.name)
    settings.experiment_of(1, settings.dataset)
    with held(folder):
        state = read_state(folder)
        while True:
            say(f"round {state.number}: {state.step}")
            found = STEPS[state.step](settings, state, say)
            if found is None:
                return state
            if isinstance(found, RoundEnd):
                say(f"round {found.number}: {found.ended}. {found.why}")
                return write_state(folder, _after(state, found))
            state = write_state(folder, found)


def _after(state: LoopState, end: RoundEnd) -> LoopState:
    trained = end.version is not None
    return LoopState(
        name=state.name,
        number=state.number + trained,  # who trained nothing tries again under the same number
        begun=time.time(),
        seen=end.episodes if trained else state.seen,
        rounds=(*state.rounds, end)[-KEPT:],
    )


def watch_over(settings: LoopSettings, say: Callable[[str], None] = print) -> tuple[Watched | None, Rollback | None]:
    """Look at the log, where there is one, and let the champion before act again where an alarm asks for it, once a promotion."""
    if not has_log(settings):
        return None, None
    found, _ = watch(settings.watch_of(), say)
    folder = folder_of(settings.storage, settings.name)
    if not (asked := [one for one in found.alarms if one.kind in settings.roll_back_on]):
        return found, None
    with held(folder):
        state = read_state(folder)
        if not state.rounds or state.rounds[-1].ended != "promoted":
            return found, None
        gone = rollback(settings.name, storage=settings.storage)
        if gone.version is not None:
            last = state.rounds[-1]
            why = f"{' '.join(one.why for one in asked)} {gone.why}"
            end = last.model_copy(update={"ended": "rolled back", "why": why, "time": time.time()})
            write_state(folder, state.model_copy(update={"rounds": (*state.rounds[:-1], end)}))
    say(gone.why)
    return found, gone
