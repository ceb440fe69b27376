"""Spark's own client of S3 (`hadoop-aws`), which its offset log and what it writes need: known before a start.

Braidstream's part of a checkpoint goes by obstore and would begin without it. Cost: one class is looked up.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from braidstream.errors import InputError

__all__ = ["refuse_no_s3_client"]

_SCHEMES = ("s3://", "s3a://")
_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def refuse_no_s3_client(spark: SparkSession, what: str, root: str, kind: type[InputError] = InputError) -> None:
    """Refuse a place in S3 where the session has no client for it."""
    if not root.startswith(_SCHEMES):
        return
    jvm, settings = spark._jvm, spark._jsc.hadoopConfiguration()
    try:
        jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader().loadClass(settings.get("fs.s3a.impl", _CLASS))
    except Py4JJavaError:
        package = f"org.apache.hadoop:hadoop-aws:{jvm.org.apache.hadoop.util.VersionInfo.getVersion()}"
        raise kind(
            f"{what} {root}: this session has no client of S3, which Spark needs for it",
            "the package hadoop-aws of the version of Spark's Hadoop",
            f'packages = ["{package}"] in [spark], or spark.jars.packages={package}',
        ) from None
