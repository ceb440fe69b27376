"""docs/options.md is what `python -m tools.options` writes: the reference never says another default than the code."""

from __future__ import annotations

from collections.abc import Iterator

from tools.options import PAGE, page
from tools.rules.tree import Finding, Tree

__all__ = ["the_options_page_is_as_made"]


def the_options_page_is_as_made(tree: Tree) -> Iterator[Finding]:
    """The page is up to date. The one rule that imports what it checks: values are compared, not their source."""
    if PAGE not in tree.files:
        return
    has, made = (tree.text(PAGE) or "").splitlines(), page().splitlines()
    if has != made:
        line = next((i for i, (a, b) in enumerate(zip(has, made, strict=False), 1) if a != b), min(len(has), len(made)))
        yield Finding(PAGE, line, "is not as the options are declared: run python -m tools.options")
