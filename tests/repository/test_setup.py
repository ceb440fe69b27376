"""The set-up finds Python and Java, installs what it may, and otherwise says what to do.

The script is read into a shell in which the PATH holds nothing but stand-ins and the usual small tools, so no test
depends on what this machine has; nothing is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "setup.sh"
TOOLS = ("bash", "cat", "cksum", "dirname", "grep", "head", "mkdir", "rm", "sed", "sleep", "tail", "tr")


class Machine:
    """A stand-in for a machine: a folder of programs, and a clone of the project that holds only what set-up reads."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.clone = folder / "bin", folder / "clone"
        self.bin.mkdir()
        (self.clone / "tools").mkdir(parents=True)
        shutil.copy(SCRIPT, self.clone / "tools")
        (self.clone / "pyproject.toml").write_text("[project]\n")
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        self.program("id", "echo 1000")

    def program(self, name: str, text: str, folder: Path | None = None) -> Path:
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
        path.chmod(0o755)
        return path

    def java(self, version: str, folder: Path | None = None) -> Path:
        return self.program("java", f"echo 'openjdk version \"{version}\" 2025-01-01' >&2", folder)

    def python(self, name: str, version: str, *, has_venv: bool = True) -> Path:
        """An interpreter that answers the script's questions, and makes environments with a copy of itself."""
        major, minor = version.split(".")[:2]
        supported = 0 if (3, 10) <= (int(major), int(minor)) <= (3, 13) else 1
        return self.program(
            name,
            f"""case "$*" in
              --version) echo Python {version} ;;
              *sys.version_info*) echo {major}.{minor}; exit {supported} ;;
              *ensurepip*) exit {0 if has_venv else 1} ;;
              "-m venv .venv") mkdir -p .venv/bin; cat "$0" >.venv/bin/python; "$CHMOD" +x .venv/bin/python
                echo "VIRTUAL_ENV=\\"$PWD/.venv\\"" >.venv/bin/activate ;;
              "-m pip --version") ;;
              "-m pip install"*) echo "$*" >>pip-calls; [ ! -e pip-fails ] ;;
              *) echo "unexpected: $*" >&2; exit 9 ;;
            esac""",
        )

    def run(self, command: str = "main", **environment: str) -> subprocess.CompletedProcess[str]:
        # No Java outside the stand-ins is to be found.
        shell = (
            f'source tools/setup.sh; java_homes() {{ [ -z "${{FOUND_HOME:-}}" ] || echo "$FOUND_HOME"; }}; {command}'
        )
        variables = {"PATH": str(self.bin), "CHMOD": shutil.which("chmod") or "", **environment}
        return subprocess.run(
            [str(self.bin / "bash"), "-c", shell],
            cwd=self.clone,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def pip_calls(self) -> list[str]:
        calls = self.clone / "pip-calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def ready(machine: Machine) -> Machine:
    machine.java("17.0.15")
    machine.python("python3", "3.12.1")
    return machine


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", "17"), ("21", "21"), ("25-ea", "25"), ("1.8.0_392", "8"), ("11.0.2", "11")]
)
def test_the_version_of_java_is_understood(version: str, major: str, machine: Machine) -> None:
    machine.program("java", f"echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2; echo 'java version \"{version}\"' >&2")
    assert machine.run("java_major java").stdout.strip() == major


def test_set_up_installs_the_dev_extra_once(ready: Machine) -> None:
    first = ready.run()
    assert first.returncode == 0, first.stderr
    assert "-e .[dev]" in ready.pip_calls[-1]
    n_calls = len(ready.pip_calls)
    second = ready.run()
    assert second.returncode == 0, second.stderr
    assert second.stderr == "setup: up to date  Java 17, Python 3.12.1 in .venv\n"
    assert len(ready.pip_calls) == n_calls


def test_a_change_of_the_requirements_installs_again_into_the_same_environment(ready: Machine) -> None:
    ready.run()
    (ready.clone / ".venv" / "kept").touch()
    n_calls = len(ready.pip_calls)
    (ready.clone / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert ready.run().returncode == 0
    assert len(ready.pip_calls) > n_calls
    assert (ready.clone / ".venv" / "kept").exists()


def test_a_moved_clone_gets_a_new_environment(ready: Machine) -> None:
    ready.run()
    (ready.clone / ".venv" / "old").touch()
    ready.clone = ready.clone.rename(ready.clone.with_name("moved"))
    assert ready.run().returncode == 0
    assert not (ready.clone / ".venv" / "old").exists()


def test_another_interpreter_gets_a_new_environment(ready: Machine) -> None:
    ready.run()
    other = ready.python("other-python", "3.11.4")
    run = ready.run(PYTHON=str(other))
    assert f"Python 3.11.4 ({other}) in .venv" in run.stderr


def test_packages_that_fail_are_tried_twice_and_leave_no_stamp(ready: Machine) -> None:
    (ready.clone / "pip-fails").touch()
    run = ready.run()
    assert run.returncode == 1
    assert sum("-e .[dev]" in call for call in ready.pip_calls) == 2
    assert "the packages could not be installed" in run.stderr
    assert not (ready.clone / ".venv" / "setup.stamp").exists()
    (ready.clone / "pip-fails").unlink()
    assert ready.run().returncode == 0


def test_an_interpreter_that_is_only_a_shim_is_passed_over(ready: Machine) -> None:
    ready.program("python3", "echo 'no such version' >&2; exit 127")
    ready.python("python3.13", "3.14.0")  # a name is no proof
    ready.python("python3.11", "3.11.7")
    run = ready.run()
    assert run.returncode == 0, run.stderr
    assert "Python 3.11.7 (python3.11) in .venv" in run.stderr


def test_an_interpreter_that_can_make_environments_is_preferred(ready: Machine) -> None:
    ready.python("python3", "3.12.1", has_venv=False)
    ready.python("python3.10", "3.10.2")
    assert "Python 3.10.2 (python3.10)" in ready.run().stderr


@pytest.mark.parametrize(
    ("version", "has_venv", "named", "parts"),
    [
        ("3.9.2", True, False, ["no suitable Python was found", "Python 3.10 to 3.13", "make setup PYTHON="]),
        ("3.14.0", True, True, ["is no usable interpreter: Python 3.14.0", "Python 3.10 to 3.13", "leave PYTHON out"]),
        ("3.11.2", False, False, ["'ensurepip' is missing", "sudo apt-get install python3.11-venv"]),
    ],
    ids=["too old", "the named one is too new", "without venv"],
)
def test_without_a_usable_python_the_message_says_what_to_do(
    version: str, has_venv: bool, named: bool, parts: list[str], machine: Machine
) -> None:
    machine.java("17.0.15")
    python = machine.python("python3", version, has_venv=has_venv)
    run = machine.run(**({"PYTHON": str(python)} if named else {}))
    assert run.returncode == 1
    for part in parts:
        assert part in run.stderr
    assert not machine.pip_calls


def test_root_with_apt_installs_the_missing_venv(machine: Machine) -> None:
    machine.java("17.0.15")
    machine.python("python3", "3.11.2", has_venv=False)
    repaired = machine.python("repaired", "3.11.2")
    machine.program("id", "echo 0")
    machine.program(
        "apt-get", f'echo "$*" >>apt-calls; case "$*" in *python3.11-venv) cat {repaired} >{machine.bin}/python3;; esac'
    )
    run = machine.run()
    assert run.returncode == 0, run.stderr
    update, install = (machine.clone / "apt-calls").read_text().splitlines()
    assert update == "update"
    assert install == "install --yes --no-install-recommends python3.11-venv"


def test_an_old_java_is_refused_before_anything_is_installed(ready: Machine) -> None:
    ready.java("11.0.2")
    ready.program("apt-get", "exit 1")
    run = ready.run()
    assert run.returncode == 1
    assert "java is Java 11" in run.stderr
    assert "expected: Java 17 or later" in run.stderr
    assert "sudo apt-get install openjdk-17-jre-headless" in run.stderr
    assert not (ready.clone / ".venv").exists()


def test_a_java_home_that_leads_nowhere_is_named(ready: Machine, tmp_path: Path) -> None:
    run = ready.run(JAVA_HOME=str(tmp_path / "gone"))
    assert run.returncode == 1
    assert f"JAVA_HOME is {tmp_path / 'gone'}, and no Java runs there" in run.stderr


def test_a_java_elsewhere_is_found_and_handed_to_the_recipes(ready: Machine, tmp_path: Path) -> None:
    (ready.bin / "java").unlink()
    home = ready.java("21.0.1", tmp_path / "a jvm" / "bin").parents[1]
    run = ready.run("main && source .venv/setup.env && echo $JAVA_HOME", FOUND_HOME=str(home))
    assert run.stdout.strip() == str(home)
    assert f"export JAVA_HOME={home}" in run.stderr


def test_root_with_apt_installs_the_first_java_there_is(ready: Machine) -> None:
    java = ready.java("21.0.1").rename(ready.bin / "java-21")
    placed = f"cat {java} >{ready.bin}/java; $CHMOD +x {ready.bin}/java"
    ready.program("id", "echo 0")
    # A newer Debian has no Java 17.
    ready.program("apt-get", f'case "$*" in update) ;; *openjdk-21*) {placed} ;; *) exit 100 ;; esac')
    run = ready.run()
    assert run.returncode == 0, run.stderr
    assert "apt-get install openjdk-21-jre-headless" in run.stderr


def test_the_script_and_the_project_agree_on_the_versions_of_python() -> None:
    declared = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    checked = re.search(r"\(3, (\d+)\) <= v <= \(3, (\d+)\)", SCRIPT.read_text())
    assert declared is not None
    assert checked is not None
    assert (int(declared[1]), int(declared[2]) - 1) == (int(checked[1]), int(checked[2]))


@pytest.mark.parametrize("path", ["tools/setup.sh", "tools/world.sh", "tools/jars.sh", "tools/peers.sh", ".ci/run"])
def test_a_script_may_be_executed(path: str) -> None:
    assert os.access(ROOT / path, os.X_OK)


def test_make_alone_lists_the_targets() -> None:
    listed = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True).stdout
    for target in ("setup", "demo", "test", "test-all", "world", "check", "bench", "clean"):
        assert f"make {target} " in listed
