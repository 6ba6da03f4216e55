"""`d3ray record` and `d3ray play`: what is written is what the policy did, and no display is needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import scipy.stats
import torch
from PIL import Image, ImageSequence

from d3ray.algos.base import Algorithm
from d3ray.algos.environments import video
from d3ray.algos.environments.evaluate import episode_seeds, evaluate
from d3ray.algos.export.packing import write_package
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.registry import algorithm_class
from d3ray.algos.saving.loggers import CSVLogger
from d3ray.d3rlpy.files import load_d3
from d3ray.data.dataset import Dataset
from d3ray.data.spec import Box, Discrete, Environment, Spec
from d3ray.jobs.command.running import run_command
from d3ray.jobs.policies.record import RecordConfig, run
from d3ray.platform.storage.experiments import Experiment

from .test_evaluate import trained

pytest.importorskip("pygame")
CARTPOLE = Spec(observation=Box(shape=(4,)), action=Discrete(n=2))


@pytest.fixture(scope="module")
def cartpole() -> Algorithm:
    return trained("DQN", CARTPOLE)


@pytest.fixture(scope="module")
def place(cartpole: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the policy as a saved algorithm, a package, and an experiment's."""
    folder = tmp_path_factory.mktemp("policies")
    cartpole.save(folder / "saved")
    write_package(cartpole, folder / "package", environment="CartPole-v1")
    settings = {"algorithm": {"name": "DQN"}, "n_steps": 2, "evaluation": {"environment": "CartPole-v1", "episodes": 2}}
    experiment = Experiment.begin(str(folder / "d3ray_results"), "first", settings, {"name": "noise", "fingerprint": "0" * 64})
    trial = experiment.trial(settings, (0,))
    write_package(cartpole, Path(trial.folder.name) / "policy" / "seed-0")
    trial.settle({0: {"status": "FINISHED", "step": 2, "metrics": {"evaluation/return": 9.0}}})
    experiment.close()
    return folder


def frames(file: Path) -> np.ndarray:
    """Pictures of a video, [frames, height, width, 3]."""
    if file.suffix == ".gif":
        with Image.open(file) as image:
            return np.stack(
                [np.asarray(one.convert("RGB")) for one in ImageSequence.Iterator(image) for _ in range(shown_for(one))]
            )
    import imageio_ffmpeg

    reader = imageio_ffmpeg.read_frames(str(file))
    width, height = next(reader)["size"]
    return np.stack([np.frombuffer(one, np.uint8).reshape(height, width, 3) for one in reader])


def shown_for(one: Image.Image) -> int:
    """For how many of the shortest delays, 20 ms, a picture of a GIF is shown: equal ones become one."""
    return round(one.info["duration"] / 20)


def pictures(algorithm: Algorithm, seed: int, episodes: int = 1) -> list[list[np.ndarray]]:
    """What the environment draws in each episode, by gymnasium alone."""
    shown: list[list[np.ndarray]] = []
    for one in episode_seeds(seed, episodes):
        environment = gymnasium.make("CartPole-v1", render_mode="rgb_array")
        observation, _ = environment.reset(seed=one)
        shown.append([environment.render()])  # type: ignore[list-item]
        ended = False
        while not ended:
            observation, _, terminated, truncated, _ = environment.step(int(algorithm.predict(observation[None])[0]))
            shown[-1].append(environment.render())  # type: ignore[arg-type]
            ended = terminated or truncated
        environment.close()
    return shown


def test_a_gif_shows_every_step_of_the_policy(place: Path, cartpole: Algorithm, tmp_path: Path) -> None:
    output = tmp_path / "new" / "cartpole.gif"
    result = run(RecordConfig(policy=str(place / "package"), output=output, episodes=2, seed=5))
    played = evaluate(cartpole.policy(), "CartPole-v1", episodes=2, seed=5, n_envs=1)
    assert (result.returns.tolist(), result.files) == (played.returns.tolist(), [output])
    assert result.made.startswith(f"CartPole-v1: return {played.mean:.2f} ± {played.std:.2f} (seed 5): ")
    shown, drawn = frames(output), [picture for episode in pictures(cartpole, 5, 2) for picture in episode]
    assert len(shown) == len(drawn) == played.lengths.sum() + 2
    assert np.abs(shown.astype(int) - np.stack(drawn)).max() <= 16  # of 256 colours
    assert (shown[1:] != shown[:-1]).any((1, 2, 3)).mean() > 0.8
    assert [path.name for path in output.parent.iterdir()] == ["cartpole.gif"]


def test_an_mp4_of_each_episode_shows_every_step(place: Path, cartpole: Algorithm, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    result = run(RecordConfig(policy="first", storage=str(place / "d3ray_results"), output=tmp_path / "videos", episodes=2))
    names = ["CartPole-v1-episode-0.mp4", "CartPole-v1-episode-1.mp4"]
    assert sorted(path.name for path in (tmp_path / "videos").iterdir()) == names
    for file, drawn in zip(result.files, pictures(cartpole, 0, 2), strict=True):
        shown = frames(file)
        assert len(shown) == len(drawn)
        assert np.abs(shown.astype(int) - np.stack(drawn)).mean() < 3  # compressed with a loss
    assert (frames(result.files[0])[0] != frames(result.files[0])[-1]).any()


def test_without_ffmpeg_a_folder_gets_gifs_and_an_mp4_is_refused(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(video.importlib.util, "find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    spelled = [str(place / "saved"), "--env-id", "CartPole-v1", "--n-episodes", "1", "--max-steps", "3", "--fps", "125"]
    assert run_command("record", spelled) == 0
    assert "CartPole-v1: return 3.00 ± 0.00 (seed 0): 3.00 in 3 steps.\n  video: videos/CartPole-v1-episode-0.gif\n" in (
        capsys.readouterr().out
    )
    assert len(frames(tmp_path / "videos" / "CartPole-v1-episode-0.gif")) == 2  # of 4, at a third of 125 a second
    assert run_command("record", [*spelled, "output=a.mp4"]) == 2
    assert "a.mp4: an .mp4 needs ffmpeg, which pip install 'd3ray[video]' brings" in capsys.readouterr().err


def test_what_cannot_be_recorded_is_refused_before_anything_is_written(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.gif").write_bytes(b"mine")
    (tmp_path / "model.pt").write_bytes(b"torch")
    package, saved = str(place / "package"), str(place / "saved")
    for arguments, sentence in (
        ([package, "--env-id", "Acrobot-v1"], "sees arrays of the shape (4,), and Acrobot-v1 has arrays of the shape (6,)"),
        ([package, "output=there.gif"], "There is there.gif already: say --replace"),
        ([package, "output=video.avi"], "a video ends in .mp4 or .gif"),
        ([package, "target_return=3"], "acts for no return"),
        ([saved], "names no environment: write environment=ID"),
        ([saved, "env_id=CartPole-v9"], "CartPole"),
        (["nothing"], "nothing is no policy: name a policy package"),
        (["model.pt"], "model.pt is no policy: of single files d3rlpy's .d3 is read"),
    ):
        assert run_command("record", arguments) == 2
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1
    assert (tmp_path / "there.gif").read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "there.gif"]


class Undrawable(gymnasium.Env[np.ndarray, int]):
    """Says that it draws, and fails at it, as MuJoCo does without OpenGL."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict[str, object]]:
        return np.zeros(4, np.float32), {}

    def render(self) -> np.ndarray:
        raise RuntimeError("no OpenGL\nat all")


def test_an_environment_that_cannot_draw_leaves_nothing(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gymnasium.register("Undrawable-v0", entry_point=Undrawable, max_episode_steps=5)
    try:
        assert run_command("record", [str(place / "package"), "env_id=Undrawable-v0", f"output={tmp_path / 'a.gif'}"]) == 2
    finally:
        gymnasium.registry.pop("Undrawable-v0")
    assert capsys.readouterr().err == "Undrawable-v0 cannot be drawn here: no OpenGL.\n"
    assert list(tmp_path.iterdir()) == []


def test_play_prints_what_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    lake = Environment(id="FrozenLake-v1", kwargs={"is_slippery": False})
    n = 40
    rows, columns = np.arange(n) % 16, np.arange(n) % 4
    data = Dataset.from_arrays(
        rows, columns, np.ones(n), rows == 15, spec=Spec(observation=Discrete(n=16), action=Discrete(n=4)), name="lake"
    )
    policy = algorithm_class("DQN")(batch_size=8).fit(data, n_steps=2, n_steps_per_epoch=2)
    write_package(policy, tmp_path / "lake", environment=lake)
    assert run_command("play", [str(tmp_path / "lake"), "fps=1000", "max_steps=3", "episodes=2"]) == 0
    told = capsys.readouterr().out
    played = evaluate(policy.policy(), lake.model_copy(update={"kwargs": {**lake.kwargs, "max_episode_steps": 3}}), episodes=2)
    assert told.count("\x1b[41m") == played.lengths.sum() + 2  # marks where one stands
    assert told.startswith("Episode 0\n\n\x1b[41mS\x1b[0mFFF\nFHFH\n")
    assert told.endswith(f"FrozenLake-v1: return {played.mean:.2f} ± {played.std:.2f} over 2 episodes (seed 0).\n")


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="there is always a display")
def test_play_without_a_display_names_record(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    package = str(place / "package")
    assert run_command("play", [package]) == 2
    assert capsys.readouterr().err == (f"There is no display here for CartPole-v1: d3ray record {package} makes a video instead.\n")
    assert run_command("play", [package, "render=text"]) == 2
    assert capsys.readouterr().err == "CartPole-v1 has no render mode 'ansi': it has human, rgb_array.\n"


def test_policies_are_compared_by_episodes_that_begin_alike(
    place: Path, cartpole: Algorithm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observation = np.random.default_rng(0).normal(scale=(1, 1, 0.1, 1), size=(2000, 4)).astype(np.float32)
    leaning = (observation[:, 2] > 0).astype(np.int64)  # pushes to where the pole leans, which returns about 40
    data = Dataset.from_arrays(observation, leaning, np.ones(2000), np.arange(2000) % 20 == 19)
    other = algorithm_class("DiscreteBC")(observation_scaler="standard", seed=0).fit(data, n_steps=100, n_steps_per_epoch=100)
    other.save(tmp_path / "other")
    package = str(place / "package")
    assert run_command("compare", [package, str(tmp_path / "other"), "episodes=6", "seed=3", "format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = (evaluate(one.policy(), "CartPole-v1", episodes=6, seed=3).returns for one in (cartpole, other))
    values = [list(one["values"].values()) for one in found["metrics"]["return"]]
    assert values == [first.tolist(), second.tolist()]
    theirs = scipy.stats.ttest_rel(second, first)
    (verdict,) = found["verdicts"]
    assert (verdict["mean"], verdict["p"]) == (pytest.approx((second - first).mean()), pytest.approx(theirs.pvalue))
    assert verdict["interval"] == pytest.approx(list(theirs.confidence_interval()))
    assert found["settings"]["name"] == ["DQN", "DiscreteBC"]
    assert run_command("compare", [package, str(tmp_path / "other"), "episodes=6", "seed=3"]) == 0
    assert f"paired t-test's p = {theirs.pvalue:.2g}, 6 episodes): the difference is " in capsys.readouterr().out
    for arguments, sentence in (
        ([package, "episodes=2"], "is one policy: name another one"),
        ([package, package + "/", "env_id=CartPole-v1"], "say episodes=N too"),
        ([package, str(tmp_path / "other"), "episodes=2", "metric=x"], "leave metric=x out"),
        ([package, str(tmp_path / "other"), "episodes=2", "env_id=Acrobot-v1"], "Acrobot-v1 has arrays of the shape (6,)"),
    ):
        assert run_command("compare", arguments) == 2
        assert sentence in capsys.readouterr().err


def test_the_three_commands_of_d3rlpys_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data, logger = Dataset.open("d3ray/cartpole-replay"), CSVLogger("d3rlpy_logs/DQN", save_interval=1)
    evaluators = {"environment": lambda algorithm, epoch: {"return": 9.0 + epoch}}
    dqn = algorithm_class("DQN")(encoder=VectorEncoder(hidden_units=(16,)))
    dqn.fit(data, n_steps=4, n_steps_per_epoch=2, evaluators=evaluators, logger=logger)
    assert run_command("plot", ["d3rlpy_logs/DQN/environment/return.csv"]) == 0
    assert "(1 seed, 11 at step 4)" in capsys.readouterr().out
    model = "d3rlpy_logs/DQN/model_4"
    assert run_command("record", [model, "--env-id", "CartPole-v1", "--n-episodes", "1"]) == 0
    returned = evaluate(dqn.policy(), "CartPole-v1", episodes=1).mean
    assert capsys.readouterr().out.startswith(f"CartPole-v1: return {returned:.2f} ± 0.00 (seed 0): ")
    assert run_command("export", [model, "--format", "torchscript"]) == 0
    observation = data.columns["observation"][:20]
    exported = torch.jit.load(f"{model}.pt")(torch.from_numpy(observation)).numpy()
    np.testing.assert_array_equal(exported, dqn.predict(observation))


def test_a_file_of_d3rlpy_plays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Made with three numbers seen and two done: any environment of such spaces will do."""
    file = Path(__file__).parents[1] / "facades" / "d3rlpy" / "d3_files" / "bc.d3"
    gymnasium.register("Three-v0", entry_point=Three, max_episode_steps=5)
    try:
        assert run_command("record", [str(file), "--env-id", "Three-v0", f"output={tmp_path / 'a.gif'}", "episodes=1"]) == 0
    finally:
        gymnasium.registry.pop("Three-v0")
    played = load_d3(file, "cpu").predict(np.full((1, 3), 0.5, np.float32))
    assert capsys.readouterr().out.startswith(f"Three-v0: return {5 * float(played.sum()):.2f} ± 0.00 (seed 0): ")
    assert len(frames(tmp_path / "a.gif")) == 6


class Three(gymnasium.Env[np.ndarray, np.ndarray]):
    """Shows always the same, rewards the sum of what is done, and draws how often it was stepped."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict[str, object]]:
        self.t = 0
        return np.full(3, 0.5, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.t += 1
        return np.full(3, 0.5, np.float32), float(action.sum()), False, False, {}

    def render(self) -> np.ndarray:
        return np.full((8, 8, 3), 20 * self.t, np.uint8)
