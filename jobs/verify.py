"""`spark-submit jobs/verify.py --help`: see docs/guides/spark-jobs.md."""

import sys

from pyspark_omnigraph.jobs import verify

if __name__ == "__main__":
    sys.exit(verify())
