"""How settings name a sampler: `sampler: epoch`, or `sampler: {name: prioritized, alpha: 0.6}`.

Samplers are loaded when one is built: an algorithm is known by its settings long before it draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from .config import Config, by_name, setting
from .errors import ConfigError
from .frames import Padding

if TYPE_CHECKING:
    from .sampling import PrioritizedSampler, RecurrentSampler, SequenceSampler, StreamSampler, TransitionSampler
    from .sampling.base import Experience

_PER = "Schaul et al. 2016, proportional; PFRL"


class _Sampling(Config):
    """Settings of every sampler."""

    frames: int = setting(1, "images that make one observation, stacked along their channels", gt=0)
    frame_padding: Padding = setting("zero", "what stands for frames from before an episode began: zero, or repeat the first")

    def _frames(self) -> dict[str, Any]:
        return {"frames": self.frames, "frame_padding": self.frame_padding}

    def stretches(
        self, source: Experience, batch_size: int, length: int, seed: int | Sequence[int], **options: Any
    ) -> SequenceSampler | StreamSampler:
        """Build the sampler of stretches of episodes; options as `SequenceSampler`'s."""
        from .sampling import SequenceSampler

        return SequenceSampler(source, batch_size, length, seed, **options)


class UniformSampling(_Sampling):
    """Uniform, each transition from all."""

    name: Literal["uniform"] = "uniform"
    unique: bool = setting(False, "whether the transitions of a batch differ")

    def build(self, source: Experience, batch_size: int, seed: int | Sequence[int], **options: Any) -> TransitionSampler:
        """Build the sampler; options as `TransitionSampler`'s."""
        from .sampling import TransitionSampler

        return TransitionSampler(source, batch_size, seed, unique=self.unique, **self._frames(), **options)


class EpochSampling(_Sampling):
    """Without replacement: each transition once an epoch."""

    name: Literal["epoch"] = "epoch"

    def build(self, source: Any, batch_size: int, seed: int | Sequence[int], **options: Any) -> TransitionSampler:
        from .sampling import EpochSampler

        return EpochSampler(source, batch_size, seed, **self._frames(), **options)


class WeightedSampling(_Sampling):
    """Episodes of large return more often, or the best only."""

    name: Literal["weighted"] = "weighted"
    by: Literal["exponential", "top"] = setting("exponential", "exp of the return over temperature, or the best share only")
    temperature: float = setting(1.0, "of `exponential`, in units of the return", gt=0)
    share: float = setting(0.1, "of `top`: how much of the data", source="10 % BC: Chen et al. 2021, section 5", gt=0, le=1)
    share_of: Literal["episodes", "transitions"] = setting(
        "episodes", "of `top`: what it is a share of", source="CORL, any_percent_bc"
    )
    by_episode: bool = setting(False, "whether weights are those of episodes, whatever their length, and not of their transitions")

    def build(self, source: Any, batch_size: int, seed: int | Sequence[int], **options: Any) -> TransitionSampler:
        from .recording import Recording
        from .sampling import WeightedSampler, exponential_weights, top_weights

        if not isinstance(source, Recording):
            raise ConfigError("Weights are those of a dataset's episodes: a replay buffer has none.")
        returns, steps = source.episodes.returns, source.episodes.steps if self.share_of == "transitions" else None
        exponential = self.by == "exponential"
        weights = exponential_weights(returns, self.temperature) if exponential else top_weights(returns, self.share, steps)
        return WeightedSampler(source, batch_size, seed, weights=weights, by_episode=self.by_episode, **self._frames(), **options)


class PrioritizedSampling(_Sampling):
    """In proportion to the errors that transitions were learned from with."""

    name: Literal["prioritized"] = "prioritized"
    alpha: float = setting(0.6, "α: how strongly errors count; 0 is uniform", source=_PER, ge=0)
    beta0: float = setting(0.4, "β at the first step: how much of the bias weights take back", source=_PER, ge=0, le=1)
    betasteps: int = setting(200_000, "gradient steps until β is 1", source="PFRL", gt=0)
    eps: float = setting(0.01, "added to errors", source="PFRL", ge=0)
    normalize_by_max: bool | Literal["batch", "memory"] = setting(
        True, "divide weights by the largest of the batch (true, batch) or of all (memory)"
    )
    error_min: float | None = setting(0.0, "errors below count as much; None: no bound", source="PFRL")
    error_max: float | None = setting(1.0, "errors above count as much; None: no bound", source="PFRL")
    stratified: bool = setting(True, "whether a batch has one draw from each of B equal parts", source="Schaul et al. 2016, B.2.1")

    def build(self, source: Experience, batch_size: int, seed: int | Sequence[int], **options: Any) -> PrioritizedSampler:
        """Build the sampler; options as `TransitionSampler`'s. What trains hands errors back to its `update`."""
        from .sampling import PrioritizedSampler

        return PrioritizedSampler(source, batch_size, seed, **self.model_dump(exclude={"name"}), **options)


class StreamSampling(_Sampling):
    """From slices that are read one block ahead, for data that no machine can map: each transition once an epoch."""

    name: Literal["stream"] = "stream"
    memory: int = setting(1024, "MB of a trial's memory for what is drawn from and what is read ahead, half each", gt=0)
    slices: int = setting(256, "stretches of episodes, from all over the data, that are drawn from at once", ge=2)
    order: int = setting(0, "seed of the order in which slices come, the same for all seeds", ge=0)

    def build(self, source: Experience, batch_size: int, seed: int | Sequence[int], **options: Any) -> StreamSampler:
        from .sampling import StreamSampler

        return StreamSampler(source, batch_size, seed, **self._stream(), **self._frames(), **options)

    def stretches(
        self, source: Experience, batch_size: int, length: int, seed: int | Sequence[int], **options: Any
    ) -> StreamSampler:
        from .sampling import StreamSampler

        return StreamSampler(source, batch_size, seed, length=length, **self._stream(), **options)

    def _stream(self) -> dict[str, int]:
        return {"memory": self.memory, "slices": self.slices, "order": self.order}


class RecurrentSampling(_Sampling):
    """Sub-sequences of episodes for recurrent encoders, which begin with an empty memory; PFRL's `episodic_update_len`.

    A gradient step takes `batch_size` sub-sequences.
    """

    name: Literal["recurrent"] = "recurrent"
    length: int = setting(30, "steps of a sub-sequence, the burn-in included", source="of R2D2's 120, a quarter", gt=0)
    burn_in: int = setting(
        10, "first steps of them that fill the memory and are not learned from", source="of R2D2's 40, a quarter", ge=0
    )

    @field_validator("burn_in")
    @classmethod
    def _leaves_some(cls, burn_in: int, known: ValidationInfo) -> int:
        length = known.data.get("length", burn_in + 1)
        if burn_in >= length:
            raise ValueError(
                f"nothing is left to learn from of a length of {length}: choose a shorter burn_in, or a larger length."
            )
        return burn_in

    @field_validator("frames")
    @classmethod
    def _of_single_frames(cls, frames: int) -> int:
        if frames > 1:
            raise ValueError("a recurrent encoder remembers earlier frames itself: leave frames out.")
        return frames

    def build(self, source: Experience, batch_size: int, seed: int | Sequence[int], **options: Any) -> RecurrentSampler:
        """Build the sampler; options as `TransitionSampler`'s, of which those of single steps alone are known."""
        from .sampling import RecurrentSampler

        known = {name: value for name, value in options.items() if name not in _OF_TRANSITIONS}
        return RecurrentSampler(source, batch_size, seed, length=self.length, burn_in=self.burn_in, **known)


_OF_TRANSITIONS = ("td_steps", "next_action", "until", "endless", "ahead")
_Known = UniformSampling | EpochSampling | WeightedSampling | PrioritizedSampling | StreamSampling | RecurrentSampling
Sampling = Annotated[_Known, Field(discriminator="name"), BeforeValidator(by_name("sampler", get_args(_Known)))]
