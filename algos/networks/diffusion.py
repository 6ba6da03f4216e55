"""Diffusion over actions: the noise schedule, the network that predicts noise, and samplers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from ...data.config import Config, setting
from ...data.spec import ObservationSpace
from .encoders import Encoder
from .encoding import Positive
from .perceptrons import Linear, Observation

Schedule = Literal["vp", "cosine", "linear"]
IDQL_CODE = "authors' code of IDQL 7582571, jaxrl5/networks/diffusion.py"
DQL_CODE = "authors' code of Diffusion-QL d871f5c, agents"


class TimeEmbedding(Config):
    """Features of a time, through layers with Mish between them."""

    features: Literal["fourier", "sinusoidal"] = setting(
        "fourier", "waves of learnt frequencies, or of powers of 10,000 (Vaswani et al. 2017)", source=IDQL_CODE
    )
    size: int = setting(64, "how many of them: half are cosines", source=IDQL_CODE, ge=4, multiple_of=2)
    hidden_units: tuple[Positive, ...] = setting(
        (128, 128), "width of each layer; the last has no Mish", source=IDQL_CODE, min_length=1
    )


class _TimeFeatures(nn.Module):
    """Times [B] to [B, features]."""

    def __init__(self, config: TimeEmbedding) -> None:
        super().__init__()
        half = config.size // 2
        if config.features == "fourier":
            self.frequency = nn.Parameter(2 * math.pi * 0.2 * torch.randn(half))
        else:
            self.register_buffer("frequency", torch.exp(torch.arange(half) * (-math.log(10_000) / (half - 1))))
        layers: list[nn.Module] = []
        for size_in, size_out in pairwise((config.size, *config.hidden_units)):
            layers += [Linear(size_in, size_out), nn.Mish()]
        self.layers = nn.Sequential(*layers[:-1])
        self.features = config.hidden_units[-1]

    def forward(self, time: Tensor) -> Tensor:
        waves = time[:, None] * self.frequency
        return self.layers(torch.cat((waves.cos(), waves.sin()), -1))


def retained(schedule: Schedule, n: int) -> list[float]:
    """ᾱ_1 … ᾱ_n: the share of an action's square that is left after each of n steps of noise.

    "vp" is the variance-preserving one of score models (Song et al. 2021) with β from 0.1 to 10, "cosine" that of Nichol and
    Dhariwal 2021, "linear" that of Ho et al. 2020.
    """
    match schedule:
        case "vp":
            kept = [math.exp(-0.1 / n - 0.5 * (10 - 0.1) * (2 * k - 1) / n**2) for k in range(1, n + 1)]
        case "cosine":
            left = [math.cos((k / n + 0.008) / 1.008 * math.pi / 2) ** 2 for k in range(n + 1)]
            kept = [1 - min(max(1 - after / before, 0.0), 0.999) for before, after in pairwise(left)]
        case "linear":
            kept = [1 - (1e-4 + (2e-2 - 1e-4) * k / max(n - 1, 1)) for k in range(n)]
    return [math.prod(kept[: k + 1]) for k in range(n)]


class Diffusion(nn.Module):
    """ε(s, x, k), the noise within a noisy action after k + 1 of n steps; with the samplers that ask it.

    Args:
        encoder, time: Of what reads observation, x and the embedded time.
        observation: Of a state.
        size: A.
        schedule, n: How noise is added, and in how many steps.
    """

    retained: Tensor

    def __init__(
        self, encoder: Encoder, time: TimeEmbedding, observation: ObservationSpace, size: int, schedule: Schedule, n: int
    ) -> None:
        super().__init__()
        self.time = _TimeFeatures(time)
        self.encoder = encoder.build(observation, size + self.time.features)
        self.head = Linear(self.encoder.features, size)
        self.levels = retained(schedule, n)
        self.register_buffer("retained", torch.tensor(self.levels))

    def forward(self, observation: Observation, x: Tensor, k: Tensor) -> Tensor:
        """[B, ...], [B, A] and times [B], whole numbers from 0 to n - 1, to [B, A]."""
        return self.head(self.encoder(observation, torch.cat((x, self.time(k)), -1)))

    def noised(self, action: Tensor, noise: Tensor, k: Tensor) -> Tensor:
        """√ᾱ_k a + √(1 - ᾱ_k) ε, of actions and noise [B, A] at times [B]."""
        left = self.retained[k.long()][:, None]
        return left.sqrt() * action + (1 - left).sqrt() * noise

    def start(self, observation: Observation, x: Tensor, k: Tensor) -> Tensor:
        """Guess the action within x at times [B]: (x - √(1 - ᾱ_k) ε) / √ᾱ_k, clipped to [-1, 1]."""
        left = self.retained[k.long()][:, None]
        return ((x - (1 - left).sqrt() * self(observation, x, k)) / left.sqrt()).clamp(-1, 1)

    def ancestral(self, observation: Observation, noise: Tensor, *, clip: Literal["start", "each"]) -> Tensor:
        """Sample by going back all n steps (Ho et al. 2020, algorithm 2).

        Args:
            observation: States.
            noise: [n, B, A]: where it begins, and what the steps but the last add.
            clip: "start": the guess of the action is clipped to [-1, 1], and the noise is the posterior's, √β̃; "each": what each
                step gives is, and the noise is √β.

        Returns:
            Actions [B, A].
        """
        x = noise[0]
        for k in reversed(range(len(self.levels))):
            level, before = self.levels[k], self.levels[k - 1] if k else 1.0
            kept, now = level / before, _now(x, k)
            if clip == "each":
                x = (x - (1 - kept) / math.sqrt(1 - level) * self(observation, x, now)) / math.sqrt(kept)
                deviation = math.sqrt(1 - kept)
            else:
                mean = math.sqrt(before) * (1 - kept) * self.start(observation, x, now) + math.sqrt(kept) * (1 - before) * x
                x, deviation = mean / (1 - level), math.sqrt((1 - kept) * (1 - before) / (1 - level))
            if k:
                x = x + deviation * noise[len(self.levels) - k]
            if clip == "each":
                x = x.clamp(-1, 1)
        return x.clamp(-1, 1)

    def solved(self, observation: Observation, x: Tensor, n: int) -> Tensor:
        """Sample by n steps of DPM-Solver++ 2M (Lu et al. 2022, arXiv:2211.01095, algorithm 2), which adds no noise.

        x [B, A] is where it begins. Times are spread evenly over those of the schedule, of which n is at most the number.
        """
        last = len(self.levels) - 1
        times, before, gap_before = [round(last * (1 - i / max(n - 1, 1))) for i in range(n)], None, 0.0
        for k, following in pairwise(times):
            guess, level, after = self.start(observation, x, _now(x, k)), self.levels[k], self.levels[following]
            gap = _log_ratio(after) - _log_ratio(level)
            towards = guess if before is None else guess + (guess - before) * (gap / (2 * gap_before))
            x = math.sqrt((1 - after) / (1 - level)) * x - math.sqrt(after) * math.expm1(-gap) * towards
            before, gap_before = guess, gap
        return self.start(observation, x, _now(x, times[-1]))


def _now(x: Tensor, k: int) -> Tensor:
    return torch.full_like(x[:, 0], k)


def _log_ratio(level: float) -> float:
    """λ = log(√ᾱ / √(1 - ᾱ)), half the log of the signal-to-noise ratio."""
    return 0.5 * math.log(level / (1 - level))
