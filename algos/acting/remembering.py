"""Policies with a memory: what the graph hands on from step to step, what was done and the reward that came. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...data.errors import ConfigError, named
from ...data.masks import masked
from ...data.seeds import fold
from ...data.spec import Spec
from ...data.storage.checks import as_array
from .graph_inputs import NoiseInput, StateInput, numbers, numbers_of
from .inputs import as_batch, named_inputs, raw_inputs, taken, with_mask

REWARD = "reward"  # input: what the environment gave since the last step; 0 at an episode's start
ACTION = "context/action"  # state: actions of the latest steps, raw; a step writes its own as the last
RETURN_TO_GO = "context/return_to_go"  # state that starts as the return that is asked for
DECISIONS = "lasting/decisions"  # how many each environment has had, which tell noise apart; no input of the graph
KEYS = "lasting/keys"  # uint64: keys that noise is drawn by in this one step, whatever else is in the batch; no input of the graph

Memory = dict[str, np.ndarray]
PIECE = 512  # rows that go through a graph at once: several actions of each, in several networks, take memory


def in_pieces(run: Callable[[Mapping[str, Any]], tuple[np.ndarray, ...]], inputs: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    """What `run` makes of the rows of all inputs [n, ...], of at most `PIECE` at once."""
    n = len(next(iter(inputs.values())))
    if n <= PIECE:
        return run(inputs)
    parts = [run({name: rows[k : k + PIECE] for name, rows in inputs.items()}) for k in range(0, n, PIECE)]
    return tuple(np.concatenate(outputs) for outputs in zip(*parts, strict=True))


class Remembering:
    """Base of policies whose graph has state inputs; how a torch module or onnxruntime runs it is for subclasses to say.

    `seed` is that of the numbers which noise inputs take. `target_returns` are the returns that are asked for, in the units of the
    environment's rewards; the first one where there is a choice, and empty where none was ever said.
    """

    name: str
    spec: Spec
    states: Sequence[StateInput]
    noises: Sequence[NoiseInput] = ()
    seed: int = 0
    target_returns: tuple[float, ...] = ()

    def run_graph(self, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """The action, and what each state becomes, at inputs by name."""
        raise NotImplementedError

    def start(self, n: int, target_return: float | None = None) -> Memory:
        """Give the memory of n environments that have just been reset.

        `target_return` is asked for, in the units of the environment's rewards; None: the first of `target_returns`. Raises
        ConfigError where there is none, though the policy acts for one; or one was said, and it acts for none.
        """
        memory = {s.name: np.full((n, *s.shape[1:]), s.start, s.dtype) for s in self.states}  # pyright: ignore[reportArgumentType, reportCallIssue]
        if self.noises:
            memory[DECISIONS] = np.zeros(n, np.int64)
        if RETURN_TO_GO not in memory:
            if target_return is not None:
                raise ConfigError(f"{self.name} acts for no return that is asked for: leave target_return out.")
            return memory
        if target_return is None:
            if not self.target_returns:
                raise ConfigError(
                    f"{self.name} acts for a return, and none was said: set {named('target_returns')}, or give target_return."
                )
            target_return = self.target_returns[0]
        memory[RETURN_TO_GO][:] = target_return
        return {**memory, REWARD: np.zeros(n, np.float32)}

    def asking(self, target_return: float) -> Asking:
        return Asking(self, target_return)

    def step(self, state: Memory, observation: Any, action_mask: Any = None) -> tuple[Memory, np.ndarray]:
        """Raw observations [n, ...], with a mask of legal actions or none, to the next memory and raw actions [n, A].

        Raises DataError where a shape is wrong.
        """
        rows, leaves = raw_inputs(self.spec, with_mask(self.spec, observation, action_mask)), named_inputs(self.spec)
        inputs = {name: part.astype(leaves[name].dtype, copy=False) for name, part in rows.items()}
        inputs |= {name: array for name, array in state.items() if name not in (DECISIONS, KEYS)} | self.drawn(state)
        action, *new = in_pieces(self.run_graph, inputs)
        memory = {s.name: array for s, array in zip(self.states, new, strict=True)}
        if DECISIONS in state:
            memory[DECISIONS] = state[DECISIONS] + 1
        if REWARD in state:
            memory[REWARD] = np.zeros_like(state[REWARD])
        return memory, action

    def drawn(self, state: Memory) -> Memory:
        if KEYS in state:
            keys: list[int] = state[KEYS].tolist()
            return {
                port.name: numbers_of([fold(key, port.name) for key in keys], port.shape[1:], port.distribution)  # pyright: ignore[reportArgumentType]
                for port in self.noises
            }
        return {
            port.name: numbers(self.seed, port.name, state[DECISIONS].tolist(), port.shape[1:], port.distribution)  # pyright: ignore[reportArgumentType]
            for port in self.noises
        }

    def executed(self, state: Memory, action: Any) -> Memory:
        """The memory once raw actions [n, A] were done where `step` had proposed others: later decisions look back at these."""
        if ACTION not in state:
            return state
        remembered = state[ACTION].copy()
        remembered[:, -1] = as_array("The array of actions", action).reshape(remembered[:, -1].shape)
        return {**state, ACTION: remembered}

    def rewarded(self, state: Memory, reward: Any) -> Memory:
        """The memory once the environments have given rewards [n], which the return that is left falls by."""
        return {**state, REWARD: state[REWARD] + np.asarray(reward, np.float32)} if REWARD in state else state

    def predict(self, observation: Any, action_mask: Any = None) -> np.ndarray:
        """Actions at raw observations [B, ...], in the environment's units: [B, A], or int64 [B]; of a single one [A], or an int64.

        Args:
            observation: An array, or mappings and tuples of them, which may have the mask as the key `action_mask`.
            action_mask: Bool [B, n], which actions are legal, where the policy knows a mask. None: all are.

        Raises:
            ConfigError: an action depends on what came before.
            DataError: a shape is wrong, a number is not finite, no action is legal in a row, or the policy knows no mask.
        """
        if self.states:
            raise ConfigError(refusal(self.name))
        shown, single = as_batch(self.spec, observation, action_mask)
        action = self.step(self.start(len(next(iter(raw_inputs(self.spec, shown).values())))), shown)[1]
        action = taken(self.spec, action)
        return action[0] if single else action


class Asking:
    """A policy that is asked for one return in every episode."""

    def __init__(self, policy: Remembering, target_return: float) -> None:
        self.policy, self.target_return, self.spec = policy, target_return, policy.spec

    def start(self, n: int) -> Memory:
        return self.policy.start(n, self.target_return)

    def step(self, state: Memory, observation: Any, action_mask: Any = None) -> tuple[Memory, np.ndarray]:
        return self.policy.step(state, observation, action_mask)

    def executed(self, state: Memory, action: Any) -> Memory:
        return self.policy.executed(state, action)

    def rewarded(self, state: Memory, reward: Any) -> Memory:
        return self.policy.rewarded(state, reward)


class StatefulWrapper:
    """A policy with a memory in one environment, as d3rlpy has it: `predict(x, reward)`, and `reset()` before every episode.

    Args:
        policy: Of an algorithm, or out of a package: `policy`, or `policy.asking(1_000.0)`.
    """

    def __init__(self, policy: Remembering | Asking) -> None:
        self.policy = policy
        self.reset()

    def predict(self, x: Any, reward: float = 0.0, action: Any = None, action_mask: Any = None) -> np.ndarray:
        """The action [A] at an observation [...].

        Args:
            x: The observation.
            reward: What the last action was rewarded with; 0 at an episode's start.
            action: What was done at the last step, [A]; None: what was predicted there.
            action_mask: Bool [n], which actions are legal now; None: all.
        """
        if action is not None:
            self._memory = self.policy.executed(self._memory, [action])
        self._memory = self.policy.rewarded(self._memory, [reward])
        several = isinstance(x, Mapping)
        one = {key: as_array(key, part)[None] for key, part in x.items()} if several else as_array("The observation", x)[None]
        self._memory, proposed = self.policy.step(self._memory, masked(one, None if action_mask is None else [action_mask]))
        return proposed[0]

    def reset(self) -> None:
        self._memory = self.policy.start(1)


def refusal(name: str) -> str:
    """Why there is no `predict`, in one sentence."""
    return (
        f"{name} acts on what came before, so one observation is not enough: use policy() with start and step, and rewarded where "
        "it acts for a return, or as_stateful_wrapper() for a single environment."
    )
