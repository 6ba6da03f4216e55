"""What was trained in this program as results: histories of algorithms and stacks, which are drawn as experiments are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from ...algos.learning.history import History, Trained
from ..storage.outbox import Line
from .reading import Configuration, Results, SeedRun


def read_histories(histories: Sequence[History], name: str | None = None) -> Results:
    """The results of some histories: those of equal settings and data are seeds of one configuration.

    Args:
        histories: At least one.
        name: What configurations are called, in place of the algorithm.
    """
    alike: dict[str, list[tuple[History, Trained]]] = {}
    for history in histories:
        for run in history.runs:
            key = [history.algorithm, history.settings, run.coefficients, history.data.get("fingerprint")]
            alike.setdefault(json.dumps(key, sort_keys=True), []).append((history, run))
    called = name or " and ".join(dict.fromkeys(history.algorithm for history in histories))
    configurations = tuple(_configuration(called, name, members) for members in alike.values())
    return Results(
        name=called,
        status="FINISHED",
        reason="",
        dataset=configurations[0].dataset,
        environment=configurations[0].environment,
        episodes=None,
        configuration={},
        configurations=configurations,
        begun=0.0,
        ended=0.0,
        died=False,
        tracking={},
    )


def _configuration(experiment: str, name: str | None, members: Sequence[tuple[History, Trained]]) -> Configuration:
    history, run = members[0]
    seeds: dict[int, SeedRun] = {}
    for _, one in members:
        seed = one.seed if one.seed not in seeds else next(k for k in range(len(members)) if k not in seeds)
        seeds[seed] = _seed_run(seed, one)
    return Configuration(
        experiment=experiment,
        algorithm=name or history.algorithm,
        settings={"algorithm": {"name": history.algorithm, **history.settings, **run.coefficients}},
        n_steps=max(one.n_steps for one in seeds.values()),
        seeds=tuple(seeds[seed] for seed in sorted(seeds)),
        dataset={"name": None, **history.data},
        environment=history.data.get("environment"),
    )


def _seed_run(seed: int, run: Trained) -> SeedRun:
    lines = [
        Line(int(epoch["step"]), 0, {name: value for name, value in epoch.items() if name not in ("epoch", "step")})
        for epoch in run.epochs
    ]
    last = lines[-1].step if lines else 0
    bad = next((int(epoch["first_bad_step"]) for epoch in run.epochs if "first_bad_step" in epoch), None)
    return SeedRun(
        seed=seed,
        status="FINISHED" if bad is None else "FAILED",
        reason="" if bad is None else f"diverged at step {bad}",
        step=last,
        n_steps=last,
        run_id=None,
        seeds_together=1,
        last_sign=None,
        measured=partial(iter, lines),
    )
