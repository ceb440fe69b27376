#!/usr/bin/env bash
# Tries the wheel with every supported Spark and Python that can be had here, and says what could not be tried.
#
# Each Spark (4.1, 4.2, 4.3) with the first Python there is, each Python (3.10 to 3.13) with the newest Spark; all pairs
# with ALL=1. A pair is a run of tools/wheel.sh: install, the README's first block, four first jobs, the doctor. Pythons
# are those on the PATH, of pyenv, or of uv. The table is also in build/matrix.txt. Exit code 1 if a pair fails; one that
# cannot be tried is no failure, and is listed. Cost: two to four minutes a pair.
set -uo pipefail

cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
SPARKS=${SPARKS:-4.1 4.2 4.3}
PYTHONS=${PYTHONS:-3.10 3.11 3.12 3.13}
NEWEST=${SPARKS##* }
TABLE=build/matrix.txt
failed=0

# A Python of that version that runs and can make environments.
find_python() {
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python "$(uv python find "$1" 2>/dev/null)"; do
    if [ -n "$candidate" ] && "$candidate" -c "import ensurepip, sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

try_pair() {
  local python spark=$1 version=$2 log outcome needs
  log=build/matrix-spark$spark-py$version.log
  if ! python=$(find_python "$version"); then
    outcome="not tried: no Python $version here"
  elif PYTHON=$python SPARK="$spark.*" tools/wheel.sh >"$log" 2>&1; then
    outcome=$(tail -n 1 "$log" | sed 's/^wheel: //')
  elif needs=$(grep -oE "$spark[0-9.]* Requires-Python [^ ;]+" "$log" | tail -n 1 | sed 's/.*Requires-Python //') && [ -n "$needs" ]; then
    outcome="cannot be: Spark $spark asks for Python $needs"
  elif grep -qE 'No matching distribution|Could not find a version' "$log"; then
    outcome="not tried: pip has no Spark $spark here"
  else
    outcome="FAILED, see $log"
    failed=1
  fi
  printf 'Spark %-4s Python %-5s %s\n' "$spark" "$version" "$outcome" | tee -a "$TABLE"
}

mkdir -p build
: >"$TABLE"
first=""
for version in $PYTHONS; do
  if [ -z "$first" ] && find_python "$version" >/dev/null; then first=$version; fi
done
first=${FIRST:-${first:-3.11}}
for spark in $SPARKS; do
  for version in $PYTHONS; do
    if [ -n "${ALL:-}" ] || [ "$spark" = "$NEWEST" ] || [ "$version" = "$first" ]; then try_pair "$spark" "$version"; fi
  done
done
exit "$failed"
