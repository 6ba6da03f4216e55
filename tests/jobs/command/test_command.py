"""The `d3ray` command: what it lists, prints and returns, with a toy job in a copy of the package and with every job there is."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from d3ray.jobs.command.base import Result
from d3ray.jobs.command.commands import COMMANDS, load
from d3ray.jobs.command.console import note, progress, say
from d3ray.jobs.command.describe import example, help_text
from d3ray.jobs.command.options import operands, resolve
from d3ray.jobs.command.running import BAD_INPUT, run_command

ROOT = Path(__file__).parents[3]
TOY = '''"""`d3ray toy DATASET`."""

from __future__ import annotations

import time

from ...data.errors import DataError
from ..command.base import RestartableConfig, Result, option


class ToyConfig(RestartableConfig):
    dataset: str = option(..., "what to do", operand=True)
    n: int = option(3, "a number", gt=0)


def run(config: ToyConfig) -> Result:
    match config.dataset:
        case "bad":
            raise DataError("bad is no dataset; did you mean 'good'?")
        case "bug":
            raise RuntimeError("a bug")
        case "part":
            return Result(made="A half.", failed="Seed 1 failed: it turned NaN.")
        case "wait":
            print("waiting", flush=True)
            time.sleep(60)
        case "told":
            raise KeyboardInterrupt("1 of 3 trials is done.")
    return Result(made=f"There are {config.n} now.", look={"dataset": "a/b", "the page": "http://127.0.0.1"})
'''


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has the package with one command, the toy."""
    folder = tmp_path_factory.mktemp("toy")
    package = folder / "d3ray"
    (package / "jobs").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "data").mkdir()
    for name in ("config", "errors", "uris", "version"):
        shutil.copy(ROOT / "data" / f"{name}.py", package / "data")
    for name in ("__init__", "__main__"):
        shutil.copy(ROOT / "jobs" / f"{name}.py", package / "jobs")
    shutil.copytree(ROOT / "jobs" / "command", package / "jobs" / "command")
    (package / "platform").mkdir()
    shutil.copy(ROOT / "platform" / "yaml_text.py", package / "platform")
    room = package / "jobs" / "training"
    room.mkdir()
    (room / "toy.py").write_text(TOY)
    table = package / "jobs" / "command" / "commands.py"
    toy = '{"toy": ("training.toy:run", "a toy that does what it is told.")}'
    table.write_text(re.sub(r"(COMMANDS: .*? = ){.*?\n}\n", rf"\g<1>{toy}\n", table.read_text(), flags=re.DOTALL))
    (folder / "three.yaml").write_text("dataset: good\nn: 4\n")
    return folder


def d3ray(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "d3ray.jobs", *arguments]
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_it_lists_its_commands_with_a_line_each(toy: Path) -> None:
    status, out, _ = d3ray(toy, "--help")
    assert status == 0
    assert re.search(r"Training:\n  toy +a toy that does what it is told\.\n", out)
    assert "Policies:" not in out  # has no command here
    assert d3ray(toy) == (2, "", out)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--version"], (0, "d3ray ", "")),
        (["--completion", "bash"], (0, "complete ", "")),
        (["--completion=fish"], (0, "complete ", "")),
        (["--completion", "bsh"], (2, "", "did you mean 'bash'?")),
        (["--completion"], (2, "", "'zsh'")),
        (["--verison"], (2, "", "did you mean '--version'?")),
        (["toy", "--help"], (0, "n  (integer, > 0; default 3)", "")),
        (["toy", "--example"], (0, "n: 3", "")),
        (["toy", "good", "--repalce"], (2, "", "did you mean '--replace'?")),
    ],
)
def test_what_is_asked_of_it_is_answered_or_refused(toy: Path, arguments: list[str], expected: tuple[int, str, str]) -> None:
    status, out, err = d3ray(toy, *arguments)
    assert status == expected[0]
    assert expected[1] in out
    assert expected[2] in err
    assert not (out and err)


def test_a_reader_who_leaves_early_sees_no_traceback(toy: Path) -> None:
    code = "import os, sys; os.close(0); from d3ray.jobs.__main__ import main; main(['--help'])"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], cwd=toy, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_job_ends_by_saying_what_it_made_and_where_to_look(toy: Path) -> None:
    assert d3ray(toy, "toy", "good", "n=5") == (0, "There are 5 now.\n  dataset:  a/b\n  the page: http://127.0.0.1\n", "")
    assert d3ray(toy, "toy", "--config", "three.yaml")[:2] == (
        0,
        "There are 4 now.\n  dataset:  a/b\n  the page: http://127.0.0.1\n",
    )


def test_print_config_runs_nothing(toy: Path) -> None:
    status, out, err = d3ray(toy, "toy", "--config", "three.yaml", "--resume", "--print-config")
    assert (status, err) == (0, "")
    expected = {
        "resume: true  # command line",
        "replace: false  # default",
        "dataset: good  # three.yaml:1",
        "n: 4  # three.yaml:2",
    }
    assert set(out.splitlines()) == expected


def test_bad_input_is_one_sentence_and_status_2(toy: Path) -> None:
    assert d3ray(toy, "toy", "bad") == (2, "", "bad is no dataset; did you mean 'good'?\n")
    assert d3ray(toy, "toy", "good", "m=5") == (
        2,
        "",
        "d3ray toy has no setting 'm'; choose from 'resume', 'replace', 'dataset', 'n'.\n",
    )
    assert d3ray(toy, "tooy") == (2, "", "d3ray has no job 'tooy'; did you mean 'toy'?\n")


def test_debug_shows_where_bad_input_was_refused(toy: Path) -> None:
    status, _, err = d3ray(toy, "toy", "bad", D3RAY_DEBUG="1")
    assert status == 2
    assert "Traceback" in err
    assert err.endswith("\nbad is no dataset; did you mean 'good'?\n")


def test_a_bug_keeps_its_traceback(toy: Path) -> None:
    status, _, err = d3ray(toy, "toy", "bug")
    assert status == 1
    assert err.endswith("RuntimeError: a bug\n")


def test_a_part_that_failed_is_status_1(toy: Path) -> None:
    assert d3ray(toy, "toy", "part") == (1, "A half.\n", "Seed 1 failed: it turned NaN.\n")


def test_ctrl_c_says_how_to_go_on(toy: Path) -> None:
    command = [sys.executable, "-m", "d3ray.jobs", "toy", "wait", "--replace"]
    with subprocess.Popen(command, cwd=toy, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "\nInterrupted; what reached a checkpoint is kept. To go on: d3ray toy wait --resume\n"
    assert d3ray(toy, "toy", "told") == (130, "", "\n1 of 3 trials is done.\n")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom d3ray.jobs.command.commands import COMMANDS\nfrom d3ray.jobs.__main__ import main\n"
        "from d3ray.jobs.command.running import run_command\n"
        "def heavy(*names): return sorted({'torch', 'ray', 'mlflow', 'gymnasium', *names} & set(sys.modules))\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(heavy('numpy', 'pyarrow', 'pydantic'), file=sys.stderr)\n"
        "for name in COMMANDS.keys() - {'sweep'}:\n"
        "    assert run_command(name, ['--help']) == 0\n    assert not heavy(), (name, heavy())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_job_keeps_the_contract(name: str, tmp_path: Path) -> None:
    run, config_class = load(name)
    assert callable(run)
    assert COMMANDS[name][1].endswith(".")
    for field_name, field in config_class.model_fields.items():
        assert field.description, f"{name}: {field_name} has no description"
        assert f"\n  {field_name}  (" in help_text(name, config_class)
    (tmp_path / "example.yaml").write_text(example(name, config_class))
    from_file, places = resolve(config_class, tmp_path / "example.yaml", [])
    required = [field for field, info in config_class.model_fields.items() if info.is_required()]
    assert from_file == config_class.model_validate({field: getattr(from_file, field) for field in required})
    assert set(operands(config_class)) <= set(config_class.model_fields)
    assert all(place != "command line" for place in places.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_job_refuses_an_unknown_setting(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    operand = ["x" for mark in operands(load(name)[1]).values() if mark is True]
    assert run_command(name, ["no_such_setting=1", *operand]) == BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert f"d3ray {name} has no setting 'no_such_setting'" in err


def test_a_result_lines_up_where_to_look() -> None:
    assert Result(made="A.").summary() == ["A."]
    assert Result(made="A.", look={"x": "1", "long": "2"}).summary() == ["A.", "  x:    1", "  long: 2"]


def test_lines_of_progress_say_how_fast_it_goes_and_how_long_it_will_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 104.0, 120.0, 160.0])
    monkeypatch.setattr("d3ray.data.progress.time.monotonic", lambda: next(clock))
    with progress("reading files", 200) as advance:
        for done in (20, 25, 40, 200):  # what was there already, too soon for a line, 20 more in 20 s, all
            advance(to=done)
    assert capsys.readouterr().err.splitlines() == [
        "reading files: 20 of 200 (10%)",
        "reading files: 40 of 200 (20%), 1/s, 0:02:40 left",
        "reading files: 200 of 200 (100%)",
    ]


def test_progress_off_a_terminal_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("training", 1000) as advance:
        for _ in range(1000):
            advance(note="seed 1")
    with progress("reading") as advance:
        advance(to=5)
    note("[not markup] " + "x" * 200)
    say("said")
    out, err = capsys.readouterr()
    assert out == "said\n"
    assert err.splitlines() == [
        "training: 1 of 1000 (0%)  seed 1",
        "training: 1000 of 1000 (100%)  seed 1",
        "reading: 5",
        "[not markup] " + "x" * 200,
    ]


def test_a_download_is_told_in_megabytes_once_its_size_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 120.0, 140.0])
    monkeypatch.setattr("d3ray.data.progress.time.monotonic", lambda: next(clock))
    with progress("downloading", in_bytes=True) as advance:
        advance(to=0)
        for done in (30_000_000, 60_000_000):
            advance(to=done, total=60_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "downloading: 0.0 MB",
        "downloading: 30.0 MB of 60.0 MB (50%), 1.5 MB/s, 0:00:20 left",
        "downloading: 60.0 MB of 60.0 MB (100%)",
    ]
