"""Products of a gradient step in TF32: set while a step is computed, captured, compiled or launched, and put back afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import d3ray
from d3ray.algos import testing
from d3ray.algos.actor_critic.td3_plus_bc import TD3PlusBC
from d3ray.algos.definition import loss
from d3ray.algos.learning import learner
from d3ray.algos.learning.programs import Programs
from d3ray.algos.learning.recording import Recording
from d3ray.algos.networks.training import has_tensor_float, products_in_tensor_float
from d3ray.algos.stack import Stack
from d3ray.data.errors import ConfigError

from ...stand_ins.cuda import Card, pretend
from ..learning.captured import GraphsOnHost, Replayed

DATA = testing.tiny_dataset(discrete=False)
TF32 = ("tf32", "tf32")


def now() -> tuple[str, str]:
    """What products and convolutions of float32 are computed in on GPUs."""
    return torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision


@contextmanager
def by_hand(products: str, convolutions: str) -> Iterator[None]:
    """Within it the process has settings of its own."""
    before = now()
    torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision = products, convolutions
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision = before


class Seen(TorchDispatchMode):
    """What products were computed in, backwards too."""

    def __init__(self) -> None:
        super().__init__()
        self.found = set[tuple[str, str]]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket.__name__ in ("addmm", "mm", "bmm", "baddbmm"):
            self.found.add(now())
        return function(*args, **(kwargs or {}))


def made(*, stacked: bool = False, **settings: Any) -> Any:
    make = testing.maker(TD3PlusBC, **settings)
    return Stack(make(), (3, 4)) if stacked else make(seed=3)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A CPU that is taken for a GPU with TF32, in a process that multiplies in float32."""
    monkeypatch.setattr(learner, "has_tensor_float", lambda _: True)
    with by_hand("ieee", "ieee"):
        yield


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stack"])
def test_products_of_a_gradient_step_are_in_it_and_others_are_not(stacked: bool) -> None:
    fast, plain = made(stacked=stacked, matmul_precision="tf32").fit(DATA, 1), made(stacked=stacked).fit(DATA, 1)
    for one, expected in ((fast, TF32), (plain, ("ieee", "ieee")), (fast, TF32)):  # in the same process, in turn
        source = one.fit_.sampler(DATA)
        with Seen() as seen:
            for step in (1, 2):
                one.fit_.learner.update(source.sample(step))
        assert (seen.found, now()) == ({expected}, ("ieee", "ieee"))
    alone = fast.seed(0) if stacked else fast
    with Seen() as seen:
        alone.predict(DATA.columns["observation"][:5])
    assert seen.found == {("ieee", "ieee")}


@pytest.mark.usefixtures("there")
def test_it_is_put_back_where_a_loss_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = made(matmul_precision="tf32").fit(DATA, 1)

    @loss("member sample")
    def fails(*_: Any) -> None:
        raise RuntimeError(now())

    monkeypatch.setattr(TD3PlusBC, "critic_loss", fails)
    with pytest.raises(RuntimeError, match="tf32"):
        fast.fit(DATA, 1)
    assert now() == ("ieee", "ieee")


def test_what_a_process_has_set_itself_stays() -> None:
    for own in (TF32, ("none", "tf32"), ("tf32", "ieee"), ("ieee", "ieee")):
        with by_hand(*own):
            with products_in_tensor_float():
                assert now() == TF32
                with products_in_tensor_float():
                    assert now() == TF32
                assert now() == TF32
            assert now() == own


class Watched(GraphsOnHost):
    """Graphs that note what products are computed in when they are captured."""

    def __init__(self) -> None:
        super().__init__()
        self.found = list[tuple[str, str]]()

    def capture(self, work: Callable[[], None]) -> Replayed:
        self.found.append(now())
        with Seen() as seen:
            captured = super().capture(work)
        self.found += seen.found
        return captured


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("compiled", [False, True], ids=["captured", "captured and compiled"])
def test_captured_and_compiled_steps_are_in_it(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    chosen, launched = list[tuple[str, str]](), list[tuple[str, str]]()

    def pretended(recording: Recording, outputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """In place of torch's compiler, which takes its time."""
        chosen.append(now())
        graph, inputs = recording.graph(outputs)

        def run(*arguments: Tensor) -> Sequence[Tensor]:
            launched.append(now())
            with torch.no_grad():
                return graph(*arguments, *inputs[len(arguments) :])

        return run

    monkeypatch.setattr(Recording, "compiled", pretended)
    fast, graphs = made(matmul_precision="tf32").fit(DATA, 0), Watched()
    fast.fit_.programs = Programs(fast.fit_.learner, compiled=compiled, graphs=graphs)
    fast.fit(DATA, 40, 10)
    assert graphs.captures
    assert set(graphs.found) == {TF32}
    assert (set(chosen), set(launched)) == (({TF32}, {TF32}) if compiled else (set(), set()))
    assert now() == ("ieee", "ieee")


@pytest.mark.parametrize(("card", "has"), [((7, 5), False), ((8, 0), True), ((8, 6), True), ((9, 0), True), ((12, 0), True)])
def test_gpus_have_it_from_ampere_on(monkeypatch: pytest.MonkeyPatch, card: tuple[int, int], has: bool) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pretend(Card(major=9), Card(major=card[0], minor=card[1])):
        assert has_tensor_float(torch.device("cuda:1")) == has
        assert not has_tensor_float(torch.device("cpu"))
        monkeypatch.setattr(torch.version, "hip", "7.0")  # AMD's, which torch calls cuda too
        assert not has_tensor_float(torch.device("cuda:1"))


@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stack"])
def test_a_device_without_it_trains_in_float32_and_says_so_once(tmp_path: Path, stacked: bool) -> None:
    with pytest.warns(UserWarning, match="TD3PlusBC") as said:
        fast = made(stacked=stacked, matmul_precision="tf32").fit(DATA, 6, 2)
    assert [str(one.message) for one in said] == [
        "TD3PlusBC trains in float32: cpu has no TF32, which NVIDIA's GPUs have from Ampere on."
    ]
    plain = made(stacked=stacked).fit(DATA, 6, 2)
    where, gap = testing.largest_difference(fast.state()[0], plain.state()[0])
    assert gap == 0, where
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = fast.seed(0) if stacked else fast
        alone.save(tmp_path / "saved")
        d3ray.load(tmp_path / "saved").predict(DATA.columns["observation"][:5])  # who only acts is told nothing


def test_float64_has_no_tf32() -> None:
    with pytest.raises(ConfigError, match=r"TD3PlusBC: matmul_precision is 'tf32', .* and dtype is 'float64': choose one"):
        TD3PlusBC(matmul_precision="tf32", dtype="float64").fit(DATA, 1)
