"""DQN of Mnih et al. 2015 from frames in bare torch, as one would write it in an afternoon: what its kernels alone take.

No library, no checks, no metrics, no draws that can be repeated; frames lie in memory, and stacks before the fourth frame of an
episode are left out. The network, the loss, the optimiser and the batch are those of d3ray's row.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from workers import serve, timed


def nature_network(n_actions: int) -> nn.Sequential:
    """From stacks of four frames, divided by 255, to the values of actions."""
    convolutions = (nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU())
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, n_actions))


class Bare:
    """The loop."""

    def set_up_fit(self, dataset: str, batch_size: int, device: str, warm: int) -> None:
        """`warm` gradient steps are done and not measured. `dataset` is the peer's file."""
        self.batch_size, self.device = batch_size, device
        with np.load(dataset) as arrays:
            ends = np.flatnonzero(arrays["timeouts"])
            start = np.r_[0, ends[:-1] + 1][np.searchsorted(ends, np.arange(len(arrays["timeouts"])))]
            at = np.arange(len(start))
            self.rows = torch.from_numpy(np.flatnonzero((at >= start + 3) & (arrays["timeouts"] == 0))).to(device)
            self.frames = torch.from_numpy(arrays["observations"][:, 0]).to(device)
            self.action = torch.from_numpy(arrays["actions"][:, 0].astype(np.int64)).to(device)
            self.reward = torch.from_numpy(arrays["rewards"][:, 0]).to(device)
            self.alive = torch.from_numpy(1 - arrays["terminals"].reshape(-1)).to(device)
        self.offsets = torch.arange(-3, 2, device=device)
        n_actions = int(self.action.max()) + 1
        self.critic, self.target = nature_network(n_actions).to(device), nature_network(n_actions).to(device)
        self.target.load_state_dict(self.critic.state_dict())
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=6.25e-5)
        self.fit(warm)

    def fit(self, n: int) -> dict[str, float]:
        """`n` updates."""
        return timed(lambda: [self.update() for _ in range(n)], self.device)

    def update(self) -> None:
        rows = self.rows[torch.randint(len(self.rows), (self.batch_size,), device=self.device)]
        frames = self.frames[rows[:, None] + self.offsets].float() / 255
        with torch.no_grad():
            goal = self.reward[rows] + 0.99 * self.alive[rows] * self.target(frames[:, 1:]).max(1).values
        value = self.critic(frames[:, :4]).gather(1, self.action[rows, None])[:, 0]
        loss = functional.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


if __name__ == "__main__":
    bare = Bare()
    serve({"set_up_fit": bare.set_up_fit, "fit": bare.fit})
