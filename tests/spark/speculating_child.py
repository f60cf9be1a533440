"""A Spark application on two hosts, in which a task that stays behind gets a rival; tests run it.

    python -m tests.spark.speculating_child FOLDER

Spark gives a task no rival on its own host, so neither `local[N]` nor `local-cluster[...]` ever does it. Here a master
and two workers with addresses of their own live in the driver's Java process, and each worker has an executor.

The first attempt of one task is stopped before or after it stages, and let go only when its write has been published.
"""

import json
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from tests.java import FOR_MINUTES
from tests.spark.applications import wait_until
from tests.spark.fault_kit import Fault, faulty_tasks, knows, people, save_with

from omnigraph.failpoints import Failpoint
from omnigraph.testing.crash_writers import ACTOR
from omnigraph.testing.places import place
from pyspark_omnigraph import SparkGraph

HOSTS = ("127.0.0.2", "127.0.0.3")
MEGABYTES = 1024
STOPS = {"loser": Failpoint.AFTER_STAGE, "zombie": Failpoint.BEFORE_STAGE}
WAYS = ("source", "transaction")
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": FOR_MINUTES,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.locality.wait": "0",
    "spark.python.task.killTimeout": "300s",  # an attempt that lost is told to end, and does not listen
}


def cluster(work: Path) -> str:
    """Start a master and two workers; return the master's address."""
    SparkContext._ensure_initialized(conf=SparkConf().set("spark.driver.extraJavaOptions", FOR_MINUTES))
    gateway = SparkContext._gateway
    assert gateway is not None
    java = gateway.jvm
    deploy, settings = java.org.apache.spark.deploy, java.org.apache.spark.SparkConf()
    settings.set("spark.master.rest.enabled", "false").set("spark.shuffle.service.enabled", "false")
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, settings)
    masters = gateway.new_array(java.java.lang.String, 1)
    masters[0] = f"spark://127.0.0.1:{master._1().address().port()}"
    for number, host in enumerate(HOSTS, 1):
        which, nothing = java.scala.Some(number), java.scala.Option.empty()
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, MEGABYTES, masters, str(work), which, settings, nothing
        )
    return str(masters[0])


def session(master: str) -> SparkSession:
    """Return a session on that cluster, when both executors are there."""
    builder = SparkSession.builder.master(master).appName("speculating")
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    status = spark.sparkContext._jsc.sc().statusTracker()
    wait_until(lambda: len(status.getExecutorInfos()) == len(HOSTS) + 1, "two executors and the driver")
    return spark


def files_of(root: Path) -> int:
    """Count the files that were written for people."""
    return len(list((place(root) / "nodes").glob("*/data/*.lance")))


def write(spark: SparkSession, way: str, root: Path, fault: Fault) -> None:
    """Write people with a fault in the way of their tasks, and edges with none."""
    if way == "source":
        save_with(fault, people(spark), root)
        return
    with SparkGraph.for_path(spark, root, actor=ACTOR).transaction() as tx:
        with faulty_tasks(fault):
            tx.append("Person", people(spark))
        tx.upsert("Knows", knows(spark))


def speculate(spark: SparkSession, folder: Path, way: str, end: str) -> dict[str, object]:
    """Let one task stay behind, and tell what was seen."""
    root, gate = folder / f"{way}-{end}", folder / f"{way}-{end}.gate"
    stopped = gate.with_name(gate.name + ".parked")
    fault = Fault(
        tasks=f"{STOPS[end]}=park:{gate}",
        attempts=1,
        partition=1,
        rivals=f"stage.before=park:{stopped}",  # a rival must not win before the first attempt is where it belongs
    )
    before = files_of(root)
    write(spark, way, root, fault)
    published = files_of(root)
    gate.touch()
    if end == "zombie":
        wait_until(lambda: files_of(root) > published, "a file that is written when all is over")
    return {
        "case": f"{way}-{end}",
        "stopped": stopped.exists(),
        "when published": published - before,
        "in the end": files_of(root) - before,
    }


def main(folder: Path) -> None:
    """Go through all cases."""
    spark = session(cluster(folder / "work"))
    for way in WAYS:
        for end in STOPS:
            print("seen", json.dumps(speculate(spark, folder, way, end)), flush=True)
    spark.stop()
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
