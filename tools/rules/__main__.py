"""Applies every rule to the working tree and prints one line for each finding: `path:line: what is wrong`."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.rules import RULES, Tree


def main() -> int:
    """The number of broken rules decides the exit code: 0 for none, 1 otherwise."""
    tree = Tree.of(Path(__file__).parents[2])
    broken = 0
    for rule in RULES:
        findings = list(rule(tree))
        broken += bool(findings)
        for finding in findings:
            print(finding)
    print(f"rules: {len(RULES) - broken} of {len(RULES)} hold over {len(tree.files)} files")
    return 1 if broken else 0


sys.exit(main())
