"""An application that saves people for a transaction: python -m tests.spark.saving_child ROOT TICKET NAME…"""

import sys
from typing import Any

from tests.spark.writing_child import session


def main(root: str, ticket: str, *names: str) -> None:
    """Save, and publish nothing."""
    frame = session().createDataFrame([(name, 1) for name in names], "name string, age int").repartition(2)
    told: dict[str, Any] = {"type": "Person", "transaction": ticket, "txnAppId": "elsewhere", "txnVersion": 1}
    frame.write.format("omnigraph").mode("append").options(**told).save(root)


if __name__ == "__main__":
    main(*sys.argv[1:])
