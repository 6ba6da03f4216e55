"""Recipes: what a run of SAC or DQN gives, step by step as the simulator has it; names, refusals, and what a full disk leaves."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from d3ray import Dataset, load
from d3ray.data.catalog import catalog
from d3ray.data.catalog.local import dataset_folder, run_folder, state
from d3ray.data.catalog.recipe import KINDS, Recipe
from d3ray.data.errors import ConfigError, DataError, StorageError
from d3ray.platform.datasets.recipes import find, follow, make, runs_of
from d3ray.platform.datasets.recipes_run import Done, Score, medium

from .tiny_recipes import DQN, TINY, write_catalog


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


@pytest.fixture(autouse=True)
def names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CATALOG", str(write_catalog(folder / "catalog.json")))
    monkeypatch.setenv("D3RAY_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)  # MuJoCo may leave its log there


@pytest.fixture
def hopper() -> dict[str, Dataset]:
    """All six of a run in Hopper, by kind; made by whichever test comes first."""
    made = make("tiny/hopper-*")
    assert made.failed == {}
    return {name.removeprefix("tiny/hopper-"): dataset for name, dataset in made.datasets.items()}


def steps(dataset: Dataset) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of all steps without closing rows, and the observation after each."""
    columns = dataset.columns
    rows = np.flatnonzero(~columns["closing"])
    return {name: column[rows] for name, column in columns.items()}, columns["observation"][rows + 1]


def test_one_run_gives_six_datasets(hopper: dict[str, Dataset]) -> None:
    assert set(hopper) == set(KINDS)
    told = {kind: dataset.provenance["made"] for kind, dataset in hopper.items()}
    until = told["medium-replay"]["policies"]["learner until"]["steps"]
    sizes = {kind: dataset.n_transitions for kind, dataset in hopper.items()}
    assert sizes == {**dict.fromkeys(KINDS, 300), "medium-expert": 600, "medium-replay": until}
    evaluations = told["expert"]["evaluations"]
    assert [at for at, _ in evaluations] == [83, 127, 171, 215, 259, 300]  # 261 updates in 6, the first at step 40
    best = max(mean for _, mean in evaluations)
    assert told["expert"]["policies"]["expert"]["mean"] == best == told["expert"]["returns"]["expert"]
    random = told["expert"]["returns"]["random"]
    assert until == next(at for at, mean in evaluations if mean >= random + (best - random) / 3 or mean == best)
    assert set(told["medium-expert"]["policies"]) == {"medium", "expert"}
    assert told["random"]["policies"] == {"random": None}
    for kind, dataset in hopper.items():
        assert dataset.name == f"tiny/hopper-{kind}"
        assert dataset.environment is not None
        assert dataset.environment.id == "Hopper-v4"
        assert told[kind]["recipe"] == {**told["random"]["recipe"], "kind": kind}
        assert told[kind]["agent"]["batch_size"] == 16
        assert {"torch", "gymnasium", "mujoco", "d3ray"} <= told[kind]["versions"].keys()
        assert dataset.statistics.n_final_missing == (kind == "full-replay" and not _ends(dataset))
        dataset.verify()


def _ends(dataset: Dataset) -> bool:
    """Whether the last episode ended by itself."""
    return bool(dataset.episodes.terminated[-1])


def test_replays_and_mixtures_are_made_of_the_same_steps(hopper: dict[str, Dataset]) -> None:
    whole, _ = steps(hopper["full-replay"])
    part, following = steps(hopper["medium-replay"])
    n = len(following)
    for name in ("observation", "action", "reward", "terminated", "log_prob", "info/qpos"):
        np.testing.assert_array_equal(part[name], whole[name][:n])
    np.testing.assert_array_equal(following, steps(hopper["full-replay"])[1][:n])
    both, _ = steps(hopper["medium-expert"])
    for at, kind in enumerate(("medium", "expert")):
        one, _ = steps(hopper[kind])
        for name, column in one.items():
            np.testing.assert_array_equal(both[name][300 * at : 300 * (at + 1)], column)


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_the_simulators(hopper: dict[str, Dataset], kind: str) -> None:
    """From the state beside it (float32) a fresh simulator does with the action what was recorded."""
    dataset = hopper[kind]
    columns, following = steps(dataset)
    environment = gymnasium.make("Hopper-v4").unwrapped
    environment.reset(seed=0)
    for t in range(len(following) - (dataset.statistics.n_final_missing)):  # what followed the last step of all is not known
        qpos, qvel = columns["info/qpos"][t], columns["info/qvel"][t]
        np.testing.assert_allclose(columns["observation"][t], [*qpos[1:], *np.clip(qvel, -10, 10)], atol=1e-5)
        environment.set_state(qpos.astype(float), qvel.astype(float))  # pyright: ignore[reportAttributeAccessIssue]
        observation, reward, terminated, _, _ = environment.step(columns["action"][t])
        np.testing.assert_allclose(following[t], observation, atol=2e-3)
        assert columns["reward"][t] == pytest.approx(reward, abs=2e-3)
        assert columns["terminated"][t] == terminated


def test_densities_are_those_of_who_acted(hopper: dict[str, Dataset], folder: Path) -> None:
    random, _ = steps(hopper["random"])
    np.testing.assert_allclose(random["log_prob"], -3 * np.log(2), atol=1e-6)
    assert np.abs(random["action"].mean(0)).max() < 0.15
    for kind in ("medium", "expert"):
        at = hopper[kind].provenance["made"]["policies"][kind]["gradient_steps"]
        entry = catalog().find(f"tiny/hopper-{kind}")
        assert entry is not None
        network = load(run_folder(entry) / "policies" / f"step-{at:09d}", device="cpu").policy().module.networks["policy"]
        columns, _ = steps(hopper[kind])
        with torch.no_grad():
            mean, log_std = network.parameters_at(torch.as_tensor(columns["observation"].copy()))
            normal = torch.distributions.Normal(mean.double(), log_std.double().exp())
            squashed = torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform()])
            expected = squashed.log_prob(torch.as_tensor(columns["action"].copy()).double()).sum(-1).numpy()
        inside = np.abs(columns["action"]).max(1) < 0.999  # float32 says too little of actions nearer to 1
        assert inside.sum() > 100
        np.testing.assert_allclose(columns["log_prob"][inside], expected[inside], atol=5e-3)


@pytest.mark.long
def test_the_same_recipe_gives_the_same_dataset(
    hopper: dict[str, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another cache, the datasets in another order, two of them later: from what is kept of the run."""
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path))
    first = make(["tiny/hopper-medium-expert", "tiny/hopper-full-replay"]).datasets
    told: list[tuple[str, float | None]] = []
    later = make(["tiny/hopper-random", "tiny/hopper-expert"]).datasets
    for name, dataset in {**first, **later}.items():
        assert dataset.fingerprint == hopper[name.removeprefix("tiny/hopper-")].fingerprint
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    def progress(description: str, total: float | None = None) -> Any:
        told.append((description, total))

    make("tiny/hopper-random", progress=progress)  # it is there
    assert told == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_dqn_explores_as_it_is_told_and_its_policies_as_it_did_in_the_end() -> None:
    made = make("tiny/cartpole-*")
    assert made.failed == {}
    found = {name.removeprefix("tiny/cartpole-"): dataset for name, dataset in made.datasets.items()}
    told = found["expert"].provenance["made"]
    assert (told["agent"]["name"], told["agent"]["batch_size"]) == ("DQN", 16)
    assert told["procedure"].endswith("with d3ray's DQN")
    assert [at for at, _ in told["evaluations"]] == [80, 120, 180, 220, 260, 300]  # 14 times 10 updates, in 6; the first at step 40
    assert found["full-replay"].n_transitions == found["expert"].n_transitions == 300
    assert found["medium-expert"].n_transitions == 600
    whole, _ = steps(found["full-replay"])
    assert "log_prob" not in whole  # DQN has no density
    entry = catalog().find("tiny/cartpole-expert")
    assert entry is not None
    for kind in ("medium", "expert"):
        at = found[kind].provenance["made"]["policies"][kind]["gradient_steps"]
        policy = load(run_folder(entry) / "policies" / f"step-{at:09d}", device="cpu")
        columns, _ = steps(found[kind])
        wandered = float((policy.predict(columns["observation"]) != columns["action"]).mean())
        assert wandered == pytest.approx(0.25, abs=0.08)  # half of the steps are random, half of those as the policy would have it
    assert float(steps(found["random"])[0]["action"].mean()) == pytest.approx(0.5, abs=0.1)


@pytest.mark.long
def test_a_run_of_dqn_in_minatar_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left off after three of six evaluations in the middle of a game, which repeats actions at random."""
    pytest.importorskip("minatar")
    small = {"name": "pixel", "filters": [[4, 3, 1]], "feature_size": 16}
    recipe = {**DQN, "kind": "full-replay", "agent": {**DQN["agent"], "encoder": small}}
    entry = {"environment": {"id": "MinAtar/Breakout-v1"}, "recipe": recipe}
    monkeypatch.setenv("D3RAY_CATALOG", str(write_catalog(tmp_path / "catalog.json", team__game=entry)))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "left-off"))
    (run,) = runs_of(find(["team/game"]))
    said = follow(run)
    told = [next(said) for _ in range(3)]
    assert [one.steps for one in told if isinstance(one, Done)] == [80, 120, 180]
    said.close()
    gone_on = make("team/game").datasets["team/game"]
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "undisturbed"))
    undisturbed = make("team/game").datasets["team/game"]
    assert gone_on.fingerprint == undisturbed.fingerprint
    assert gone_on.provenance["made"]["evaluations"] == undisturbed.provenance["made"]["evaluations"]
    assert gone_on.columns["observation"].shape[1:] == (4, 10, 10)


def test_the_medium_policy_is_the_first_that_came_a_third_of_the_way() -> None:
    def chosen(random: float, *means: float) -> int:
        return medium([Score(k, k, mean) for k, mean in enumerate(means)], random, 1 / 3).steps

    assert chosen(0, 10, 50, 99, 300, 250) == 3  # 100 would do
    assert chosen(0, 10, 50, 101, 300, 250) == 2
    assert chosen(-1200, -1100, -850, -700, -150) == 1  # -850 is a third of the way from -1200 to -150
    assert chosen(100, 90, 20) == 0  # nothing learnt: the best of all
    assert chosen(100, 20, 90, 90) == 1


def test_what_was_not_made_says_what_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path))
    with pytest.raises(DataError, match=r"^tiny/hopper-medium is .* not made yet: d3ray make tiny/hopper-medium makes it\.$"):
        Dataset.open("tiny/hopper-medium")
    known = catalog()
    for name in (
        "d3ray-mujoco/ant-medium-replay-100k-v4",
        "d3ray-classic/pendulum-full-replay-20k-v1",
        "d3ray-mujoco/hopper-expert-v4",
    ):
        entry = known.find(name)
        assert entry is not None
        assert state(name, entry) == ""
        with pytest.raises(DataError, match=f"d3ray make {name} makes it"):
            Dataset.open(name)
    assert list(tmp_path.iterdir()) == []
    ant, full = known.find("d3ray-mujoco/ant-medium-replay-100k-v4"), known.find("d3ray-mujoco/hopper-expert-v4")
    assert ant is not None
    assert ant.environment is not None
    assert ant.recipe is not None
    assert full is not None
    assert full.recipe is not None
    assert (ant.environment.kwargs, ant.recipe.kind, ant.recipe.steps) == ({"use_contact_forces": True}, "medium-replay", 100_000)
    assert (full.recipe.kind, full.recipe.steps) == ("expert", 1_000_000)


def test_datasets_of_one_run_share_its_folder_and_no_others_do() -> None:
    known = catalog()

    def folder_of(name: str) -> Path:
        entry = known.find(name)
        assert entry is not None
        return run_folder(entry)

    assert folder_of("tiny/hopper-random") == folder_of("tiny/hopper-medium-expert")
    others = ["tiny/pendulum-random", "d3ray-mujoco/hopper-random-v4", "d3ray-mujoco/hopper-random-100k-v4"]
    assert len({folder_of(name) for name in ["tiny/hopper-random", *others]}) == 4


def test_what_was_imported_or_made_before_is_found_again() -> None:
    """Folders are called as before there were recipes, and before these knew other agents than SAC."""
    known = catalog()
    imported, made = known.find("d4rl/hopper-medium-v2"), known.find("d3ray-mujoco/hopper-medium-v4")
    assert imported is not None
    assert made is not None
    assert made.recipe is not None
    assert dataset_folder("d4rl/hopper-medium-v2", imported).name == "hopper-medium-v2.b013fc69"
    assert dataset_folder("d3ray-mujoco/hopper-medium-v4", made).name == "hopper-medium-v4.79de73c7"
    assert run_folder(made).name == "Hopper-v4.00bf0d55"
    assert "sac" in made.recipe.told()
    for recipe in (made.recipe, Recipe.checked({**DQN, "kind": "expert"})):
        assert Recipe.checked(recipe.told()) == recipe


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny/hoper-medium", r"^There is no dataset 'tiny/hoper-medium'; did you mean 'tiny/hopper-medium'\?$"),
        ("tiny/walker-*", r"^No dataset with a recipe has a name that fits 'tiny/walker-\*'; d"),
        ("d3ray/cartpole-replay", r"^d3ray/cartpole-replay has no recipe, for it can be had as it is: d3ray inspect"),
    ],
)
def test_a_name_that_cannot_be_made_is_one_sentence(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(["tiny/hopper-random", name])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"recipe": {"kind": "medium"}}, "a recipe needs the environment"),
        (
            {"recipe": {"kind": "medium"}, "folder": "x", "environment": {"id": "Hopper-v4"}},
            "files, a folder, a recipe or a script",
        ),
        ({"recipe": {"kind": "mediun"}, "environment": {"id": "Hopper-v4"}}, "recipe.kind is 'mediun'"),
        (
            {"recipe": {"kind": "medium", "step": 3}, "environment": {"id": "Hopper-v4"}},
            "no setting 'recipe.step'; did you mean 'steps'",
        ),
        ({"recipe": {"kind": "medium", "agent": {"batch_size": 3}}, "environment": {"id": "Hopper-v4"}}, "agent has no name"),
        (
            {"recipe": {"kind": "medium", "sac": {}, "agent": {"name": "SAC"}}, "environment": {"id": "Hopper-v4"}},
            "sac has settings of SAC, in place of an agent",
        ),
        (
            {"recipe": {"kind": "medium", "steps": 50, "update_interval": 20}, "environment": {"id": "CartPole-v1"}},
            "steps is 50, which is no multiple of update_interval, 20",
        ),
    ],
)
def test_an_entry_that_is_no_recipe_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv("D3RAY_CATALOG", str(write_catalog(folder / "bad.json", team__bad=entry)))
    with pytest.raises(ConfigError, match=message):
        catalog()


@pytest.mark.parametrize(
    ("environment", "recipe", "message"),
    [
        ("Hoper-v4", {}, r"gymnasium knows no environment 'Hoper-v4'; did you mean 'Hopper-v4'\?"),
        ("CartPole-v1", {}, "CartPole-v1 has no continuous actions within bounds, which a recipe's SAC needs"),
        ("Hopper-v4", {"agent": {"name": "DQN"}}, "Hopper-v4 has no discrete actions, which a recipe's DQN needs"),
        ("CartPole-v1", {"agent": {"name": "DQM"}}, "DQM.*did you mean 'DQN'"),
        ("CartPole-v1", {"agent": {"name": "DQN"}, "explorer": {"name": "epsilon"}}, "no explorer 'epsilon'"),
        ("Hopper-v4", {"warmup": 16}, "warmup is 16; it must be more than a batch of 16 and fewer than 300 steps"),
        ("Hopper-v4", {"sac": {"batch": 3}}, "SAC has no setting 'batch'"),
    ],
)
def test_what_cannot_be_followed_fails_before_any_work_and_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str, recipe: dict[str, Any], message: str
) -> None:
    base = {name: value for name, value in TINY.items() if name != "sac" or "agent" not in recipe}
    bad = {"environment": {"id": environment}, "recipe": {**base, "kind": "random", **recipe}}
    monkeypatch.setenv("D3RAY_CATALOG", str(write_catalog(folder / "bad.json", team__bad=bad)))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path))
    made = make("team/bad")
    assert made.datasets == {}
    with pytest.raises((ConfigError, DataError), match=message):
        raise made.failed["team/bad"]
    assert list(tmp_path.rglob("*")) == []


def test_a_full_disk_leaves_no_dataset_and_what_can_be_gone_on_from(
    hopper: dict[str, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path))
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
        made = make("tiny/hopper-full-replay")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert made.datasets == {}
    assert isinstance(made.failed["tiny/hopper-full-replay"], StorageError)
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert all(path.parent.name.startswith("step-") or path.name == "evaluations.json" for path in left), left
    again = make("tiny/hopper-full-replay")
    assert again.datasets["tiny/hopper-full-replay"].fingerprint == hopper["full-replay"].fingerprint
