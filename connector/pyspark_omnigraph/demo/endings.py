"""The last steps of the demo: time travel in SQL, a writer that is killed, the report, and what to try next."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import omnigraph as og
from omnigraph.errors import OmnigraphError
from pyspark_omnigraph.demo.killed import DEADLY
from pyspark_omnigraph.demo.steps import LOADED, REVIEW, UNMERGED, Stage

COUNT_BOTH: Final = """
SELECT (SELECT count(*) FROM og.main.Airport VERSION AS OF 'loaded') AS airports_then,
       (SELECT count(*) FROM og.main.Airport) AS airports_now
"""
JOIN_BOTH: Final = """
SELECT then.manufacturer AS was, now.manufacturer AS is, count(*) AS planes
FROM og.main.Plane VERSION AS OF 2 AS then JOIN og.main.Plane AS now ON then.id = now.id
WHERE then.manufacturer <> now.manufacturer
GROUP BY was, is ORDER BY planes DESC, was
"""
WATCHED: Final = ("Airport", "Flight")
KILLED: Final = -signal.SIGKILL


def travel(stage: Stage) -> None:
    """Ask Spark SQL about then and now."""
    tell = stage.teller
    with tell.step("Travel in time, in Spark SQL") as facts:
        tell.quote(COUNT_BOTH)
        tell.doing("Spark counts")
        (counts,) = stage.spark.sql(COUNT_BOTH).collect()
        tell.table(counts.__fields__, [tuple(counts)])
        tell.say("Two versions of one table, joined in one query:")
        tell.quote(JOIN_BOTH)
        tell.doing("Spark joins")
        changed = stage.spark.sql(JOIN_BOTH).collect()
        tell.table(("was", "is", "planes"), [tuple(row) for row in changed])
        facts |= {"airports": list(counts), "renamed": [list(row) for row in changed]}


def survive(stage: Stage) -> None:
    """Kill a writer in the middle of a commit, look at what is left, and open the graph again."""
    tell = stage.teller
    with tell.step("Kill a writer in the middle of a commit") as facts:
        before = _counts(stage)
        tell.say("Another process adds the four airports that were missing, and the flights to them: one commit.")
        tell.doing("the writer is at work, not for long")
        status = _killed_writer(stage)
        tell.say(f"It was killed (signal {-status}, SIGKILL) when one of the two tables was sealed, the other not yet.")
        found = _counts(stage)
        facts |= {"status": status, "half_there": found != before, "promised": len(_promises(stage))}
        tell.say(f"What readers see now, {_shown(found)}, is what they saw before. Its promise lies in __recovery/.")
        graph = og.open(stage.root, actor="demo")  # looks at promises of dead writers
        facts["rows"] = {"before": before, "after": _counts(stage)}
        tell.say("Opening the graph to write has finished the commit, with both tables:")
        tell.table(
            ("type", "before", "after the kill", "after the next open"),
            [(type, before[type], found[type], facts["rows"]["after"][type]) for type in WATCHED],
        )
        facts["audit"] = [row.to_dict() for row in graph.recoveries()]
        tell.say("The audit has a row about it:")
        columns = ("kind", "branch", "commit", "original_actor")
        tell.table(columns, [tuple(row[name] for name in columns) for row in facts["audit"]])
        facts |= {"sound": graph.verify().is_sound, "left": len(_promises(stage))}
        said = "all is there and whole" if facts["sound"] else "something is damaged"
        tell.say(f"Promises left: {facts['left']}. `verify` says that {said}.")


def report(stage: Stage) -> None:
    """Write the report: the last thing, so that it has everything in it."""
    tell = stage.teller
    with tell.step("Write a report") as facts:
        stage.graph.report(stage.places.report, diff=(LOADED, "main"), merge=REVIEW, into=UNMERGED)
        facts["report"] = str(stage.places.report)
        tell.say("One HTML file with the commits as a picture, the branches, what has changed since the first load,")
        tell.say(f"both sides of the conflict (`{UNMERGED}` still has it), the schema, sizes, and the recovery.")


def farewell(stage: Stage) -> None:
    """Say where things are, and three commands to go on with."""
    tell, root = stage.teller, shlex.quote(stage.root)
    program = shlex.quote(str(Path(sys.executable).with_name("omnigraph")))
    seconds = sum(done.seconds for done in tell.done)
    tell.rule(f"All of it took {seconds:.0f} seconds. Try next:")
    for command in (
        f"commit list {root}",
        f"diff {root} {LOADED} main --type Plane",
        f"branch merge {root} {REVIEW} --into {UNMERGED} --dry-run",
    ):
        tell.say(f"{program} {command}")
    tell.rule("And open the report in a browser:")
    tell.say(str(stage.places.report))


def _killed_writer(stage: Stage) -> int:
    """Run the writer until it kills itself, and return how it ended."""
    command = [sys.executable, "-m", "pyspark_omnigraph.demo.killed", stage.root]
    command.append(str(stage.places.put_aside / "Flight"))
    done = subprocess.run(  # noqa: S603  our own module
        command, env={**os.environ, **DEADLY}, capture_output=True, text=True, check=False
    )
    if done.returncode != KILLED:
        raise OmnigraphError(f"the writer should have been killed, and ended with {done.returncode}: {done.stderr}")
    return done.returncode


def _counts(stage: Stage) -> dict[str, int]:
    """Count as a reader would, who mends nothing."""
    snapshot = og.open(stage.root, read_only=True).snapshot()
    return {type: snapshot.count(type) for type in WATCHED}


def _promises(stage: Stage) -> list[Path]:
    return list((stage.places.root / "__recovery").glob("*.json"))


def _shown(counts: dict[str, Any]) -> str:
    return " and ".join(f"{count:,} {type.lower()}s" for type, count in counts.items())
