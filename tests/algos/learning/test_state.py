"""What training goes on from: how it begins, and what of it is copied."""

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.stack import Stack
from d3ray.algos.testing import maker, tiny_dataset

CONTINUOUS = tiny_dataset(discrete=False)


def test_building_seeds_the_generator_of_the_cpu_and_puts_it_back():
    """torch.manual_seed would seed accelerators too, at once or, before their first use, in a queue."""
    queued, now = _queued_for_cuda(), torch.get_rng_state()
    first, again, other = (maker(TD3)(seed=seed).fit(CONTINUOUS, 0).state()[0] for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), now)
    assert _queued_for_cuda() == queued
    name = next(name for name in first if name.startswith("live/policy/"))
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])


def _queued_for_cuda():
    """What torch will do to CUDA once it is used, the seeds that wait for it included."""
    return [*torch.cuda._queued_calls], list(torch.cuda._lazy_seed_tracker.get_calls())


class _Copied(TorchDispatchMode):
    """Counts the bytes of what is copied within it."""

    n_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func._overloadpacket in (torch.ops.aten.clone, torch.ops.aten._to_copy, torch.ops.aten.copy_):
            self.n_bytes += sum(t.nbytes for t in pytree.tree_leaves(out))
        return out


def test_taking_a_row_copies_no_other():
    stack, alone = Stack(maker(TD3)(), range(10)).fit(CONTINUOUS, 3), maker(TD3)(seed=4).fit(CONTINUOUS, 3)
    with _Copied() as one:
        alone.fit_.learner.state()
    with _Copied() as row:
        stack.fit_.learner.row_state(4)
    with _Copied() as whole:
        stack.fit_.learner.state()
    assert row.n_bytes == one.n_bytes
    assert whole.n_bytes > 9 * row.n_bytes
