"""`python jobs/demo.py [FOLDER] [--json]`: a tour of everything, on a real graph. See the README."""

import sys

from pyspark_omnigraph.demo.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
