#!/usr/bin/env bash
# Builds the wheel, installs it into a clean environment, and does there what a newcomer would: the README's first block,
# a first job, the doctor.
#
# Invariant: the environment has the wheel and what it requires, and nothing of the clone is imported: commands run in an
# empty folder. Exit code 1 if anything fails. Cost: minutes, most of them pip's (Spark is 450 MB).
#
# Use: tools/wheel.sh; PYTHON=python3.12 chooses the interpreter, SPARK='4.1.*' the version of Spark, JOBS=payments which
# first jobs run; KEEP=1 keeps the environment for another run.
set -euo pipefail

cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
CLONE=$PWD
PYTHON=${PYTHON:-python3}
SPARK=${SPARK:-}
JOBS=${JOBS:-clicks payments sensors trades}
BUILD=$CLONE/build/wheel
if [ -s .venv/setup.env ]; then . .venv/setup.env; fi

say() { printf 'wheel: %s\n' "$*"; }

mkdir -p "$BUILD"
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
name=py$version-spark${SPARK:-newest}
environment=$BUILD/${name//\*/x}
work=$(mktemp -d "$BUILD/work-XXXXXX")
trap 'rm -rf "$work"; [ -n "${KEEP:-}" ] || rm -rf "$environment"' EXIT

began=$SECONDS
with=()
if [ -n "${KEEP:-}" ] && [ -x "$environment/bin/braid" ]; then
  with=(--force-reinstall --no-deps)
else
  rm -rf "$environment"
  "$PYTHON" -m venv "$environment"
  if [ -n "$SPARK" ]; then with=("pyspark==$SPARK"); fi
fi
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check 'pip>=22' build >"$work/pip.log" 2>&1 || true
"$environment/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/dist" "$CLONE" >>"$work/pip.log" 2>&1 ||
  { tail -n 20 "$work/pip.log"; say "FAILED: the wheel was not built"; exit 1; }
wheel=$(ls "$work"/dist/braidstream-*.whl)
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel" "${with[@]}" >>"$work/pip.log" 2>&1 ||
  { tail -n 20 "$work/pip.log"; say "FAILED: $(basename "$wheel") was not installed"; exit 1; }
say "$(basename "$wheel") installed after $((SECONDS - began)) s"

mkdir "$work/home"
cd "$work/home"
export PATH=$environment/bin:$PATH PYSPARK_PYTHON=$environment/bin/python SPARK_LOCAL_IP=127.0.0.1
unset PYTHONPATH
braid --version | paste -sd ' '
python "$CLONE/tools/first_block.py" "$CLONE/README.md" 2>"$work/first.log" || { tail -n 20 "$work/first.log"; exit 1; }
mkdir jobs
cd jobs # the block has made folders of its own
for use in $JOBS; do
  braid new "$use" >/dev/null
  braid run "$use/job.toml" --quiet || { say "FAILED: the first job $use"; exit 1; }
done
say "first jobs ran: $JOBS"
braid doctor --no-spark >"$work/doctor.log" || { cat "$work/doctor.log"; exit 1; }
say "passed with Python $version and Spark $(python -c 'import pyspark; print(pyspark.__version__)') after $((SECONDS - began)) s"
