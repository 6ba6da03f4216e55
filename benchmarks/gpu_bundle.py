"""A folder that carries the GPU tests and `gpu.py` to a machine that has torch and NumPy but cannot install anything.

    make gpu-bundle        or: python benchmarks/gpu_bundle.py [--python 3.12] [--index URL] [--out build/gpu-bundle]

There `bash run.sh` unpacks it, runs the GPU tests and `gpu.py`, and writes into `$OUT`. Three archives, each of its own use: d3ray
with what `fit` needs and d3rlpy; MLflow with what it and Ray need; Ray. They hold the contents of wheels for Linux on x86-64, in
the versions of `constraints.txt`. What `BROUGHT` names is not packed: large packages that machines with GPUs have, beside torch.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
FIT = ("filelock", "gymnasium", "pydantic", "ruamel.yaml", "google-crc32c", "lz4", "msgpack", "rich", "safetensors", "tqdm")
TESTS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
# These have no place among our own constraints: d3rlpy asks for an older gymnasium than ours, and runs with it.
PEER = (
    *("d3rlpy==2.8.1", "array-api-compat", "click", "colorama", "dataclasses-json", "marshmallow<4"),
    *("mypy-extensions", "structlog", "typing-inspect"),
)
PLATFORM = ("mlflow", "ray[data,default,tune]", "fastapi", "jinja2", "psutil", "requests", "tensorboardX", "uvicorn")
BROUGHT = (
    *("contourpy", "fonttools", "grpcio", "h5py", "kiwisolver", "llvmlite", "matplotlib", "ml-dtypes", "mpmath"),
    *("networkx", "numba", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "pandas", "pillow"),
    *("pyarrow", "scikit-learn", "scipy", "sympy", "torch"),
)
UNUSED = ("py-spy", "virtualenv")  # of what Ray asks for
LEFT_OUT = {  # by package: what is not used of it there
    "ray": ("jars", "dashboard/client", "llm", "serve", "rllib", "_private/runtime_env/agent/thirdparty_files"),
    "mlflow": ("server/js",),
}
TRACKED = (
    *("__init__.py", "py.typed", "pyproject.toml", "constraints.txt"),
    *("algos", "benchmarks", "data", "facades", "jobs", "platform", "tests"),
)
MANYLINUX = (
    *(f"manylinux_2_{n}_x86_64" for n in range(35, 4, -1)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"),
)
MIB = 2**20
LIMIT = 64  # MiB, of all archives together


def closure(names: Iterable[str], python: str, without: Iterable[str] = ()) -> set[str]:
    """All that some packages need, as installed here, by name. `without`: left out, their needs not asked."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    skipped, found = set(map(canonicalize_name, without)), set[str]()
    ahead = [Requirement(name) for name in names]
    seen = set[tuple[str, str]]()
    while ahead:
        one = ahead.pop()
        name = canonicalize_name(one.name)
        if name in skipped or all((name, extra) in seen for extra in ("", *one.extras)):
            continue
        seen |= {(name, extra) for extra in ("", *one.extras)}
        found.add(name)
        try:
            needs = [Requirement(line) for line in distribution(name).requires or ()]
        except PackageNotFoundError:  # of another version of Python than ours
            continue
        extras = ("", *one.extras)
        ahead += [
            need for need in needs if need.marker is None or any(need.marker.evaluate({**environment, "extra": e}) for e in extras)
        ]
    return found


def install(requirements: Sequence[str], folder: Path, python: str, index: str | None, *, constrained: bool) -> None:
    """Contents of wheels, and nothing that they need."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]
    command += ["--target", str(folder), "--implementation", "cp", "--python-version", python]
    command += [part for name in MANYLINUX for part in ("--platform", name)]
    command += ["-c", str(ROOT / "constraints.txt")] if constrained else []
    command += ["--extra-index-url", index] if index else []
    done = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pip could not bring {', '.join(requirements)}:\n{done.stderr[-3000:]}")


def slim(packages: Path) -> None:
    """Removes tests of packages, what `LEFT_OUT` names, and programs."""
    for package, parts in LEFT_OUT.items():
        for part in parts:
            shutil.rmtree(packages / package / part, ignore_errors=True)
    for folder in sorted(packages.rglob("*"), reverse=True):
        if folder.is_dir() and folder.name in ("tests", "__pycache__", "bin") and "hypothesis" not in folder.parts:
            shutil.rmtree(folder, ignore_errors=True)


def project(folder: Path) -> None:
    """What git has, or would have, of the package, its tests and its benchmarks."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *TRACKED]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("benchmarks/results/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def archive(folder: Path, target: Path) -> float:
    """Packs a folder's contents: MiB of the file."""
    with tarfile.open(target, "w:xz", preset=9) as packed:
        for part in sorted(folder.iterdir()):
            packed.add(part, part.name)
    return target.stat().st_size / MIB


def bundle(out: Path, python: str, index: str | None, brought: Sequence[str]) -> None:
    """Writes the folder, and says what it weighs."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    fit = closure([*FIT, *TESTS], python, without=brought)
    rest = closure(PLATFORM, python, without=[*brought, *UNUSED])
    peer = {re.split("[=<]", name)[0] for name in PEER}
    parts = {"d3ray": (sorted(fit - peer), PEER), "platform": (sorted(rest - fit - peer - {"ray"}), ()), "ray": (["ray"], ())}

    def packed(name: str) -> float:
        ours, theirs = parts[name]
        with tempfile.TemporaryDirectory(prefix="d3ray-bundle-") as scratch:
            packages = Path(scratch) / "packages"
            install(ours, packages, python, index, constrained=True)
            if theirs:
                install(theirs, packages, python, index, constrained=False)
            slim(packages)
            if name == "d3ray":
                project(Path(scratch) / "d3ray")
            return archive(Path(scratch), out / f"{name}.tar.xz")

    with ThreadPoolExecutor(len(parts)) as pool:
        sizes = dict(zip(parts, pool.map(packed, parts), strict=True))
    shutil.copy2(ROOT / "benchmarks" / "gpu_bundle.sh", out / "run.sh")
    print(*(f"{name}.tar.xz: {size:.1f} MiB" for name, size in sizes.items()), sep="\n")
    whole = sum(sizes.values())
    print(f"{out}, for Python {python} on x86-64: {whole:.1f} MiB; {'more' if whole > LIMIT else 'not more'} than {LIMIT} MiB.")
    print(f"That machine has to bring {', '.join(brought)}.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--python", default="3.12", help="of the machine; `here` for the one that runs this")
    parser.add_argument("--index", help="a package index to look at beside pip's own")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu-bundle")
    parser.add_argument("--pack", nargs="+", choices=BROUGHT, default=[], metavar="NAME", help="pack these all the same")
    given = parser.parse_args()
    python = f"{sys.version_info.major}.{sys.version_info.minor}" if given.python == "here" else given.python
    bundle(given.out.absolute(), python, given.index, [name for name in BROUGHT if name not in given.pack])


if __name__ == "__main__":
    main()
