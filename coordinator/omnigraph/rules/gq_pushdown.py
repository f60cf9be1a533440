"""How much of a predicate storage can be trusted with: what it finds is looked at again, so it may find too much."""

from omnigraph.model.mutations import And, ColumnRef, In, Leaf, Not, Or, Predicate
from omnigraph.model.schema import FLOATS, ListType, Scalar, ScalarType, VectorType

UNSIGNED = frozenset({Scalar.U32, Scalar.U64})
PUSHED_TESTS_MAX = 32
PUSHED_DEPTH_MAX = 6


def pushed(predicate: Predicate) -> Predicate | None:
    """Return a predicate that Lance understands and that holds for every row this one holds for; None is any row.

    Lance takes no expressions over unsigned numbers and vectors, and its ``in`` tells 0.0 from -0.0
    differently than Arrow's. What it spends on planning grows with the square of the tests and doubles with every
    level: so ``not`` stands at single tests only, and what is long or deep is not asked at all.
    """
    weaker = _weaker(predicate, is_negated=False)
    if weaker is None or _tests(weaker) > PUSHED_TESTS_MAX or _depth(weaker) > PUSHED_DEPTH_MAX:
        return None
    return weaker


def any_of(predicates: list[Predicate]) -> Predicate:
    """Return what holds where at least one of these does."""
    return predicates[0] if len(predicates) == 1 else Or(terms=tuple(predicates))


def _weaker(predicate: Predicate, *, is_negated: bool) -> Predicate | None:
    match predicate:
        case Not(term=term):
            return _weaker(term, is_negated=not is_negated)
        case And(terms=terms) | Or(terms=terms):
            weaker = [_weaker(term, is_negated=is_negated) for term in terms]
            known = [term for term in weaker if term is not None]
            if isinstance(predicate, And) != is_negated:
                return _joined(known, is_and=True) if known else None
            return _joined(known, is_and=False) if len(known) == len(weaker) else None
        case _:
            if not _is_understood(predicate):
                return None
            return Not(term=predicate) if is_negated else predicate


def _joined(terms: list[Predicate], *, is_and: bool) -> Predicate:
    """Join terms, taking in those that are joined the same way."""
    flat: list[Predicate] = []
    for term in terms:
        if isinstance(term, And if is_and else Or):
            flat.extend(term.terms)
        else:
            flat.append(term)
    if len(flat) == 1:
        return flat[0]
    return And(terms=tuple(flat)) if is_and else Or(terms=tuple(flat))


def _is_understood(leaf: Leaf) -> bool:
    if isinstance(leaf, In) and _holds(leaf.column, FLOATS):
        return False
    return not isinstance(leaf.column.type, VectorType) and not _holds(leaf.column, UNSIGNED)


def _holds(column: ColumnRef, scalars: frozenset[Scalar]) -> bool:
    match column.type:
        case ScalarType(scalar=scalar) | ListType(element=scalar):
            return scalar in scalars
        case _:
            return False


def _tests(predicate: Predicate) -> int:
    match predicate:
        case And(terms=terms) | Or(terms=terms):
            return sum(_tests(term) for term in terms)
        case _:
            return 1


def _depth(predicate: Predicate) -> int:
    match predicate:
        case And(terms=terms) | Or(terms=terms):
            return 1 + max(_depth(term) for term in terms)
        case _:
            return 1
