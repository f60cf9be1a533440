package omnigraph.spark;

import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One node or edge type at one commit; an older one can be read only. */
final class OmniTable extends PythonTable
    implements SupportsDeleteV2, SupportsRowLevelOperations, SupportsMetadataColumns {
  static final String ROW_ID = "_id";

  private final Place place;
  private final StructType columns;

  OmniTable(Place place, StructType columns) {
    super(Python.provider(), Python.FORMAT, columns);
    this.place = place;
    this.columns = columns;
  }

  @Override
  public String name() {
    return place.name();
  }

  @Override
  public String toString() {
    return place.name();
  }

  @Override
  public Map<String, String> properties() {
    return place.properties;
  }

  // With an identity and a version Spark 4.1 and later notices that a table changed under a data frame.
  public String id() {
    return place.name();
  }

  public String version() {
    return place.version();
  }

  @Override
  public Set<TableCapability> capabilities() {
    // Not ACCEPT_ANY_SCHEMA: Spark then fits rows to the columns, by its own rules.
    EnumSet<TableCapability> all = EnumSet.of(TableCapability.BATCH_READ);
    if (!place.isPast) {
      all.add(TableCapability.BATCH_WRITE);
      all.add(TableCapability.TRUNCATE);
    }
    return all;
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    return new MetadataColumn[] {new RowId()};
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new OmniScanBuilder(place, columns, options);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new OmniWriteBuilder(place.name(), Writes.with(info, info.schema(), place.writing(info.options())));
  }

  @Override
  public boolean canDeleteWhere(Predicate[] predicates) {
    List<Predicate> asked = Filters.withoutTrue(predicates);
    boolean all = !place.isPast && Filters.isWithinBounds(asked);
    Filters filters = place.filters(columns);
    for (Object each : asked) {
      all = all && filters.isExact((Predicate) each);
    }
    return all;
  }

  @Override
  public void deleteWhere(Predicate[] predicates) {
    place.ask("delete", "_filter", Filters.json(Filters.withoutTrue(predicates)));
  }

  @Override
  public boolean truncateTable() {
    deleteWhere(new Predicate[0]);
    return true;
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    if (place.isPast) {
      throw new UnsupportedOperationException(
          "[INVALID_OPTION] " + place.name() + " at a version can only be read; change the branch as it is now");
    }
    return new Change(place, columns, info.command());
  }

  /** The id of a row, known before a change: the column itself may be left empty by who inserts. */
  private static final class RowId implements MetadataColumn {
    @Override
    public String name() {
      return ROW_ID;
    }

    @Override
    public DataType dataType() {
      return DataTypes.StringType;
    }

    @Override
    public boolean isNullable() {
      return false;
    }

    @Override
    public String comment() {
      return "the id of the row";
    }
  }
}
