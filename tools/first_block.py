"""Runs the README's first Python block in the current folder, and compares what it prints with what the README shows.

For an environment that has the wheel and nothing else: `python tools/first_block.py README.md`. Exit code 1 if they
differ. Cost: half a minute, most of it Spark's start.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

_FIRST = re.compile(r"```python\n(?P<code>.*?)```\s*```text\n(?P<shown>.*?)```", re.DOTALL)


def main(readme: str) -> int:
    """Run it."""
    found = _FIRST.search(Path(readme).read_text(encoding="utf-8"))
    if found is None:
        print(f"first block: {readme} has no Python block with its output after it")
        return 1
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found["code"], readme, "exec"), {"__name__": "__main__"})
    has, shown = printed.getvalue().strip(), found["shown"].strip()
    print(f"first block: printed {has}, as the README shows" if has == shown else f"first block: {has}, not {shown}")
    return 0 if has == shown else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
