#!/usr/bin/env bash
# Sets up .venv-peers with the systems that `braid bench peers` measures beside: nothing of it is in the product.
#
# Invariant: when it ends, each folder of .venv-peers is an environment with its packages, or a file NAME.failed says why
# there is none; the benchmark shows such a system as one that could not be installed, and measures the others. Each has
# an environment of its own, because what they require contradicts: flink, pathway, bytewax, and batch for DuckDB and
# Polars. .venv-peers/jars has what Flink reads Parquet with: its format, and Hadoop's client, which Spark brings.
# Cost: a second when all is there (NAME.stamp has what was installed); minutes the first time, for 2.5 GB.
set -euo pipefail

cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/setup.sh
. tools/jars.sh

PEERS=.venv-peers
FLINK=2.3.0
# Pythons that have wheels of all four, the best first.
PEER_PYTHONS="python3.11 python3.12 python3.10"

prepare_peers() {
  mkdir -p "$PEERS"
  : >"$LOG"
  if [ -s "$SETTINGS" ]; then . "$SETTINGS"; fi
  peer flink "apache-flink==$FLINK"
  peer pathway pathway==0.33.0 pyarrow pandas
  peer bytewax bytewax==0.21.1 pyarrow
  peer batch duckdb==2.0.0 polars==2.1.0
  if [ -x "$PEERS/flink/bin/python" ]; then peer_jars; fi
}

# peer NAME PACKAGE...: an environment, made by the first of the Pythons for which the packages can be installed.
peer() {
  local name=$1 python version
  shift
  if [ "$(cat "$PEERS/$name.stamp" 2>/dev/null)" = "$*" ] && "$PEERS/$name/bin/python" -c '' 2>/dev/null; then return; fi
  rm -f "$PEERS/$name.stamp" "$PEERS/$name.failed"
  for python in $PEER_PYTHONS; do
    version=$(supported_version "$python") || continue
    say "$name" "installing $* for Python $version"
    rm -rf "${PEERS:?}/$name"
    if "$python" -m venv "$PEERS/$name" >>"$LOG" 2>&1 && peer_install "$name" "$@"; then
      echo "$*" >"$PEERS/$name.stamp"
      return
    fi
  done
  rm -rf "${PEERS:?}/$name"
  # The benchmark shows this in its table.
  { grep -E 'ERROR|error:' "$LOG" | tail -n 1 | cut -c 1-300 || true; } >"$PEERS/$name.failed"
  say "$name" "could not be installed: $(cat "$PEERS/$name.failed") (all of it is in $LOG)"
}

peer_install() {
  local name=$1
  shift
  PIP_DEFAULT_TIMEOUT=${PIP_DEFAULT_TIMEOUT:-60} PIP_DISABLE_PIP_VERSION_CHECK=1 \
    with_ticker "$PEERS/$name/bin/python" -m pip install --progress-bar off "$@"
}

peer_jars() {
  local package=org.apache.flink:flink-sql-parquet:$FLINK folder=$PEERS/jars jars
  if [ "$(cat "$folder/package" 2>/dev/null)" = "$package" ]; then return; fi
  say jars "fetching $package"
  rm -rf "$folder"
  resolved "$folder/fetched" --packages "$package" || no_jars "$package"
  jars=$("$VENV/bin/python" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')
  cp "$folder"/fetched/jars/*.jar "$jars"/hadoop-client-api-*.jar "$jars"/hadoop-client-runtime-*.jar "$folder"
  echo "$package" >"$folder/package"
}

prepare_peers
