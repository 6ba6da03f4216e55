"""A policy as ONNX, TorchScript or a torch.export program, from raw observations to raw actions.

Every export is compared with the policy on golden observations before it is kept. `.pt` and `.pt2` are written for others and
never read back; both hold paths of the machine that wrote them, and `.pt2` a small pickle. ONNX and packages hold neither.
"""

from __future__ import annotations

import hashlib
import io
import logging
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import torch
from safetensors.numpy import save as save_arrays
from torch import Tensor, nn

from ...data.errors import ConfigError, D3rayError
from ...data.spec import Spec, typed
from ...data.version import __version__
from ..acting.context import ContextPolicy
from ..acting.graph_inputs import NoiseInput, StateInput
from ..acting.policy import Policy, PolicyModule, module_input
from ..acting.ported import MemoryPolicy, PortedPolicy
from ..networks.perceptrons import Observation
from .golden import (
    BATCHES,
    TOLERANCE,
    Arrays,
    check_golden,
    golden_memory,
    golden_observations,
    golden_ports,
    largest_gap,
    listed,
    nudged,
    take,
)
from .portable import PortableContext, PortablePolicy, PortablePorted

OPSET = 20


class Named(Protocol):
    @property
    def name(self) -> str: ...


class PortableModule(Protocol):
    """A policy on the CPU, whoever trained it: a torch module, `forward` included."""

    spec: Spec

    @property
    def algorithm(self) -> Named: ...

    def act_on(self, inputs: Mapping[str, np.ndarray]) -> Any:
        """Give actions at inputs by name, or all outputs of a policy with a memory."""
        ...

    def arguments(self, inputs: Mapping[str, np.ndarray]) -> Observation:
        """Give what `forward` takes, of inputs by name."""
        ...

    def state_dict(self) -> Mapping[str, Tensor]: ...


@dataclass(frozen=True)
class Portable:
    """A policy, or a model, ready to be written in any form.

    Every form must reproduce `golden`: `batch_1/observation`, `batch_1/action`, `batch_32/…`, within `tolerance`: 1e-5, or four
    times what its own rounding to its float type changes, if that is more. `states` are the inputs that are its memory, `noises`
    those that take random numbers, `options` what may be chosen when acting, `answers` the outputs that are no memory, and `about`
    what else an ONNX file says of it in its metadata (`packing.told`).
    """

    module: PortableModule
    golden: Arrays
    tolerance: float
    states: tuple[StateInput, ...] = ()
    noises: tuple[NoiseInput, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answers: tuple[str, ...] = ("action",)
    noun: str = "policy"
    about: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def spec(self) -> Spec:
        return self.module.spec

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in their order."""
        return (*self.answers, *(state.becomes for state in self.states))

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Golden inputs of the larger batch by name, in the graph's order."""
        prefix = f"batch_{max(BATCHES)}/"
        named = {name.removeprefix(prefix): array for name, array in self.golden.items() if name.startswith(prefix)}
        return {name: array for name, array in named.items() if name not in self.outputs}

    @property
    def golden_bytes(self) -> bytes:
        """The golden arrays as a package holds them, `golden.safetensors`."""
        return save_arrays({name: np.ascontiguousarray(array) for name, array in self.golden.items()})

    def check(self, act: Callable[[Arrays], Any], what: str) -> None:
        """Raises StorageError when `act` differs from the golden actions."""
        check_golden(self.golden, act, self.tolerance, what, self.outputs, f"act as the {self.noun} did")


def portable(policy: Policy) -> Portable:
    """A policy taken out of what trains it, with golden observations and actions."""
    numbers = {
        name: (affine.scale.double().cpu().numpy(), affine.shift.double().cpu().numpy())
        for name, affine in policy.module.affines().items()
    }
    drawn = golden_observations(policy.spec, 8 * sum(BATCHES), numbers)
    about: dict[str, Any] = {}
    if isinstance(policy, ContextPolicy):
        drawn |= golden_memory(policy.spec.observation, policy.states, policy.start(8 * sum(BATCHES)), numbers, policy.spec.action)
        started = policy.start(1)
        states = tuple(s.model_copy(update={"start": float(started[s.name].flat[0])}) for s in policy.states)
        about = {"states": states, "options": {"target_return": list(policy.target_returns)}}
    elif isinstance(policy, PortedPolicy):
        drawn |= golden_ports(policy.states, policy.noises, 8 * sum(BATCHES))
        about = {"states": policy.states, "noises": tuple(policy.noises)}
    used = networks_used(policy.module, lambda: _live(policy, take(drawn, slice(2))))
    module, exact = (_copied(policy, used, dtype) for dtype in (None, torch.float64))
    return with_golden(module, exact, drawn, lambda inputs: _live(policy, inputs), **about)


def _copied(policy: Policy, used: list[str], dtype: torch.dtype | None) -> PortableModule:
    if isinstance(policy, ContextPolicy):
        return PortableContext(policy.looking_back, used, dtype)
    if isinstance(policy, PortedPolicy):
        return PortablePorted(policy.ported, used, dtype)
    return PortablePolicy(policy.module, used, policy.spec, dtype)


def with_golden(
    module: PortableModule, exact: PortableModule, drawn: Arrays, live: Callable[[Arrays], Any], **about: Any
) -> Portable:
    """Make a module ready to be written, with golden observations and actions.

    `exact` is the same in float64; `drawn` are observations by input name, eight times as many as are kept; `live` gives the
    actions of what `module` was made from. Further arguments are `Portable`'s. Raises ConfigError where actions are not finite,
    StorageError where `module` does not act as `live` does.
    """
    empty = Portable(module, {}, 0.0, **about)
    names, n_answers, noun = empty.outputs, len(empty.answers), empty.noun
    order = _steady_first(module, exact, drawn, n_answers)
    golden: Arrays = {}
    rounding, first = 0.0, 0
    for n in BATCHES:
        rows = take(drawn, order[first : first + n])
        first += n
        found = listed(module.act_on(rows))
        if not all(np.isfinite(answer).all() for answer in found[:n_answers]):
            what = "policy's actions" if noun == "policy" else f"{noun}'s answers"
            raise ConfigError(f"The {what} are not finite, so {module.algorithm.name} cannot be exported.")
        pairs = zip(listed(exact.act_on(rows)), found[:n_answers], strict=False)
        rounding = max(rounding, *(largest_gap(wide.astype(own.dtype), own) for wide, own in pairs if own.dtype.kind == "f"), 0.0)
        golden |= {f"batch_{n}/{name}": array for name, array in {**rows, **dict(zip(names, found, strict=True))}.items()}
    made = Portable(module, golden, max(TOLERANCE, float(f"{4 * rounding:.1e}")), **about)

    def live_outputs(inputs: Arrays) -> tuple[np.ndarray, ...]:
        each = zip(names, listed(live(inputs)), strict=True)
        kinds = {name: golden[f"batch_1/{name}"] for name in names}
        return tuple(typed(out, kinds[n].dtype).reshape(len(out), *kinds[n].shape[1:]) for n, out in each)

    made.check(live_outputs, f"The {noun}'s copy on the CPU")
    return made


def _steady_first(module: PortableModule, exact: PortableModule, drawn: Arrays, n_answers: int) -> np.ndarray:
    """The rows in their order, those last whose actions rounding could change at a stroke: discrete ones, and the best of some.

    A row's action is compared with those of a more exact policy and of observations next to its own; what jumps there, by ten times
    what rows do on the whole, stands near the edge of a choice.
    """
    there = listed(module.act_on(drawn))[:n_answers]
    moved = [
        listed(one.act_on(inputs))[:n_answers]
        for one, inputs in ((exact, drawn), (module, nudged(drawn, 1e-3)), (module, nudged(drawn, -1e-3)))
    ]
    jumps = np.zeros(len(there[0]), bool)
    for k, answer in enumerate(there):
        gaps = np.max([np.abs(other[k].astype(np.float64) - answer).reshape(len(answer), -1).max(1) for other in moved], 0)
        jumps |= gaps > (0 if answer.dtype.kind in "iu" else 10 * np.median(gaps))
    return np.argsort(jumps, kind="stable")


def onnx_bytes(policy: Portable) -> bytes:
    """The ONNX graph: checked by onnx and onnxruntime, without paths, the same bytes at every call.

    Traced, which needs no module that is not there already. What a trace cannot hold, as an operator of its own or a shape that
    follows from the batch, is made by torch.export, which reads four seconds of modules before its first graph.
    """
    with _explained(policy, "ONNX"):
        try:
            return _checked(policy, _traced(policy))
        except (MemoryError, ConfigError):
            raise
        except Exception:
            return _checked(policy, _exported(policy))


def _checked(policy: Portable, model: Any) -> bytes:
    """The graph's bytes, if onnx and onnxruntime take it and it acts as the policy does."""
    import onnx
    import onnxruntime

    _strip(model)
    _name_batch(model.graph)
    golden = hashlib.sha256(policy.golden_bytes).hexdigest()
    said = {"version": __version__, "algorithm": policy.module.algorithm.name, "spaces": policy.spec.model_dump_json()}
    for key, value in {**said, "golden": golden, **policy.about}.items():
        model.metadata_props.add(key=f"d3ray.{key}", value=value)
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString(deterministic=True)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4  # what a graph cannot do is raised; it need not be printed too
    session: Any = onnxruntime.InferenceSession(content, quiet, providers=["CPUExecutionProvider"])
    policy.check(lambda inputs: session.run(list(policy.outputs), inputs), "The ONNX graph")
    return content


def _traced(policy: Portable) -> Any:
    import onnx

    module, named = policy.module, [*policy.inputs, *policy.outputs]
    buffer: Any = io.BytesIO()  # which it takes, though it says path alone
    example = module.arguments(_example(policy))
    torch.onnx.export(
        cast("nn.Module", module),
        (example, {}) if isinstance(example, dict) else (example,),  # a dict at the end would be arguments by name
        buffer,
        dynamo=False,
        opset_version=OPSET,
        input_names=list(policy.inputs),
        output_names=list(policy.outputs),
        dynamic_axes={name: {0: "batch"} for name in named},
    )
    return onnx.load_from_string(buffer.getvalue())


def _exported(policy: Portable) -> Any:
    program = torch.onnx.export(
        _program(policy),
        (),
        dynamo=True,
        external_data=False,
        verbose=False,
        opset_version=OPSET,
        input_names=list(policy.inputs),
        output_names=list(policy.outputs),
    )
    assert program is not None
    return program.model_proto


def torchscript_bytes(policy: Portable) -> bytes:
    module = policy.module
    with _explained(policy, "TorchScript"):
        traced: Any = torch.jit.trace(module, (module.arguments(_example(policy)),), check_trace=False)  # pyright: ignore[reportPrivateImportUsage]
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer)  # pyright: ignore[reportPrivateImportUsage]

    policy.check(lambda inputs: _arrays(traced(module.arguments(inputs))), "The TorchScript module")
    return buffer.getvalue()


def program_bytes(policy: Portable) -> bytes:
    """A torch.export program with a dynamic batch."""
    with _explained(policy, "a torch.export program"):
        program = _program(policy)
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
    run: Any = program.module()

    policy.check(lambda inputs: _arrays(run(policy.module.arguments(inputs))), "The torch.export program")
    return buffer.getvalue()


WRITERS: dict[str, Callable[[Portable], bytes]] = {".onnx": onnx_bytes, ".pt": torchscript_bytes, ".pt2": program_bytes}


def _arrays(outputs: Any) -> list[np.ndarray]:
    return [np.asarray(output) for output in listed(outputs)]


def _example(policy: Portable) -> Arrays:
    """Two rows: sizes 0 and 1 are special to torch.export."""
    return take(policy.inputs, slice(2))


def _program(policy: Portable) -> torch.export.ExportedProgram:
    batch, example = {0: torch.export.Dim("batch")}, policy.module.arguments(_example(policy))
    shapes = (dict.fromkeys(example, batch) if isinstance(example, dict) else batch,)
    return torch.export.export(cast("nn.Module", policy.module), (example,), dynamic_shapes=shapes)


def _live(policy: Policy, inputs: Arrays) -> Any:
    """Give the actions of the policy where it is, or all outputs of one with a memory, at inputs by name."""
    if isinstance(policy, MemoryPolicy):
        return policy.run_graph(inputs)
    with torch.no_grad():
        tensors = {name: torch.as_tensor(rows, device=policy.device) for name, rows in inputs.items()}
        return policy.module(module_input(policy.spec, tensors)).cpu().numpy()


def networks_used(module: PolicyModule, run: Callable[[], object]) -> list[str]:
    """The networks of a policy that `run` calls, in the order of their declaration."""
    used: set[str] = set()

    def note(name: str) -> Callable[..., None]:
        return lambda *_: used.add(name)

    networks = dict(module.networks.items())
    hooks = [layer.register_forward_pre_hook(note(name)) for name, network in networks.items() for layer in network.modules()]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return [name for name in networks if name in used]


@contextmanager
def _explained(policy: Portable, form: str) -> Generator[None]:
    """Keeps torch's exporters quiet, and says what failed in one sentence."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logger.setLevel(logging.ERROR)  # it names every operator of torchvision that is not there
            yield
    except (D3rayError, MemoryError):
        raise
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ConfigError(f"The {policy.noun} of {policy.module.algorithm.name} cannot be written as {form}: {first}.") from error
    finally:
        logger.setLevel(level)


def _strip(message: Any) -> None:
    """Removes `metadata_props` and `doc_string` throughout: they hold source paths of this machine."""
    for part_of, value in message.ListFields():
        if part_of.name in ("metadata_props", "doc_string"):
            message.ClearField(part_of.name)
        elif part_of.message_type is not None:
            for part in value if part_of.is_repeated else [value]:
                _strip(part)


def _name_batch(graph: Any) -> None:
    """The first axis of every input and of the output is called `batch`. Shapes in between need not be said."""
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
