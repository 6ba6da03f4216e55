"""What tests of losses share: an algorithm trained a little, and its networks as loops in NumPy over single samples."""

import numpy as np
import torch

from d3ray.algos.nets import Nets
from d3ray.algos.testing import maker, tiny_dataset


def prepared(algorithm, **settings):
    """An algorithm with `settings`, trained a little in float64, its learner, and a batch to ask a loss about."""
    made = maker(algorithm, **settings)(dtype="float64", seed=2)
    dataset = tiny_dataset(discrete=made.actions == "discrete", costs="cost_limit" in made.Config.model_fields)
    made.fit(dataset, n_steps=9)
    learner = made.fit_.learner
    batch = made.fit_.sampler(dataset).sample(100)
    return made, learner, batch


def evaluate(made, learner, batch, loss):
    """What a loss gives at a batch: its values [B], summed over members, its metrics, and the nets whose noise it drew."""
    key = learner.address(loss)
    targets = Nets(learner._targets, {}, None, key, torch.float64)
    nets = Nets(learner.modules, {}, targets, key, torch.float64, h=learner._h)
    values, metrics = loss(nets, batch, learner._h)
    values = values.sum(0) if loss.axes == "member sample" else values  # as the learner does
    return values.detach().numpy(), {name: value.detach().numpy() for name, value in metrics.items()}, nets


def mlp(tensors, prefix, x, member=None):
    """A perceptron with ReLU, sample by sample, from the tensors of a state."""
    layers = sorted({name.split(".")[2] for name in tensors if name.startswith(f"{prefix}encoder.layers")}, key=int)
    names = [f"{prefix}encoder.layers.{layer}." for layer in layers] + [f"{prefix}head."]
    for i, name in enumerate(names):
        weight, bias = tensors[name + "weight"].numpy(), tensors[name + "bias"].numpy()
        if member is not None and weight.ndim == 3:
            weight, bias = weight[member], bias[member, 0]
        x = np.array([sum(x[j] * weight[j, k] for j in range(len(x))) + bias[k] for k in range(weight.shape[1])])
        if i < len(names) - 1:
            x = np.maximum(x, 0)
    return x


def networks(learner):
    """`run(kind, name, x, member)`: what a perceptron of a "live" or "target" network makes of one vector x."""
    state = learner.state()
    return lambda kind, name, x, member=None: mlp(state, f"{kind}/{name}/", x, member)


def as_tensors(run):
    """What `networks` gives, for the losses of `slow_losses.py`."""
    return lambda kind, name, x, member=0: torch.from_numpy(run(kind, name, x.detach().numpy(), member))
