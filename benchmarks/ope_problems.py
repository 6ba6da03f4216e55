"""Problems in which a policy's value is known: a contextual bandit, an MDP of six states, CartPole; logs of them are drawn here."""

from __future__ import annotations

import gymnasium
import numpy as np

from d3ray.algos.judging.logs import Logs


class Bandit:
    """Twenty kinds of user, four items, clicks of 0 or 1.

    Args:
        apart: How much the judged policy prefers what is clicked, beside the behaviour: 0, they are the same.
        wrong: How far the values that estimators are given lie off, as a standard deviation.
    """

    gamma = 1.0

    def __init__(self, apart: float, wrong: float = 0.1) -> None:
        rng = np.random.default_rng(7)
        self.click, liking = rng.uniform(0.1, 0.9, (20, 4)), rng.normal(0, 1, (20, 4))
        self.behaviour, self.judged = softmax(liking), softmax(liking + apart * (4 * self.click - 2))
        self.guess = self.click + wrong * rng.normal(size=(20, 4))
        self.truth = float((self.judged * self.click).sum(1).mean())
        self.bounds = 0.0, float((self.judged / self.behaviour).max())  # of w r

    def draw(self, rng: np.random.Generator, n: int) -> Logs:
        """Of n users, one step each."""
        user = rng.integers(20, size=n)
        item = drawn(rng, self.behaviour[user])
        return Logs(
            (rng.uniform(size=n) < self.click[user, item]).astype(float),
            np.ones(n, int),
            np.log(self.behaviour[user, item]),
            np.log(self.judged[user, item]),
            gamma=self.gamma,
            q_value=self.guess[user, item],
            value=(self.judged * self.guess).sum(1)[user],
        )


class Chain:
    """Six states, two actions, an end with the probability 0.15 after each step, rewards of 0 or 1; arguments as `Bandit`'s."""

    gamma = 0.97
    bounds = None  # no useful one: weights grow with an episode's length

    def __init__(self, apart: float, wrong: float = 0.3) -> None:
        rng = np.random.default_rng(8)
        self.moves = 0.85 * rng.dirichlet(np.full(6, 0.5), (6, 2))  # [state, action, next state]; the rest is the end
        self.reward, liking = rng.uniform(0, 1, (6, 2)), rng.normal(0, 0.5, (6, 2))
        self.behaviour, self.judged = softmax(liking), softmax(liking + apart * (2 * self.reward - 1))
        pairs = np.einsum("san,nb->sanb", self.moves, self.judged).reshape(12, 12)
        values = np.linalg.solve(np.eye(12) - self.gamma * pairs, self.reward.reshape(12)).reshape(6, 2)
        self.guess = values + wrong * rng.normal(size=(6, 2))
        self.truth = float((self.judged * values).sum(1).mean())

    def draw(self, rng: np.random.Generator, n: int) -> Logs:
        """Of n episodes to their ends."""
        return self.logs(*self.walk(rng, n))

    def walk(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        """States, actions and rewards [N] of n episodes, and the lengths of these [n]."""
        state, episode, found = rng.integers(6, size=n), np.arange(n), list[tuple[np.ndarray, ...]]()
        while len(state):
            action = drawn(rng, self.behaviour[state])
            found.append((episode, state, action, rng.uniform(size=len(state)) < self.reward[state, action]))
            following = drawn(rng, self.moves[state, action])  # 6 is the end
            state, episode = following[following < 6], episode[following < 6]
        episode, state, action, reward = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(episode, kind="stable")
        return state[order], action[order], reward[order].astype(float), np.bincount(episode)

    def logs(
        self, state: np.ndarray, action: np.ndarray, reward: np.ndarray, steps: np.ndarray, guess: np.ndarray | None = None
    ) -> Logs:
        """What was seen, with the values that estimators are given."""
        guess = self.guess if guess is None else guess
        return Logs(
            reward,
            steps,
            np.log(self.behaviour[state, action]),
            np.log(self.judged[state, action]),
            gamma=self.gamma,
            q_value=guess[state, action],
            value=(self.judged * guess).sum(1)[state],
        )


class CartPole:
    """The first 50 steps of CartPole-v1 under policies that push where the pole falls, more or less surely.

    The truth is the mean over 200,000 episodes of the judged policy. The value that estimators are given is one number.
    """

    gamma = 0.97
    bounds = None
    steps = 50

    def __init__(self, behaviour: float = 0.5, judged: float = 0.7) -> None:
        self.sure = behaviour, judged
        played = self.play(np.random.default_rng(0), 200_000, judged)
        returns = np.add.reduceat(self.gamma**played.step, played.first)
        self.truth, self.truth_error = float(returns.mean()), float(returns.std() / len(returns) ** 0.5)

    def draw(self, rng: np.random.Generator, n: int) -> Logs:
        """Of n episodes."""
        return self.play(rng, n, self.sure[0])

    def play(self, rng: np.random.Generator, n: int, sure: float) -> Logs:
        """What a policy does, which acts as surely."""
        envs = gymnasium.make_vec("CartPole-v1", num_envs=n, vectorization_mode="vector_entry_point")
        observation, going = envs.reset(seed=int(rng.integers(1 << 31)))[0], np.ones(n, bool)
        found = list[tuple[np.ndarray, ...]]()
        for _ in range(self.steps):
            falling = observation[:, 2] * 10 + observation[:, 3]
            right = rng.uniform(size=n) < 1 / (1 + np.exp(-sure * falling))
            found.append((np.flatnonzero(going), (falling * np.where(right, 1, -1))[going]))
            observation, _, fell, _, _ = envs.step(right.astype(int))  # what fell begins anew, and is not looked at
            going &= ~fell
        envs.close()
        episode, towards = (np.concatenate(parts) for parts in zip(*found, strict=True))
        towards = towards[np.argsort(episode, kind="stable")]
        log_prob, policy_log_prob = (-np.logaddexp(0, -gain * towards) for gain in self.sure)
        value = np.full(len(towards), 20.0)
        about = {"log_prob": log_prob, "policy_log_prob": policy_log_prob, "value": value, "q_value": value}
        return Logs(np.ones(len(towards)), np.bincount(episode), gamma=self.gamma, **about)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def drawn(rng: np.random.Generator, probabilities: np.ndarray) -> np.ndarray:
    """One of K by probabilities [N, K], or K where these do not add up to 1."""
    whole = np.isclose(probabilities.sum(1), 1)
    found = (rng.uniform(size=(len(probabilities), 1)) > probabilities.cumsum(1)).sum(1)
    return np.where(whole, np.minimum(found, probabilities.shape[1] - 1), found)
