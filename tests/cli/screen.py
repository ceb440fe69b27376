"""A terminal in a few lines: what is seen after texts and control codes, and when its width changes (lines reflow)."""

from __future__ import annotations

import re

__all__ = ["Screen"]

_CODE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])")


class Screen:
    """Lines of one terminal, as wide as it is now. Writable like a file."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._rows = [""]
        self._row = self._column = 0

    def write(self, text: str) -> int:
        at = 0
        while at < len(text):
            code = _CODE.match(text, at)
            if code:
                self._control(code[1], code[2])
                at = code.end()
            else:
                self._put(text[at])
                at += 1
        return len(text)

    def flush(self) -> None:
        return

    def isatty(self) -> bool:
        return True

    def resize(self, width: int) -> None:
        """Lines that are too long now wrap; the cursor stays at its character."""
        rows: list[str] = []
        for number, row in enumerate(self._rows):
            pieces = [row[at : at + width] for at in range(0, max(len(row.rstrip()), 1), width)]
            if number == self._row:
                self._column = min(self._column, width - 1)
            rows += pieces
            if number == self._row:
                row_after = len(rows) - 1
        self._rows, self._row, self.width = rows, row_after, width

    @property
    def seen(self) -> str:
        return "\n".join(row.rstrip() for row in self._rows).strip("\n")

    def _put(self, character: str) -> None:
        if character == "\n":
            self._row += 1
            self._column = 0
            if self._row == len(self._rows):
                self._rows.append("")
        elif character == "\r":
            self._column = 0
        else:
            row = self._rows[self._row].ljust(self._column)
            self._rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1

    def _control(self, numbers: str, kind: str) -> None:
        n = int(numbers or 1) if not numbers.startswith("?") and ";" not in numbers else 0
        if kind == "A":
            self._row = max(self._row - n, 0)
        elif kind == "B":
            self._row += n
        elif kind == "K":
            self._rows[self._row] = ""
