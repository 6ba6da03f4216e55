"""d3rlpy's HDF5 layout since 2.0, as its `ReplayBuffer.load` reads it: a few arrays an episode."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..dataset import Dataset
from ..errors import ConfigError
from ..masks import ACTION_MASK
from ..storage.costs import COST
from .aside import file_aside
from .blocks import Advance, blocks, info_columns, left_out, observation_columns, others, silent
from .hdf5_file import new_hdf5

VERSION = "2.1"  # of the layout; d3rlpy 2.8.1 writes it
COLUMNS = ("observations", "actions", "rewards", "terminated")


def write_d3rlpy(dataset: Dataset, target: str | Path, *, overwrite: bool = False, advance: Advance = silent) -> list[str]:
    """One HDF5 file: of episode 3 `observations_3` [T, ...], `actions_3` [T, A] or [T, 1], `rewards_3` [T, 1], `terminated_3`.

    Observations that are a tuple become a list of arrays, `observations_3_0` and so on. Cannot carry: dicts of observations
    (refused), final observations (so d3rlpy draws one step fewer of every truncated episode), log-probabilities, masks of
    legal actions, infos and further columns.

    Args, returns and raises as for `write_d4rl`.
    """
    parts, episodes = observation_columns(dataset), dataset.episodes
    if set(parts) not in ({""}, {str(k) for k in range(len(parts))}):
        raise ConfigError(
            f"The observations are a dict ({', '.join(parts)}), and d3rlpy holds arrays or tuples: say format=minari, or parquet."
        )
    further = [name for name in dataset.kinds if name in ("log_prob", COST, ACTION_MASK)]
    notes = left_out([*others(dataset), *info_columns(dataset), *further])
    if lost := int(np.sum(episodes.final_recorded)):
        cut = int(np.sum(~episodes.terminated))
        fewer = f"; of the {cut} truncated episodes it draws one step fewer" if cut else ""
        notes.append(f"The final observations of {lost} episodes are left out, for which d3rlpy has no place{fewer}.")
    with file_aside(target, overwrite=overwrite) as path, new_hdf5(path) as (file, disk):
        file["columns"], file["num_episodes"], file["version"] = list(COLUMNS), len(episodes), VERSION
        for block in blocks(dataset):
            seen = {part: block.of_steps(name) for part, name in parts.items()}
            actions, rewards = block.of_steps("action"), block.of_steps("reward")[:, None]
            actions = actions[:, None] if actions.ndim == 1 else actions
            stops = np.cumsum(block.steps)
            for k, (start, stop) in enumerate(zip((stops - block.steps).tolist(), stops.tolist(), strict=True)):
                number = block.first + k
                for part, column in seen.items():
                    file[f"observations_{number}{part and '_' + part}"] = column[start:stop]
                file[f"actions_{number}"], file[f"rewards_{number}"] = actions[start:stop], rewards[start:stop]
                file[f"terminated_{number}"] = bool(block.terminated[k])
            disk.check()
            advance(block.n_steps)
    return notes
