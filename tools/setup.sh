#!/usr/bin/env bash
# Sets up .venv with all that the demo, the tests and the checks need, and makes sure that Spark finds Java.
#
# Invariant: when it ends well, .venv holds a Python of the supported range with the packages of pyproject.toml's `dev`
# extra, and a shell that has read .venv/setup.env starts Spark. It may be run at any time and again after any failure.
# Cost: half a second when nothing changed (what was installed is recorded in .venv/setup.stamp); minutes the first
# time. Missing system packages are installed where this may be done (root, with apt-get); otherwise the message says
# what to run. Java comes first, so that its absence is known before half a gigabyte is fetched.
#
# Use: tools/setup.sh, or PYTHON=/path/to/python3.12 tools/setup.sh to choose the interpreter.
set -euo pipefail

VENV=.venv
STAMP=$VENV/setup.stamp
SETTINGS=$VENV/setup.env
LOG=build/setup.log
PYTHONS="python3 python3.13 python3.12 python3.11 python3.10"
OLDEST_JAVA=17
APT_UPDATED=no

main() {
  cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
  mkdir -p build
  : >"$LOG"
  local java_home
  java_home=$(find_or_install_java)
  if up_to_date; then
    record_java "$java_home"
    say "up to date" "Java $(java_major "$(java_command "$java_home")"), $("$VENV/bin/python" --version) in $VENV"
    return
  fi
  rm -f "$STAMP"
  make_environment
  install_packages
  record_java "$java_home"
  fingerprint >"$STAMP"
}

say() { printf 'setup: %-11s %s\n' "$1" "$2" >&2; }

# The three parts of an error: what was wrong, what was expected, what to do.
die() {
  printf 'setup: error: %s\n  expected: %s\n  hint: %s\n' "$1" "$2" "$3" >&2
  exit 1
}

# --- Java -------------------------------------------------------------------------------------------------------------

# Prints the JAVA_HOME to set for Spark: nothing where the Java that Spark finds by itself will do.
find_or_install_java() {
  local package
  find_java && return
  for package in openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless; do
    may_install || break
    apt_install "$package" && find_java && return
  done
  if may_install; then show_log; fi
  die "$(java_trouble)" "Java $OLDEST_JAVA or later, which Spark runs on" "$(java_remedy)"
}

find_java() {
  local home major
  major=$(java_major "$(java_command "${JAVA_HOME:-}")")
  if [ "$major" -ge "$OLDEST_JAVA" ]; then return 0; fi
  while read -r home; do
    major=$(java_major "$home/bin/java")
    if [ "$major" -ge "$OLDEST_JAVA" ]; then
      say java "Java $major found; outside make, run first: export JAVA_HOME=$home"
      echo "$home"
      return 0
    fi
  done < <(java_homes)
  return 1
}

# Spark looks into JAVA_HOME if it is set, and only otherwise on the PATH.
java_command() { if [ -n "$1" ]; then echo "$1/bin/java"; else echo java; fi; }

# 17 for "17.0.15", 8 for "1.8.0_392", 0 where there is no Java.
java_major() {
  local major
  major=$("$1" -version 2>&1 </dev/null | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1) || true
  echo "${major:-0}"
}

java_homes() {
  local home
  for home in /usr/lib/jvm/* /opt/homebrew/opt/openjdk* /usr/local/opt/openjdk* /Library/Java/JavaVirtualMachines/*/Contents/Home; do
    if [ -x "$home/bin/java" ]; then echo "$home"; fi
  done
}

java_trouble() {
  local command major
  command=$(java_command "${JAVA_HOME:-}")
  major=$(java_major "$command")
  if [ "$major" -gt 0 ]; then
    echo "$command is Java $major"
  elif [ -n "${JAVA_HOME:-}" ]; then
    echo "JAVA_HOME is $JAVA_HOME, and no Java runs there"
  else
    echo "no Java was found (JAVA_HOME is not set, and no 'java' on the PATH runs)"
  fi
}

java_remedy() {
  local command
  if command -v apt-get >/dev/null; then
    command="sudo apt-get update && sudo apt-get install openjdk-17-jre-headless (or openjdk-21-jre-headless)"
  elif command -v dnf >/dev/null; then
    command="sudo dnf install java-21-openjdk-headless"
  elif command -v brew >/dev/null; then
    command="brew install openjdk@17"
  else
    command="install a Java runtime, version 17 or 21"
  fi
  echo "$command; or set JAVA_HOME to a newer Java; then repeat the command"
}

# Recipes of the Makefile read this file.
record_java() {
  if [ -n "$1" ]; then printf 'export JAVA_HOME=%q\n' "$1" >"$SETTINGS"; else : >"$SETTINGS"; fi
}

# --- Python -----------------------------------------------------------------------------------------------------------

make_environment() {
  local python
  if [ -e "$VENV" ] && environment_is_usable; then return; fi
  python=$(find_or_install_python)
  say environment "$("$python" --version) ($python) in $VENV"
  rm -rf "$VENV"
  "$python" -m venv "$VENV" >>"$LOG" 2>&1 || { show_log; die "$python -m venv failed" "a virtual environment in $VENV" \
    "choose another interpreter: make setup PYTHON=/path/to/python3.12"; }
}

# An environment is kept if it works, was made at this place and is of the version that was asked for.
environment_is_usable() {
  local version
  version=$(supported_version "$VENV/bin/python") || return 1
  "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || return 1
  made_here || return 1
  [ -z "${PYTHON:-}" ] || [ "$version" = "$(supported_version "$PYTHON")" ]
}

# Its scripts name their interpreter by its full path, so an environment does not survive a move of the clone.
made_here() {
  sed -n 's/^ *\(export \)\{0,1\}VIRTUAL_ENV=//p' "$VENV/bin/activate" | tr -d "\"'" | grep -qxF "$PWD/$VENV"
}

find_or_install_python() {
  local python
  if find_python; then return; fi
  if may_install; then
    python=$(first_supported) || python=""
    if [ -n "$python" ]; then
      apt_install "python$(supported_version "$python")-venv" || apt_install python3-venv || true
    elif [ -z "${PYTHON:-}" ]; then
      apt_install python3 python3-venv || true
    fi
    if find_python; then return; fi
  fi
  python_is_missing
}

python_is_missing() {
  local python version
  if python=$(first_supported); then
    version=$(supported_version "$python")
    die "$python ($version) cannot make virtual environments: its module 'ensurepip' is missing" \
      "a Python with venv and ensurepip" \
      "sudo apt-get update && sudo apt-get install python$version-venv; or make setup PYTHON=/path/to/another/python3"
  fi
  if [ -n "${PYTHON:-}" ]; then
    die "PYTHON=$PYTHON is no usable interpreter: $("$PYTHON" --version 2>&1 | head -n 1)" "Python 3.10 to 3.13" \
      "make setup PYTHON=/path/to/python3.12, or leave PYTHON out"
  fi
  die "no suitable Python was found (tried: $PYTHONS)" "Python 3.10 to 3.13" \
    "install one (on Debian or Ubuntu: sudo apt-get install python3 python3-venv), or name it: make setup PYTHON=/path/to/python3.12"
}

# Prints the first candidate that runs, is of a supported version and can make environments.
find_python() {
  local candidate
  while read -r candidate; do
    if supported_version "$candidate" >/dev/null && "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$candidate"
      return 0
    fi
  done < <(candidates)
  return 1
}

first_supported() {
  local candidate
  while read -r candidate; do
    if supported_version "$candidate" >/dev/null; then
      echo "$candidate"
      return 0
    fi
  done < <(candidates)
  return 1
}

candidates() { if [ -n "${PYTHON:-}" ]; then echo "$PYTHON"; else echo "$PYTHONS" | tr ' ' '\n'; fi; }

# "3.12" if the interpreter runs and is of a supported version. It is run, since a shim on the PATH may lead nowhere.
supported_version() {
  "$1" -c 'import sys; v = sys.version_info[:2]; print("%d.%d" % v); sys.exit(not (3, 10) <= v <= (3, 13))' \
    2>/dev/null </dev/null
}

# --- Packages ---------------------------------------------------------------------------------------------------------

install_packages() {
  local began=$SECONDS
  say packages "installing (the first time this fetches Spark, 450 MB: some minutes)"
  pip_install 'pip>=22' || true  # editable installs need it; an older one fails below with its own words
  if ! pip_install -e '.[dev]'; then
    say packages "failed; trying once more"
    pip_install -e '.[dev]' || { show_log; die "the packages could not be installed" "pip to succeed" \
      "see above and $LOG; check the network and pip's settings (pip config list), then repeat the command"; }
  fi
  say packages "ready after $((SECONDS - began)) s"
}

pip_install() {
  PIP_DEFAULT_TIMEOUT=${PIP_DEFAULT_TIMEOUT:-60} PIP_DISABLE_PIP_VERSION_CHECK=1 \
    with_ticker "$VENV/bin/python" -m pip install --progress-bar off "$@"
}

# Runs a command with its output in the log; on a terminal the seconds are counted meanwhile.
with_ticker() {
  local ticker="" status=0
  if [ -t 2 ]; then
    (while sleep 1 && kill -0 $$ 2>/dev/null; do printf '\r  %d s ' "$SECONDS" >&2; done) &
    ticker=$!
  fi
  "$@" >>"$LOG" 2>&1 </dev/null || status=$?
  if [ -n "$ticker" ]; then
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    printf '\r            \r' >&2
  fi
  return "$status"
}

show_log() { tail -n 25 "$LOG" | sed 's/^/  | /' >&2; }

# --- What is installed already ----------------------------------------------------------------------------------------

up_to_date() {
  [ -e "$STAMP" ] && [ "$(cat "$STAMP")" = "$(fingerprint)" ] && environment_is_usable
}

fingerprint() { cat pyproject.toml tools/setup.sh | cksum; pwd; }

# --- System packages --------------------------------------------------------------------------------------------------

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
  say system "apt-get install $*"
  if [ "$APT_UPDATED" = no ]; then
    with_ticker apt-get update || true
    APT_UPDATED=yes
  fi
  DEBIAN_FRONTEND=noninteractive with_ticker apt-get install --yes --no-install-recommends "$@"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then main; fi
