"""Which algorithms of RLlib there are, without importing Ray."""

from __future__ import annotations

PREFIX = "rllib/"
ONLINE = ("APPO", "DQN", "IMPALA", "PPO", "SAC")  # learn in an environment
OFFLINE = ("BC", "CQL", "IQL", "MARWIL")  # learn from a dataset
EXACT = ("BC", "IQL", "MARWIL")  # go on from a checkpoint bit for bit, on a CPU


def rllib_names() -> list[str]:
    return sorted(PREFIX + name for name in (*ONLINE, *OFFLINE))
