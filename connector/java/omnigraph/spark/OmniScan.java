package omnigraph.spark;

import java.util.OptionalLong;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;

/** A scan that says what it reads, how much that is at most, and nothing of the options it was given. */
final class OmniScan implements SupportsReportStatistics, Batch {
  private final Scan scan;
  private final String what;
  private final StructType columns;
  private final long rows;
  private Batch batch;

  OmniScan(Scan scan, String what, StructType columns, long rows) {
    this.scan = scan;
    this.what = what;
    this.columns = columns;
    this.rows = rows;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return "omnigraph " + what;
  }

  @Override
  public String toString() {
    return description();
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    try {
      return inner().planInputPartitions();
    } catch (Throwable failed) {
      throw Python.plain(failed);
    }
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ArrowBatches.Factory(inner().createReaderFactory());
  }

  private Batch inner() {
    if (batch == null) {
      batch = scan.toBatch();
    }
    return batch;
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return scan.supportedCustomMetrics();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return scan.reportDriverMetrics();
  }

  @Override
  public Scan.ColumnarSupportMode columnarSupportMode() {
    return Scan.ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Statistics estimateStatistics() {
    return new Size(rows, rows * columns.defaultSize());
  }

  private static final class Size implements Statistics {
    private final long rows;
    private final long bytes;

    Size(long rows, long bytes) {
      this.rows = rows;
      this.bytes = bytes;
    }

    @Override
    public OptionalLong sizeInBytes() {
      return OptionalLong.of(bytes);
    }

    @Override
    public OptionalLong numRows() {
      return OptionalLong.of(rows);
    }
  }
}
