"""RLlib's JSON files: one sample batch a line, as `output: path` of its old API stack and its JsonWriter leave them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from ...config import setting
from ...errors import ConfigError, DataError, did_you_mean, reason
from ...storage.json_text import parse_json
from ..arrays import visible_files
from ..format import RENAME, Imported, StepFormat
from ..runs import Batch, batch_of, imported, joined
from ..untrusted.archives import Archive, damaged, head, is_zip, open_archive, open_gzip
from ..untrusted.unpacking import OBJECTS, needs
from ..untrusted.values import names_in
from .batches import NAMES, REQUIRED, action_notes, together, unpack

LOOK = 1 << 20  # bytes in which a batch shows what it is; keys may come in any order
BATCH = re.compile(rb'"type"\s*:\s*"(SampleBatch|MultiAgentBatch)"')
IDS = re.compile(rb'"eps_id"\s*:\s*\[([^\]]*)\]')


class RLlibJSON(StepFormat):
    """Steps of RLlib's JSON lines, by episode.

    Reads obs [N, ...] (or a dict of columns, or a dict in each row), actions, rewards, terminateds (or dones); where present
    truncateds, new_obs, eps_id, agent_index, t, action_logp (column `log_prob`; without it the logarithm of action_prob), and
    infos, whose entries that are a number in every step become `info/NAME`. A column is a list or what RLlib packs: base64 of LZ4
    of a pickle, of which arrays only are read. The file may be inside gzip or a zip archive, or a folder of such files.

    Traps, and what is done:
    - Batches are cut and mixed as workers delivered them. Rows are sorted by eps_id (in order of first appearance),
      agent_index and t; without eps_id they stay as they are.
    - An episode ends at terminateds or dones, at truncateds, where eps_id changes, where new_obs is not the next row, and
      without new_obs where t leaves steps out. Its final observation is the last new_obs, and missing without new_obs.
    - `dones` does not tell a time limit from the end of the task: `timeout_at` does.
    - Actions of continuous spaces are those of the policy, in [-1, 1] unless normalize_actions was off; the environment saw them
      stretched to its bounds. A note says so, and `action_scale` stretches them here.

    Source: Ray RLlib, `rllib/offline/json_writer.py`, `rllib/utils/compression.py` and `rllib/policy/sample_batch.py`.
    """

    name = "rllib_json"
    description = "RLlib's JSON lines of sample batches, also inside zip or gzip"
    rename: Mapping[str, str] = RENAME
    policy: str | None = setting(None, "whose steps to read of batches of several policies; null: there is one")

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_dir():
            return bool(cls.parts(path))
        if is_zip(path):
            with open_archive(path) as archive:
                return any(_is_batch(_start(path, archive, name)) for name in archive.names[:100])
        return _is_batch(head(path, LOOK, unpacked=True))

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        files = visible_files(folder)
        if not files or is_zip(files[0]) or not all(_is_batch(head(file, LOOK, unpacked=True)) for file in files):
            return []
        return together(files, folder, _episode_ids)

    def read(self, path: Path) -> Imported:
        found, parts = dict[str, str](), list[Batch]()
        for where, line in _lines(path):
            batch = _batch(where, line, self.policy)
            found = found or names_in(batch, NAMES, REQUIRED, where, self.rename, self.name)
            if lacking := [name for name in found.values() if name not in batch]:
                raise DataError(f"{where} has no {lacking[0]!r}, which the first batch has.")
            parts.append(batch_of(where, batch, found, unpack))
        if not parts:
            raise DataError(f"{path} has no batches.")
        return imported(self, joined(parts, str(path)), found, on_actions=action_notes)


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each line that is not blank, after what an error calls it."""
    for file in visible_files(path) if path.is_dir() else [path]:
        for name, stream in _streams(file):
            for k, line in enumerate(stream):
                if line.strip():
                    yield f"{name}: line {k + 1}", line


def _streams(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if is_zip(path):
        with open_archive(path) as archive:
            for name in archive.names:
                with damaged(f"{path}: {name!r}"), archive.open(name) as stream:
                    yield f"{path}: {name}", stream
    else:
        with open_gzip(path) as stream:
            yield str(path), stream


def _batch(where: str, line: bytes, policy: str | None) -> dict[str, Any]:
    needs(where, OBJECTS * len(line))
    try:
        batch: Any = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is no JSON, or cut short ({reason(error)}).") from None
    if not isinstance(batch, dict):
        raise DataError(f"{where} holds a {type(batch).__name__}, not a batch.")
    if batch.pop("type", "SampleBatch") != "MultiAgentBatch":
        return batch
    policies: Any = batch.get("policy_batches")
    if not isinstance(policies, dict) or not all(isinstance(columns, dict) for columns in policies.values()):
        raise DataError(f"{where} is a MultiAgentBatch without batches by policy.")
    if policy is None and len(policies) != 1:
        raise ConfigError(f"{where} has steps of several policies: say which with policy=NAME{did_you_mean('', policies)}")
    if policy is not None and policy not in policies:
        raise ConfigError(f"{where} has no policy {policy!r}{did_you_mean(policy, policies)}")
    return policies[policy] if policy is not None else next(iter(policies.values()))


def _is_batch(start: bytes) -> bool:
    start = start.lstrip()
    return start[:1] == b"{" and bool(BATCH.search(start) or (b'"obs"' in start and b'"actions"' in start))


def _start(path: Path, archive: Archive, name: str) -> bytes:
    """Read what a member begins with; nothing where it is damaged, unless its name says that it was to be read."""
    try:
        with damaged(f"{path}: {name!r}"), archive.open(name) as stream:
            return stream.read(LOOK)
    except DataError:
        if name.endswith((".json", ".jsonl")):
            raise
        return b""


def _episode_ids(path: Path) -> set[bytes] | None:
    """Find the eps_ids in a file, as they are written, without parsing it; None where they are packed."""
    ids: set[bytes] = set()
    for _, stream in _streams(path):
        for line in stream:
            lists = IDS.findall(line)
            if not lists and b'"eps_id"' in line:
                return None
            ids |= {part.strip() for found in lists for part in found.split(b",")}
    return ids
