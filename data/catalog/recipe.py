"""How a dataset is made where no file of it can be had: by an agent that learns in its environment, as D4RL's were.

`d3ray-mujoco/hopper-medium-v4` and the like are entries with a recipe; `d3ray make NAME` follows it. The procedure is D4RL's (Fu et
al. 2020, arXiv:2004.07219, appendix; `scripts/generation/mujoco` of its repository; the wiki's page on tasks): one run of SAC gives
six datasets. docs/benchmarks.md says what is otherwise here.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field

from ..config import Config, setting

Kind = Literal["random", "medium", "medium-replay", "medium-expert", "expert", "full-replay"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_RLKIT = "rlkit, examples/sac.py, with which D4RL's agents were trained"


class Recipe(Config):
    """One dataset of a run of SAC; what differs in `kind` alone comes from the same run."""

    kind: Kind = Field(description="which of the run's datasets")
    steps: int = setting(
        1_000_000, "of the environment: so many SAC learns for, and each policy is recorded for", source="D4RL", gt=0
    )
    seed: int = setting(0, "of the run, and of what its policies do")
    warmup: int = setting(1_000, "steps of the environment before the first update; more than a batch", source=_RLKIT, gt=0)
    evaluations: int = setting(50, "how often the greedy policy is evaluated; each may be the medium or the expert one", gt=0)
    episodes: int = setting(10, "of an evaluation", gt=0)
    medium: float = setting(
        1 / 3, "the medium policy's return, on the way from random actions to the expert", source="D4RL", gt=0, lt=1
    )
    sac: dict[str, Any] = Field(default_factory=dict, description="settings of SAC; else its own defaults")

    @property
    def run(self) -> dict[str, Any]:
        """What the datasets of one run share, as JSON."""
        return self.model_dump(mode="json", exclude={"kind"})
