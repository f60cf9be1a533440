"""`spark-submit jobs/upsert.py --help`: see docs/guides/spark-jobs.md."""

import sys

from pyspark_omnigraph.jobs import upsert

if __name__ == "__main__":
    sys.exit(upsert())
