"""What tasks on other machines say when they are done: one text each, as rows of a relation."""

from typing import Final

import pyarrow as pa

from omnigraph.storage.relations import ClusterEngine, Made, Spread

ANSWERS: Final = pa.schema([("text", pa.string())])
EVERY_ANSWER: Final = "SELECT text FROM answers"


def answers(engine: ClusterEngine, tasks: Made | Spread) -> list[str]:
    """Let tasks do their work, and return what all of them say."""
    told = engine.run(EVERY_ANSWER, {"answers": tasks}).read_all()
    return [str(text) for text in told.column("text").to_pylist()]


def answer(text: str) -> pa.RecordBatch:
    """Return what one task says."""
    return pa.RecordBatch.from_arrays([pa.array([text], pa.string())], schema=ANSWERS)
