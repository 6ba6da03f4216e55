"""A record of the operations of a run, from which it can be run again: as it stands, or compiled for this machine.

Below autograd and `vmap` a run is a list of operations on tensors. Those that it makes are its own; all others are state, which is
read and written where it lies, but for arguments, which are others at every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree  # it has no public name yet
from torch.utils._python_dispatch import TorchDispatchMode


class ValueReadError(RuntimeError):
    """A value is read where work is a program of tensors."""


class Call(NamedTuple):
    """One operation, and the tensors that it took and gave."""

    operation: Any
    arguments: Any
    named: dict[str, Any]
    found: Any


class Undoing(TorchDispatchMode):
    """Keeps what the state was that is written within it, so that it can be put back."""

    def __init__(self) -> None:
        super().__init__()
        self._own = dict[int, Tensor]()  # of what was made, a tensor a storage: one that is freed would lend its place to another
        self._before = dict[int, tuple[Tensor, Tensor]]()  # storages that were written, and what they held

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for told, given in zip(func._schema.arguments, args, strict=False):
            if told.alias_info is not None and told.alias_info.is_write:
                for tensor in _tensors(given):
                    self._keep(tensor)
        found = func(*args, **(kwargs or {}))
        if not is_view(func):
            self._own |= {_at(t): t for t in _tensors(found) if _at(t) not in self._before}
        return found

    def _keep(self, tensor: Tensor) -> None:
        if _at(tensor) not in self._own and _at(tensor) not in self._before:
            whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
            self._before[_at(tensor)] = whole, whole.clone()

    @torch.no_grad()
    def undo(self) -> None:
        """Puts the state back, outside of it."""
        for whole, before in self._before.values():
            whole.copy_(before)


class Recording(Undoing):
    """Records what runs within it, which runs as ever, until it is undone.

    Args:
        arguments: Tensors that are others at another run.

    Raises:
        ValueReadError: a value is read, which would be the same at every run.
    """

    def __init__(self, arguments: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.arguments, self.calls = list(arguments), list[Call]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise ValueReadError("a value is read, as .item(), float(tensor) or an if on a tensor do")
        found = super().__torch_dispatch__(func, types, args, kwargs)
        self.calls.append(Call(func, args, kwargs or {}, found))
        return found

    def graph(self, outputs: Sequence[Tensor]) -> tuple[fx.GraphModule, list[Tensor]]:
        """The run as a graph that gives `outputs`, and its inputs: the arguments, then the state."""
        graph, known = fx.Graph(), _Known()
        for k, tensor in enumerate(self.arguments):
            known.add(tensor, graph.placeholder(f"argument_{k}"))
        inputs, made = list(self.arguments), set[int]()
        for call in self.calls:
            for tensor in _tensors((call.arguments, call.named)):
                if id(tensor) not in made and known.find(tensor) is None:
                    if inputs and tensor.device != inputs[0].device:
                        raise ValueReadError(f"a tensor {tuple(tensor.shape)} of {tensor.device} is brought to {inputs[0].device}")
                    known.add(tensor, graph.placeholder(f"state_{len(inputs)}"))
                    inputs.append(tensor)
            made |= {id(tensor) for tensor in _tensors(call.found)}
        for call in self.calls:
            arguments, named = pytree.tree_map(known.node, (call.arguments, call.named))
            node = graph.call_function(call.operation, tuple(arguments), named)
            if isinstance(call.found, Tensor):
                known.add(call.found, node)
            elif isinstance(call.found, list | tuple):
                for k, part in enumerate(call.found):
                    if isinstance(part, Tensor):
                        known.add(part, graph.call_function(_entry, (node, k)))
        graph.output([known.node(tensor) for tensor in outputs])
        return fx.GraphModule(torch.nn.Module(), graph), inputs

    def compiled(self, outputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """The run, compiled: a function of the arguments that gives `outputs`, and writes state where it lies.

        Raises what torch's compiler raises.
        """
        from torch._guards import TracingContext
        from torch._guards import tracing as of_torch
        from torch._inductor import config
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        graph, inputs = self.graph(outputs)
        plain: list[Any] = [tensor.detach() for tensor in inputs]
        # Compiled within this process: a pool of others would outlive trials that are killed.
        # With an environment of shapes, of which none is unknown, torch keeps what it has compiled for a machine's other processes.
        context = TracingContext(FakeTensorMode(shape_env=ShapeEnv()))
        with torch.no_grad(), of_torch(context), config.patch(compile_threads=1):  # pyright: ignore[reportPrivateImportUsage]
            run: Any = torch._inductor.compile(graph, plain)  # pyright: ignore[reportPrivateUsage]
        state = plain[len(self.arguments) :]

        def again(*arguments: Tensor) -> Sequence[Tensor]:
            with torch.no_grad():
                return run(*arguments, *state)

        return again


class _Known:
    """Nodes of a graph by the tensors that they stand for."""

    def __init__(self) -> None:
        self._by_object: dict[int, fx.Node] = {}
        self._by_place: dict[Any, fx.Node] = {}

    def add(self, tensor: Tensor, node: fx.Node) -> None:
        self._by_object[id(tensor)] = node
        self._by_place.setdefault(_place(tensor), node)

    def find(self, tensor: Tensor) -> fx.Node | None:
        return self._by_object.get(id(tensor)) or self._by_place.get(_place(tensor))

    def node(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        found = self.find(leaf)
        if found is None:
            raise RuntimeError(f"a tensor {tuple(leaf.shape)} comes from nowhere")
        return found


def is_view(operation: Any) -> bool:
    """Tells whether an operation only looks at memory in another way."""
    returns = operation._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _at(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def _place(tensor: Tensor) -> Any:
    return _at(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))


def _entry(parts: Any, k: int) -> Any:
    return parts[k]
