"""Two values of every type, which a comparison must not take for one."""

import math
from datetime import UTC, date, datetime
from typing import Any

EVERYTHING = """
node Thing {
  name: String @key
  text: String?
  flag: Bool?
  i32: I32?
  i64: I64?
  u32: U32?
  u64: U64?
  f32: F32?
  f64: F64?
  day: Date?
  moment: DateTime?
  words: [String]?
  numbers: [F64]?
  vector: Vector(3)?
  colour: enum(red, green)?
  picture: Blob?
}
"""
VALUES: dict[str, tuple[Any, Any]] = {
    "text": ("a, b", 'a", "b'),
    "flag": (True, False),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (2**53, 2**53 + 1),
    "u32": (0, 2**32 - 1),
    "u64": (2**64 - 1, 2**64 - 2),
    "f32": (0.5, math.inf),
    "f64": (1.0, math.nextafter(1.0, 2.0)),
    "day": (date(2026, 1, 1), date(2026, 1, 2)),
    "moment": (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    "words": (["a, b"], ["a", "b"]),
    "numbers": ([1.0, None], [1.0, math.inf]),
    "vector": ([1.0, 2.0, 3.0], [1.0, 2.0, 4.0]),
    "colour": ("red", "green"),
    "picture": (b"x" * 70_000, b"x" * 69_999 + b"y"),
}
