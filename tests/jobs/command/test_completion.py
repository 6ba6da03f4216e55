"""What shells offer after Tab, asked as they ask, and typed into real ones."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from d3ray.jobs.command.completion import SCRIPTS, answer

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache that is empty first, and remembers for the other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D3RAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("d3ray tr", ["train"]),
        ("d3ray --comp", ["--completion"]),
        ("d3ray --completion z", ["zsh"]),
        ("d3ray train d3ray/", ["d3ray/cartpole-replay", "d3ray/pendulum-replay"]),
        ("d3ray benchmark mic", ["micro"]),
        ("d3ray train algo", ["algorithm.", "algorithm="]),
        ("d3ray train algorithm=TD3P", ["algorithm=TD3PlusBC"]),
        ("d3ray train --algorithm TD3P", ["TD3PlusBC"]),
        ("d3ray train algorithm=rllib/PP", ["algorithm=rllib/PPO"]),
        ("d3ray train algorithm=TD3PlusBC algorithm.preset=d", ["algorithm.preset=d3rlpy", "algorithm.preset=d3rlpy-paper"]),
        ("d3ray train algorithm=IQL algorithm.exp", ["algorithm.expectile="]),
        ("d3ray train algorithm=CQL algorithm.exp", []),  # it has no such setting
        ("d3ray train algorithm.gam", ["algorithm.gamma="]),  # while none is chosen, what all have
        ("d3ray sweep scheduler.name=p", ["scheduler.name=pbt"]),
        ("d3ray resume first n_ste", ["n_steps=", "n_steps_per_epoch="]),
        ("d3ray record --env-", ["--env-id"]),
        ("d3ray train algorithm=CQL algorithm.action_scaler=", ["algorithm.action_scaler=min_max"]),
        ("d3ray train resources.", ["resources.actor_cpu=", "resources.cpu=", "resources.gpu=", "resources.grow_to="]),
        ("d3ray train resources.gpu=", ["resources.gpu=auto"]),
        ("d3ray train --resu", ["--resume"]),
        ("d3ray train system_metrics=t", ["system_metrics=true"]),
        ("d3ray submit address=http://127.0.0.1:1 train algorithm=IQ", ["algorithm=IQL", "algorithm=IQN"]),
        ("d3ray train --config ", []),  # files, which the shell knows
        ("d3ray train 'seeds=[0, ", []),
        ("d3ray nothing x", []),
    ],
)
def test_words_are_those_that_may_stand_there(line: str, has: list[str]) -> None:
    assert answer(line) == has


def test_a_config_file_says_the_algorithm_and_a_storage_the_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("dataset: d3ray/cartpole-replay\nalgorithm:\n  name: IQL\n")
    assert answer("d3ray train --config mine.yaml algorithm.exp") == ["algorithm.expectile="]
    for place in ("d3ray_results/usual", "other/elsewhere"):
        Path(place).mkdir(parents=True)
        (Path(place) / "experiment.json").touch()
    Path("d3ray_results/none").mkdir()
    assert answer("d3ray export us") == answer("d3ray plot us") == ["usual"]
    assert answer("d3ray evaluate storage=other else") == ["elsewhere"]


def test_bash_gets_what_follows_the_mark_at_which_it_breaks_words() -> None:
    assert answer("d3ray train algorithm=TD3P", "=:") == ["TD3PlusBC"]


def test_an_answer_is_quick_for_it_imports_no_torch_and_no_pydantic() -> None:
    assert answer("d3ray train algorithm=IQL algorithm.exp") == ["algorithm.expectile="]  # and is remembered
    code = "import sys; from d3ray.jobs.__main__ import main; main(); print(sorted({'torch', 'pydantic'} & set(sys.modules)))"
    env = {**os.environ, "D3RAY_COMPLETE": "d3ray train algorithm=IQL algorithm.exp"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["algorithm.expectile=", "[]"]


def test_what_an_earlier_d3ray_remembered_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path))
    (tmp_path / "completion.json").write_text('{"of": ["elsewhere", 1], "suites": ["old"], "benchmark": {}}')
    assert answer("d3ray benchmark mic") == ["micro"]
    (tmp_path / "completion.json").write_text("cut sho")
    assert answer("d3ray benchmark mic") == ["micro"]
    monkeypatch.setenv("D3RAY_CACHE", "/dev/null/nowhere")
    assert answer("d3ray status --form") == ["--format"]  # it cannot be remembered, and is known all the same


SHELLS = {
    "bash": (["bash", "--norc", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -D -u; "),
    "fish": (["fish", "--no-config", "-i"], ""),
}


@pytest.mark.long
@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_real_shell_completes_names_and_values(shell: str, tmp_path: Path) -> None:
    command, first = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    ours, theirs = pty.openpty()
    home = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "xterm"}
    process = subprocess.Popen(["setsid", "-c", *command], stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=home)
    os.close(theirs)
    try:
        load = f"d3ray --completion {shell} | source" if shell == "fish" else f"source <(d3ray --completion {shell})"
        os.write(ours, f"{first}{load}; echo rea''dy\r".encode())
        read_until(ours, "ready")
        os.write(ours, b"d3ray train d3ray/pend\talgorithm=TD3P\talgorithm.alph\t7 --print-config > seen; echo don''e\r")
        read_until(ours, "done")
        seen = (tmp_path / "seen").read_text()
        assert all(line in seen for line in ("dataset: d3ray/pendulum-replay ", "  name: TD3PlusBC ", "  alpha: 7 ")), seen
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, word: str) -> str:
    seen, end = "", time.monotonic() + 60
    while word not in seen:
        assert select.select([terminal], [], [], max(0, end - time.monotonic()))[0], seen
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen
