"""What all scalers are: settings as written, numbers once fitted, and an affine map; also running moments, and numbers of kinds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from ..config import Config
from ..errors import ConfigError

if TYPE_CHECKING:
    from ..dataset import Dataset
from ..spec import Discrete, Spec

Vector = tuple[float, ...]


@dataclass(frozen=True)
class Affine:
    """x · scale + shift, entry by entry, cut off at ±limit. `scale` and `shift` broadcast against [..., *shape].

    Whole numbers as `scale` and `shift` are of kinds that are counted: see `counted.index_affines`.
    """

    scale: Tensor
    shift: Tensor
    limit: float = math.inf

    def transform(self, x: Tensor) -> Tensor:
        """Scale raw [..., *shape] of any type to floats."""
        if self.counts:
            index = x.to(self.shift.dtype) + self.shift
            return index if self.limit == math.inf else index.clamp(0, int(self.limit))
        scaled = torch.addcmul(self.shift, x.to(self.scale.dtype), self.scale)
        return scaled if self.limit == math.inf else scaled.clamp(-self.limit, self.limit)

    def reverse(self, x: Tensor) -> Tensor:
        """Bring scaled floats back to raw units; what was cut off stays so."""
        return x - self.shift if self.counts else (x - self.shift) / self.scale

    @property
    def counts(self) -> bool:
        """True for whole numbers, which it moves and does not scale."""
        return not self.scale.is_floating_point()

    def to(self, dtype: torch.dtype, device: torch.device | str | None = None) -> Affine:
        """Copy in another float type; whole numbers stay such."""
        kind = self.scale.dtype if self.counts else dtype
        scale, shift = (part.detach().to(device, kind, copy=True) for part in (self.scale, self.shift))
        return Affine(scale, shift, self.limit)

    def become(self, other: Affine) -> None:
        """Take over the numbers of another, in place: whoever holds this one scales by them from now on."""
        self.scale.copy_(other.scale)
        self.shift.copy_(other.shift)


class Scaler(Config):
    """Base of the scalers: settings as written by the user, with numbers once fitted."""

    @property
    def label(self) -> str:
        return str(getattr(self, "name"))  # noqa: B009 - subclasses narrow it to one literal

    def fit(self, dataset: Dataset) -> Self:
        """Return the scaler with what it takes from the dataset's statistics; given numbers are kept."""
        raise NotImplementedError

    def affine(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Affine:
        """Return the fitted scaler as tensors."""
        scale, shift = (torch.tensor(part, dtype=torch.float64).to(device, dtype) for part in self.numbers())
        return Affine(scale, shift, self.limit)

    @property
    def limit(self) -> float:
        """Where scaled numbers are cut off, above 0 and below."""
        return math.inf

    @property
    def is_running(self) -> bool:
        """True where its numbers follow what is seen while acting."""
        return False

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return scale and shift in float64. Raises ConfigError before `fit`."""
        raise NotImplementedError

    # ---- as d3rlpy calls it

    def transform(self, x: Any) -> Any:
        """Scale raw values, an array or a tensor of any type, to a tensor on the same device; float64 stays so."""
        return self._mapped(x, reverse=False)

    def reverse_transform(self, x: Any) -> Any:
        """Bring scaled values back to raw units."""
        return self._mapped(x, reverse=True)

    def get_type(self) -> str:
        return self.label

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return settings and numbers by name; `type(scaler)(**params)` makes the same scaler."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "name"}

    def _mapped(self, x: Any, *, reverse: bool) -> Any:
        x = torch.as_tensor(x)
        affine = self.affine(torch.float64 if x.dtype == torch.float64 else torch.float32, x.device)
        return affine.reverse(x) if reverse else affine.transform(x)

    def _fitted(self, *values: Vector | float | None) -> list[np.ndarray]:
        if any(value is None for value in values):
            raise ConfigError(f"The scaler {self.label!r} has no numbers yet: fit it on a dataset first.")
        return [np.asarray(value, np.float64) for value in values]


def is_wide(dtype: Any) -> bool:
    """Tell whether numbers of a type, or of its name, may lie too close together for float32 where they are large."""
    kind = np.dtype(dtype)
    return kind.kind in "fiu" and kind.itemsize >= 4 and kind != np.float32


def vector(values: Any) -> Vector:
    return tuple(float(v) for v in np.asarray(values, np.float64).reshape(-1))


def to_unit(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scale and shift of the map from [low, high] to [-1, 1]."""
    scale = inverse((high - low) / 2)
    return scale, -(low + high) / 2 * scale


def inverse(spread: np.ndarray) -> np.ndarray:
    """Return 1 / spread; 1 where that is 0, so that what is constant is shifted and not divided."""
    return 1 / np.where(spread > 0, spread, 1.0)


Moments = tuple[float, np.ndarray, np.ndarray]  # of how many rows, their mean, their variance


def merged(before: Moments, rows: np.ndarray) -> Moments:
    """The moments of what was seen before and of rows [N, ...] together.

    Source: Chan, Golub and LeVeque 1979, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, equation 2.1.
    """
    n, mean, variance = before
    m, theirs = len(rows), rows.astype(np.float64)
    apart = theirs.mean(0) - mean
    squares = n * variance + m * theirs.var(0) + n * m / (n + m) * np.square(apart)
    return n + m, mean + m / (n + m) * apart, squares / (n + m)


def index_affines(spec: Spec, device: torch.device | str = "cpu") -> dict[str, Affine]:
    """Raw numbers to those that networks index by, by column, `action` among them; none where a space begins at 0 anyhow.

    An action is brought into its range: that of a closing row is 0, whatever the space.
    """
    found: dict[str, Affine] = {}
    for name, start in spec.starts().items():
        shift = -torch.from_numpy(start).to(device)
        last = spec.action.n - 1 if name == "action" and isinstance(spec.action, Discrete) else math.inf
        found[name] = Affine(torch.ones_like(shift), shift, last)
    return found
