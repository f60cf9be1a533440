package omnigraph.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** DELETE, UPDATE and MERGE INTO as the rows that go and the rows that come, never as a whole table. */
final class Change implements RowLevelOperationBuilder, SupportsDelta {
  static final String MARK = "_change";

  private final Place place;
  private final StructType columns;
  private final RowLevelOperation.Command command;

  Change(Place place, StructType columns, RowLevelOperation.Command command) {
    this.place = place;
    this.columns = columns;
    this.command = command;
  }

  @Override
  public RowLevelOperation build() {
    return this;
  }

  @Override
  public String description() {
    return "omnigraph " + command + " " + place.name();
  }

  @Override
  public RowLevelOperation.Command command() {
    return command;
  }

  @Override
  public NamedReference[] rowId() {
    return new NamedReference[] {Expressions.column(OmniTable.ROW_ID)};
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new OmniScanBuilder(place, columns, options);
  }

  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    // To Python go: what to do, the id a row had, and the row as it becomes; of a row that goes only the first two.
    StructType sent = new StructType()
        .add(MARK, DataTypes.StringType, false)
        .add(OmniTable.ROW_ID, DataTypes.StringType, true);
    StructType rows = Writes.plain(columns);
    for (int i = 0; i < rows.fields().length; i++) {
      sent = sent.add(rows.fields()[i]);
    }
    LogicalWriteInfo told = Writes.with(info, sent, place.changing(info.options()));
    StructType given = info.schema();
    return new Building(description(), new PythonWriteBuilder(Python.provider(), Python.FORMAT, told).build(),
        ChangedRow.places(columns, given), columns, given);
  }

  private static final class Building implements DeltaWriteBuilder, DeltaWrite {
    private final String description;
    private final Write inner;
    private final int[] places;
    private final StructType columns;
    private final StructType given;

    Building(String description, Write inner, int[] places, StructType columns, StructType given) {
      this.description = description;
      this.inner = inner;
      this.places = places;
      this.columns = columns;
      this.given = given;
    }

    @Override
    public DeltaWrite build() {
      return this;
    }

    @Override
    public String description() {
      return description;
    }

    @Override
    public String toString() {
      return description;
    }

    @Override
    public DeltaBatchWrite toBatch() {
      return new Batched(inner.toBatch(), places, columns);
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return inner.supportedCustomMetrics();
    }
  }

  private static final class Batched implements DeltaBatchWrite {
    private final BatchWrite inner;
    private final int[] places;
    private final StructType columns;

    Batched(BatchWrite inner, int[] places, StructType columns) {
      this.inner = inner;
      this.places = places;
      this.columns = columns;
    }

    @Override
    public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      try {
        return new Factory(inner.createBatchWriterFactory(info), places, columns);
      } catch (Throwable failed) {
        throw Python.plain(failed);
      }
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      try {
        inner.commit(messages);
      } catch (Throwable failed) {
        throw Python.plain(failed);
      }
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      inner.abort(messages);
    }
  }

  private static final class Factory implements DeltaWriterFactory {
    private final DataWriterFactory inner;
    private final int[] places;
    private final StructType columns;

    Factory(DataWriterFactory inner, int[] places, StructType columns) {
      this.inner = inner;
      this.places = places;
      this.columns = columns;
    }

    @Override
    @SuppressWarnings("unchecked")
    public DeltaWriter<InternalRow> createWriter(int partition, long task) {
      return (DeltaWriter<InternalRow>) new ChangeWriter(inner.createWriter(partition, task), places, columns);
    }
  }
}
