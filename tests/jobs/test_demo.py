"""The demo, small: two algorithms on the shipped data, a registered policy played without torch, a page."""

from pathlib import Path

import pytest

from d3ray.jobs.command.running import run_command
from d3ray.jobs.training.demo import DemoConfig, run

pytestmark = pytest.mark.long


@pytest.mark.usefixtures("local_ray")
def test_the_demo_ends_with_scores_beside_the_datas_own(tmp_path: Path) -> None:
    config = DemoConfig.checked({"n_steps": 60, "seeds": (0,), "episodes": 2, "storage": str(tmp_path)})
    result = run(config)
    assert result.data == pytest.approx(73.28, abs=0.01)
    assert set(result.scores) == {"DQN", "DiscreteBC"}
    assert result.exported > 1
    assert Path(result.look["report"]).read_text().count("DiscreteBC") > 2
    assert result.look["runs"].startswith(f"mlflow ui --backend-store-uri sqlite:///{tmp_path}")
    assert run_command("demo", [f"storage={tmp_path}", "n_steps=60"]) == 2  # the name is taken
