#!/usr/bin/env bash
# A standalone Spark cluster on one machine whose workers share nothing: a master, and workers in networks of their own.
#
#   tools/cluster.sh up                  master and three workers; prints what to export
#   tools/cluster.sh down                all of it away
#   tools/cluster.sh pids N              the processes of worker N
#   tools/cluster.sh kill N              kill worker N and its executors (SIGKILL)
#   tools/cluster.sh start N             start worker N, anew or again
#   tools/cluster.sh stop N | resume N   SIGSTOP, SIGCONT
#   tools/cluster.sh cut N  | heal N     its network: no packet passes, and passes again
#   tools/cluster.sh slow N | fast N     packets are delayed and lost, and no longer; lost N: how many were, slows N: by what
#
# Each worker has a network namespace with one virtual cable to a bridge that leads nowhere else (10.NET.0.0/24), and a
# folder for temporary files of its own. Invariant: what a worker's processes know of others they know by the network;
# `down` leaves nothing.
# Needs root, Debian's iproute2, and for `slow` its iptables. Settings: CLUSTER (a name, for several beside each other), NET (a number, 0 to 250),
# WORKERS ("1 2 3"), CORES, MEMORY of a worker, and whatever is in the environment, which workers inherit (AWS_...).
set -euo pipefail

cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
CLUSTER=${CLUSTER:-braid}
NET=${NET:-201}
CORES=${CORES:-1}
MEMORY=${MEMORY:-1g}
PORT=7077
WORKERS=${WORKERS:-1 2 3}
HOST=10.$NET.0.1
HOME_DIR=$PWD/build/cluster/$CLUSTER
VENV=$PWD/.venv
BRIDGE=${CLUSTER}0

# The folder for temporary files, of which a worker has its own; with this repository in it, if that is where it lies.
TEMPORARY=$(dirname "$(mktemp -u)")
OWN_FOLDER='case $PWD in "$1"/*) mkdir -p "$0/${PWD#"$1"}" && mount --bind "$PWD" "$0/${PWD#"$1"}" ;; esac
mount --rbind "$0" "$1" && cd / && shift && exec "$@"'

die() { echo "cluster: $1" >&2; exit 1; }

space() { echo "$CLUSTER-w$1"; }

cable() { echo "$CLUSTER-$1"; }

spark_home() { "$VENV/bin/python" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)'; }

up() {
  [ "$(id -u)" = 0 ] || die "network namespaces need root"
  command -v ip >/dev/null || die "there is no ip: apt-get install iproute2"
  down
  mkdir -p "$HOME_DIR"
  ip link add "$BRIDGE" type bridge
  ip addr add "$HOST/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  master
  for n in $WORKERS; do
    network "$n"
    start "$n"
  done
  wait_for_workers
  echo "export MASTER=spark://$HOST:$PORT SPARK_LOCAL_IP=$HOST"
}

network() {
  local name cable
  name=$(space "$1") cable=$(cable "$1")
  ip netns add "$name"
  ip link add "$cable" type veth peer name eth0 netns "$name"
  ip link set "$cable" master "$BRIDGE" up
  ip -n "$name" addr add "10.$NET.0.$((10 + $1))/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
}

# Java's own process, not a script around it, so that signals reach it.
spark_class() {
  local java=java
  [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
  echo "$java -cp $(spark_home)/jars/* -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED -Dspark.worker.timeout=${WORKER_TIMEOUT:-15} -Dspark.deploy.maxExecutorRetries=-1"
}

master() {
  set -f
  SPARK_LOCAL_IP=$HOST SPARK_HOME=$(spark_home) setsid $(spark_class) org.apache.spark.deploy.master.Master \
    --host "$HOST" --port "$PORT" --webui-port 0 >>"$HOME_DIR/master.log" 2>&1 </dev/null &
  set +f
  echo $! >"$HOME_DIR/master.pid"
  local tries=0
  until (exec 3<>"/dev/tcp/$HOST/$PORT") 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || die "the master does not answer; see $HOME_DIR/master.log"
    sleep 0.2
  done
}

start() {
  local n=$1 own=$HOME_DIR/w$1
  [ -z "$(pids "$n")" ] || die "worker $n runs"
  mkdir -p "$own/tmp" "$own/work"
  chmod 1777 "$own/tmp"
  set -f
  SPARK_LOCAL_IP=10.$NET.0.$((10 + n)) SPARK_HOME=$(spark_home) SPARK_SCALA_VERSION=2.13 \
    PYSPARK_PYTHON=$VENV/bin/python setsid ip netns exec "$(space "$n")" sh -c "$OWN_FOLDER" "$own/tmp" "$TEMPORARY" \
    $(spark_class) org.apache.spark.deploy.worker.Worker --host "10.$NET.0.$((10 + n))" --cores "$CORES" \
    --memory "$MEMORY" --webui-port 0 --work-dir "$own/work" "spark://$HOST:$PORT" >>"$own/log" 2>&1 </dev/null &
  set +f
}

wait_for_workers() {
  local tries=0
  until [ "$(grep -c 'Registering worker' "$HOME_DIR/master.log")" -ge "$(echo "$WORKERS" | wc -w)" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || die "workers do not register; see $HOME_DIR"
    sleep 0.2
  done
}

pids() { { ip netns pids "$(space "$1")" 2>/dev/null || true; } | tr '\n' ' '; }

signal() {
  local found
  found=$(pids "$2")
  [ -z "$found" ] || kill "-$1" $found 2>/dev/null || true
}

# Packets to and from a worker wait and are lost. A kernel without netem has a token bucket, in which they wait for up
# to 400 ms, and the statistic match of iptables, by which 5 of 100 that come to the worker are lost (who sends would be
# told of those that go).
slow() {
  local cable
  cable=$(cable "$1")
  if has_netem "$cable"; then return; fi
  command -v iptables >/dev/null || die "neither netem nor iptables: apt-get install iptables"
  tc qdisc replace dev "$cable" root tbf rate 3mbit burst 16kb latency 400ms
  inside "$1" iptables -A INPUT -m statistic --mode random --probability 0.05 -j DROP
}

has_netem() { tc qdisc replace dev "$1" root netem delay 100ms 50ms loss 3% 2>/dev/null; }

slows() {
  if has_netem "$(cable "$1")"; then
    fast "$1"
    echo "tc netem"
  else
    echo "tc tbf and iptables -m statistic (this kernel has no netem)"
  fi
}

fast() {
  tc qdisc del dev "$(cable "$1")" root 2>/dev/null || true
  inside "$1" iptables -F INPUT 2>/dev/null || true
}

# A command in a worker's network; `lost N` tells how many packets were dropped there on purpose.
inside() { local own=$1 && shift && ip netns exec "$(space "$own")" "$@"; }

lost() { inside "$1" iptables -nvxL 2>/dev/null | awk '$3 == "DROP" { n += $1 } END { print n + 0 }'; }

down() {
  local n
  for n in $WORKERS; do
    signal KILL "$n"
    ip netns del "$(space "$n")" 2>/dev/null || true
    ip link del "$(cable "$n")" 2>/dev/null || true
  done
  if grep -qs deploy.master.Master "/proc/$(cat "$HOME_DIR/master.pid" 2>/dev/null)/cmdline"; then
    kill -KILL "$(cat "$HOME_DIR/master.pid")" 2>/dev/null || true
  fi
  ip link del "$BRIDGE" 2>/dev/null || true
  rm -rf "$HOME_DIR"
}

case "${1:-} ${2:-}" in
  "up " | "down ") "$1" ;;
  "pids "[1-9]) pids "$2" ;;
  "start "[1-9]) start "$2" ;;
  "kill "[1-9]) signal KILL "$2" ;;
  "stop "[1-9]) signal STOP "$2" ;;
  "resume "[1-9]) signal CONT "$2" ;;
  "cut "[1-9]) ip link set "$(cable "$2")" down ;;
  "heal "[1-9]) ip link set "$(cable "$2")" up ;;
  "slow "[1-9] | "fast "[1-9] | "lost "[1-9] | "slows "[1-9]) "$1" "$2" ;;
  *)
    sed -n '2,/^set -/p' "$0" | sed 's/^# \{0,1\}//; /^set -/d' >&2
    exit 2
    ;;
esac
