"""Going on with a transaction that was begun elsewhere, to publish what was staged for it."""

from omnigraph.engine.history import History
from omnigraph.engine.parts import Begun
from omnigraph.engine.session import Session
from omnigraph.engine.shared import Shared, checked_ticket, found, refuse_other_branch
from omnigraph.engine.transaction import Intent, Transaction


def continued(session: Session, history: History, text: str, branch: str | None) -> Transaction:
    """Return a transaction that was begun elsewhere, to publish it; one that was published is a rerun."""
    ticket = checked_ticket(text)
    shared = Shared(session, history, ticket)
    landed = history.landed(ticket)
    if landed is not None:
        return Transaction(session, history, Intent(branch=landed.branch), shared=shared)
    begun = found(session, history, ticket)
    refuse_other_branch(begun, branch)
    intent = Intent(
        branch=begun.branch,
        message=begun.message,
        actor=begun.actor,
        user_metadata=begun.user_metadata,
        txn=begun.txn,
        constraints=begun.constraints,
    )
    return Transaction(session, history, intent, Begun(base=begun.base, incarnation=begun.incarnation), shared)
