"""Experience of a policy in an environment, as a dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch

from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.masks import Masked, mask_of
from ...data.spec import as_recorded
from ...data.storage.steps import steps_from_arrays
from .explorers import Explorer, random_actions, read_explorer
from .make import AnyEnvironment, environment_of, is_given, make
from .vector import Policy, VectorEnvironment, facing, looked_back, rows_of


def collect(
    environment: AnyEnvironment | VectorEnvironment,
    policy: Policy | None = None,
    *,
    n_steps: int | None = None,
    n_episodes: int | None = None,
    seed: int = 0,
    n_envs: int = 1,
    explorer: Explorer | Mapping[str, Any] | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    name: str | None = None,
) -> Dataset:
    """Plays and records. Final observations are recorded for every episode; `terminated` and `truncated` are the environment's own.

    Each environment has its share of the steps or episodes beforehand (n // n_envs, the first ones one more). With `n_steps`, an
    environment's last episode ends where its share does, truncated. Actions are recorded as proposed; environments get them
    clipped to their bounds. The same arguments give the same dataset; another n_envs gives another one.

    Args:
        environment: As for `make`; an object is left open. A `VectorEnvironment` goes on with its own seeds and number.
        policy: None: uniform random actions, addressed by (seed, step).
        n_steps: Transitions in all, exactly. Either this or `n_episodes`.
        n_episodes: Episodes in all.
        seed: Of the resets, the random actions and the explorer.
        n_envs: Environments stepped at once.
        explorer: What replaces or disturbs the policy's actions: a config, its name, or a mapping. A step of it is one of each
            environment.
        progress: Called after every step with what is done and what is to be done, in steps or episodes.
        name: Of the dataset. None: the environment's id and `random` or `policy`.

    Returns:
        A dataset in memory, episodes ordered by environment; spec, environment and provenance are set.

    Raises:
        ConfigError: both or neither of `n_steps` and `n_episodes`, fewer than n_envs of them, or no such environment.
        DataError: the policy's action is NaN, or the environment gave something that is not finite.
    """
    total = n_steps if n_episodes is None else n_episodes
    if total is None or (n_steps is not None and n_episodes is not None):
        raise ConfigError("collect needs either n_steps or n_episodes.")
    n_envs = environment.n if isinstance(environment, VectorEnvironment) else n_envs
    if not 1 <= n_envs <= total:
        raise ConfigError(f"n_envs is {n_envs}; it must be at least 1 and at most the {total} steps or episodes to collect.")
    explorer = None if explorer is None else read_explorer(explorer)
    check_departs(explorer, policy)
    vector = make(environment, n=n_envs, seed=seed)
    try:
        known = environment_of(vector.single)
        columns, finals = _record(
            vector,
            facing(policy, vector.spec),
            total,
            by_episodes=n_episodes is not None,
            seed=seed,
            explorer=explorer,
            progress=progress,
        )
        table = steps_from_arrays(
            **columns,
            final_observations=finals,
            starts=vector.spec.starts(),
            source=f"what {known.id if known else 'the environment'} gave",
        )
    finally:
        if not is_given(environment):
            vector.close()
    kind = "random" if policy is None else "policy"
    provenance = {
        "collected": {
            "policy": "uniform random" if policy is None else type(policy).__name__,
            "explorer": None if explorer is None else explorer.model_dump(),
            "seed": seed,
            "n_steps": n_steps,
            "n_episodes": n_episodes,
            "n_envs": n_envs,
            "gymnasium": gymnasium.__version__,
        }
    }
    default = f"{known.id if known else type(vector.single).__name__}-{kind}".replace("/", "-")
    return Dataset.from_steps(table, name=name or default, spec=vector.spec, environment=known, provenance=provenance)


def _record(
    vector: VectorEnvironment,
    policy: Policy | None,
    total: int,
    *,
    by_episodes: bool,
    seed: int,
    explorer: Explorer | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[str, Any], Any]:
    """Columns of all steps, environment after environment, and the final observation of every episode."""
    n, space = vector.n, vector.spec.action
    quota = np.array([total // n + (i < total % n) for i in range(n)])
    done, step = np.zeros(n, np.int64), 0
    rows: list[list[tuple[Any, ...]]] = [[] for _ in range(n)]
    finals: list[list[Any]] = [[] for _ in range(n)]
    observation, state = vector.reset(), None if policy is None else policy.start(n)
    playing = list(range(n))
    while playing:
        if policy is None:
            action = random_actions(space, n, step=step, seed=seed, action_mask=mask_of(observation))
        else:
            state, action = proposal(policy, explorer, state, observation, step=step, seed=seed)
        if explorer is not None:
            action = explorer.explore_at(observation, np.asarray(action), space, step=step, seed=seed)
        action = as_recorded(space, action).reshape(n, *space.shape)
        result = vector.step(action, playing)
        state = looked_back(policy, state, action, result.reward)
        done[playing] += result.ended[playing] if by_episodes else 1
        cut = (done == quota) & ~result.ended if not by_episodes else np.zeros(n, bool)
        for i in playing:
            end = result.ended[i] or cut[i]
            rows[i].append(
                (rows_of(observation, i), action[i], result.reward[i], result.terminated[i], result.truncated[i] or cut[i])
            )
            if end:
                finals[i].append(rows_of(result.observation, i))
        playing = [i for i in playing if done[i] < quota[i]]
        observation = result.observation
        if again := [i for i in playing if result.ended[i]]:
            observation = vector.reset(again)
            if policy is not None:
                state = restarted(state, policy.start(n), again)
        step += 1
        if progress is not None:
            progress(int(done.sum()), total)
    together = [row for one in rows for row in one]
    columns = {
        "observations": _stack([row[0] for row in together]),
        **{
            name: np.array([row[k] for row in together])
            for k, name in enumerate(("actions", "rewards", "terminated", "truncated"), 1)
        },
    }
    return columns, _stack([final for one in finals for final in one])


def check_departs(explorer: Explorer | None, policy: Policy | None) -> None:
    if policy is None and explorer is not None and explorer.departs_from != "action":
        raise ConfigError(f"The explorer {explorer.name!r} departs from a trained policy, and there is none.")


def proposal(
    policy: Any, explorer: Explorer | None, memory: Any, observation: Any, *, step: int, seed: int
) -> tuple[Any, np.ndarray]:
    """The policy's next memory, and what an explorer departs from: an action, or values, of each environment.

    Args:
        policy: What acts.
        explorer: None: what it departs from is the action that the policy takes.
        memory: The policy's, from `start` or the last of these.
        observation: Raw, of each environment.
        step: How many steps each has made; it addresses the draws with `seed`.
        seed: Of the run.

    Raises:
        ConfigError: the policy cannot give it.
    """
    if explorer is None or explorer.departs_from == "action":
        return policy.step(memory, observation)
    if not hasattr(policy, "propose"):
        raise ConfigError(f"The explorer {explorer.name!r} needs what only a trained algorithm gives, not {type(policy).__name__}.")
    return policy.propose(explorer.departs_from, memory, observation, step=step, seed=seed)


def restarted(state: Any, fresh: Any, ended: list[int]) -> Any:
    """A policy's state in which the rows `ended` are as in `fresh`. Every leaf is None or has the environments as first axis.

    What a dict has under a key that begins with `lasting/` goes on over episodes.
    """
    if state is None:
        return None
    if isinstance(state, dict):
        return {key: v if key.startswith("lasting/") else restarted(v, fresh[key], ended) for key, v in state.items()}
    if isinstance(state, tuple | list):
        parts = [restarted(s, f, ended) for s, f in zip(state, fresh, strict=True)]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    new = state.clone() if isinstance(state, torch.Tensor) else np.array(state)
    new[ended] = fresh[ended]
    return new


def _stack(observations: list[Any]) -> Any:
    if isinstance(observations[0], Masked):
        return Masked(_stack([o.observation for o in observations]), np.stack([o.action_mask for o in observations]))
    if isinstance(observations[0], dict):
        return {key: np.stack([o[key] for o in observations]) for key in observations[0]}
    return np.stack(observations)
