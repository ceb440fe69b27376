#!/usr/bin/env bash
# Sets up what tests/world needs beyond tools/setup.sh: the packages of all sinks, PostgreSQL, Kafka's jars, an S3 server.
#
# Invariant: when it ends well, .venv has the extra `world`, build/world/kafka the jars of a broker, build/world/connector
# those of Spark's Kafka connector, build/world/s3a those of Spark's client of S3, build/world/minio is an S3 server, and
# a PostgreSQL server can be started. The tests start and stop the servers, on loopback. MinIO is built by Go from its
# module, once for a machine: it is kept in $BRAIDSTREAM_CACHE (~/.cache/braidstream), beyond the repository; where there
# is no Go, and apt-get does not bring it, S3 and the cluster are left out. It may be run at any time and again after any
# failure. Cost: a second when all is there, minutes the first time. Jars come from Maven Central by the resolver that
# Spark has; PostgreSQL from Debian's packages, where this may be done (root, with apt-get), otherwise the message says
# what to run.
set -euo pipefail

cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/setup.sh
. tools/jars.sh

WORLD=build/world
KAFKA=org.apache.kafka:kafka_2.13:4.3.1
CONNECTOR=org.apache.spark:spark-sql-kafka-0-10_2.13
CONNECTORS='4.2.0 4.1.3'
TOKENS=org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1

# The last one that was published; it is for 4.1.1, and serves later ones.
AVRO=org.apache.spark:spark-avro_2.13:4.1.1
# Of the Hadoop that Spark brings; Amazon's bundle of all its clients (686 MB) is left out for the parts that S3 needs.
AMAZON=software.amazon.awssdk
AMAZON_VERSION=2.35.4
MINIO=github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

prepare_world() {
  mkdir -p "$WORLD"
  : >"$LOG"
  if [ -s "$SETTINGS" ]; then . "$SETTINGS"; fi
  world_packages
  world_postgresql
  world_jars kafka "$KAFKA" || no_jars "$KAFKA"
  world_connector
  world_jars avro "$AVRO" || no_jars "$AVRO"
  world_s3a
  world_minio
  world_browser
  world_network
}

world_packages() {
  local stamp=$VENV/world.stamp
  if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$(cksum <pyproject.toml)" ]; then return; fi
  say packages "installing those of all sinks"
  pip_install -e '.[dev,world]' || { show_log; die "the packages of the sinks could not be installed" "pip to succeed" \
    "see above and $LOG; check the network and pip's settings (pip config list), then repeat the command"; }
  cksum <pyproject.toml >"$stamp"
}

world_postgresql() {
  if postgresql_programs >/dev/null; then return; fi
  if may_install; then apt_install postgresql || show_log; fi
  postgresql_programs >/dev/null || die "there is no PostgreSQL server" "initdb and postgres in /usr/lib/postgresql/*/bin" \
    "sudo apt-get update && sudo apt-get install postgresql"
}

world_browser() {
  if browser_programs; then return; fi
  if may_install; then apt_install chromium chromium-driver fonts-dejavu-core || show_log; fi
  browser_programs || die "there is no browser for the tests of the dashboard" "/usr/bin/chromium and /usr/bin/chromedriver" \
    "sudo apt-get update && sudo apt-get install chromium chromium-driver fonts-dejavu-core"
}

# For the cluster on one machine; without them its tests are left out, and say so.
world_network() {
  if network_programs; then return; fi
  if may_install; then apt_install iproute2 iptables || show_log; fi
  network_programs || say network "no ip or no iptables: the tests on a cluster are left out (apt-get install iproute2 iptables)"
}

network_programs() { command -v ip >/dev/null && command -v iptables >/dev/null; }

browser_programs() { [ -x /usr/bin/chromium ] && [ -x /usr/bin/chromedriver ]; }

postgresql_programs() { ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null || command -v initdb; }

# The connector of the installed Spark; where that was not published, or not all of it, one of a release before.
world_connector() {
  local spark version
  spark=$("$VENV/bin/python" -c 'import pyspark; print(pyspark.__version__)')
  if [ "$(cat "$WORLD/connector/spark" 2>/dev/null)" = "$spark" ]; then return; fi
  for version in "$spark" $CONNECTORS; do
    if world_jars connector "$CONNECTOR:$version" || world_jars connector "$CONNECTOR:$version" "$TOKENS"; then
      echo "$spark" >"$WORLD/connector/spark"
      return
    fi
  done
  no_jars "$CONNECTOR:$spark"
}

# world_jars FOLDER PACKAGE [PART]: a package with all that it needs; a part of it, by its own version.
world_jars() {
  local folder=$WORLD/$1 package=$2 part=${3:-}
  if [ "$(cat "$folder/package" 2>/dev/null)" = "$package $part" ]; then return; fi
  say jars "fetching $package $part"
  rm -rf "$folder"
  if [ -n "$part" ]; then
    resolved "$folder" --packages "$package" --exclude-packages "${part%:*}" && resolved "$folder" --packages "$part"
  else
    resolved "$folder" --packages "$package"
  fi || return 1
  echo "$package $part" >"$folder/package"
}

# Spark's client of S3: hadoop-aws of the version of Spark's Hadoop, with the parts of Amazon's client that it needs.
world_s3a() {
  local hadoop folder=$WORLD/s3a part packages
  hadoop=$(basename "$("$VENV/bin/python" -c 'import pathlib, pyspark; print(next((pathlib.Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")))')" .jar)
  packages=org.apache.hadoop:hadoop-aws:${hadoop#hadoop-client-api-}
  for part in s3 s3-transfer-manager sts apache-client netty-nio-client; do packages+=,$AMAZON:$part:$AMAZON_VERSION; done
  if [ "$(cat "$folder/package" 2>/dev/null)" = "$packages" ]; then return; fi
  say jars "fetching ${packages%%,*}"
  rm -rf "$folder"
  resolved "$folder" --packages "$packages" \
    --exclude-packages "$AMAZON:bundle" || no_jars "$packages"
  echo "$packages" >"$folder/package"
}

# From 1.21 on Go fetches the later version that a module asks for.
go_fits() {
  local version
  version=$(go env GOVERSION 2>/dev/null) || return 1
  version=${version#go1.}
  version=${version%%[!0-9]*}
  [ "${version:-0}" -ge 21 ]
}

world_minio() {
  local kept=${BRAIDSTREAM_CACHE:-$HOME/.cache/braidstream}/minio-${MINIO##*-}
  if [ ! -x "$kept/minio" ]; then
    if ! go_fits && may_install; then apt_install golang-go || show_log; fi
    if ! go_fits; then
      say minio "no Go 1.21 or later, which builds the S3 server: tests of S3 and on a cluster are left out (go.dev has it)"
      return
    fi
    say minio "building the S3 server, once: some minutes"
    GOBIN=$kept GOFLAGS=-trimpath with_ticker go install "$MINIO" || { show_log; die "MinIO could not be built" \
      "go install $MINIO to succeed" "see above and $LOG; check that the Go module proxy answers, then repeat the command"; }
  fi
  ln -sfn "$kept/minio" "$WORLD/minio"
}

prepare_world
