"""Making a branch look as it did: a new commit with the pins of an old one."""

from omnigraph.engine.changes import AddCommit
from omnigraph.engine.history import History
from omnigraph.engine.session import Session
from omnigraph.ids import CommitId
from omnigraph.model.lineage import Commit
from omnigraph.rules.refs import Draft, branch_named


def restored(session: Session, history: History, branch: str, to: "str | Commit", message: str | None) -> Commit:
    """Give a branch the rows and the schema of a commit, tag or branch."""
    bound = branch_named(session.publisher.read().state, branch)
    wanted = history.named(to.id if isinstance(to, Commit) else to)
    draft = Draft(
        id=CommitId(session.sources.mint()),
        branch=bound.name,
        incarnation=bound.incarnation,
        operation="restore",
        schema_hash=wanted.schema_hash,
        pins=wanted.pins,
        replace_all_pins=True,
        copied_from=(wanted.id,),
        message=message or f"restore to {wanted.branch}@{wanted.version} ({wanted.id})",
    )
    change = AddCommit(manifest=session.manifest, draft=draft, stamp=session.stamp())
    return session.publisher.publish(change)
