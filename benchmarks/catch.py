"""Catch from pixels: a ball falls and drifts, a paddle below it moves; the smallest task that is seen and not told.

Importing it makes `Catch-v0` known to gymnasium. Frames are [1, 84, 84] bytes, of a grid of 12 × 12 cells.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

GRID, CELL = 12, 7


class Catch(gymnasium.Env[np.ndarray, int]):
    """11 steps an episode, whose last brings 1 where the paddle, three cells wide, is under the ball, and -1 where it is not.

    Actions: left, stay, right. The ball drifts by a cell, or by none, to a side that each episode draws, and bounces off the walls.
    Who does not look scores -0.5: a paddle covers three cells of twelve.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (1, GRID * CELL, GRID * CELL), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.column = 0, int(self.np_random.integers(GRID))
        self.drift, self.paddle = int(self.np_random.integers(-1, 2)), int(self.np_random.integers(1, GRID - 1))
        return self._frame(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.paddle = min(max(self.paddle + int(action) - 1, 1), GRID - 2)
        if not 0 <= self.column + self.drift < GRID:
            self.drift = -self.drift
        self.row, self.column = self.row + 1, self.column + self.drift
        fallen = self.row == GRID - 1
        reward = 0.0 if not fallen else 1.0 if abs(self.column - self.paddle) <= 1 else -1.0
        return self._frame(), reward, fallen, False, {}

    def _frame(self) -> np.ndarray:
        cells = np.zeros((GRID, GRID), np.uint8)
        cells[-1, self.paddle - 1 : self.paddle + 2] = 128
        cells[self.row, self.column] = 255
        return cells.repeat(CELL, 0).repeat(CELL, 1)[None]


gymnasium.register("Catch-v0", Catch)
