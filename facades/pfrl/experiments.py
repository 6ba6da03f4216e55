"""PFRL's drivers: loops that train an agent, evaluate it every so many steps, and keep what it was; and the folders of runs.

Environments are gymnasium's, one or a list of them for the drivers of batches. Steps are of all environments together. An episode
that `truncated` or a `max_episode_len` cuts is observed with `reset`, one that the MDP ends with `done`.

`train_agent_async` has no place here: trials of `d3ray train … online=N` act and learn in processes of a cluster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from d3ray.data.errors import ConfigError

from .agent import Agent
from .folders import generate_exp_id as generate_exp_id
from .folders import is_under_git_control as is_under_git_control
from .folders import prepare_output_dir as prepare_output_dir

Stats = dict[str, float]
_HEADER = ("steps", "episodes", "elapsed", "mean", "median", "stdev", "max", "min")


class StepHook(Protocol):
    """What is called after every step; any function will do."""

    def __call__(self, env: Any, agent: Agent, step: int) -> None: ...


class EvaluationHook(Protocol):
    """What is called after every evaluation; any function that takes these names will do."""

    def __call__(self, *, env: Any, agent: Agent, step: int, eval_stats: Stats, agent_stats: list[tuple[str, Any]]) -> None: ...


class LinearInterpolationHook:
    """Sets a value that goes in a straight line from `start_value` to `stop_value` over `total_steps`, and stays there.

    Args:
        total_steps: Of the line.
        start_value: Where it begins.
        stop_value: Where it ends.
        setter: Gets (env, agent, value). `agent.set(learning_rate=value)` changes what the optimiser does; PFRL's documented
            example, which sets an attribute of the optimiser, changes nothing.
    """

    def __init__(self, total_steps: int, start_value: float, stop_value: float, setter: Callable[[Any, Agent, float], Any]) -> None:
        self.total_steps, self.start_value, self.stop_value, self.setter = total_steps, start_value, stop_value, setter

    def __call__(self, env: Any, agent: Agent, step: int) -> None:
        done = min(step, self.total_steps) / self.total_steps
        self.setter(env, agent, self.start_value + (self.stop_value - self.start_value) * done)


def eval_performance(
    env: Any, agent: Agent, n_steps: int | None, n_episodes: int | None, max_episode_len: int | None = None
) -> Stats:
    """Plays greedily, teaching nothing: `mean`, `median`, `stdev`, `max` and `min` of the returns, and `episodes`, their number.

    Args:
        env: Where it plays; reset first.
        agent: Who plays.
        n_steps: Steps; the last episode counts only where it is the only one. Either this or `n_episodes`.
        n_episodes: Episodes.
        max_episode_len: Steps after which one is cut.

    Raises:
        ConfigError: neither or both are given.
    """
    if (n_steps is None) == (n_episodes is None):
        raise ConfigError("An evaluation lasts either n_steps or n_episodes: give one of them.")
    returns: list[float] = []
    made, total = 0, 0.0
    with agent.eval_mode():
        while len(returns) < n_episodes if n_episodes is not None else made < (n_steps or 0):
            obs, _ = env.reset()
            total, length, ended = 0.0, 0, False
            while not ended and (n_steps is None or made < n_steps):
                obs, reward, done, cut, _ = env.step(agent.batch_act([obs])[0])
                total, length, made = total + float(reward), length + 1, made + 1
                cut = cut or length == max_episode_len
                agent.batch_observe([obs], [reward], [done], [cut])
                ended = done or cut
            if ended or not returns:
                returns.append(total)
    spread = statistics.stdev(returns) if len(returns) > 1 else 0.0
    found = {"mean": statistics.mean(returns), "median": statistics.median(returns), "stdev": spread}
    return {"episodes": float(len(returns)), **found, "max": max(returns), "min": min(returns)}


class _Evaluator:
    """Evaluates every so many steps, writes `scores.txt`, and keeps the best agent so far in the folder `best`."""

    def __init__(
        self,
        env: Any,
        agent: Agent,
        outdir: Path,
        *,
        interval: int,
        n_steps: int | None,
        n_episodes: int | None,
        max_episode_len: int | None,
        hooks: Sequence[EvaluationHook],
        keeps_best: bool,
        begin: int,
        tensorboard: bool,
    ) -> None:
        if interval < 1:
            raise ConfigError(f"eval_interval is {interval}; it counts steps and must be positive.")
        self.env, self.agent, self.outdir, self.interval, self.hooks = env, agent, outdir, interval, hooks
        self.how = n_steps, n_episodes, max_episode_len
        self.keeps_best, self.best, self.history = keeps_best, -np.inf, list[Stats]()
        self._writer: Any = None
        if tensorboard:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(outdir))
        self._next, self._begun = begin - begin % interval + interval, time.monotonic()
        self._names = [name for name, _ in agent.get_statistics() if "/" not in name]
        (outdir / "scores.txt").write_text("\t".join([*_HEADER, *self._names]) + "\n")

    def due(self, step: int) -> bool:
        return step >= self._next

    def evaluate(self, step: int, episodes: int) -> Stats:
        self._next = step - step % self.interval + self.interval
        stats, known = eval_performance(self.env, self.agent, *self.how), self.agent.get_statistics()
        said, elapsed = dict(known), time.monotonic() - self._begun
        row = [step, episodes, f"{elapsed:.3f}", *(stats[name] for name in _HEADER[3:]), *(said.get(n, "nan") for n in self._names)]
        with (self.outdir / "scores.txt").open("a") as file:
            file.write("\t".join(map(str, row)) + "\n")
        if self._writer is not None:
            for name, value in stats.items():
                self._writer.add_scalar(f"eval/{name}", value, step)
            self._writer.flush()
        for hook in self.hooks:
            hook(env=self.env, agent=self.agent, step=step, eval_stats=stats, agent_stats=known)
        if self.keeps_best and stats["mean"] > self.best:
            self.best = stats["mean"]
            self.agent.save(self.outdir / "best")
        self.history.append({"eval_score": stats["mean"], "steps": float(step), "elapsed": elapsed, **stats})
        return stats


def train_agent(
    agent: Agent,
    env: Any,
    steps: int,
    outdir: str | Path,
    checkpoint_freq: int | None = None,
    max_episode_len: int | None = None,
    step_offset: int = 0,
    evaluator: Any = None,
    successful_score: float | None = None,
    step_hooks: Sequence[StepHook] = (),
    eval_during_episode: bool = False,
) -> list[Stats]:
    """Trains in one environment, or in a list of them, for so many steps; `train_agent_batch` is another name of it.

    Args:
        agent: Who learns.
        env: Where; reset first, and left open.
        steps: Until which count of steps, of all environments together.
        outdir: Gets `STEP_checkpoint`, `STEP_finish`, and where something is raised `STEP_except`: folders that `d3ray.load` opens.
        checkpoint_freq: Steps between checkpoints; None: there are none.
        max_episode_len: Steps after which an episode is cut.
        step_offset: Where the count begins.
        evaluator: None, or what `train_agent_with_evaluation` gives it.
        successful_score: Mean return of an evaluation at which training ends.
        step_hooks: Called after each step of each environment with (env, agent, step).
        eval_during_episode: Whether an evaluation of one environment's agent need not wait for an episode's end.

    Returns:
        What each evaluation gave.

    Raises:
        ConfigError: the agent is for another number of environments.
    """
    envs, folder = list(env) if isinstance(env, list | tuple) else [env], Path(outdir)
    if len(envs) != agent.n_envs:
        raise ConfigError(f"The agent acts in {agent.n_envs} environments, and here are {len(envs)}.")
    folder.mkdir(parents=True, exist_ok=True)
    step, episodes, n = step_offset, 0, len(envs)
    saved = step // checkpoint_freq if checkpoint_freq else 0
    try:
        shown, lengths = [one.reset()[0] for one in envs], [0] * n
        while step < steps:
            came = [one.step(action) for one, action in zip(envs, agent.batch_act(shown), strict=True)]
            lengths = [length + 1 for length in lengths]
            shown = [obs for obs, *_ in came]
            done = [bool(ended) for _, _, ended, _, _ in came]
            cut = [bool(late) or length == max_episode_len for (*_, late, _), length in zip(came, lengths, strict=True)]
            agent.batch_observe(shown, [float(reward) for _, reward, *_ in came], done, cut)
            for i, one in enumerate(envs):
                step += 1
                for hook in step_hooks:
                    hook(one, agent, step)
                if done[i] or cut[i]:
                    shown[i], lengths[i], episodes = one.reset()[0], 0, episodes + 1
            if evaluator is not None and evaluator.due(step) and (n > 1 or eval_during_episode or lengths == [0]):
                stats = evaluator.evaluate(step, episodes)
                if evaluator.env in envs:  # whose episode is over then
                    agent.stop_episode()
                    shown, lengths = [one.reset()[0] for one in envs], [0] * n
                if successful_score is not None and stats["mean"] >= successful_score:
                    break
            if checkpoint_freq and step // checkpoint_freq > saved:
                saved = step // checkpoint_freq
                agent.save(folder / f"{step}_checkpoint")
    except BaseException:
        agent.save(folder / f"{step}_except")
        raise
    agent.save(folder / f"{step}_finish")
    return [] if evaluator is None else evaluator.history


def train_agent_with_evaluation(
    agent: Agent,
    env: Any,
    steps: int,
    eval_n_steps: int | None,
    eval_n_episodes: int | None,
    eval_interval: int,
    outdir: str | Path,
    checkpoint_freq: int | None = None,
    train_max_episode_len: int | None = None,
    step_offset: int = 0,
    eval_max_episode_len: int | None = None,
    eval_env: Any = None,
    successful_score: float | None = None,
    step_hooks: Sequence[StepHook] = (),
    evaluation_hooks: Sequence[EvaluationHook] = (),
    save_best_so_far_agent: bool = True,
    use_tensorboard: bool = False,
    eval_during_episode: bool = False,
) -> tuple[Agent, list[Stats]]:
    """Trains and evaluates; see `train_agent` and `eval_performance` for what is said there.

    Args:
        agent: As `train_agent`'s.
        env: "
        steps: "
        eval_n_steps: Steps of an evaluation; either these or `eval_n_episodes`.
        eval_n_episodes: Episodes of an evaluation.
        eval_interval: Steps between evaluations.
        outdir: As `train_agent`'s; it gets `scores.txt` too, a row an evaluation, and `best`.
        checkpoint_freq: As `train_agent`'s.
        train_max_episode_len: As its `max_episode_len`.
        step_offset: As `train_agent`'s.
        eval_max_episode_len: Steps after which an episode of an evaluation is cut; None: as in training.
        eval_env: Where it is evaluated; None: where it trains, whose episodes are cut for it.
        successful_score: As `train_agent`'s.
        step_hooks: "
        evaluation_hooks: Called after each evaluation.
        save_best_so_far_agent: Whether the folder `best` has the agent of the best mean return so far.
        use_tensorboard: Whether evaluations are written for TensorBoard too.
        eval_during_episode: As `train_agent`'s; it needs an `eval_env`.

    Returns:
        The agent, and what each evaluation gave.

    Raises:
        ConfigError: an evaluation is not told how long it lasts, or would end an episode that goes on.
    """
    if eval_during_episode and eval_env is None:
        raise ConfigError("eval_during_episode needs another environment to evaluate in: give eval_env.")
    folder = Path(outdir)
    folder.mkdir(parents=True, exist_ok=True)
    first = env[0] if isinstance(env, list | tuple) else env
    evaluator = _Evaluator(
        first if eval_env is None else eval_env,
        agent,
        folder,
        interval=eval_interval,
        n_steps=eval_n_steps,
        n_episodes=eval_n_episodes,
        max_episode_len=train_max_episode_len if eval_max_episode_len is None else eval_max_episode_len,
        hooks=evaluation_hooks,
        keeps_best=save_best_so_far_agent,
        begin=step_offset,
        tensorboard=use_tensorboard,
    )
    history = train_agent(
        agent,
        env,
        steps,
        folder,
        checkpoint_freq,
        train_max_episode_len,
        step_offset,
        evaluator,
        successful_score,
        step_hooks,
        eval_during_episode,
    )
    return agent, history


def train_agent_batch_with_evaluation(
    agent: Agent,
    env: Any,
    steps: int,
    eval_n_steps: int | None,
    eval_n_episodes: int | None,
    eval_interval: int,
    outdir: str | Path,
    max_episode_len: int | None = None,
    **others: Any,
) -> tuple[Agent, list[Stats]]:
    """`train_agent_with_evaluation` in a list of environments; `max_episode_len` is PFRL's name of its length in training."""
    told: dict[str, Any] = {"train_max_episode_len": max_episode_len, **others}
    return train_agent_with_evaluation(agent, env, steps, eval_n_steps, eval_n_episodes, eval_interval, outdir, **told)


train_agent_batch = train_agent
