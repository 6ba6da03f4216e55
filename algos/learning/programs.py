"""Functions of tensors as programs: traced once, compiled for this machine, and then one call in place of a hundred.

Losses keep the rules that make it possible: they read tensors and nothing from them, draw by addresses, and have fixed shapes. So
a loss and its gradients are the same list of operations at every step, and torch's compiler joins those that go over the same
numbers. What changes from step to step enters as a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree  # it has no public name yet

from ...data.errors import ConfigError, reason


@dataclass(frozen=True)
class Program:
    """What was compiled.

    Attributes:
        run: Of the tensors of all inputs, those of all outputs.
        outputs: The structure that these have.
    """

    run: Callable[..., tuple[Tensor, ...]]
    outputs: pytree.TreeSpec


class Programs:
    """Programs by the name of what they do and the shapes of what they are given."""

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, ...], Program] = {}

    def __call__(self, name: str, function: Callable[..., Any], *inputs: Any) -> Any:
        """What `function(*inputs)` gives: a tree of tensors, without gradients.

        Args:
            name: Of the function: what may do another thing has another name.
            function: A program of tensors, as losses are.
            inputs: Trees of tensors; leaves that are none are part of the program.

        Raises:
            ConfigError: there is no compiler on this machine, or it does not know an operation.
        """
        tensors, address = list[Tensor](), list[Hashable]([name])
        for tree in inputs:
            _collect(tree, tensors, address)
        program = self._known.get(tuple(address))
        if program is None:
            program = self._known[tuple(address)] = _compiled(name, function, inputs, tensors)
        with torch.no_grad():
            found = program.run(*tensors)
        return pytree.tree_unflatten(list(found), program.outputs)


def _collect(tree: Any, tensors: list[Tensor], address: list[Hashable]) -> None:
    """Adds a tree's tensors, and what a program of it depends on: names, shapes, types and leaves that are no tensors.

    Written out: this is part of every step, and a general tree walk takes as long as a small program.
    """
    if isinstance(tree, Tensor):
        tensors.append(tree)
        address.append((tree.shape, tree.dtype))
    elif isinstance(tree, Mapping):
        for key, part in tree.items():
            address.append(key)
            _collect(part, tensors, address)
    elif is_dataclass(tree):
        for field in fields(tree):
            _collect(getattr(tree, field.name), tensors, address)
    else:
        address.append(tree)


def _compiled(name: str, function: Callable[..., Any], inputs: tuple[Any, ...], tensors: list[Tensor]) -> Program:
    from torch.fx.experimental.proxy_tensor import make_fx

    leaves, tree = pytree.tree_flatten(inputs)
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    assert all(leaves[place] is tensor for place, tensor in zip(places, tensors, strict=True)), "two walks of one tree"
    outputs: list[pytree.TreeSpec] = []

    def flat(*given: Tensor) -> list[Tensor]:
        for place, tensor in zip(places, given, strict=True):
            leaves[place] = tensor
        found, structure = pytree.tree_flatten(function(*pytree.tree_unflatten(leaves, tree)))
        outputs.append(structure)
        return found

    plain: list[Any] = [tensor.detach() for tensor in tensors]
    graph = make_fx(flat)(*plain)  # an error in here is the loss's own
    try:
        from torch._inductor import config

        # Compiled within this process: a pool of others would outlive trials that are killed.
        with torch.no_grad(), config.patch(compile_threads=1):  # pyright: ignore[reportPrivateImportUsage]
            run: Any = torch._inductor.compile(graph, plain)  # pyright: ignore[reportPrivateUsage]
    except Exception as error:
        raise ConfigError(
            f"compile_graph: torch cannot compile {name} on this machine, for which it needs a C++ compiler and Python's headers "
            f"({reason(error)}). compile_graph=False trains without."
        ) from error
    return Program(run, outputs[0])
