"""Actors of an online run as actors of Ray, wherever the cluster has room; one that dies is replaced."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...algos.online.actors import Actor, Group, Part, Round, Standing, Weights
from ...data.errors import D3rayError
from ..settings.plugins import import_plugins

_log = logging.getLogger("d3ray")


@dataclass(frozen=True)
class RayActors:
    """So many actors of Ray, for `fit_online(…, actors=RayActors(4))`: environments are stepped there while the algorithm learns.

    What is learned is the same wherever they run and however often one of them is killed, bit for bit where the environments
    follow from their seeds and actions.

    Attributes:
        n: Actors; each has its share of `n_envs`.
        steps: Steps of each environment in a round, for which one copy of the weights acts. An algorithm that learns from what its
            own policy did has rounds as long as its rollouts.
        num_cpus: That Ray reserves for each.
        attempts: How often in a row an actor may die over one round.
        plugins: Modules that actors import first, for an algorithm or an environment of a user's.
    """

    n: int = 1
    steps: int = 32
    num_cpus: float = 1.0
    attempts: int = 3
    plugins: tuple[str, ...] = ()

    def open(self, parts: Sequence[Part]) -> Group:
        """Starts them, on the Ray that this process is connected to, or on one of its own."""
        return _RayGroup(self, parts)


class _Remote:
    """An `Actor` in a process of Ray's; made by `begin`, so that what fails there is told as it was raised.

    What it is made of comes with that call, for it may be of plugins, which are imported before.
    """

    def __init__(self, plugins: Sequence[str]) -> None:
        import torch

        torch.set_num_threads(1)
        import_plugins(plugins)
        self._actor: Any = None

    def begin(self, part: Part, standing: Standing | None) -> None:
        self._actor = Actor(part)
        self._actor.begin(standing)

    def act(self, weights: Weights) -> Round:
        return self._actor.act(weights)


class _RayGroup:
    def __init__(self, actors: RayActors, parts: Sequence[Part]) -> None:
        self._actors, self._parts = actors, parts
        self.replaced = 0
        self._standings: list[Standing | None] = [None] * len(parts)
        self._weights: Any = None  # a reference to those that were asked with
        self._handles = [self._start() for _ in parts]
        self._begun: list[Any] = [None] * len(parts)  # whose beginning is not known to have gone well
        self._rounds: list[Any] = []  # that were asked for and not taken

    def _start(self) -> Any:
        import ray

        kind: Any = ray.remote(num_cpus=self._actors.num_cpus, max_restarts=0, max_task_retries=0)(_Remote)
        return kind.remote(self._actors.plugins)

    def begin(self, standings: Sequence[Standing | None]) -> None:
        self._standings = list(standings)

    def ask(self, weights: Weights) -> None:
        import ray

        if self._weights is None:  # the first time: who dies in its beginning dies over its first round
            for k in range(len(self._handles)):
                self._begin(k)
        self._weights = ray.put(weights)
        self._rounds = [handle.act.remote(self._weights) for handle in self._handles]

    def _begin(self, k: int) -> None:
        self._begun[k] = self._handles[k].begin.remote(self._parts[k], self._standings[k])

    def take(self) -> list[Round]:
        rounds = [self._take(k) for k in range(len(self._handles))]
        self._standings, self._rounds = [one.standing for one in rounds], []
        return rounds

    def _take(self, k: int) -> Round:
        """Actor k's round. One that died is made anew where it stood, and makes it again."""
        from ray.exceptions import ObjectLostError, RayActorError

        died = ""
        for _ in range(self._actors.attempts):
            try:
                if self._begun[k] is not None:
                    _told(self._begun[k])
                    self._begun[k] = None
                return _told(self._rounds[k])
            except (RayActorError, ObjectLostError) as error:
                self.replaced += 1
                died = str(error).splitlines()[0].rstrip(".")
                _log.warning("Actor %d died and is replaced: %s.", k, died)
                _end(self._handles[k])
                self._handles[k] = self._start()
                self._begin(k)
                self._rounds[k] = self._handles[k].act.remote(self._weights)
        raise ActorsDiedError(
            f"Actor {k} died {self._actors.attempts} times in a row over the same steps; the last time: {died}. Look whether its "
            "environment ends the process, or memory runs out there."
        )

    def close(self) -> None:
        for handle in self._handles:
            _end(handle)


class ActorsDiedError(D3rayError, RuntimeError):
    """An actor died again and again over the same steps."""


def _told(reference: Any) -> Any:
    """Return a task's result, or raise its error as it was raised there, without Ray's frame."""
    import ray
    from ray.exceptions import RayTaskError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, D3rayError):
            raise error.cause from None
        raise


def _end(handle: Any) -> None:
    import ray

    if ray.is_initialized():
        ray.kill(handle, no_restart=True)
