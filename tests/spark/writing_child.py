"""A Spark application that writes a hundred people into a graph and says how that ended; run by other tests."""

import sys

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(root: str) -> None:
    """Write two partitions in one commit."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.range(0, 100, 1, 2).selectExpr("concat('p', id) AS name")
    try:
        frame.write.format("omnigraph").mode("append").option("type", "Person").save(root)
        print("published")
    except (PySparkException, Py4JError) as problem:
        print("failed", type(problem).__name__)


if __name__ == "__main__":
    main(sys.argv[1])
