"""Exported policies where there is no Python: TorchScript in a C++ program, ONNX in JavaScript."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d3ray

CPP = """
#include <torch/script.h>
#include <iostream>

int main(int count, const char* given[]) {
    torch::NoGradGuard none;
    auto policy = torch::jit::load(given[1]);
    auto seen = torch::linspace(-1, 1, 12).reshape({4, 3});
    auto actions = policy.forward({seen}).toTensor().contiguous();
    for (int64_t k = 0; k < actions.numel(); ++k) std::cout << actions.data_ptr<float>()[k] << "\\n";
}
"""
JAVASCRIPT = """
const ort = require("onnxruntime-web");
(async () => {
    const session = await ort.InferenceSession.create(process.argv[2], {executionProviders: ["wasm"]});
    const seen = Float32Array.from({length: 12}, (_, k) => Math.fround(-1 + 2 * k / 11));
    const found = await session.run({observation: new ort.Tensor("float32", seen, [4, 3])});
    console.log(JSON.stringify(Array.from(Object.values(found)[0].data)));
})();
"""
SEEN = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def algorithm() -> Any:
    """Scalers of observations and actions are in the graph."""
    data = d3ray.Dataset.open("d3ray/pendulum-replay")
    settings: Any = {"observation_scaler": "standard", "action_scaler": "min_max", "actor_encoder": {"hidden_units": [16]}}
    return d3ray.TD3PlusBC(**settings, device="cpu").fit(data, 2, 2)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_torchscript_runs_in_cpp(algorithm: Any, tmp_path: Path) -> None:
    algorithm.save_policy(tmp_path / "policy.pt")
    (tmp_path / "main.cpp").write_text(CPP)
    home = Path(torch.__file__).parent
    include, lib = home / "include", home / "lib"
    command = ["g++", "-std=c++20", "-O0", str(tmp_path / "main.cpp"), "-o", str(tmp_path / "main")]
    command += [f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", f"-I{sysconfig.get_paths()['include']}"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", f"-L{lib}", f"-Wl,-rpath,{lib}"]
    subprocess.run([*command, "-ltorch", "-ltorch_cpu", "-lc10"], check=True, capture_output=True, text=True)
    ran = subprocess.run([tmp_path / "main", tmp_path / "policy.pt"], check=True, capture_output=True, text=True)
    assert np.allclose(np.array(ran.stdout.split(), np.float32), algorithm.predict(SEEN).reshape(-1), atol=1e-5)


@pytest.mark.long
def test_onnx_runs_in_javascript(algorithm: Any, tmp_path: Path) -> None:
    """Where `D3RAY_NODE_MODULES` names a folder in which `npm install onnxruntime-web` was called."""
    modules = os.environ.get("D3RAY_NODE_MODULES")
    if modules is None or shutil.which("node") is None:
        pytest.skip("D3RAY_NODE_MODULES names no folder with onnxruntime-web, or there is no node")
    algorithm.save_policy(tmp_path / "policy.onnx")
    (tmp_path / "run.js").write_text(JAVASCRIPT)
    env = {**os.environ, "NODE_PATH": modules}
    command = ["node", str(tmp_path / "run.js"), str(tmp_path / "policy.onnx")]
    ran = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    assert np.allclose(json.loads(ran.stdout), algorithm.predict(SEEN).reshape(-1), atol=1e-5)
