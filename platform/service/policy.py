"""A policy in a service: which version acts for whom, what is answered where it may not, and what is logged of it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...data.errors import ConfigError, D3rayError, DataError, StorageError, did_you_mean
from ...data.masks import ACTION_MASK
from ...data.spec import Box, Discrete
from .alarms import Alarms
from .exploring import Greedy, key_of, share_of
from .fallback import Fallback, opened_fallback
from .memory import Flat, State, check_memory, packed, unpacked
from .recording import Recorder, Row
from .reference import Reference
from .settings import PolicySettings
from .turns import Role, Turn, Turns
from .versions import Version
from .wire import Asked, Decision, Explained

_LOG = logging.getLogger("d3ray.service")
_OWN, _SHADOW = "own/", "shadow/"  # whose part of a state's memory


class UnableError(D3rayError):
    """A decision could not be made, for no fault of who asked."""


class LateError(UnableError):
    """It could not be made in time."""


@dataclass
class Case:
    """One observation to act on, checked. It is answered once, by whoever takes it first: the policy, or who waits no longer."""

    version: Version
    role: Role
    episode: str
    step: int
    columns: Flat
    memory: Flat
    shadow: Version | None
    shadow_memory: Flat
    restarted: bool
    explain: bool
    single: bool = False  # of no episode that the client named; `episode` is then a key for its random numbers alone
    taken: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> bool:
        """Take it, unless somebody else has."""
        return self.taken.acquire(blocking=False)


@dataclass
class Choice:
    """What is done in a case, and what is known of it."""

    case: Case
    action: np.ndarray  # [1, ...]
    memory: Flat
    role: Role
    version: str
    log_prob: float | None = None
    value: float | None = None
    reason: str | None = None


class ServedPolicy:
    """A policy of a service.

    Args:
        name: What it is called there.
        settings: How it acts.
        seed: That exploration is addressed by.
        tracking, storage: Where the registry is.
        record: Makes what keeps its decisions.
        alarms: By which its fallback acts.
        poll_seconds: Between looks at the registry; 0: none.
        note: Told the version, role and reason of each decision, for metrics.

    Raises:
        ConfigError: settings do not suit the policy.
        StorageError: it cannot be read.
    """

    def __init__(
        self,
        name: str,
        settings: PolicySettings,
        *,
        seed: int = 0,
        tracking: str | None = None,
        storage: str = "./d3ray_results",
        record: Callable[[str, Version], Recorder],
        alarms: Alarms,
        poll_seconds: float = 0.0,
        note: Callable[[str, str, str | None], None] | None = None,
    ) -> None:
        self.name, self.settings = name, settings
        self._seed, self._alarms, self._note = seed, alarms, note
        self._turns = Turns(name, settings, tracking=tracking, storage=storage)
        champion = self._turns.now.champion
        self._fallback: Fallback | None = None
        if settings.fallback is not None:
            self._fallback = opened_fallback(settings.fallback, champion, tracking=tracking, storage=storage)
        self._reference: Reference | None = None
        if settings.reference is not None:
            self._reference = Reference.open(settings.reference, champion.spec, settings.reference_rows)
        self._shadow_failures = 0
        self.recorder = record(name, champion)
        self._turns.keep_looking(poll_seconds)

    # ---- what is asked

    def case(self, asked: Asked, *, explain: bool = False) -> Case:
        """Check one observation and what came with it. Raises DataError and ConfigError, which say what is wrong with it."""
        turn, state = self._turns.now, None
        if asked.state is not None:
            state = unpacked(asked.state, self.name)
            if asked.episode not in (None, state.episode):
                raise DataError(f"state is of the episode {state.episode!r}, and episode is {asked.episode!r}.")
            if asked.step not in (None, state.step):
                raise DataError(f"state is for the step {state.step}, and step is {asked.step}: hand in the episode's last one.")
        episode = state.episode if state else asked.episode or self._new_episode()
        step = state.step if state else asked.step or 0
        version, role, restarted = self._whose(turn, asked.version, episode, state)
        memory = self._memory(version, state, asked, step, restarted=restarted)
        shadow_memory = self._shadow_memory(turn.shadow, state, asked)
        columns = version.shown(asked.observation, asked.action_mask)
        single = asked.episode is None and state is None
        return Case(version, role, episode, step, columns, memory, turn.shadow, shadow_memory, restarted, explain, single)

    def _new_episode(self) -> str:
        from uuid import uuid4

        return uuid4().hex

    def _whose(self, turn: Turn, said: str | None, episode: str, state: State | None) -> tuple[Version, Role, bool]:
        """Who acts in an episode, in which role, and whether what the state remembers is of a version that is gone."""
        known = turn.known()
        if said is not None:
            if said not in known:
                raise DataError(f"{self.name} has no version {said!r} here{did_you_mean(said, known)}", missing=True)
            return (*known[said], False)
        remembered = state is not None and any(name.startswith(_OWN) for name in state.memory)
        if remembered and state is not None and state.version in known:
            return (*known[state.version], False)
        if turn.canary is not None and share_of(episode) < self.settings.canary_share:
            return turn.canary, "canary", remembered
        return turn.champion, "champion", remembered

    def _memory(self, version: Version, state: State | None, asked: Asked, step: int, *, restarted: bool) -> Flat:
        if state is None or restarted:
            memory = version.start(asked.target_return)
            if memory and step and not restarted:
                raise DataError(f"{version.name} acts on what came before: hand in the state of the episode's last reply.")
            return memory
        own = {name.removeprefix(_OWN): part for name, part in state.memory.items() if name.startswith(_OWN)}
        check_memory(own, version.start(0.0 if version.for_return else None))
        return version.told(own, asked.reward, asked.executed)

    def _shadow_memory(self, shadow: Version | None, state: State | None, asked: Asked) -> Flat:
        """That of the shadow; one that came later, or whose memory is of another version, begins anew."""
        if shadow is None:
            return {}
        blank = shadow.start()
        given = {
            name.removeprefix(_SHADOW): part for name, part in (state.memory if state else {}).items() if name.startswith(_SHADOW)
        }
        try:
            check_memory(given, blank)
        except DataError:
            return blank
        return shadow.told(given, asked.reward, asked.executed)

    # ---- what is answered

    def decide(self, cases: Sequence[Case]) -> list[Decision | D3rayError]:
        """Act in all cases at once: the decision of each, which is in the log, or why there is none."""
        choices: list[Choice | D3rayError | None] = [None] * len(cases)
        alarm = self._alarms.of(self.name) if self._fallback is not None else None
        for rows in _grouped(cases):
            group = [cases[k] for k in rows]
            for k, choice in zip(rows, self._chosen(group, alarm), strict=True):
                choices[k] = choice
        shadows = self._shadowed(cases, choices)
        won = [k for k, choice in enumerate(choices) if isinstance(choice, Choice) and cases[k].take()]
        found: list[Decision | D3rayError] = [
            choice if isinstance(choice, D3rayError) else LateError("It was answered before.") for choice in choices
        ]
        told = self._recorded([(choices[k], shadows[k]) for k in won])  # pyright: ignore[reportArgumentType]
        for k, decision in zip(won, told, strict=True):
            found[k] = decision
        return found

    def late(self, case: Case, seconds: float) -> Decision:
        """What is answered where the policy has not in time. Raises LateError where nothing falls back, or it is being answered."""
        if self._fallback is None or not case.take():
            raise LateError(f"{self.name} did not answer within {seconds:g} seconds.")
        (decision,) = self._recorded([(self._fallen(case, case.memory, "late"), None)])
        if isinstance(decision, D3rayError):
            raise decision
        return decision

    def _chosen(self, group: list[Case], alarm: str | None) -> list[Choice | D3rayError]:
        """What is done in cases of one version."""
        version, names = group[0].version, group[0].columns
        rows = {name: np.concatenate([case.columns[name] for case in group]) for name in names}
        keys = [key_of(self._seed, version.label, case.episode, case.step) for case in group]
        explore, legal = self.settings.explore, rows.get(ACTION_MASK)
        try:
            memories, proposed = version.step(rows, [case.memory for case in group], keys)
            usable = np.ones(len(group), bool)
            if proposed.dtype.kind == "f":
                usable &= np.isfinite(proposed.reshape(len(group), -1)).all(axis=1)
            values = version.values(rows) if explore.needs_values else None
            safe = proposed if usable.all() else np.where(usable.reshape(-1, *[1] * (proposed.ndim - 1)), proposed, 0)
            action, log_probs = explore.explore(safe, keys, version.spec, legal, values)
            if version.draws and isinstance(explore, Greedy):
                log_probs = np.full(len(group), np.nan)
        except Exception as error:  # whatever a graph may raise: one answer is due to each
            _LOG.exception("%s version %s failed", self.name, version.label)
            why = f"failed: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}"
            return [self._instead(case, case.memory, why) for case in group]
        beyond = None
        if self.settings.outside is not None and self._reference is not None:
            beyond = self._reference.beyond(rows)
        found: list[Choice | D3rayError] = []
        for k, case in enumerate(group):
            memory = memories[k]
            if not usable[k]:
                found.append(self._instead(case, case.memory, "failed: its action is not finite"))
            elif alarm is not None:
                found.append(self._instead(case, memory, f"alarm: {alarm}"))
            elif beyond is not None and beyond[k] > (self.settings.outside or 0):
                found.append(self._instead(case, memory, f"outside: {beyond[k]:.3g} widths beyond the reference's range"))
            else:
                own = action[k : k + 1]
                if memory and not np.array_equal(own, proposed[k : k + 1]):
                    memory = version.told(memory, None, own[0])
                known = None if np.isnan(log_probs[k]) else float(log_probs[k])
                value = None if values is None else float(values[k, _index(version, own)])
                found.append(Choice(case, own, memory, case.role, version.label, known, value))
        return found

    def _instead(self, case: Case, memory: Flat, why: str) -> Choice | D3rayError:
        if self._fallback is None:
            return UnableError(f"{self.name} cannot act here: {why}.")
        try:
            return self._fallen(case, memory, why)
        except D3rayError as error:
            return error

    def _fallen(self, case: Case, memory: Flat, why: str) -> Choice:
        """What the fallback does. Raises UnableError where it gives no action, or one that is not legal."""
        assert self._fallback is not None
        try:
            action = self._fallback.act(case.columns)
        except (DataError, ConfigError) as error:
            raise UnableError(str(error)) from None
        legal = case.columns.get(ACTION_MASK)
        if legal is not None and not legal[0, _index(case.version, action)]:
            raise UnableError(f"The fallback of {self.name} would do {int(action[0])}, which is not legal here.")
        if memory:
            memory = case.version.told(memory, None, action[0])
        certain = None if isinstance(case.version.spec.action, Box) else 0.0
        return Choice(case, action, memory, "fallback", self._fallback.label, certain, reason=why)

    def _shadowed(
        self, cases: Sequence[Case], choices: Sequence[Choice | D3rayError | None]
    ) -> list[tuple[np.ndarray, Flat] | None]:
        """What the shadow would do, and remembers, what was done in its place included.

        What it fails in is counted, and changes no answer.
        """
        found: list[tuple[np.ndarray, Flat] | None] = [None] * len(cases)
        at = [k for k, case in enumerate(cases) if case.shadow is not None]
        for rows in _grouped([cases[k] for k in at], of=lambda case: case.shadow):
            group = [cases[at[k]] for k in rows]
            shadow = group[0].shadow
            assert shadow is not None
            try:
                seen = {name: np.concatenate([case.columns[name] for case in group]) for name in group[0].columns}
                keys = [key_of(self._seed, shadow.label, case.episode, case.step) for case in group]
                memories, action = shadow.step(seen, [case.shadow_memory for case in group], keys)
                for k, row in enumerate(rows):
                    if memories[k] and isinstance(choice := choices[at[row]], Choice):
                        memories[k] = shadow.told(memories[k], None, choice.action[0])
            except Exception:
                self._shadow_failures += len(group)
                _LOG.exception("the shadow of %s failed", self.name)
                continue
            for k, row in enumerate(rows):
                found[at[row]] = action[k : k + 1], memories[k]
        return found

    def _recorded(self, choices: Sequence[tuple[Choice, tuple[np.ndarray, Flat] | None]]) -> list[Decision | D3rayError]:
        """Log what was chosen, and what shadows would have done; then it may be answered."""
        if not choices:
            return []
        at, rows = time.time(), list[Row]()
        for choice, _ in choices:
            rows.append(self._row(choice, choice.action, choice.role, choice.version, at))
        for choice, shadowed in choices:
            if shadowed is not None and choice.case.shadow is not None:
                shadow = choice.case.shadow
                certain = None if shadow.draws or isinstance(shadow.spec.action, Box) else 0.0
                quiet = replace(choice, log_prob=certain, value=None, reason=None)
                rows.append(self._row(quiet, shadowed[0], "shadow", shadow.label, at))
        try:
            ids = self.recorder.append(rows)
        except (DataError, StorageError, OSError) as error:
            _LOG.error("the log of %s cannot be written: %s", self.name, error)
            return [StorageError(f"The decision could not be logged, so it is not answered: {error}") for _ in choices]
        return [self._decision(choice, shadowed, one) for (choice, shadowed), one in zip(choices, ids[: len(choices)], strict=True)]

    def _row(self, choice: Choice, action: np.ndarray, role: Role, version: str, at: float) -> Row:
        case = choice.case
        return Row(
            policy=self.name,
            version=version,
            role=role,
            episode=None if case.single else case.episode,
            step=case.step,
            observation={name: part[0] for name, part in case.columns.items() if name != ACTION_MASK},
            action=case.version.recorded(action)[0],
            log_prob=choice.log_prob,
            legal=case.columns[ACTION_MASK][0] if ACTION_MASK in case.columns else None,
            value=choice.value,
            reason=choice.reason,
            time=at,
        )

    def _decision(self, choice: Choice, shadowed: tuple[np.ndarray, Flat] | None, one: str) -> Decision:
        case = choice.case
        memory = {f"{_OWN}{name}": part for name, part in choice.memory.items()}
        memory |= {f"{_SHADOW}{name}": part for name, part in (shadowed[1] if shadowed else case.shadow_memory).items()}
        if self._note is not None:
            self._note(choice.version, choice.role, choice.reason)
        return Decision.model_construct(
            id=one,
            policy=self.name,
            version=choice.version,
            role=choice.role,
            episode=one if case.single else case.episode,
            step=case.step,
            action=choice.action[0].tolist(),
            log_prob=choice.log_prob,
            state=None if case.single else packed(State(self.name, case.version.label, case.episode, case.step + 1, memory)),
            restarted=case.restarted,
            reason=choice.reason,
            explain=self._explained(choice) if case.explain else None,
        )

    def _explained(self, choice: Choice) -> Explained:
        case, value = choice.case, choice.value
        if value is None and case.version.has_values:
            found = case.version.values(case.columns, choice.action)[0]
            value = float(found[_index(case.version, choice.action)] if found.ndim else found)
            value = value if math.isfinite(value) else None
        nearest = None
        if self._reference is not None:
            seen = {name: part for name, part in case.columns.items() if name != ACTION_MASK}
            nearest = float(self._reference.nearest(seen)[0])
        propensity = None if choice.log_prob is None else float(np.exp(choice.log_prob))
        return Explained.model_construct(value=value, propensity=propensity, nearest=nearest)

    # ---- who acts

    def look(self) -> list[str]:
        """Look whether an alias is on another version, and take that over: see `Turns.look`."""
        return self._turns.look()

    def status(self) -> dict[str, Any]:
        """What is served, in words for people and programs."""
        turn, settings = self._turns.now, self.settings
        return {
            "policy": self.name,
            "version": turn.champion.label,
            "source": turn.champion.source,
            "algorithm": turn.champion.name,
            "canary": turn.canary and {"version": turn.canary.label, "share": settings.canary_share},
            "shadow": turn.shadow and {"version": turn.shadow.label, "failures": self._shadow_failures},
            "fallback": self._fallback and self._fallback.label,
            "explore": settings.explore.model_dump(mode="json"),
            "alarm": self._alarms.of(self.name),
            "trouble": dict(self._turns.trouble),
            "spaces": turn.champion.spec.model_dump(mode="json"),
        }

    @property
    def champion(self) -> Version:
        """Who acts now."""
        return self._turns.now.champion

    def close(self) -> None:
        """Ends the looks at the registry, and closes the log's file."""
        self._turns.close()
        self.recorder.close()


def _grouped(cases: Sequence[Case], of: Callable[[Case], Version | None] = lambda case: case.version) -> list[list[int]]:
    """Places of cases by who acts in them."""
    groups: dict[int, list[int]] = {}
    for k, case in enumerate(cases):
        groups.setdefault(id(of(case)), []).append(k)
    return list(groups.values())


def _index(version: Version, action: np.ndarray) -> int:
    """The place of a discrete action [1] among those that there are."""
    space = version.spec.action
    assert isinstance(space, Discrete)
    return int(action.reshape(-1)[0]) - space.start
