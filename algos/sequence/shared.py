"""The base of algorithms that read stretches of episodes and act on the latest steps."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal, Never, Self

from pydantic import model_validator

from ...data.config import setting
from ...data.dataset import Dataset
from ...data.errors import ConfigError, named
from ...data.sampling_settings import StreamSampling, UniformSampling
from ..acting.remembering import refusal
from ..base import Algorithm
from ..config import AlgorithmConfig, RewardedConfig, SampledConfig
from ..wants import Stretches, Wants

_SCALES = ("multiply", "return_based")  # reward scalers under which a return has a scaled value, whatever the episode's length


class SequenceConfig(SampledConfig, RewardedConfig):
    """Settings of algorithms over stretches of episodes."""

    once: ClassVar = AlgorithmConfig
    never: ClassVar = ("td_steps",)

    context: int = setting(20, "steps that are looked at, the present one included", source="Chen et al. 2021, Table 9", gt=0)
    anchor: Literal["first", "last"] = setting(
        "first",
        "what a step that is drawn is to its stretch: the first, with up to context - 1 after it, or the last, with as many before",
        source="authors' code 046702e, gym/experiment.py; d3rlpy 2.8.1 has last",
    )
    max_timestep: int = setting(
        1000, "timesteps that are told apart; later ones are taken for the last", source="authors' code 046702e", gt=0
    )
    target_returns: tuple[float, ...] | None = setting(
        None,
        "returns to ask for when acting, in the units of the environment's rewards: the first is, and evaluations take all; "
        "None: the largest in the data",
        min_length=1,
    )

    @model_validator(mode="after")
    def _of_stretches(self) -> Self:
        if self.reward_scaler is not None and self.reward_scaler.name not in _SCALES:
            raise ValueError(
                f"reward_scaler is {self.reward_scaler.name!r}, under which a return that is asked for has no scaled value; "
                f"choose {' or '.join(_SCALES)}."
            )
        if self.sampler not in (None, UniformSampling()) and not (
            isinstance(self.sampler, StreamSampling) and self.sampler.frames == 1
        ):
            raise ValueError("sampler is for single transitions; stretches are drawn uniformly, or as a stream: leave it out.")
        return self


class SequenceAlgorithm(Algorithm):
    """Base of algorithms over stretches of episodes. One that is shorter than the context is padded, and the padding masked."""

    def wants(self, config: SequenceConfig) -> Wants:
        return Stretches(config.batch_size, config.context, anchor=config.anchor)

    def completed(self, config: Any, dataset: Dataset) -> Any:
        longest = int(dataset.statistics.steps.max)  # pyright: ignore[reportArgumentType]
        if config.context > longest:
            warnings.warn(
                f"{self.name}: context is {config.context}, and the longest episode of {dataset.name!r} has {longest} steps: every "
                "stretch is padded, and the padding masked, which costs time and changes nothing.",
                stacklevel=2,
            )
        if config.max_timestep < longest:
            warnings.warn(
                f"{self.name}: max_timestep is {config.max_timestep}, and the longest episode of {dataset.name!r} has {longest} "
                f"steps: it takes all later ones for the one before; set {named('max_timestep')} to {longest} or more.",
                stacklevel=2,
            )
        if config.target_returns is not None:
            return config
        return config.model_copy(update={"target_returns": (float(dataset.statistics.return_.max),)})  # pyright: ignore[reportArgumentType]

    def predict(self, x: Any, action_mask: Any = None) -> Never:
        """Refused: an action depends on what came before. Raises ConfigError, which names what to use."""
        raise ConfigError(refusal(self.name))

    sample_action = predict

    def fitter_online(self, env: Any, buffer: Any = None, explorer: Any = None, **arguments: Any) -> Never:
        """Refused. Raises ConfigError, which says why."""
        raise ConfigError(
            f"{self.name} learns offline only: it needs what an episode came to, and improves on no policy of its own. "
            "Collect data, and call fit on them."
        )
