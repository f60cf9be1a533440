"""`spark-submit jobs/cleanup.py --help`: see docs/guides/spark-jobs.md."""

import sys

from pyspark_omnigraph.jobs import cleanup

if __name__ == "__main__":
    sys.exit(cleanup())
