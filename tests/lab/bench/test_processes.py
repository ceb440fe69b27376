"""The processes below another one."""

from __future__ import annotations

import os
import subprocess
import sys

from braidstream.lab.bench.processes import tree

GRANDCHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.communicate(b"\\n")
"""


def test_children_and_their_children_are_found_until_they_end() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GRANDCHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert tree(os.getpid())[0] == os.getpid()
        assert {child.pid, grandchild} <= set(tree(os.getpid()))
        assert set(tree(child.pid)) == {child.pid, grandchild}
        child.communicate("\n")
    assert not {child.pid, grandchild} & set(tree(os.getpid()))
