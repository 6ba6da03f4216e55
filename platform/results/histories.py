"""What was trained in this program, or played by policies, as results, which are drawn and compared as experiments are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...algos.environments.evaluate import Evaluation
from ...algos.learning.history import History, Trained
from ..record.results import RETURNED, ConfigurationResult, Results, SeedResult
from ..storage.outbox import Line
from .configurations import free_seed


def read_histories(histories: Sequence[History], name: str | None = None) -> Results:
    """The results of some histories: those of equal settings and data are seeds of one configuration, called `name`."""
    alike: dict[str, list[tuple[History, Trained]]] = {}
    for history in histories:
        for run in history.runs:
            key = [history.algorithm, history.settings, run.coefficients, history.data.get("fingerprint")]
            alike.setdefault(json.dumps(key, sort_keys=True), []).append((history, run))
    called = name or " and ".join(dict.fromkeys(history.algorithm for history in histories))
    found = [_configuration(called, name, members) for members in alike.values()]
    return Results(name=called, state="FINISHED", data=found[0].data, environment=found[0].environment, configurations=found)


def _configuration(experiment: str, name: str | None, members: Sequence[tuple[History, Trained]]) -> ConfigurationResult:
    history, run = members[0]
    seeds: dict[int, SeedResult] = {}
    for _, one in members:
        seed = free_seed(one.seed, seeds)
        seeds[seed] = _seed_result(seed, one)
    return ConfigurationResult(
        experiment=experiment,
        algorithm=name or history.algorithm,
        settings={"algorithm": {"name": history.algorithm, **history.settings, **run.coefficients}},
        n_steps=max(one.n_steps for one in seeds.values()),
        seeds=[seeds[seed] for seed in sorted(seeds)],
        data={"name": None, **history.data},
        environment=history.data.get("environment"),
    )


def _seed_result(seed: int, run: Trained) -> SeedResult:
    lines = [
        Line(int(epoch["step"]), 0, {name: value for name, value in epoch.items() if name not in ("epoch", "step")})
        for epoch in run.epochs
    ]
    last = lines[-1].step if lines else 0
    bad = next((int(epoch["first_bad_step"]) for epoch in run.epochs if "first_bad_step" in epoch), None)
    status, why = ("FINISHED", "") if bad is None else ("FAILED", f"diverged at step {bad}")
    found = SeedResult(seed=seed, status=status, reason=why, step=last, n_steps=last)
    return found.reading(partial(iter, lines))


def as_configuration(
    name: str, algorithm: str, settings: dict[str, Any], environment: str, played: Evaluation
) -> ConfigurationResult:
    """A policy's episodes, as a configuration whose seeds are episodes that begin alike for all."""
    seeds = list[SeedResult]()
    for k, (value, length) in enumerate(zip(played.returns, played.lengths, strict=True)):
        line = Line(0, 0, {RETURNED: float(value), "length": float(length)})
        seeds.append(SeedResult(seed=k, status="FINISHED", step=0).reading(partial(iter, [line])))
    settings = {"algorithm": {"name": algorithm, **settings}}
    return ConfigurationResult(
        experiment=name,
        label=name,
        algorithm=algorithm,
        settings=settings,
        data={"name": None},
        environment=environment,
        seeds=seeds,
    )
