"""Frames of LeRobot's cameras that are stored as video, decoded with PyAV (`pip install d3ray[lerobot]`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError, reason
from ..arrays import Array
from ..untrusted.unpacking import stored, unpacks
from .parquet_table import open_parquet, read_table

V2, V3 = (
    "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
)


@dataclass(frozen=True)
class Videos:
    """The videos of a dataset."""

    root: Path  # its folder
    info: Mapping[str, Any]  # its `meta/info.json`

    def why_not(self, camera: str, episode: int) -> str:
        """Say why frames cannot be decoded; empty where they can."""
        if importlib.util.find_spec("av") is None:
            return "PyAV decodes them: pip install d3ray[lerobot]"
        try:
            path, _ = self._place(camera, episode)
        except DataError as error:
            return str(error).rstrip(".")
        return "" if path.is_file() else f"there is no {path}"

    def frames(self, camera: str, episode: Array, timestamp: Array) -> Array:
        """[N, height, width, 3] uint8: the frame that was shown at each row's `timestamp` [N], seconds since its episode began.

        Rows of an episode lie together, and their times ascend.
        """
        starts = np.flatnonzero(np.r_[True, episode[1:] != episode[:-1]])
        out: Array | None = None
        for first, stop in zip(starts, [*starts[1:], len(episode)], strict=True):
            path, begin = self._place(camera, int(episode[first]))
            stored(path)
            for row, frame in enumerate(self._decoded(path, begin + timestamp[first:stop].astype(np.float64)), int(first)):
                if out is None:
                    unpacks(str(path), len(episode) * frame.nbytes)
                    out = np.empty((len(episode), *frame.shape), np.uint8)
                if frame.shape != out.shape[1:]:
                    raise DataError(f"{path} has frames of {list(frame.shape)}, where those before are {list(out.shape[1:])}.")
                out[row] = frame
        assert out is not None
        return out

    def _decoded(self, path: Path, times: Array) -> Any:
        """Yield the frame at each time, within half the time between two."""
        import av
        from av.error import FFmpegError

        half, k = 0.5 / float(self.info["fps"]), 0
        try:
            with av.open(str(path)) as container:
                stream = container.streams.video[0]
                assert stream.time_base is not None
                container.seek(int(times[0] / stream.time_base), stream=stream)  # to a whole picture at or before it
                for frame in container.decode(stream):
                    if frame.time < times[k] - half:
                        continue
                    pixels = frame.to_ndarray(format="rgb24")
                    while k < len(times) and times[k] - half <= frame.time <= times[k] + half:
                        yield pixels
                        k += 1
                    if k == len(times):
                        return
                    if frame.time > times[k] + half:
                        break
        except (FFmpegError, IndexError) as error:
            raise DataError(f"{path} is a video that is missing, cut short or damaged ({reason(error)}).") from None
        raise DataError(f"{path} has no frame at {times[k]:.3f} s.")

    def _place(self, camera: str, episode: int) -> tuple[Path, float]:
        """Return the file of an episode, and the second in it at which the episode begins."""
        if self.info["codebase_version"] != "v3.0":
            chunk = episode // int(self.info.get("chunks_size", 1000))
            return self._path(V2, episode_chunk=chunk, video_key=camera, episode_index=episode), 0.0
        row = self._episodes.get(episode, {})
        chunk, file, begin = (row.get(f"videos/{camera}/{word}") for word in ("chunk_index", "file_index", "from_timestamp"))
        if chunk is not None and file is not None and begin is not None:
            return self._path(V3, video_key=camera, chunk_index=int(chunk), file_index=int(file)), float(begin)
        raise DataError(f"{self.root}/meta/episodes does not say where the frames of {camera!r} are in episode {episode}.")

    @cached_property
    def _episodes(self) -> dict[int, dict[str, Any]]:
        """Where episodes lie in videos of 3.0, by their numbers."""
        rows: dict[int, dict[str, Any]] = {}
        for part in sorted(self.root.glob("meta/episodes/*/*.parquet")):
            with open_parquet(part) as file:
                names = [name for name in file.schema_arrow.names if name == "episode_index" or name.startswith("videos/")]
                rows |= {row["episode_index"]: row for row in read_table(file, str(part), names).to_pylist()}
        return rows

    def _path(self, usual: str, **words: Any) -> Path:
        """Return a file of the dataset. Raises DataError where `info.json` says one that is not below its folder."""
        path = self.root / str(self.info.get("video_path") or usual).format(**words)
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise DataError(f"{path} lies outside the dataset.")
        return path
