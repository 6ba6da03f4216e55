"""One run of an agent and the six datasets that come of it, after D4RL's procedure (`data/catalog/recipe.py`).

The run's folder has `checkpoints/`, from which a killed run goes on bit for bit; `evaluations.json`, what the greedy policy scored
at which step; and `policies/`, the algorithm at each evaluation that none before beat: the medium and the expert policy are among
those, whichever they turn out to be. The datasets follow from the folder alone, so each can be made later.

    random          steps of uniform random actions
    medium          steps of the policy of the first evaluation that came `medium` of the way from random actions to the expert
    expert          steps of the policy of the best evaluation
    medium-expert   medium, then expert
    medium-replay   what the run had seen when the medium policy was evaluated
    full-replay     all that the run has seen

Policies act as the agent explored at the end of its run: SAC draws its actions, DQN takes a random one with the last ε. Beside the
steps stand, of an agent whose policy has a density, `log_prob`, the log density of the action under whoever acted, and in MuJoCo
`info/qpos` and `info/qvel`, the state before the step, which are D4RL's infos/action_log_probs, infos/qpos and infos/qvel.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ...algos.base import Algorithm
from ...algos.environments.evaluate import evaluate
from ...algos.environments.explorers import ConstantEpsilonGreedy, Explorer, read_explorer
from ...algos.environments.make import make
from ...algos.environments.vector import VectorEnvironment
from ...algos.online.run import default_explorer
from ...algos.registry import algorithm_class, make_algorithm
from ...algos.saving.checkpoint import checkpoint_name, checkpoints
from ...algos.saving.saving import load
from ...data.catalog.local import alone
from ...data.catalog.recipe import Kind, Recipe
from ...data.dataset import Dataset
from ...data.errors import ConfigError, DataError
from ...data.replay import ReplayBuffer
from ...data.seeds import fold, integers, root_key
from ...data.spec import Box, Environment
from ...data.storage.files import storage_errors, write_atomically
from ...data.storage.json_text import parse_json
from ...data.storage.manifest import MANIFEST
from ...data.storage.steps import StepTable, concat_steps, first_steps, steps_from_rows
from ..surroundings import surroundings

_EVALUATIONS = "evaluations.json"
_INFOS = ("qpos", "qvel")


@dataclass(frozen=True)
class Wanted:
    """A dataset that is to be made: its name, which of the run's it is, and its folder."""

    name: str
    kind: Kind
    folder: Path


class Done(NamedTuple):
    """How far a run is: steps of the environment in all, trained and recorded, and a remark."""

    steps: int
    note: str


class Score(NamedTuple):
    """Score of the greedy policy."""

    gradient_steps: int
    steps: int  # of the environment
    mean: float  # undiscounted return


@dataclass(frozen=True)
class Run:
    """A run and what is to be made of it.

    Args:
        folder: where the run is kept.
        environment: where it takes place.
        recipe: of any of its datasets.
        wanted: the datasets to make.
    """

    folder: Path
    environment: Environment
    recipe: Recipe
    wanted: tuple[Wanted, ...]
    _collected: dict[str, StepTable] = field(default_factory=dict[str, StepTable], compare=False)

    @property
    def steps(self) -> int:
        """Of the environment: those of the training, and those of each policy that is recorded."""
        kinds = {part for wanted in self.wanted for part in _policies(wanted.kind)}
        return self.recipe.steps * (1 + len(kinds))

    def check(self) -> None:
        """Raises ConfigError: the environment is not installed, or it or a setting of the agent or its explorer cannot be used."""
        with make(self.environment) as vector:
            spec = vector.spec
        agent = self._agent()
        kind = "discrete" if spec.discrete else "continuous" if isinstance(spec.action, Box) and spec.action.bounds() else ""
        if kind not in agent.action_kinds():
            needs = " or ".join(
                {"continuous": "continuous actions within bounds"}.get(k, f"{k} actions") for k in agent.action_kinds()
            )
            raise ConfigError(f"{self.environment.id} has no {needs}, which a recipe's {agent.name} needs.")
        if self.recipe.explorer is not None:
            read_explorer(self.recipe.explorer)
        batch = agent.check_settings().batch_size
        if not batch < self.recipe.warmup < self.recipe.steps:
            raise ConfigError(
                f"The recipe's warmup is {self.recipe.warmup}; it must be more than a batch of {batch} and fewer than "
                f"{self.recipe.steps} steps."
            )

    def make(self) -> Iterator[Done]:
        """Trains what is left to train, then makes the datasets that are not there.

        Raises:
            ConfigError: as `check`.
            DataError: the agent diverged.
            StorageError: the disk is full, or a folder cannot be written. What is whole stays; nothing else is left.
        """
        self.check()
        with alone(self.folder, f"waiting for another process that trains in {self.environment.id}"), _one_thread():
            missing = [wanted for wanted in self.wanted if not (wanted.folder / MANIFEST).exists()]
            done = 0
            if missing:
                buffer = self._buffer()
                for done, score in self._train(buffer):
                    yield Done(done, f"{self.environment.id}: return {score:.4g}")
            for wanted in missing:
                yield Done(done, f"{wanted.name} is recorded")
                self._dataset(wanted, buffer).write(wanted.folder)  # pyright: ignore[reportPossiblyUnboundVariable]
                done = self.recipe.steps * (1 + len(self._collected))
            yield Done(self.steps, f"{self.environment.id} is done")

    # ---- the run

    def _agent(self) -> Algorithm:
        # On the CPU wherever it is made, and on one thread: then it is the same bit for bit on machines of one kind.
        said = self.recipe.agent
        scaled = {"action_scaler": "min_max"} if "action_scaler" in algorithm_class(said["name"]).Config.model_fields else {}
        return make_algorithm({**scaled, **said}, seed=self.recipe.seed, device="cpu")

    def _explorer(self, agent: Algorithm) -> Explorer:
        said = self.recipe.explorer
        return default_explorer(agent, discrete=agent.action_kinds() == ("discrete",)) if said is None else read_explorer(said)

    @cached_property
    def _has_density(self) -> bool:
        return type(self._agent()).log_prob is not Algorithm.log_prob

    def _buffer(self) -> ReplayBuffer:
        with make(self.environment) as vector:
            extra = {"log_prob": (), **_shapes(_state(vector))} if self._has_density else _shapes(_state(vector))
            return ReplayBuffer(2 * self.recipe.steps, vector.spec, extra=extra)  # each step may end an episode

    def _recorder(self, vector: VectorEnvironment, policy: Any, observation: Any, action: np.ndarray) -> dict[str, np.ndarray]:
        density = {"log_prob": _density(vector, policy, observation, action)} if self._has_density else {}
        return {**density, **_state(vector)}

    def _train(self, buffer: ReplayBuffer) -> Iterator[tuple[int, float]]:
        """Steps made and the latest return, once an evaluation. The buffer gets all that the run has seen."""
        recipe, agent, kept = self.recipe, self._agent(), self.folder / "checkpoints"
        with storage_errors("made", self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        for _, metrics in agent.fitter_online(
            self.environment,
            buffer,
            recipe.explorer,
            n_steps=recipe.updates,
            n_steps_per_epoch=-(-recipe.updates // recipe.evaluations),
            update_start_step=recipe.warmup,
            update_interval=recipe.update_interval,
            n_updates=recipe.n_updates,
            record=self._recorder,
            eval_env=self.environment,
            eval_n_trials=recipe.episodes,
            callbacks=[self._keep],  # called before the checkpoint: what it writes is there whenever the checkpoint is
            checkpoint=kept,
            resume=True,
            show_progress=False,
        ):
            yield int(metrics["train/environment_steps"]), metrics["evaluation/return"]
        if agent.step < recipe.updates:
            where = f"{self.environment.id} at gradient step {agent.step} of {recipe.updates}"
            raise DataError(f"{agent.name} diverged in {where}: try another seed.")
        for older in checkpoints(kept)[:-1]:
            shutil.rmtree(older, ignore_errors=True)

    def _keep(self, algorithm: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        """Notes an evaluation, and keeps the policy where none before was better. Done again, it leaves the same."""
        score = Score(algorithm.step, int(metrics["train/environment_steps"]), float(metrics["evaluation/return"]))
        before = [known for known in self._scores() if known.gradient_steps < score.gradient_steps]
        if score.mean >= max((known.mean for known in before), default=-math.inf):
            algorithm.save(self._policy(score), overwrite=True)  # one that a kill left
        with storage_errors("written", self.folder):
            write_atomically(self.folder / _EVALUATIONS, json.dumps([*before, score], indent=1).encode())

    def _scores(self) -> list[Score]:
        file = self.folder / _EVALUATIONS
        return [Score(*entry) for entry in parse_json(file.read_bytes())] if file.exists() else []

    def _policy(self, score: Score) -> Path:
        return self.folder / "policies" / checkpoint_name(score.gradient_steps)

    # ---- what comes of it

    @cached_property
    def _random_return(self) -> float:
        policy = load(self._policy(self._expert), device="cpu").policy()  # which never acts
        played = evaluate(policy, self.environment, episodes=self.recipe.episodes, seed=self.recipe.seed, epsilon=1.0)
        return played.mean

    @property
    def _expert(self) -> Score:
        kept = [score for score in self._scores() if self._policy(score).exists()]  # earlier versions kept the first of equals
        return max(reversed(kept), key=lambda score: score.mean)  # of equals the last, which is the surest

    @property
    def _medium(self) -> Score:
        return medium(self._scores(), self._random_return, self.recipe.medium)

    def _dataset(self, wanted: Wanted, buffer: ReplayBuffer) -> Dataset:
        match wanted.kind:
            case "full-replay":
                table = first_steps(buffer.to_dataset().to_steps(), self.recipe.steps)
            case "medium-replay":
                table = first_steps(buffer.to_dataset().to_steps(), self._medium.steps)
            case _:
                tables = [self._collect(kind) for kind in _policies(wanted.kind)]
                table = tables[0] if len(tables) == 1 else concat_steps(tables)
        columns = {f"info/{name}" if name in _INFOS else name: column for name, column in table.columns.items()}
        table = steps_from_rows(columns, table.final_recorded)
        about = {"made": self._provenance(wanted.kind)}
        return Dataset.from_steps(table, name=wanted.name, spec=buffer.spec, environment=self.environment, provenance=about)

    def _collect(self, kind: str) -> StepTable:
        """Collect one policy's steps, reproducibly."""
        if kind not in self._collected:
            score = {"medium": self._medium, "expert": self._expert}.get(kind)
            agent = self._agent() if score is None else load(self._policy(score), device="cpu")
            explorer = None if score is None else _settled(self._explorer(agent), self.recipe.steps)
            buffer = self._buffer()
            seed = integers(fold(fold(root_key(self.recipe.seed), "recipe"), kind), 1, 2**31 - 1)[0]
            n = self.recipe.steps
            agent.collect(self.environment, buffer, explorer, n_steps=n, seed=seed, record=self._recorder, show_progress=False)
            self._collected[kind] = buffer.to_dataset().to_steps()
        return self._collected[kind]

    def _provenance(self, kind: Kind) -> dict[str, Any]:
        machine, agent = surroundings(), self._agent()
        scores = self._scores()
        told = {"random": None, "medium": self._medium._asdict(), "expert": self._expert._asdict()}
        acted = {name: told[name] for name in _policies(kind)}
        return {
            "recipe": self.recipe.model_copy(update={"kind": kind}).told(),
            "procedure": f"D4RL's (Fu et al. 2020, arXiv:2004.07219), with d3ray's {agent.name}",
            "agent": {"name": agent.name, **agent.check_settings().model_dump(mode="json")},
            "policies": acted or {"learner until": scores[-1]._asdict() if kind == "full-replay" else told["medium"]},
            "returns": {"random": self._random_return, "medium": self._medium.mean, "expert": self._expert.mean},
            "evaluations": [[score.steps, score.mean] for score in scores],
            "versions": machine["versions"],
            "machine": {
                "system": machine["system"],
                "processor": machine["processor"],
                "instructions": torch.backends.cpu.get_cpu_capability(),
            },
        }


def medium(scores: Sequence[Score], random: float, share: float) -> Score:
    """The first score that came `share` of the way from the return of random actions to the best score.

    D4RL's wiki says "approximately 1/3 the performance of the expert"; counted from random actions it means something where returns
    are negative too. An expert that is no better than random actions is its own medium policy.
    """
    best = max(scores, key=lambda score: score.mean)
    return next(score for score in scores if score.mean >= min(random + share * (best.mean - random), best.mean))


def _policies(kind: str) -> tuple[str, ...]:
    """The policies that a dataset records: none where it is what the learner saw."""
    return {"medium-expert": ("medium", "expert"), "medium-replay": (), "full-replay": ()}.get(kind, (kind,))


def _settled(explorer: Explorer, step: int) -> Explorer:
    """An explorer as it is at a step, for good."""
    epsilon = getattr(explorer, "compute_epsilon", None)
    return explorer if epsilon is None else ConstantEpsilonGreedy(epsilon=epsilon(step))


def _shapes(columns: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: column.shape[1:] for name, column in columns.items()}


def _density(vector: VectorEnvironment, policy: Any, observation: Any, action: np.ndarray) -> np.ndarray:
    """Log density of actions under who acts; without a policy they are uniform."""
    if policy is not None:
        return policy.log_prob(observation, action)
    low, high = vector.spec.action.bounds()  # pyright: ignore[reportOptionalIterable, reportGeneralTypeIssues] - see `check`
    return np.full(vector.n, -np.log(np.broadcast_to(high - low, vector.spec.action.shape)).sum())


def _state(vector: VectorEnvironment) -> dict[str, np.ndarray]:
    """MuJoCo's positions [n, nq] and velocities [n, nv]; nothing of other environments."""
    data = [getattr(environment.unwrapped, "data", None) for environment in vector.environments]
    if not all(hasattr(one, name) for one in data for name in _INFOS):
        return {}
    return {name: np.stack([np.array(getattr(one, name)) for one in data]) for name in _INFOS}


@contextmanager
def _one_thread() -> Generator[None]:
    """Torch adds up in one order only."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
