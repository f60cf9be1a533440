"""`spark-submit jobs/index.py --help`: see docs/guides/spark-jobs.md."""

import sys

from pyspark_omnigraph.jobs import index

if __name__ == "__main__":
    sys.exit(index())
