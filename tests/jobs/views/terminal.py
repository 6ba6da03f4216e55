"""A terminal as small as what is written to it allows: lines wrap and scroll, the cursor moves, text is erased."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Terminal:
    """What stands on the screen, of so many columns and rows, of a program that wrote this and that."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [""] * height
        self.row = self.column = 0
        self.cursor_is_shown = True
        self._left = ""

    def resize(self, width: int, height: int) -> None:
        """Another size; lines that are too long are wrapped, as terminals do."""
        text = [row[i : i + width] for row in self.rows[: self.row + 1] for i in range(0, max(len(row), 1), width)]
        self.width, self.height = width, height
        self.rows = (text[-height:] + [""] * height)[:height]
        self.row, self.column = min(len(text), height) - 1, 0

    def feed(self, text: str) -> None:
        """What the program wrote."""
        text, at = self._left + text, 0
        self._left = ""
        while at < len(text):
            if text[at] == "\x1b":
                if (found := _CONTROL.match(text, at)) is None:
                    self._left = text[at:]
                    return
                self._control(found[1], found[2])
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._down()
        else:
            if self.column == self.width:
                self.column = 0
                self._down()
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
            self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == self.height:
            self.rows = [*self.rows[1:], ""]
            self.row -= 1

    def _control(self, values: str, name: str) -> None:
        if name == "A":
            self.row = max(self.row - int(values or 1), 0)
        elif name == "K":
            self.rows[self.row] = ""
        elif name == "H":
            self.row = self.column = 0
        elif name == "J":
            self.rows = [""] * self.height
        elif values == "?25":
            self.cursor_is_shown = name == "h"
        else:
            assert name == "m", f"ESC[{values}{name}"

    @property
    def text(self) -> str:
        """The screen, without empty lines at its end."""
        return "\n".join(row.rstrip() for row in self.rows).rstrip("\n")
