"""`spark-submit jobs/load.py --help`: see docs/guides/spark-jobs.md."""

import sys

from pyspark_omnigraph.jobs import load

if __name__ == "__main__":
    sys.exit(load())
