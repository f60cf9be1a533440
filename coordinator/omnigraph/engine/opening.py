"""Where a graph is put together: create one, or open one. Lance is imported here, and not before."""

import json
from collections.abc import Mapping
from os import PathLike

from omnigraph.engine.graph import Graph
from omnigraph.engine.migrations import migrate
from omnigraph.engine.publisher import Publisher
from omnigraph.engine.schemas import schema_text
from omnigraph.engine.session import Session
from omnigraph.errors import GraphExistsError, GraphNotFoundError, OutdatedFormatError, StorageError
from omnigraph.ids import CommitId, Incarnation, Sources
from omnigraph.model.catalog import Catalog
from omnigraph.model.lineage import FIRST_VERSION, MAIN, Commit
from omnigraph.model.manifest import SchemaRow, TableRow
from omnigraph.observing import observed
from omnigraph.rules.refs import Stamp, genesis
from omnigraph.rules.schema_compile import FreshIds, compile_schema
from omnigraph.rules.who import check_actor
from omnigraph.storage.audit import Audit
from omnigraph.storage.intents import Intents
from omnigraph.storage.lance_door import SwapLostError, SwappedRows, SwapUncertainError, Tables
from omnigraph.storage.lance_indexing import Indexes
from omnigraph.storage.layout import AUDIT, MANIFEST, table_location
from omnigraph.storage.manifest import Manifest, Reading
from omnigraph.storage.objects import open_objects
from omnigraph.storage.probe import refuse_unsafe_store
from omnigraph.storage.roots import GraphRoot
from omnigraph.storage.shared import SharedTransactions
from omnigraph.storage.sidecars import Sidecars
from omnigraph.storage.staging import Staging
from omnigraph.storage.turns import Shelf


def create_graph(
    root: "str | PathLike[str]",
    schema: "str | PathLike[str]",
    *,
    storage_options: Mapping[str, str] | None,
    actor: str | None,
    sources: Sources,
) -> Graph:
    """Create a graph in one atomic commit; of several that try at once, one wins."""
    place = GraphRoot.parse(root, storage_options)
    with observed("init", place, MAIN) as seen:
        graph, first = _created(place, schema, check_actor(actor), sources)
        seen.landed(first.id, first.version)
        return graph


def _created(
    place: GraphRoot, schema: "str | PathLike[str]", actor: str | None, sources: Sources
) -> tuple[Graph, Commit]:
    source = schema_text(schema)
    stamp = Stamp(actor=actor, at=sources.now())
    catalog = compile_schema(source, FreshIds(sources.mint))
    objects = open_objects(place)
    manifest = Manifest(SwappedRows(place.uri(MANIFEST), place.options), objects, Shelf(str(place)))
    if manifest.exists():
        raise GraphExistsError(f"{place} holds a graph already; open it, or choose another place", root=str(place))
    refuse_unsafe_store(objects, sources.mint)
    first = _genesis_commit(catalog, stamp, sources)
    accepted = SchemaRow(hash=catalog.hash, source=source, catalog=json.dumps(catalog.to_json(), ensure_ascii=False))
    try:
        reading = manifest.create(genesis(first), accepted, _table_rows(catalog, stamp))
    except (SwapLostError, SwapUncertainError, StorageError) as unsure:
        reading = _whose_genesis(manifest, first, place, unsure)
    return _graph(place, manifest, sources, stamp.actor, reading=reading, read_only=False), first


def open_graph(
    root: "str | PathLike[str]",
    *,
    storage_options: Mapping[str, str] | None,
    actor: str | None,
    read_only: bool,
    sources: Sources,
) -> Graph:
    """Open a graph; read-only, nothing is written, not even what would bring it up to date."""
    who = check_actor(actor)
    place = GraphRoot.parse(root, storage_options)
    manifest = Manifest(SwappedRows(place.uri(MANIFEST), place.options), open_objects(place), Shelf(str(place)))
    try:
        reading = manifest.read() if read_only else _read_migrated(manifest)
    except GraphNotFoundError:
        raise GraphNotFoundError(
            f"there is no graph at {place}; create one with omnigraph.init", root=str(place)
        ) from None
    graph = _graph(place, manifest, sources, who, reading=reading, read_only=read_only)
    return graph if read_only else _healed(graph)


def _healed(graph: Graph) -> Graph:
    graph.healed = tuple(graph.heal())
    return graph


def _read_migrated(manifest: Manifest) -> Reading:
    try:
        return manifest.read()
    except OutdatedFormatError:
        migrate(manifest)
        return manifest.read()


def _graph(
    place: GraphRoot, manifest: Manifest, sources: Sources, actor: str | None, *, reading: Reading, read_only: bool
) -> Graph:
    objects = open_objects(place)
    session = Session(
        root=place,
        manifest=manifest,
        publisher=Publisher(manifest, sources, reading),
        tables=Tables(place.options),
        staging=Staging(place.options),
        indexes=Indexes(place.options),
        sidecars=Sidecars(objects),
        intents=Intents(objects),
        shared=SharedTransactions(objects),
        audit=Audit(SwappedRows(place.uri(AUDIT), place.options), objects, AUDIT),
        objects=objects,
        sources=sources,
        shelf=manifest.shelf,
        actor=actor,
        read_only=read_only,
    )
    return Graph(session)


def _genesis_commit(catalog: Catalog, stamp: Stamp, sources: Sources) -> Commit:
    return Commit(
        id=CommitId(sources.mint()),
        branch=MAIN,
        incarnation=Incarnation(sources.mint()),
        version=FIRST_VERSION,
        parents=(),
        actor=stamp.actor,
        operation="init",
        message=None,
        created_at=stamp.at,
        schema_hash=catalog.hash,
        lineage=(),
        pins={},
    )


def _table_rows(catalog: Catalog, stamp: Stamp) -> list[TableRow]:
    kinds = (*catalog.nodes, *catalog.edges)
    return [
        TableRow(
            id=kind.table_id,
            key=str(kind.table),
            location=table_location(kind.table.kind, kind.table_id),
            created_at=stamp.at,
        )
        for kind in kinds
    ]


def _whose_genesis(manifest: Manifest, first: Commit, place: GraphRoot, unsure: Exception) -> Reading:
    """Find out who created the graph when our own attempt was lost or left unanswered."""
    try:
        reading = manifest.read()
    except GraphNotFoundError:
        raise StorageError(f"the graph could not be created at {place}: {unsure}", root=str(place)) from None
    if manifest.commit(reading, first.id) is None:
        raise GraphExistsError(f"someone else has just created a graph at {place}", root=str(place)) from None
    return reading
