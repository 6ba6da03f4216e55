"""Defaults, a YAML file and the command line become one config, and every value says where it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import model_validator

from d3ray.data.config import Config
from d3ray.data.errors import ConfigError
from d3ray.jobs.command.base import JobConfig, RestartableConfig, option
from d3ray.jobs.command.describe import example, help_text, print_config
from d3ray.jobs.command.options import read_line, resolve
from d3ray.platform.yaml_text import parse_value, read_yaml, to_text


class Choice(Config):
    shorthand: ClassVar[str] = "name"
    name: str = option(..., "name of the algorithm")
    alpha: float = option(2.5, "weight of the value", gt=0)
    settings: dict[str, Any] = option(dict, "what else it takes")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class Evaluation(Config):
    environment: str = option(..., "id of an environment")
    episodes: int = option(10, "episodes of an evaluation", gt=0)


class ToyConfig(RestartableConfig):
    dataset: str = option(..., "dataset folder, URI or catalog name", operand=True, example="d3ray/cartpole-replay")
    target: Path | None = option(None, "where to put the result", operand=True)
    algorithm: Choice = option(Choice(name="TD3PlusBC"), "the algorithm and its settings")
    n_steps: int = option(500_000, "gradient steps", gt=0)
    rate: float = option(1e-3, "learning rate")
    seeds: tuple[int, ...] = option((0,), "seeds", min_length=1)
    mode: Literal["on", "off"] = option("on", "a word that YAML 1.1 takes for a truth value")
    evaluation: Evaluation | None = option(None, "none: losses only")
    verbose: bool = option(False, "say more")

    def implied(self) -> dict[str, tuple[Any, str]]:
        return {"algorithm.tau": (0.005, "preset paper"), "algorithm.alpha": (self.algorithm.alpha, "preset paper")}


class KnownElsewhereConfig(JobConfig):
    environment: Evaluation | str | None = option(None, "where", also="env_id")
    episodes: int = option(1, "how many", also="n_episodes")


class SubmitConfig(JobConfig):
    address: str | None = option(None, "the cluster")
    job: str = option(..., "the job", operand=True)
    arguments: tuple[str, ...] = option((), "what the job is given", operand="rest")


def written(folder: Path, text: str) -> Path:
    (folder / "toy.yaml").write_text(text)
    return folder / "toy.yaml"


def refusal(*arguments: str, path: Path | None = None, config: type[Config] = ToyConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(config, path, arguments, title="d3ray toy")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_later_wins_and_every_value_says_where_it_came_from(tmp_path: Path) -> None:
    path = written(tmp_path, "# a comment\nn_steps: 100\nalgorithm:\n  name: CQL\n  alpha: 1e-1\nseeds: [1, 2]\n")
    config, places = resolve(ToyConfig, path, ["data/x", "n_steps=7", "evaluation.environment=Hopper-v4"])
    assert config == ToyConfig(
        dataset="data/x",
        n_steps=7,
        algorithm=Choice(name="CQL", alpha=0.1),
        seeds=(1, 2),
        evaluation=Evaluation(environment="Hopper-v4"),
    )
    assert places == {
        "resume": "default",
        "replace": "default",
        "dataset": "command line",
        "target": "default",
        "algorithm.name": f"{path}:4",
        "algorithm.alpha": f"{path}:5",
        "algorithm.tau": "preset paper",
        "algorithm.settings": "default",
        "n_steps": "command line",
        "rate": "default",
        "seeds": f"{path}:6",
        "mode": "default",
        "evaluation.environment": "command line",
        "evaluation.episodes": "default",
        "verbose": "default",
    }


def test_operands_fill_the_fields_that_are_not_named() -> None:
    assert resolve(ToyConfig, None, ["x", "y"])[0].target == Path("y")
    config, _ = resolve(ToyConfig, None, ["y", "dataset=x"])
    assert (config.dataset, config.target) == ("x", Path("y"))


@pytest.mark.parametrize("typed", ["on", "2026-01-31", "0123", "1e-4", "null", "a: b", "#x", "s3://bucket/x?y=z"])
def test_text_is_taken_as_typed(typed: str) -> None:
    assert resolve(ToyConfig, None, [f"dataset={typed}"])[0].dataset == typed
    assert resolve(ToyConfig, None, [typed])[0].dataset == typed


@pytest.mark.parametrize(
    ("pair", "name", "value"),
    [
        ("rate=1e-4", "rate", 1e-4),
        ("n_steps=500_000", "n_steps", 500_000),
        ("mode=off", "mode", "off"),
        ("seeds=[3, 4]", "seeds", (3, 4)),
        ("target=null", "target", None),
        ("target=~/x", "target", Path("~/x")),
        ("dataset='quoted'", "dataset", "quoted"),
        ("evaluation={environment: A, episodes: 3}", "evaluation", Evaluation(environment="A", episodes=3)),
        ("algorithm=CQL", "algorithm", Choice(name="CQL")),
        ("algorithm.alpha=3", "algorithm", Choice(name="TD3PlusBC", alpha=3)),  # the rest of the default stays
        ("algorithm.settings.layers=[1]", "algorithm", Choice(name="TD3PlusBC", settings={"layers": [1]})),
    ],
)
def test_values_of_pairs_are_yaml_1_2(pair: str, name: str, value: Any) -> None:
    arguments = [pair] if name == "dataset" else ["x", pair]
    assert getattr(resolve(ToyConfig, None, arguments)[0], name) == value


@pytest.mark.parametrize("typed", [["--env-id", "A"], ["--env-id=A"], ["env_id=A"], ["env-id=A"], ["--environment", "A"]])
def test_an_option_has_the_name_that_another_program_gives_it(typed: list[str]) -> None:
    config, places = resolve(KnownElsewhereConfig, None, [*typed, "--n-episodes", "3"])
    assert (config.environment, config.episodes, places["environment"]) == ("A", 3, "command line")
    assert "also --env-id)" in help_text("toy", KnownElsewhereConfig, "about")
    assert "environment is given twice" in refusal("environment=A", *typed, config=KnownElsewhereConfig)
    assert resolve(KnownElsewhereConfig, None, ["env_id.environment=A"])[0].environment == Evaluation(environment="A")


def test_a_whole_field_comes_before_its_entries_in_either_order() -> None:
    for arguments in (["algorithm=CQL", "algorithm.alpha=3"], ["algorithm.alpha=3", "algorithm=CQL"]):
        config, places = resolve(ToyConfig, None, ["x", *arguments])
        assert config.algorithm == Choice(name="CQL", alpha=3)
        assert places["algorithm.name"] == places["algorithm.alpha"] == "command line"


def test_a_short_form_in_a_file_can_be_added_to(tmp_path: Path) -> None:
    path = written(tmp_path, "dataset: x\nalgorithm: CQL\n")
    config, places = resolve(ToyConfig, path, ["algorithm.alpha=3"])
    assert config.algorithm == Choice(name="CQL", alpha=3)
    assert places["algorithm.name"] == f"{path}:2"
    assert resolve(ToyConfig, path)[1]["algorithm.name"] == f"{path}:2"
    assert resolve(ToyConfig, path)[1]["algorithm.alpha"] == "preset paper"


def test_a_mapping_in_a_file_stands_for_the_whole_field(tmp_path: Path) -> None:
    assert "needs 'algorithm.name'" in refusal(path=written(tmp_path, "dataset: x\nalgorithm: {alpha: 3}\n"))


def test_dashes_and_pairs_are_one() -> None:
    for typed in (["--algorithm.alpha", "3"], ["--algorithm.alpha=3"], ["algorithm.alpha=3"]):
        assert resolve(ToyConfig, None, ["x", *typed])[0].algorithm.alpha == 3
    assert resolve(ToyConfig, None, ["x", "n-steps=3", "--resume=false"])[0].n_steps == 3


def test_flags_are_booleans() -> None:
    assert resolve(ToyConfig, None, ["x", "--resume"])[0].resume is True
    assert resolve(ToyConfig, None, ["x", "--no-verbose"])[0].verbose is False
    assert resolve(ToyConfig, None, ["x", "--replace"])[1]["replace"] == "command line"


def test_the_rest_of_a_line_is_left_alone() -> None:
    arguments = ["address=http://h:1", "train", "x", "n_steps=3", "--resume", "--config", "a.yaml", "--print-config"]
    config, _ = resolve(SubmitConfig, None, arguments)
    assert config == SubmitConfig(address="http://h:1", job="train", arguments=tuple(arguments[2:]))
    assert read_line(SubmitConfig, arguments).action == "run"
    assert read_line(SubmitConfig, ["--help", *arguments]).action == "help"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs 'dataset': dataset folder, URI or catalog name"),
        (["datset=x"], "did you mean 'dataset'?"),
        (["x", "n_step=3"], "did you mean 'n_steps'?"),
        (["x", "--n-stps", "3"], "did you mean '--n-steps'?"),
        (["x", "episodes=3"], "did you mean 'evaluation.episodes'?"),
        (["x", "algorithm.alpa=3"], "did you mean 'alpha'?"),
        (["x", "n_steps=-1"], "n_steps is -1"),
        (["x", "n_steps=1", "n_steps=2"], "n_steps is given twice"),
        (["x", "y", "z"], "'z' stands alone"),
        (["x", "y", "n-steps", "3"], "write n_steps=VALUE"),
        (["x", "--n-steps", "--resume"], "--n-steps needs a value"),
        (["x", "--n-steps"], "--n-steps needs a value"),
        (["x", "--resum"], "did you mean '--resume'?"),
        (["x", "-r"], "no flag '-r'"),
        (["x", "--resume", "--replace"], "say one of them"),
        (["x", "--config"], "--config needs"),
        (["x", "rate.a=1"], "rate.a cannot be set"),
        (["x", "mode=o"], "'on' or 'off'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arguments: list[str], said: str) -> None:
    assert refusal(*arguments).startswith("d3ray toy")
    assert said in refusal(*arguments)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("dataset: x\n\nn_stepz: 3\n", 3, "did you mean 'n_steps'?"),
        ("dataset: x\nalgorithm:\n  name: A\n  alpha: 0\n", 4, "algorithm.alpha is 0"),
        ("n_steps: 1\ndataset: x\nn_steps: 2\n", 3, "'n_steps' stands twice"),
        ("dataset: x\nalgorithm: {name: a, name: b}\n", 2, "'name' stands twice"),
        ("%YAML 1.1\n---\ndataset: x\n", None, "YAML 1.2"),
        ("- a\n- b\n", None, "mapping"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    path = written(tmp_path, text)
    assert refusal(path=path).startswith(f"{path}:{line}: " if line else str(path))
    assert said in refusal(path=path)


@pytest.mark.parametrize("text", ["a: [1\n", "\ta: 1\n", "a: 1\n---\nb: 2\n", "a: !!python/name:os.system\n", "a: *b\n", "[" * 50])
def test_a_file_that_is_no_yaml_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    assert "is not YAML" in refusal(path=written(tmp_path, text))


def test_a_missing_file_is_refused_with_its_neighbour(tmp_path: Path) -> None:
    written(tmp_path, "dataset: x\n")
    path = tmp_path / "toi.yaml"
    assert refusal(path=path) == f"There is no config file {str(path)!r}; did you mean 'toy.yaml'?"
    path.write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refusal(path=path)


def test_yaml_is_1_2_and_dates_are_words(tmp_path: Path) -> None:
    path = written(tmp_path, "%YAML 1.2\n---\na: 1e-4\nb: on\nc: no\nd: 2026-01-31\ne: 1_000\nf: {g: ~}\n")
    values, lines = read_yaml(path)
    assert values == {"a": 1e-4, "b": "on", "c": "no", "d": "2026-01-31", "e": 1000, "f": {"g": None}}
    assert (lines["a",], lines["f", "g"]) == (3, 8)


def test_an_empty_file_says_nothing_and_an_anchor_may_not_hold_itself(tmp_path: Path) -> None:
    assert read_yaml(written(tmp_path, "# only this\n")) == ({}, {})
    values, _ = read_yaml(written(tmp_path, "a: &x {b: 1}\nc: *x\n"))
    assert values == {"a": {"b": 1}, "c": {"b": 1}}
    endless = written(tmp_path, "dataset: x\nalgorithm: &x {name: a, settings: {y: [*x]}}\n")
    assert "nested more than 30 levels deep" in refusal(path=endless)


def test_the_example_is_valid_and_shows_the_defaults(tmp_path: Path) -> None:
    text = example("toy", ToyConfig)
    config, _ = resolve(ToyConfig, written(tmp_path, text))
    assert config == ToyConfig(dataset="d3ray/cartpole-replay")
    for name, field in ToyConfig.model_fields.items():
        assert f"# {field.description}" in text, name
    assert "#   episodes: episodes of an evaluation (integer, > 0; default 10)" in text
    assert text.index("dataset:") < text.index("resume:")


def test_what_print_config_prints_reads_back_as_the_config(tmp_path: Path) -> None:
    arguments = [
        "on: off",
        "algorithm.settings={on: '1e-4', x.y: [a, {b: null}]}",
        "rate=1e-07",
        "target=-x",
        "evaluation.environment=1",
    ]
    config, places = resolve(ToyConfig, None, arguments)
    text = print_config(config, places)
    again, _ = resolve(ToyConfig, written(tmp_path, text))
    assert again == config
    assert "rate: 1e-07  # command line\n" in text
    assert "n_steps: 500000  # default\n" in text
    assert "# algorithm.tau: 0.005  # preset paper\n" in text


def test_an_address_is_printed_without_its_credentials() -> None:
    config, places = resolve(ToyConfig, None, ["dataset=s3://THEKEY:THESECRET@bucket/x?region=eu&sig=THESECRET"])
    text = print_config(config, places)
    assert "s3://bucket/x?region=eu" in text
    assert "THE" not in text
    assert text.startswith("# Addresses are shown without their credentials.\n")
    assert config.dataset.startswith("s3://THEKEY:")


def test_the_file_and_line_are_printed(tmp_path: Path) -> None:
    path = written(tmp_path, "\ndataset: x\n")
    assert f"dataset: x  # {path}:2\n" in print_config(*resolve(ToyConfig, path))


def test_help_shows_every_option_with_type_default_and_description() -> None:
    text = help_text("toy", ToyConfig, "A toy.")
    assert text.startswith("Usage: d3ray toy DATASET [TARGET] [key=value ...] [--config FILE]\n\nA toy.\n")
    for expected in (
        "  dataset  (text; required, may stand alone)\n      dataset folder, URI or catalog name\n",
        "  target  (path or null; default null, may stand alone)\n",
        "  algorithm.alpha  (number, > 0; default 2.5)\n      weight of the value\n",
        "  seeds  (list of integer, at least 1; default [0])\n",
        "  mode  (on or off; default on)\n",
        "  resume  (true or false; default false, or --resume)\n",
    ):
        assert expected in text
    assert help_text("submit", SubmitConfig, "").startswith(
        "Usage: d3ray submit [key=value ...] [--config FILE] JOB [ARGUMENTS] ...\n"
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.long
@given(json_values)
def test_what_is_written_reads_back(value: Any) -> None:
    text = to_text(value)
    assert "\n" not in text
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)
