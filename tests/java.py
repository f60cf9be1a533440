"""How Java runs in tests."""

from typing import Final

FOR_MINUTES: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What a Java that does little and lives for minutes should do without: the second compiler, threads for garbage."""
