"""With which settings a benchmark's algorithms were trained, as its report says."""

from __future__ import annotations

import json

from d3ray import BC, IQL, ReBRAC
from d3ray.algos.base import Algorithm
from d3ray.platform.benchmark.report import compose
from d3ray.platform.benchmark.settings import settings_of
from d3ray.platform.storage.resuming import flatten
from d3ray.platform.tracking.runs import Tracking

from .fake_benchmark import HOPPER, WALKER, read


def test_the_settings_are_told_by_preset_with_its_source_and_what_is_otherwise(tracking: Tracking) -> None:
    cells = {(d, label): {0: [1.0]} for d in (HOPPER, WALKER) for label in ("IQL", "mine", "BC", "ReBRAC")}
    cells[HOPPER, "RLlib.BC"] = {0: [1.0]}
    params = {
        "IQL": parameters(IQL.from_preset("paper", expectile=0.8, action_scaler="min_max")),
        "mine": parameters(IQL()),
        "BC": parameters(BC.from_preset("d3rlpy")),
        "ReBRAC": parameters(ReBRAC.from_preset("d4rl-hopper-medium")),
    }
    algorithms = {"mine": "IQL"}
    entries = [
        {"label": "IQL", "name": "IQL", "preset": "d3rlpy", "on": {"*-medium-*": {"preset": "paper"}}},
        {"label": "mine", "name": "IQL"},
        {"label": "BC", "name": "BC", "preset": "d3rlpy"},
        {"label": "ReBRAC", "name": "ReBRAC", "preset": "d4rl-{task}"},
        {"label": "RLlib.BC", "name": "RLlib.BC"},
    ]
    about = {"datasets": [HOPPER, WALKER], "algorithms": entries, "seeds": [0]}
    bench = read(tracking, cells, suite="set", n_evaluations=1, params=params, algorithms=algorithms, definition=about)
    told = settings_of(bench)
    rows = {row.label: row for row in told.rows}
    source = IQL.presets["paper"].source
    assert told.is_told
    assert str(rows["IQL"]) == f"IQL: preset paper ({source}); otherwise: action_scaler min_max (null), expectile 0.8 (0.7)."
    assert str(rows["mine"]) == "mine, which is IQL: defaults (d3ray’s own, each with its source in the code)."
    assert (rows["BC"].preset.name, rows["BC"].changes, rows["BC"].datasets) == ("preset d3rlpy", [], ())
    assert rows["RLlib.BC"].preset.name == ""
    rebrac = [row for row in told.rows if row.label == "ReBRAC"]
    presets = [("preset d4rl-hopper-medium", ("hopper-medium-v4",)), ("preset d4rl-walker2d-medium", ("walker2d-medium-v4",))]
    assert [(row.preset.name, row.datasets) for row in rebrac] == presets
    assert not rebrac[0].changes
    assert rebrac[1].changes  # on Walker2d it had Hopper's settings, which is not what the suite names
    made = compose(bench)
    assert "Settings of IQL: preset paper" in made["report.md"].decode()
    assert "<td>action_scaler min_max (null), expectile 0.8 (0.7)</td>" in made["report.html"].decode()
    bare = {**about, "algorithms": ["IQL", "mine", "BC", "ReBRAC", "RLlib.BC"]}  # as of a suite that was too long for its tag
    short = settings_of(
        read(tracking, cells, suite="set-2", n_evaluations=1, params=params, algorithms=algorithms, definition=bare)
    )
    assert not short.is_told
    assert str(short.rows[0]) == str(rows["IQL"])
    near = [row.preset.name for row in short.rows if row.label == "ReBRAC"]
    assert near[0] == "preset d4rl-hopper-medium"
    # d4rl-walker2d-medium is none of those with these settings
    same = [name for name in ReBRAC.presets if parameters(ReBRAC.from_preset(name)) == params["ReBRAC"]]
    assert near[1] == f"preset {same[0]} or {same[1]} or {len(same) - 2} others"
    (source,) = [row.preset.source for row in short.rows if row.preset.name == near[1]]
    assert source == "; or ".join(dict.fromkeys(ReBRAC.presets[name].source for name in same[:2]))


def parameters(algorithm: Algorithm) -> dict[str, str]:
    """As a delivery writes them."""
    flat = flatten({"algorithm": {**algorithm.check_settings().model_dump(mode="json"), "dtype": algorithm.dtype}})
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in flat}
