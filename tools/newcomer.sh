#!/usr/bin/env bash
# The newcomer's path, timed: from a fresh clone to a job of one's own, each step as docs/tutorial.md tells it.
#
# Invariant: everything is done in a new folder, with an environment that has nothing but what pip installs from the
# clone. Prints a line of a Markdown table for each step, with what was seen; ends with 1 at the first step that fails.
# Cost: some minutes, most of them pip's. Use: tools/newcomer.sh; PYTHON=python3.12 chooses the interpreter.
set -euo pipefail

cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
SOURCE=$PWD
PYTHON=${PYTHON:-python3}
if [ -s .venv/setup.env ]; then . .venv/setup.env; fi
unset PYTHONPATH
work=$(mktemp -d "${TMPDIR:-/tmp}/newcomer-XXXXXX")
server=
end() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap end EXIT
cd "$work"

# step SHOWN COMMAND...: run it, and tell how long it took and the last line that matters.
step() {
  local shown=$1 began ended
  shift
  began=$(date +%s.%N)
  "$@" >out.txt 2>err.txt || { tail -n 20 out.txt err.txt; echo "newcomer: FAILED: $shown"; exit 1; }
  ended=$(date +%s.%N)
  printf '| `%s` | %.1f s | %s |\n' "$shown" "$(echo "$ended - $began" | bc)" "$(seen)"
}

seen() { grep -m 1 -E "${SEEN:-.}" out.txt | sed 's/^ *//; s/|/\\|/g' | cut -c 1-90 || true; }

look() {
  braid watch clicks/checkpoint --port 0 >page.txt 2>&1 &
  server=$!
  until grep -q http page.txt; do
    kill -0 "$server" || return 1
    sleep 0.1
  done
  python -c 'import re, sys, urllib.request
page = urllib.request.urlopen(sys.argv[1]).read().decode()
print("a page:", re.search("<title>(.*?)</title>", page)[1].strip())' "$(grep -oE 'http://[^ ]+' page.txt)" || return 1
  kill "$server"
  wait "$server" 2>/dev/null || true
  server=
}

own() {
  python - "$SOURCE" <<'PYTHON'
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from tools.docs import blocks

found = blocks((Path(sys.argv[1]) / "docs/tutorial.md").read_text(encoding="utf-8"))
Path("own.toml").write_text(next(one.text for one in found if one.name == "own.toml"), encoding="utf-8")
PYTHON
  braid check own.toml && braid run own.toml
}

echo '| step | took | seen |'
echo '| --- | --- | --- |'
step 'git clone' git clone --quiet "$SOURCE" braidstream
step 'python3 -m venv venv' "$PYTHON" -m venv venv
export PATH=$work/venv/bin:$PATH PYSPARK_PYTHON=$work/venv/bin/python
step "pip install './braidstream[dashboard]'" pip install --quiet --disable-pip-version-check './braidstream[dashboard]'
step 'braid --version' braid --version
SEEN='all is well' step 'braid doctor' braid doctor
for use in clicks payments sensors trades; do
  SEEN='data/' step "braid new $use" braid new "$use"
  SEEN='done after' step "braid run $use/job.toml" braid run "$use/job.toml"
done
SEEN='epochs' step 'braid state clicks/checkpoint' braid state clicks/checkpoint
step 'braid watch clicks/checkpoint' look
SEEN='done after' step 'braid check own.toml && braid run own.toml' own
