"""Spark applications that write, and say how that ended; tests run them, and kill them.

python -m tests.spark.writing_child append|transaction ROOT
python -m tests.spark.writing_child rounds ROOT MEETING
"""

import os
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from tests.java import FOR_MINUTES
from tests.spark.fault_kit import FAILURES, append_people, write_two_tables
from tests.spark.rounds import TWO, take_part

JOBS = {"append": append_people, "transaction": write_two_tables}


def session() -> SparkSession:
    """Return a session with a Java process of its own, or with that of another driver."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]  # as in the whole module
        java = gateway.jvm.org.apache.spark
        shared = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
        return SparkSession(SparkContext(gateway=gateway, jsc=shared, conf=SparkConf(_jconf=shared.getConf())))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", FOR_MINUTES)
        .config("spark.sql.warehouse.dir", str(Path.cwd() / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main(job: str, root: str, *rest: str) -> None:
    """Do one job."""
    spark = session()
    if job == "rounds":
        take_part(spark, root, Path(rest[0]), TWO)
        print("done")
        return
    try:
        JOBS[job](spark, root)
        print("published")
    except FAILURES as problem:
        print("failed", type(problem).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
