"""`spark-submit jobs/optimize.py --help`: see docs/guides/spark-jobs.md."""

import sys

from pyspark_omnigraph.jobs import optimize

if __name__ == "__main__":
    sys.exit(optimize())
