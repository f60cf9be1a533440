"""`spark-submit jobs/delete.py --help`: see docs/guides/spark-jobs.md."""

import sys

from pyspark_omnigraph.jobs import delete

if __name__ == "__main__":
    sys.exit(delete())
