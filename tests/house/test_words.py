"""What may not stand in the source: foreign pickles, the machine that a line was written on, keys and tokens."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .source_tree import ROOT, Module, modules

UNPICKLERS = re.compile(r"^torch(\.\w+)*\.load$|^(joblib|dill|shelve|marshal)($|\.)|pickle")
THE_ONE_READER = Path("data/formats/untrusted/restricted_pickle.py")
MACHINES = re.compile(r"(?<![\w.~$}/])/(?:root|home|Users|work|opt|mnt|srv)/\w")
INDEXES = re.compile(
    r"(?:index-url|find-links|trusted-host)[= ]+\S*//(?!host/)|https?://[^\s/]*(?:artifactory|nexus|pypi|registry)[^\s/]*/"
)
SECRETS = [
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\s|\\n|[\"'])*[A-Za-z0-9+/=]{40}"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{40}|glpat-[\w-]{20}|hf_[A-Za-z0-9]{34})"),
    re.compile(
        r"(?i)(?:token|secret|passw(?:or)?d|api_?key|access_?key|private_?key|credential)\w*[\"']?\s*(?:[:=]|:\s*str\s*=)\s*"
        r"[\"']?(?=[a-z+/=]*\d)(?=[\d+/=]*[a-z])[a-z0-9+/=]{20}"  # hexadecimal or base64: letters and digits
    ),
]
PLANTED = re.compile("EXAMPLE|0123456789")  # what a test looks for is no secret


def unpicklers(module: Module) -> list[str]:
    """Names that read pickles; our own reader and the importer over it may be named: arrays and plain containers come out only.

    Tune's name of a file that it is kept from reading may be, too.
    """
    harmless = re.compile("restricted_pickle|pickled_paths|pickled_error_filename")
    named = ((harmless.sub("", name), line) for name, line in module.identifiers())
    return sorted({f"{module.path.relative_to(module.root)}:{line} {name}" for name, line in named if UNPICKLERS.search(name)})


@pytest.mark.long
def test_only_one_file_reads_pickles() -> None:
    found = [line for module in modules() if module.path.relative_to(ROOT) != THE_ONE_READER for line in unpicklers(module)]
    assert found == []


def test_a_reader_of_pickles_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from torch import load\nnp.load(path, allow_pickle=False)\nsafetensors.torch.load(content)\n")
    assert unpicklers(Module(tmp_path, tmp_path / "a.py")) == ["a.py:1 torch.load", "a.py:2 allow_pickle"]


def own_files() -> list[Path]:
    """The text files of the project: what git has or would have; everything but hidden folders where there is no git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        files = [ROOT / name for name in names if name]
    except (OSError, subprocess.CalledProcessError):
        files = [file for file in ROOT.rglob("*") if not any(part.startswith(".") for part in file.relative_to(ROOT).parts)]
    return [file for file in files if file.is_file() and b"\0" not in file.read_bytes()[:4096]]


def test_the_project_speaks_only_of_itself() -> None:
    """No absolute path of the machine that a line was written on, and no package index."""
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for file in own_files()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINES.search(line) or INDEXES.search(line)
    ]
    assert found == []


def secrets_in(text: str) -> list[str]:
    """What looks like a key, a token or a password in clear text."""
    found = (match[0] for pattern in SECRETS for match in pattern.finditer(text))
    return [secret for secret in found if not PLANTED.search(secret)]


def test_no_secret_stands_in_a_file() -> None:
    found = {str(file.relative_to(ROOT)): len(secrets_in(file.read_text(encoding="utf-8"))) for file in own_files()}
    assert {name: n for name, n in found.items() if n} == {}


def test_a_secret_is_found() -> None:
    key = "4f9c1b7a" * 8  # put together here, so that this file has none
    for text in (f"-----BEGIN PRIVATE KEY-----\\n{key}", f"AKIA{'Q7RT' * 4}.", f"ghp_{'aB3x' * 9}", f'"api_key": "{key[:32]}"'):
        assert secrets_in(text), text
    assert secrets_in(f"sha256 = {key}; token = secrets.token_hex(16); AKIAIOSFODNN7EXAMPLE") == []
