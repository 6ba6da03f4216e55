"""Training while acting: `Algorithm.fit_online`, with evaluation and checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ...data.dataset import Dataset
from ...data.errors import ConfigError, StorageError
from ...data.progress import draws_bars, progress
from ...data.replay import ReplayBuffer
from ...data.seeds import fold, integers, root_key
from ..acting.fitted import policy as policy_of
from ..environments.collect import check_departs
from ..environments.collect import collect as collect_dataset
from ..environments.evaluate import EnvironmentEvaluator
from ..environments.explorers import Explorer, Greedy, PolicyDraws, read_explorer
from ..environments.make import AnyEnvironment, is_given, make
from ..environments.rollout import Recorder, Rollout
from ..environments.vector import Policy, VectorEnvironment, facing
from ..learning.callbacks import Callback, Epoch, Evaluator, Watching
from ..learning.estimator import Estimator
from ..learning.fit import check_steps
from ..saving.checkpoint import checkpoint_name, checkpoints, newest_valid
from .best_so_far import BEST, BestSoFar
from .run import OnlineRun

KEPT = 2  # checkpoints: the newest, and the one before it


def fitter_online(
    algorithm: Estimator,
    env: AnyEnvironment | VectorEnvironment,
    buffer: ReplayBuffer | None = None,
    explorer: Explorer | Mapping[str, Any] | str | None = None,
    *,
    n_steps: int = 1_000_000,
    n_steps_per_epoch: int = 10_000,
    eval_env: AnyEnvironment | VectorEnvironment | None = None,
    eval_epsilon: float = 0.0,
    eval_n_trials: int = 10,
    evaluators: Mapping[str, Evaluator] | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | Path | None = None,
    save_interval: int = 1,
    save_best: str | None = None,
    resume: bool = False,
    **arguments: Any,
) -> Iterator[Epoch]:
    """The online training loop, an epoch at a time.

    Args:
        algorithm: What learns; one that was fitted offline goes on from there.
        env: As `OnlineRun`'s.
        buffer: As `OnlineRun`'s.
        explorer: As `OnlineRun`'s.
        n_steps: Gradient steps of this run.
        n_steps_per_epoch: Gradient steps between two yields; epochs end at its multiples.
        eval_env: Where the greedy policy is evaluated after each epoch: the metrics `evaluation/return` and so on. It is another
            environment than `env`.
        eval_epsilon: Share of random actions in the evaluation.
        eval_n_trials: Episodes of an evaluation.
        evaluators: As `Algorithm.fitter`'s.
        callbacks: As `Algorithm.fitter`'s.
        checkpoint: A folder for checkpoints of the run, the replay buffer included; the newest two are kept. None: there are none.
        save_interval: Epochs between checkpoints; the last epoch has one in any case.
        save_best: An evaluator's metric, as "evaluation/return": where it is larger than it ever was, the algorithm is kept in the
            folder `best` of `checkpoint`, which `d3ray.load` opens. None: none is.
        resume: Whether a run in `checkpoint` is gone on from, as if it had not been interrupted, until it has made its `n_steps`.
            Where there is none, it begins. What the epoch after the last checkpoint had already told callbacks comes again.
        **arguments: `callback`, `epoch_callback`, `logger` and `show_progress` are `Algorithm.fitter`'s; the others are
            `OnlineRun`'s: `n_envs`, `capacity`, `dataset`, `record`, `update_interval`, `n_updates`, `random_steps`,
            `update_start_step`, `mixture`.

    Yields:
        Epoch: see `OnlineRun.epochs`.

    Raises:
        ConfigError: a setting cannot be used, or `checkpoint` holds a run and `resume` was not said, or one begun otherwise.
        DataError: the environment's spaces are not those that the algorithm is for, or was fitted on.
        StorageError: a checkpoint cannot be written, or there are some to go on from and none is whole.
    """
    if save_interval < 1:
        raise ConfigError(f"save_interval is {save_interval}; it counts epochs and must be positive.")
    if checkpoint is None and (resume or save_best):
        what = "resume needs a folder of checkpoints to go on from" if resume else "save_best needs a folder to keep the best in"
        raise ConfigError(f"{what}: name it with checkpoint.")
    if eval_env is not None and eval_env is env and is_given(env):
        raise ConfigError("eval_env is the very environment that is trained in: give another one, or its id.")
    evaluator = None
    if eval_env is not None:
        evaluator = EnvironmentEvaluator(eval_env, episodes=eval_n_trials, seed=algorithm.seed, epsilon=eval_epsilon)
        evaluators = {"evaluation": evaluator, **(evaluators or {})}
    check_steps(n_steps, n_steps_per_epoch)
    watching: Any = {name: arguments.pop(name) for name in Watching.__annotations__ if name in arguments}
    folder = None if checkpoint is None else Path(checkpoint)
    found = None if folder is None else _found(folder, resume=resume)
    best = BestSoFar(folder, save_best, evaluators or (), resumed=found is not None) if folder and save_best else None
    if found is None:
        run = OnlineRun(algorithm, env, buffer, explorer, **arguments)
    else:
        run = OnlineRun.resume(found, algorithm, env, buffer, explorer=explorer, **arguments)
    try:
        end = run.begin + n_steps
        if found is not None and algorithm.step >= end:
            return
        for epoch in run.epochs(end - algorithm.step, n_steps_per_epoch, evaluators, callbacks, **watching):
            if best is not None:  # before the checkpoint: of an epoch that is not done again the policy was looked at
                best.look(algorithm, *epoch)
            last = algorithm.step == end or algorithm.fit_.stopped
            if folder is not None and (last or epoch.epoch % save_interval == 0):
                _keep(run, folder)
            yield epoch
    finally:
        run.close()
        if evaluator is not None:
            evaluator.close()


def _keep(run: OnlineRun, folder: Path) -> None:
    """Writes a checkpoint and removes old ones, but none of later steps, which a run that goes on from before them has found."""
    run.save(newest := folder / checkpoint_name(run.algorithm.step))
    for old in [path for path in checkpoints(folder) if path.name <= newest.name][:-KEPT]:
        shutil.rmtree(old)


def _found(folder: Path, *, resume: bool) -> Path | None:
    """The checkpoint to go on from; None: there is none. What a killed process left half-written is removed."""
    if not resume and (checkpoints(folder) or (folder / BEST).exists()):
        raise ConfigError(f"{folder} holds a run already: say resume=True to go on with it, or choose another folder.")
    for leftover in (*folder.glob(".tmp-step-*"), *folder.glob(f".tmp-{BEST}-*")):
        shutil.rmtree(leftover, ignore_errors=True)
    found = newest_valid(folder)
    if found is None and (broken := checkpoints(folder)):
        raise StorageError(
            f"No checkpoint in {folder} can be read, of {len(broken)}: remove them to begin anew, or choose another folder."
        )
    return found


def collect(
    algorithm: Estimator,
    env: AnyEnvironment | VectorEnvironment,
    buffer: ReplayBuffer | None = None,
    explorer: Explorer | Mapping[str, Any] | str | None = None,
    deterministic: bool = False,
    n_steps: int | None = None,
    show_progress: bool | None = None,
    **arguments: Any,
) -> Dataset | ReplayBuffer:
    """Collect experience; see `Algorithm.collect`."""
    policy = policy_of(algorithm.fitted) if hasattr(algorithm, "fit_") else None
    if policy is not None and explorer is None and algorithm.stochastic and not deterministic:
        explorer = PolicyDraws()
    total = n_steps if buffer is not None else n_steps or arguments.get("n_episodes")
    shown = progress("collecting", total) if show_progress or (show_progress is None and draws_bars()) else nullcontext()
    with shown as advance:
        if advance is not None:
            arguments.setdefault("progress", lambda done, _: advance(to=done))
        if buffer is None:
            return collect_dataset(env, policy, n_steps=n_steps, explorer=explorer, **arguments)
        key = fold(fold(fold(root_key(algorithm.seed), "collect"), algorithm.step), buffer.n_written)
        arguments = {"seed": integers(key, 1, 2**31 - 1)[0], **arguments}
        return _collect_into(buffer, env, policy, read_explorer(explorer or Greedy()), n_steps, **arguments)


def _collect_into(
    buffer: ReplayBuffer,
    env: Any,
    policy: Policy | None,
    explorer: Explorer,
    n_steps: int | None,
    *,
    seed: int,
    n_envs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    record: Recorder | None = None,
    **others: Any,
) -> ReplayBuffer:
    if others:
        raise ConfigError(f"A buffer gets a number of transitions, n_steps, and {min(others)} is for collecting a dataset.")
    if n_steps is None or n_steps < 1:
        raise ConfigError(f"n_steps is {n_steps}; a buffer gets a number of transitions, which must be positive.")
    check_departs(explorer, policy)
    vector = make(env, n=n_envs, seed=seed)
    try:
        rollout, policy = Rollout(vector, buffer, explorer, seed=seed, record=record), facing(policy, vector.spec)
        for done in range(vector.n, n_steps + vector.n, vector.n):
            rollout.step(policy)
            if progress is not None:
                progress(done, n_steps)
        buffer.cut_episodes(rollout.observation)
    finally:
        if not is_given(env):
            vector.close()
    return buffer
