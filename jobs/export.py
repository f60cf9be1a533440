"""`spark-submit jobs/export.py --help`: see docs/guides/spark-jobs.md."""

import sys

from pyspark_omnigraph.jobs import export

if __name__ == "__main__":
    sys.exit(export())
