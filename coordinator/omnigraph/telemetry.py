"""OpenTelemetry, where it is installed: the only module that imports it.

Spans and numbers go to whatever provider the application has set. Without the package there is no one to tell, and
without a provider OpenTelemetry's own stand-ins take everything and keep nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

Value = str | bool | int | float
NAME: Final = "omnigraph"

COMMITS: Final = "omnigraph.commits"
CONFLICTS: Final = "omnigraph.conflicts"
RETRIES: Final = "omnigraph.retries"
RECOVERIES: Final = "omnigraph.recoveries"
DURATION: Final = "omnigraph.operation.duration"
ROWS: Final = {
    "rows_inserted": "omnigraph.rows.inserted",
    "rows_updated": "omnigraph.rows.updated",
    "rows_deleted": "omnigraph.rows.deleted",
}
COUNTERS: Final = {
    COMMITS: ("{commit}", "Commits that became visible."),
    CONFLICTS: ("{operation}", "Operations that were refused because others had changed something."),
    RETRIES: ("{attempt}", "Attempts to publish that were lost to others and made again."),
    RECOVERIES: ("{promise}", "Promises of dead writers that were kept or given up."),
    ROWS["rows_inserted"]: ("{row}", "Rows that commits inserted."),
    ROWS["rows_updated"]: ("{row}", "Rows that commits updated."),
    ROWS["rows_deleted"]: ("{row}", "Rows that commits deleted."),
}


class Telemetry:
    """A tracer and the instruments; the providers are the application's own unless they are given."""

    def __init__(self, tracers: "TracerProvider | None" = None, meters: "MeterProvider | None" = None) -> None:
        from opentelemetry import context, metrics, trace

        self._context, self._trace = context, trace
        self._tracer = trace.get_tracer(NAME, tracer_provider=tracers)
        meter = metrics.get_meter(NAME, meter_provider=meters)
        self._counters = {name: meter.create_counter(name, *said) for name, said in COUNTERS.items()}
        self._duration = meter.create_histogram(DURATION, "s", "How long operations took.")

    def begin(self, name: str) -> "Span":
        """Begin a span below the current one."""
        return self._tracer.start_span(f"{NAME}.{name}")

    def end(self, span: "Span", facts: Mapping[str, Value], code: str | None = None) -> None:
        """End a span and say what is known; ``code`` is that of what went wrong, and never its message."""
        if span.is_recording():
            span.set_attributes({f"{NAME}.{name}": value for name, value in facts.items()})
            if code is not None:
                span.set_attribute("error.type", code)
                span.set_status(self._trace.StatusCode.ERROR, code)
        span.end()

    @contextmanager
    def inside(self, span: "Span") -> Iterator[None]:
        """Let spans that are begun in the block be below this one; one that nobody records is not worth it."""
        if not span.get_span_context().is_valid:
            yield
            return
        token = self._context.attach(self._trace.set_span_in_context(span))
        try:
            yield
        finally:
            self._context.detach(token)

    @contextmanager
    def part(self, name: str, facts: Mapping[str, Value]) -> Iterator[None]:
        """Let the block be a span below the current one."""
        span, code = self.begin(name), None
        try:
            with self.inside(span):
                yield
        except BaseException as error:
            code = code_of(error)
            raise
        finally:
            self.end(span, facts, code)

    def count(self, name: str, number: int, attributes: Mapping[str, Value]) -> None:
        """Add to a counter."""
        self._counters[name].add(number, attributes)

    def took(self, seconds: float, attributes: Mapping[str, Value]) -> None:
        """Say how long an operation took."""
        self._duration.record(seconds, attributes)


def code_of(error: BaseException) -> str:
    """Return what an error is called where its message is not told."""
    return error.code if isinstance(error, OmnigraphError) else type(error).__name__


@cache
def telemetry() -> Telemetry | None:
    """Return the way to OpenTelemetry, or None if it is not installed; looked for once."""
    try:
        return Telemetry()
    except ImportError:
        return None
