"""The cells of a CSV file as an Arrow table, and where its lines lie; what cannot be read is named by its line."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Mapping
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from ...errors import DataError
from ..arrays import Array
from ..untrusted.archives import head, open_gzip
from ..untrusted.unpacking import counted, unpacking

HEAD = 1 << 19  # bytes in which the header has to end
BLOCK = 1 << 24  # bytes of lines that are looked at together


def header(path: Path) -> tuple[list[str], str]:
    """Read the names in the first line, stripped, and what separates them; no names where it is no text."""
    start = head(path, HEAD, unpacked=True)
    line, found, _ = start.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    try:
        text = line.decode("utf-8") if found or len(start) < HEAD else ""
    except UnicodeDecodeError:
        return [], ","
    if "\0" in text:
        return [], ","
    separator = max(",;\t", key=text.count)
    return [name.strip() for name in next(csv.reader([text.strip("\r")], delimiter=separator), [])], separator


def read_cells(
    path: Path,
    names: list[str],
    separator: str,
    *,
    text: Collection[str],
    numbers: Mapping[str, Any],
    span: tuple[int, int] | None = None,
) -> Any:
    """Some columns of a file as an Arrow table without nulls: `text`, and `numbers` with what they are read as (None: as written).

    `names` are those of all columns, in their order; `span` the bytes of the lines to read, None: all below the header.
    """
    source = str(path)
    kinds: dict[str, Any] = {name: kind for name, kind in (dict.fromkeys(text, pa.string()) | dict(numbers)).items() if kind}
    conversion = arrow_csv.ConvertOptions(
        column_types=kinds,
        include_columns=sorted({*text, *numbers}),
        null_values=[""],
        strings_can_be_null=False,
        true_values=["true", "True", "TRUE"],
        false_values=["false", "False", "FALSE"],
    )
    share = len(conversion.include_columns) / len(names)  # of the cells
    with unpacking(path) as now, open_gzip(path) as stream:
        cells = counted(source, stream, now, lambda text: int(8 * share * (text.count(separator.encode()) + text.count(b"\n"))))
        if span is not None:
            stream.seek(span[0])
        given = pa.PythonFile(cells, mode="r") if span is None else pa.BufferReader(cells.read(span[1] - span[0]))
        reading = arrow_csv.ReadOptions(column_names=names, skip_rows=int(span is None), use_threads=False)
        try:
            parsing = arrow_csv.ParseOptions(delimiter=separator)
            table = arrow_csv.read_csv(given, read_options=reading, parse_options=parsing, convert_options=conversion)
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise _fault(path, names, separator, text, numbers, str(error)) from None
    if not len(table):
        raise DataError(f"{source} has no steps: it is a header only.")
    if any(pc.any(pc.equal(pc.utf8_trim_whitespace(table[name]), "")).as_py() for name in text):  # pyright: ignore[reportAttributeAccessIssue]
        raise _fault(path, names, separator, text, numbers, "it has empty cells")
    columns = [(name, table[name]) for name in table.column_names]
    if any(column.null_count or not (_is_number(column) or name in text) for name, column in columns):
        raise _fault(path, names, separator, text, numbers, "it has cells that are no numbers")
    if any(pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py() for _, column in columns):  # pyright: ignore[reportAttributeAccessIssue]
        raise _fault(path, names, separator, text, numbers, "it has numbers that are not finite")
    return table


def as_array(column: Any) -> Array:
    """Convert a column of numbers; flags become zeros and ones."""
    values = column.combine_chunks()
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return values.to_numpy(zero_copy_only=False)


def _is_number(column: Any) -> bool:
    return any(test(column.type) for test in (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean))


def _fault(path: Path, names: list[str], separator: str, text: Collection[str], numbers: Collection[str], found: str) -> DataError:
    """Find the first thing wrong cell by cell, since Arrow does not say where it was."""
    line, source = 1, str(path)
    with open_gzip(path) as stream:
        try:
            reader = csv.reader(TextIOWrapper(stream, "utf-8-sig", newline=""), delimiter=separator)
            for k, row in enumerate(reader):
                line = reader.line_num
                if k and row and (said := _wrong(row, names, text, numbers)):
                    return DataError(f"{source}, line {line}: {said}.")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            return DataError(f"{source} is not UTF-8 text (byte 0x{byte:02x} after line {line}); save it as UTF-8.")
        except csv.Error as error:
            return DataError(f"{source}, line {line + 1}: {error}.")
    return DataError(f"{source} cannot be read as CSV: {found.splitlines()[0].rstrip('.')}.")


def _wrong(row: list[str], names: list[str], text: Collection[str], numbers: Collection[str]) -> str | None:
    if len(row) != len(names):
        return f"there are {len(row)} cells, and the header has {len(names)}"
    for name, cell in zip(names, map(str.strip, row), strict=True):
        if not cell and (name in numbers or name in text):
            return f"the column {name!r} is empty"
        if name in numbers:
            try:
                value = float({"true": "1", "false": "0"}.get(cell.lower(), cell).replace("_", "?"))
            except ValueError:
                return f"the column {name!r} holds {cell[:40]!r}, which is no number"
            if not math.isfinite(value):
                return f"the column {name!r} holds {cell!r}"
    return None


def line_spans(path: Path, stops: list[int], n: int) -> list[tuple[int, int]] | None:
    """Bytes of stretches of rows, in a file with a header and a line a row, from the first to behind the last.

    `stops` has the row behind each stretch, `n` is that of all rows. None where the file has another number of lines, as where some
    are blank.
    """
    wanted, found, lines, size, byte = np.array([0, *stops]), list[Array](), 0, 0, b""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            at = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            inside = wanted[(wanted >= lines) & (wanted < lines + len(at))] - lines  # row r begins behind line end r
            found.append(at[inside] + size + 1)
            lines, size, byte = lines + len(at), size + len(block), block[-1:]
    if byte != b"\n":
        lines += 1
        found.append(np.array([size]))  # the last row ends with the file
    return list(pairwise(np.concatenate(found).tolist())) if lines == n + 1 else None
