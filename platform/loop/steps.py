"""The steps of a round, each of which may be killed and done again.

    ingest      complete episodes of the log are added to the dataset; few new ones end the round
    doctor      findings that are errors, or that one names, end it
    train       an experiment of the round's own, which goes on where it was
    register    its best policy becomes a version of the loop's model, and its candidate
    judge       the candidate and the champion by the same logs, or nothing where both play
    canary      who passes the gate acts in a share of the episodes, until it has enough of its own
    promote     the champion is who has shown more: there, or by the judgement where there is no canary

A step returns the next state, an end of the round, or None where it waits for more episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...algos.judging.resampling import LEVEL
from ...data.dataset import Dataset
from ...data.decision_log.layout import is_log
from ...data.doctor.examine import doctor
from ...data.errors import D3rayError
from ...data.formats.decisions.decision_log import NothingNewError
from ...data.spec import Environment
from ...data.uris import is_remote
from ..datasets.ingest import ingest
from ..experiment.run import run_experiment
from ..judging.run import judge
from ..record.loop import Ended, LoopState, RoundEnd, Step
from ..record.policies import Evidence, Promotion
from ..statistics import summarise
from ..storage.folders import Folder
from ..sweep.config import SweepConfig
from ..sweep.run import run_sweep
from ..tracking.estimate_gate import promote_by_estimate
from ..tracking.gate import FEWEST
from ..tracking.promotion import promote
from ..watch.episodes import acted, begun, episodes_of
from .registering import begin_canary, champion_of, end_canary, promote_canary, register_round
from .settings import LoopSettings

Say = Callable[[str], None]
Next = LoopState | RoundEnd | None


def take_in(settings: LoopSettings, state: LoopState, say: Say) -> Next:
    """Add what is new in the log to the dataset."""
    taken = settings.ingest
    options = {"episode_timeout": taken.episode_timeout, "missing_reward": taken.missing_reward}
    options |= {} if taken.join is None else {"join": taken.join}
    try:
        if not has_log(settings):
            raise NothingNewError(f"There is no log {settings.log} yet.")
        done = ingest(settings.log, settings.dataset, format="decisions", options=options)
    except NothingNewError as error:
        if settings.base is None or any(one.version is not None for one in state.rounds):
            return _end(state, "nothing new", str(error))
        say(f"{error} The first policy learns from {settings.base} alone.")
        fingerprint = Dataset.open(settings.base).fingerprint
        return _then(state.model_copy(update={"episodes": 0, "fingerprint": fingerprint}), "doctor")
    for note in done.notes:
        say(note)
    new = done.dataset.n_episodes - state.seen
    state = state.model_copy(update={"episodes": done.dataset.n_episodes, "fingerprint": done.dataset.fingerprint})
    if new < taken.least:
        return _end(state, "nothing new", f"{new:,} new episodes; a round is worth {taken.least:,}.")
    return _then(state, "doctor")


def examine(settings: LoopSettings, state: LoopState, say: Say) -> Next:
    """Look for what is wrong with the data."""
    found = doctor(Dataset.open(_newest_data(settings))).findings
    grave = [one for one in found if one.severity == "error" or one.name in settings.stop_on]
    for one in found:
        say(f"{one.severity}: {one.sentence}")
    if grave:
        return _end(state, "stopped", " ".join(one.sentence for one in grave))
    return _then(state, "train")


def train(settings: LoopSettings, state: LoopState, say: Say) -> Next:
    """Train the round's policies, from where an earlier try left them."""
    config = settings.experiment_of(state.number, _training_data(settings, state))
    begun_before = Folder(settings.storage, config.experiment).read("experiment.json") is not None
    if isinstance(config, SweepConfig):
        run_sweep(config, resume=begun_before)
    else:
        run_experiment(config, resume=begun_before)
    return _then(state, "register")


def register(settings: LoopSettings, state: LoopState, say: Say) -> Next:
    """Make the round's best policy a version of the loop's model."""
    version = register_round(settings.storage, settings.name, state.number, f"{settings.name}-{state.number}")
    say(f"Version {version} of {settings.name} is the candidate.")
    return _then(state.model_copy(update={"version": version}), "judge")


def compare(settings: LoopSettings, state: LoopState, say: Say) -> Next:
    """Hold the candidate against the champion by the logs, and decide whether it may act."""
    assert state.version is not None
    champion = champion_of(settings.storage, settings.name)
    if settings.by == "estimate":
        both = [f"models:/{settings.name}/{version}" for version in (state.version, champion) if version is not None]
        config = settings.judge_of(state.number, _newest_data(settings), tuple(dict.fromkeys(both)))
        there = Folder(settings.storage, config.name or "").read("experiment.json") is not None
        judge(config, resume=there, replace=not there, say=say)
    if settings.canary is None or champion is None:
        return _then(state, "promote")
    if not (asked := _gate(settings, state, move=False)).passed:
        return _end(state, "not promoted", asked.why)
    begin_canary(settings.storage, settings.name, state.version)
    say(f"{asked.why} It acts in a share of the episodes now.")
    return _then(state.model_copy(update={"canary_since": time.time()}), "canary")


def try_out(settings: LoopSettings, state: LoopState, say: Say) -> Next:
    """Wait until the canary has enough episodes of its own, and hold them against the champion's of the same time."""
    assert settings.canary is not None
    assert state.version is not None
    assert state.canary_since is not None
    acting = champion_of(settings.storage, settings.name)
    if acting == state.version:  # a try that was killed has promoted it
        end_canary(settings.storage, settings.name)
        return _end(state, "promoted", f"Version {acting} of {settings.name} is the champion.")
    data, versions, _ = episodes_of(settings.watch_of())
    canary, champion = (_evidence(data, versions, version, state.canary_since) for version in (state.version, acting))
    n, late = canary.episodes or 0, time.time() - state.canary_since > 3600 * settings.canary.hours
    if n < settings.canary.episodes and not late:
        say(f"Version {state.version} has {n:,} of {settings.canary.episodes:,} episodes of its own.")
        return None
    if n < FEWEST or not champion.episodes:
        end_canary(settings.storage, settings.name)
        few = f"Version {state.version} had {n:,} episodes of its own in {settings.canary.hours:g} hours, the champion"
        return _end(state, "not promoted", f"{few} {champion.episodes or 0:,}: too few to decide by.")
    asked = promote_canary(settings.storage, settings.name, canary, champion)
    end_canary(settings.storage, settings.name)
    return _end(state, "promoted" if asked.passed else "not promoted", asked.why)


def crown(settings: LoopSettings, state: LoopState, say: Say) -> Next:
    """Make the candidate the champion, where the gate lets it."""
    asked = _gate(settings, state, move=True)
    return _end(state, "promoted" if asked.passed else "not promoted", asked.why)


STEPS: dict[Step, Callable[[LoopSettings, LoopState, Say], Next]] = {
    "ingest": take_in,
    "doctor": examine,
    "train": train,
    "register": register,
    "judge": compare,
    "canary": try_out,
    "promote": crown,
}


def has_log(settings: LoopSettings) -> bool:
    """Tell whether the service has begun its log; of one in a bucket that is taken for granted."""
    return is_remote(settings.log) or is_log(Path(settings.log))


def _then(state: LoopState, step: Step) -> LoopState:
    return state.model_copy(update={"step": step})


def _end(state: LoopState, ended: Ended, why: str) -> RoundEnd:
    told = state.model_dump(include={"number", "episodes", "fingerprint", "version", "begun"})
    return RoundEnd(ended=ended, why=why, time=time.time(), **told)


def _newest_data(settings: LoopSettings) -> str:
    """The log's dataset; before there is one what policies learn from at first."""
    try:
        Dataset.open(settings.dataset)
    except D3rayError:
        if settings.base is None:
            raise
        return settings.base
    return settings.dataset


def _training_data(settings: LoopSettings, state: LoopState) -> str:
    """The log's dataset, or both put together in the loop's folder."""
    newest = _newest_data(settings)
    if settings.base is None or newest == settings.base:
        return newest
    place = Path(settings.storage).expanduser().absolute() / "loops" / settings.name / f"data-{state.number}"
    parts = [Dataset.open(settings.base), Dataset.open(newest)]
    shared = parts[0].kinds.keys() & parts[1].kinds.keys()
    parts = [part if part.kinds.keys() == shared else _only(shared, part) for part in parts]
    both = Dataset.concat(parts, name=settings.name)
    with suppress(D3rayError):
        if Dataset.open(place).fingerprint == both.fingerprint:
            return str(place)
    both.write(place, overwrite=True)
    return str(place)


def _only(names: Set[str], data: Dataset) -> Dataset:
    """The same steps with these columns."""
    steps = data.to_steps()
    columns = {name: column for name, column in steps.columns.items() if name in names}
    return Dataset.from_steps(replace(steps, columns=columns), name=data.name, spec=data.spec, environment=data.environment)


def _gate(settings: LoopSettings, state: LoopState, *, move: bool) -> Promotion:
    if settings.by == "estimate":
        asked = promote_by_estimate(settings.name, storage=settings.storage, move=move)
    else:
        given = settings.environment
        place = Environment(id=given) if isinstance(given, str) else given
        asked = promote(settings.name, storage=settings.storage, environment=place, episodes=settings.episodes, move=move)
    if asked.candidate is not None and asked.candidate.version != state.version:
        why = f"Version {asked.candidate.version} of {settings.name} stays ahead of version {state.version}: {asked.why}"
        return asked.model_copy(update={"passed": False, "why": why})
    return asked


def _evidence(data: Dataset | None, versions: Sequence[str], version: str | None, since: float) -> Evidence:
    """What a version's own episodes returned that began since then."""
    nothing = Evidence(version=version or "", by="its own episodes", mean=np.nan, lower=-np.inf, episodes=0)
    if data is None or version not in versions:
        return nothing
    own = (acted(data) == versions.index(version)) & (begun(data) >= since)
    if not own.any():
        return nothing
    found = summarise(data.episodes.returns[own])
    lower = -np.inf if found.interval is None else found.interval[0]
    return nothing.model_copy(update={"mean": found.mean, "lower": lower, "level": LEVEL, "episodes": int(own.sum())})
