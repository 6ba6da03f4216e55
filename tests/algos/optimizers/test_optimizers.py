"""Optimisers against torch's own, row by row; schedules against torch's and by hand."""

import math

import pytest
import torch

from d3ray.algos import testing
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.optimizers import SGD, Adam, AdamW, Cosine, Linear, Muon, Optimizer, RMSprop, RowOptimizer, WarmUp
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.data.config import Config
from d3ray.data.errors import ConfigError

CASES = {
    "adam": (Adam(weight_decay=0.1), torch.optim.Adam, {"weight_decay": 0.1}),
    "amsgrad": (
        Adam(betas=(0.5, 0.9), epsilon=1e-3, amsgrad=True),
        torch.optim.Adam,
        {"betas": (0.5, 0.9), "eps": 1e-3, "amsgrad": True},
    ),
    "adamw": (AdamW(weight_decay=0.3), torch.optim.AdamW, {"weight_decay": 0.3}),
    "rmsprop": (RMSprop(alpha=0.9), torch.optim.RMSprop, {"alpha": 0.9}),
    "rmsprop, all": (
        RMSprop(alpha=0.9, epsilon=1e-2, centered=True, momentum=0.5, weight_decay=0.1),
        torch.optim.RMSprop,
        {"alpha": 0.9, "eps": 1e-2, "centered": True, "momentum": 0.5, "weight_decay": 0.1},
    ),
    "sgd": (SGD(), torch.optim.SGD, {}),
    "momentum": (SGD(momentum=0.9, weight_decay=0.1), torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "nesterov": (SGD(momentum=0.9, nesterov=True), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
}
SHAPES = {"layer.weight": (4, 2), "ensemble.weight": (2, 3, 5), "ensemble.bias": (2, 1, 5), "bias": (5,)}
RATES = (1e-2, 1e-3, 3e-2)


def _start(rows: int | None = 3) -> dict[str, torch.Tensor]:
    lead = () if rows is None else (rows,)
    return {name: torch.randn(*lead, *shape, dtype=torch.float64) for name, shape in SHAPES.items()}


def _clone(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize("norm", [None, 2.0])
@pytest.mark.parametrize("name", CASES)
def test_each_row_is_stepped_as_torch_steps_it_alone(name: str, norm: float | None) -> None:
    config, peer, options = CASES[name]
    torch.manual_seed(0)
    start = _start()
    ours = RowOptimizer(config.model_copy(update={"max_grad_norm": norm}), _clone(start), RATES, 3)
    theirs = [[t[k].clone() for t in start.values()] for k in range(3)]
    optimizers = [peer(row, lr=rate, **options) for row, rate in zip(theirs, RATES, strict=True)]
    for step in range(5):
        if step == 3:  # rates become equal: rows are stepped as one from here on
            ours.set_rates([1e-2] * 3)
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = 1e-2
        gradients = [0.3 * torch.randn_like(t) for t in start.values()]  # norms on both sides of 2
        ours.step(gradients, step)
        for k, row in enumerate(theirs):
            for parameter, gradient in zip(row, gradients, strict=True):
                parameter.grad = gradient[k].clone()
            if norm is not None:
                torch.nn.utils.clip_grad_norm_(row, norm)
            optimizers[k].step()
    for i in range(len(SHAPES)):
        torch.testing.assert_close(ours.parameters[i], torch.stack([row[i] for row in theirs]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("rows", [None, 2])
def test_gradients_of_scalars_are_clipped_with_the_rest(rows: int | None) -> None:
    """The gradient (3, 4) has the norm 5: a tenth of it is left where 0.5 is the most."""
    lead = () if rows is None else (rows,)
    start = {"temperature": torch.zeros(lead, dtype=torch.float64), "bias": torch.zeros(*lead, 1, dtype=torch.float64)}
    ours = RowOptimizer(SGD(max_grad_norm=0.5), start, [1.0] * (rows or 1), rows)
    ours.step([torch.full_like(start["temperature"], 3.0), torch.full_like(start["bias"], 4.0)], 0)
    torch.testing.assert_close(start["temperature"], torch.full(lead, -0.3, dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(start["bias"], torch.full((*lead, 1), -0.4, dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("rows", [None, 3])
def test_a_gradient_may_lie_otherwise_in_memory_than_its_parameter(rows: int | None) -> None:
    """What autograd gives a transposed weight is transposed; torch's fused kernels go through storage."""
    start = {"layer.weight": _start(rows)["layer.weight"]}
    gradient = torch.randn_like(start["layer.weight"])
    found = []
    for laid_out in (gradient, gradient.mT.contiguous().mT):
        optimizer = RowOptimizer(Adam(), _clone(start), [1e-2] * (rows or 1), rows)
        optimizer.step([laid_out], 0)
        found.append(optimizer.parameters[0])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


@pytest.mark.parametrize(("adjust", "decay"), [("original", 0.1), ("match_rms_adamw", 0.0)])
def test_muon_is_torchs_on_matrices_and_adamw_elsewhere(adjust: str, decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's weights are [out, in]; its iterates run in bfloat16, which is switched off here, in both ways of asking for it."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    monkeypatch.setattr(torch, "bfloat16", torch.float64)
    torch.manual_seed(0)
    start = _start()
    ours = RowOptimizer(Muon(adjust=adjust, weight_decay=decay), _clone(start), RATES, 3)
    rows = [{n: t[k].clone() for n, t in start.items()} for k in range(3)]
    # One torch matrix for each member, transposed views of the same storage
    matrices = [[row["layer.weight"].T, *(member.T for member in row["ensemble.weight"])] for row in rows]
    others = [[row["ensemble.bias"], row["bias"]] for row in rows]
    muons = [torch.optim.Muon(m, lr=r, weight_decay=decay, adjust_lr_fn=adjust) for m, r in zip(matrices, RATES, strict=True)]
    adams = [torch.optim.AdamW(o, lr=r, weight_decay=decay) for o, r in zip(others, RATES, strict=True)]
    for step in range(4):
        gradients = {n: torch.randn_like(t) for n, t in start.items()}
        ours.step(list(gradients.values()), step)
        for k in range(3):
            of_row = {n: g[k] for n, g in gradients.items()}
            for parameter, gradient in zip(
                [*matrices[k], *others[k]],
                [of_row["layer.weight"].T, *(g.T for g in of_row["ensemble.weight"]), of_row["ensemble.bias"], of_row["bias"]],
                strict=True,
            ):
                parameter.grad = gradient.clone()
            muons[k].step()
            adams[k].step()
    for i, name in enumerate(SHAPES):
        torch.testing.assert_close(ours.parameters[i], torch.stack([row[name] for row in rows]), rtol=0, atol=1e-12)


def test_epsilon_may_stand_inside_the_root() -> None:
    """The running square is 0.9 · 0 + 0.1 · 9 = 0.9 and then 0.9 · 0.9 + 0.1 · 1 = 0.91.

    θ = 1 - 0.5 · 3 / √(0.9 + 0.1) - 0.5 · 1 / √(0.91 + 0.1).
    """
    parameter = torch.ones(1, dtype=torch.float64)
    ours = RowOptimizer(RMSprop(alpha=0.9, epsilon=0.1, epsilon_inside=True), {"w": parameter}, [0.5], None)
    ours.step([torch.tensor([3.0], dtype=torch.float64)], 0)
    assert float(parameter) == pytest.approx(-0.5, abs=1e-15)
    ours.step([torch.tensor([1.0], dtype=torch.float64)], 1)
    assert float(parameter) == pytest.approx(-0.5 - 0.5 / math.sqrt(1.01), abs=1e-15)


def test_a_row_without_a_finite_gradient_keeps_its_trouble_to_itself() -> None:
    start = _start()
    gradients = [torch.ones_like(t) for t in start.values()]
    gradients[1][2] = torch.nan
    ours = RowOptimizer(Adam(max_grad_norm=1.0), _clone(start), [1e-2] * 3, 3)
    ours.step(gradients, 0)
    assert all(p[:2].isfinite().all() for p in ours.parameters)
    assert all(p[2].isnan().all() for p in ours.parameters)


def test_schedules_by_hand_and_beside_torchs() -> None:
    cosine, linear, warm = Cosine(duration=10, final=0.1, warm_up=4), Linear(duration=4, final=0.5), WarmUp(warm_up=5)
    assert [cosine.share(t) for t in (0, 1, 3, 4, 9, 14, 99)] == pytest.approx([0.25, 0.5, 1, 1, 0.55, 0.1, 0.1])
    assert [linear.share(t) for t in range(6)] == pytest.approx([1, 0.875, 0.75, 0.625, 0.5, 0.5])
    assert [warm.share(t) for t in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10, eta_min=0.1)
    plain = Cosine(duration=10, final=0.1)
    for step in range(11):
        assert plain.share(step) == pytest.approx(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()


def test_a_schedule_scales_each_rows_own_rate() -> None:
    parameter = torch.zeros(2, 1)
    ours = RowOptimizer(SGD(schedule=Linear(duration=2)), {"w": parameter}, [1.0, 10.0], 2)
    moved = []
    for step in range(3):
        before = parameter.clone()
        ours.step([torch.ones(2, 1)], step)
        moved.append((before - parameter)[:, 0].tolist())
    assert moved == [[1.0, 10.0], [0.5, 5.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    "config",
    [
        Adam(amsgrad=True, schedule=Cosine(duration=9)),
        RMSprop(centered=True, momentum=0.5, schedule=Linear(duration=9, warm_up=3)),
        Muon(schedule=WarmUp(warm_up=8)),
    ],
    ids=lambda config: config.name,
)
def test_a_resumed_run_goes_on_bit_for_bit(config: Optimizer) -> None:
    torch.manual_seed(0)
    start = _start(None)
    gradients = [[torch.randn_like(t) for t in start.values()] for _ in range(6)]
    straight = RowOptimizer(config, _clone(start), [1e-2], None)
    for step in range(3):
        straight.step(gradients[step], step)
    state = straight.state()
    resumed = RowOptimizer(config, {n: p.clone() for n, p in zip(start, straight.parameters, strict=True)}, [1e-2], None)
    resumed.load_state(state)
    for step in range(3, 6):
        straight.step(gradients[step], step)
        resumed.step(gradients[step], step)
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters, resumed.parameters, strict=True))
    assert straight.state().keys() == resumed.state().keys() == state.keys()


def test_a_checkpoint_names_what_is_remembered() -> None:
    ours = RowOptimizer(Adam(), {"w": torch.zeros(2)}, [1e-2], None)
    assert ours.state() == {}
    ours.step([torch.ones(2)], 0)
    assert set(ours.state()) == {"step", "w:exp_avg", "w:exp_avg_sq"}
    assert set(RowOptimizer(SGD(), {"w": torch.zeros(2)}, [1.0], None).state()) == set()


@pytest.mark.parametrize(
    "optimizer", ["muon", {"name": "rmsprop", "max_grad_norm": 1.0, "schedule": {"name": "linear", "duration": 20}}]
)
def test_algorithms_keep_the_contract_with_other_optimizers(optimizer: object) -> None:
    make = testing.maker(TD3, actor_optimizer=optimizer, critic_optimizer=optimizer)
    testing.check_row_equals_single_run(make, n_steps=10)
    testing.check_resumes_bit_for_bit(make)


@pytest.mark.parametrize("name", algorithm_names())
@pytest.mark.parametrize("wrong", [0, -1e-3])
def test_learning_rates_are_positive_and_ensembles_have_members(name: str, wrong: float) -> None:
    algorithm = algorithm_class(name)
    for setting in algorithm.Config.model_fields:
        if setting.endswith("learning_rate") or setting == "n_critics":
            with pytest.raises(ConfigError, match=f"^{name}: {setting} is ") as caught:
                algorithm(**{setting: int(wrong) if setting == "n_critics" else wrong}).check_settings()
            assert "\n" not in str(caught.value)


class _Settings(Config):
    optimizer: Optimizer = Adam()


def test_settings_name_an_optimizer() -> None:
    assert _Settings.checked({"optimizer": "rmsprop"}).optimizer == RMSprop()
    read = _Settings.checked({"optimizer": {"name": "sgd", "momentum": 0.9, "schedule": {"name": "cosine", "duration": 5}}})
    assert read.optimizer == SGD(momentum=0.9, schedule=Cosine(duration=5))
    assert _Settings.model_validate_json(read.model_dump_json()) == read


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("adan", "optimizer is 'adan'; there is no such optimizer; did you mean 'adam'?"),
        ({"name": "adam", "epsilon": 0}, "optimizer.epsilon is 0; input should be greater than 0."),
        ({"name": "adam", "epsilom": 0}, "has no setting 'optimizer.epsilom'; did you mean 'epsilon'?"),
        ({"name": "adam", "betas": [0.9, 1.0]}, "optimizer.betas.1 is 1.0; input should be less than 1."),
        ({"name": "sgd", "nesterov": True}, "nesterov looks ahead along the momentum, so momentum must be above 0."),
        ({"name": "sgd", "max_grad_norm": -1}, "optimizer.max_grad_norm is -1; input should be greater than 0."),
        ({"name": "adam", "schedule": "cosine"}, "a schedule needs its length, as {name: cosine, duration: 100000}."),
        ({"name": "adam", "schedule": {"name": "cosine"}}, "needs 'optimizer.schedule.duration': gradient steps from the set rate"),
        ({"name": "adam", "schedule": "cosin"}, "there is no such schedule; did you mean 'cosine'?"),
        ({"name": "adam", "schedule": {"name": "cosine", "duration": 0}}, "duration is 0; input should be greater than 0."),
    ],
)
def test_wrong_settings_end_in_one_sentence(given: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _Settings.checked({"optimizer": given})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", algorithm_names())
def test_the_optimizer_of_every_network_is_a_setting(name: str) -> None:
    cls = algorithm_class(name)
    settings = {field: "sgd" for field in cls.Config.model_fields if field.endswith("optimizer")}
    algorithm = testing.maker(cls)(**settings)
    data = testing.tiny_dataset(discrete=cls.actions == "discrete")
    spec = data.with_goals().spec if cls.goal_conditioned else data.spec
    networks = algorithm.networks(spec, algorithm.check_settings())
    assert {part.optimizer.name for network in networks.values() for part in (network, *network.groups)} == {"sgd"}
