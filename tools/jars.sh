#!/usr/bin/env bash
# Jars from Maven Central, by the resolver that Spark has. Read by tools/world.sh and tools/peers.sh, after tools/setup.sh.

# resolved FOLDER OPTION...: the jars of packages, as spark-submit's options name them, in FOLDER/jars.
resolved() {
  local folder=$PWD/$1 program
  shift
  mkdir -p "$folder"
  program=$folder/nothing.py
  echo 'pass' >"$program"
  SPARK_HOME=$("$VENV/bin/python" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)') \
    PYSPARK_PYTHON=$VENV/bin/python with_ticker "$VENV/bin/spark-submit" --master 'local[1]' "$@" \
    --conf "spark.jars.ivy=$folder" "$program"
}

no_jars() {
  show_log
  die "the jars of $1 could not be fetched" "Maven Central to answer" "see above and $LOG; then repeat the command"
}
