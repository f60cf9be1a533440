"""Three versions of a table made one, said as plans.

Everything is told relative to the target, row by row: ``theirs`` is what became of rows from the target to the source,
``base`` what became of them from the target to the base, both as :data:`omnigraph.rules.row_changes.CHANGED` finds it.
A row that is not in ``theirs`` is the same on both sides, and there is nothing to do. A row of ``theirs`` that is not
in ``base`` was changed by the source alone. If the base has what the source has, the target alone changed it. What is
left was changed on both sides, each in its own way.

Where histories have crossed, a row can have several bases. ``one`` and ``other`` are two of them and ``older`` is what
came before both: who changed it since is right, and if both did, differently, the base is ``torn``: it is like neither
side, so that two sides that differ are a conflict, and two that agree are not.
"""

from typing import Final

TAKEN: Final = "Taken"
DIVERGENT_INSERT, DIVERGENT_UPDATE, DELETE_VS_UPDATE = "DivergentInsert", "DivergentUpdate", "DeleteVsUpdate"

ONE_BASE: Final = """
SELECT coalesce(n.id, o.id) AS id, o.row AS old, n.row AS new, FALSE AS torn
FROM old o FULL OUTER JOIN new n ON o.id = n.id
WHERE o.id IS NULL OR n.id IS NULL OR o.row IS DISTINCT FROM n.row
"""

TWO_BASES: Final = """
WITH met AS (
  SELECT coalesce(x.id, y.id) AS id,
    CASE WHEN x.id IS NOT NULL THEN x.old ELSE y.old END AS old,
    CASE WHEN x.id IS NOT NULL THEN x.new ELSE y.old END AS one,
    CASE WHEN y.id IS NOT NULL THEN y.new ELSE x.old END AS other,
    coalesce(x.torn, FALSE) AS one_torn, coalesce(y.torn, FALSE) AS other_torn
  FROM one x FULL OUTER JOIN other y ON x.id = y.id
), all_met AS (
  SELECT coalesce(m.id, z.id) AS id,
    CASE WHEN m.id IS NOT NULL THEN m.old ELSE z.old END AS old,
    CASE WHEN m.id IS NOT NULL THEN m.one ELSE z.old END AS one,
    CASE WHEN m.id IS NOT NULL THEN m.other ELSE z.old END AS other,
    CASE WHEN z.id IS NOT NULL THEN z.new ELSE m.old END AS before,
    coalesce(m.one_torn, FALSE) AS one_torn, coalesce(m.other_torn, FALSE) AS other_torn,
    coalesce(z.torn, FALSE) AS before_torn
  FROM met m FULL OUTER JOIN older z ON m.id = z.id
), judged AS (
  SELECT id, old,
    CASE WHEN one IS DISTINCT FROM other AND one IS NOT DISTINCT FROM before THEN other ELSE one END AS new,
    one_torn OR other_torn OR (one IS DISTINCT FROM other AND (before_torn
      OR (one IS DISTINCT FROM before AND other IS DISTINCT FROM before))) AS torn
  FROM all_met
)
SELECT id, old, new, torn FROM judged WHERE torn OR old IS DISTINCT FROM new
"""

THREE_WAY: Final = """
SELECT t.id AS id, t.new AS theirs, t.new_at AS theirs_at, t.old_at AS ours_at, t.old_place AS ours_place,
  CASE WHEN b.id IS NOT NULL THEN t.old END AS ours,
  CASE WHEN NOT b.torn THEN b.new END AS base,
  coalesce(b.torn, FALSE) AS torn,
  CASE
    WHEN b.id IS NULL THEN 'Taken'
    WHEN t.old IS NULL OR t.new IS NULL THEN 'DeleteVsUpdate'
    WHEN b.new IS NULL AND NOT b.torn THEN 'DivergentInsert'
    ELSE 'DivergentUpdate'
  END AS verdict
FROM theirs t LEFT JOIN base b ON b.id = t.id
WHERE b.id IS NULL OR b.torn OR t.new IS DISTINCT FROM b.new
"""
