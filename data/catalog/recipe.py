"""How a dataset is made where no file of it can be had: by an agent that learns in its environment, as D4RL's were, or by a script.

`d3ray-mujoco/hopper-medium-v4` and the like are entries with a recipe; `d3ray make NAME` follows it. The procedure is D4RL's (Fu et
al. 2020, arXiv:2004.07219, appendix; `scripts/generation/mujoco` of its repository; the wiki's page on tasks): one run of an agent
gives six datasets. docs/benchmarks.md says what is otherwise here.

`d3ray-ogbench/cube-single-play-v0` and the like are made by OGBench's scripted policies: see `Script`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

from pydantic import Field, model_validator

from ..config import Config, recorded, setting
from ..formats.npz.ogbench_tasks import find_task, without_kind

Kind = Literal["random", "medium", "medium-replay", "medium-expert", "expert", "full-replay"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_RLKIT = "rlkit, examples/sac.py, with which D4RL's agents were trained"


class Recipe(Config):
    """One dataset of a run of an agent; what differs in `kind` alone comes from the same run.

    `sac: {…}` is short for `agent: {name: SAC, …}`.
    """

    kind: Kind = Field(description="which of the run's datasets")
    steps: int = setting(
        1_000_000, "of the environment: so many the agent learns for, and each policy is recorded for", source="D4RL", gt=0
    )
    seed: int = setting(0, "of the run, and of what its policies do")
    warmup: int = setting(1_000, "steps of the environment before the first update; more than a batch", source=_RLKIT, gt=0)
    evaluations: int = setting(50, "how often the greedy policy is evaluated; each may be the medium or the expert one", gt=0)
    episodes: int = setting(10, "of an evaluation", gt=0)
    medium: float = setting(
        1 / 3, "the medium policy's return, on the way from random actions to the expert", source="D4RL", gt=0, lt=1
    )
    agent: dict[str, Any] = setting(
        {"name": "SAC"}, "the algorithm's name, perhaps a preset, and settings beside them", since="0.2"
    )
    explorer: dict[str, Any] | None = setting(
        None, "what the agent explores by, as its recorded policies do with what of it is left in the end; null: the agent's own",
        since="0.2",
    )  # fmt: skip
    update_interval: int = setting(1, "steps between updates; `steps` is a multiple of it", since="0.2", gt=0)
    n_updates: int = setting(1, "gradient steps at each update", since="0.2", gt=0)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "sac" not in value:
            return value
        said = dict(cast("Mapping[str, Any]", value))
        if "agent" in said or not isinstance(sac := said.pop("sac"), Mapping):
            raise ValueError("sac has settings of SAC, in place of an agent")
        return {**said, "agent": {"name": "SAC", **cast("Mapping[str, Any]", sac)}}

    def told(self) -> dict[str, Any]:
        """Dump as JSON that reads back the same; recipes of SAC keep the form that they had before there were other agents."""
        said = recorded(self)
        if self.agent["name"] == "SAC":
            said.pop("agent", None)
            said["sac"] = {name: value for name, value in self.agent.items() if name != "name"}
        return said

    @property
    def run(self) -> dict[str, Any]:
        """The settings that the datasets of one run share, as JSON."""
        return {name: value for name, value in self.told().items() if name != "kind"}

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if not isinstance(self.agent.get("name"), str):
            raise ValueError("agent has no name of an algorithm")
        if self.steps % self.update_interval:
            raise ValueError(f"steps is {self.steps}, which is no multiple of update_interval, {self.update_interval}")
        return self

    @property
    def updates(self) -> int:
        before = (self.warmup - 1) // self.update_interval
        return (self.steps // self.update_interval - before) * self.n_updates


_SCRIPTED = ("pointmaze-", "cube-", "scene-", "puzzle-")  # how environments begin that OGBench has scripts for


class Script(Config):
    """Steps of one of OGBench's scripted policies; single tasks, whose rewards differ alone, come from the same steps.

    Sources: Park et al. 2025, arXiv:2410.20092, and the repository's `data_gen_scripts` at 1d41409: `generate_manipspace.py`,
    `generate_locomaze.py` and `commands.sh`.
    """

    kind: Literal["play", "noisy", "navigate", "stitch"] = Field(description="which of OGBench's kinds of data")
    environment: str = Field(description="OGBench's environment in which it acts, as cube-single-v0")
    steps: int = setting(1_000_000, "in all; whole episodes of it", source="1,000 episodes of 1,001 rows", gt=0)
    episode: int = setting(
        1_000, "steps of an episode, whatever is reached in it", source="max_episode_steps, less the last row", gt=0
    )
    noise: float = setting(0.1, "added to what the script does; a manipulator's is smoothed over time where it plays", ge=0)
    random: float = setting(0.0, "share of uniform actions", source="p_random_action", ge=0, le=1)
    seed: int = setting(0, "of all that is drawn")
    task: str | None = setting(None, "single task whose rewards and ends the steps get; null: none, and all rewards are 0")

    def told(self) -> dict[str, Any]:
        """Dump as JSON that reads back the same."""
        return recorded(self)

    @property
    def scene(self) -> str:
        """The environment that is the same but for its pictures."""
        return self.environment.removeprefix("visual-")

    @property
    def run(self) -> dict[str, Any]:
        """The settings that the datasets of the same steps share, as JSON."""
        return {name: value for name, value in self.told().items() if name != "task"}

    @model_validator(mode="after")
    def _check(self) -> Script:
        if self.steps % self.episode:
            raise ValueError(f"steps is {self.steps}, which is no multiple of episode, {self.episode}")
        if not self.scene.startswith(_SCRIPTED) or self.environment.startswith("visual-pointmaze-"):
            raise ValueError(f"environment is {self.environment!r}, and OGBench has scripts for {', '.join(_SCRIPTED)} alone")
        if (self.kind in ("navigate", "stitch")) != self.scene.startswith("pointmaze-"):
            raise ValueError("points navigate or stitch in mazes, and manipulators play or are noisy")
        if self.task is not None:
            find_task(self.task)
            if not without_kind(self.task).startswith(self.environment.removesuffix("v0")):
                raise ValueError(f"task is {self.task!r}, which is one of another environment than {self.environment!r}")
        return self
