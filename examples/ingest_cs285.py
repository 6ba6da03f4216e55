"""Berkeley CS285's expert data, from its pickles to a d3ray dataset folder.

    python examples/ingest_cs285.py expert_data_Hopper-v4.pkl ./hopper-expert

Files: https://github.com/berkeleydeeprlcourse/homework_fall2023, hw1/cs285/expert_data. Each is a list of paths, and a path is a
dict of arrays with one row a step: observation, action, reward, next_observation, terminal. What this script mends:
- `terminal` is also set where a path was stopped after 1,000 steps, gymnasium's time limit. There an episode is truncated.
- The expert's actions go beyond [-1, 1]. The simulator clips them, so the clipped ones are what was done.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import numpy as np

from d3ray.data.dataset import Dataset
from d3ray.data.errors import D3rayError, DataError
from d3ray.data.formats import restricted_pickle
from d3ray.data.spec import Box, Environment, Spec
from d3ray.data.steps import steps_from_arrays

TIME_LIMIT = 1_000  # steps, of gymnasium's Hopper-v4, HalfCheetah-v4, Walker2d-v4 and Ant-v4
KEYS = ("observation", "action", "reward", "next_observation", "terminal")


def read_cs285(path: Path, environment: str, *, timeout_at: int = TIME_LIMIT) -> tuple[Dataset, int]:
    """The dataset in a file, and how many entries of actions were clipped.

    Args:
        path: a pickle as above.
        environment: gymnasium id of where the expert acted, such as "Hopper-v4".
        timeout_at: steps after which a terminal is the clock's and not the task's.

    Raises:
        DataError: the file is no such pickle, or holds more than arrays.
    """
    paths = restricted_pickle.load(path)
    if not isinstance(paths, list) or not paths or not all(isinstance(p, dict) and p.keys() >= set(KEYS) for p in paths):
        raise DataError(f"{path} does not hold a list of paths, each a dict of {', '.join(KEYS)}.")
    if any(len(p[key]) != len(p["reward"]) or not len(p["reward"]) for p in paths for key in KEYS):
        raise DataError(f"{path} has a path whose arrays differ in length or are empty.")
    arrays = {key: np.concatenate([p[key] for p in paths]) for key in KEYS}
    lengths = np.array([len(p["reward"]) for p in paths])
    last = np.cumsum(lengths) - 1
    terminated, truncated = arrays["terminal"].astype(bool), np.zeros(len(arrays["reward"]), bool)
    terminated[last] &= lengths < timeout_at
    truncated[last] = ~terminated[last]
    clipped = np.clip(arrays["action"], -1, 1)
    steps = steps_from_arrays(
        arrays["observation"],
        clipped,
        arrays["reward"],
        terminated,
        truncated,
        next_observations=arrays["next_observation"],
        source=str(path),
    )
    dataset = Dataset.from_steps(
        steps,
        name=f"cs285-expert-{environment}",
        spec=Spec(observation=Box(shape=arrays["observation"].shape[1:]), action=Box(shape=clipped.shape[1:], low=-1.0, high=1.0)),
        environment=Environment(id=environment),
        provenance={"source": "Berkeley CS285 homework 2023, expert data (MIT)", "file": path.name},
    )
    return dataset, int((clipped != arrays["action"]).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description="A CS285 expert pickle as a dataset folder.")
    parser.add_argument("source", type=Path, help="expert_data_ENVIRONMENT.pkl")
    parser.add_argument("target", type=Path, help="folder to make")
    parser.add_argument("--environment", help="gymnasium id; by default what the file's name says")
    options = parser.parse_args()
    named = re.fullmatch(r"expert_data_(.+)\.pkl", options.source.name)
    environment = options.environment or (named[1] if named else "")
    if not environment:
        parser.error("the file's name does not say which environment it is from; give --environment")
    try:
        dataset, clipped = read_cs285(options.source, environment)
        dataset.write(options.target)
    except D3rayError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    entries = dataset.n_transitions * dataset.spec.action.shape[0]
    print(f"{dataset.n_transitions} transitions in {dataset.n_episodes} episodes of {environment}")
    print(f"terminated {int(dataset.episodes.terminated.sum())}, truncated {int((~dataset.episodes.terminated).sum())}")
    print(f"returns: {', '.join(f'{r:.1f}' for r in dataset.episodes.returns)} (mean {dataset.episodes.returns.mean():.1f})")
    print(f"actions: {clipped} of {entries} entries were outside [-1, 1] and were clipped")
    print(f"written to {options.target}")


if __name__ == "__main__":
    main()
