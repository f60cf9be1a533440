package omnigraph.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder;

/** INSERT INTO and INSERT OVERWRITE: Spark's own way into the Python writer, with errors in our words. */
final class OmniWriteBuilder implements WriteBuilder, SupportsTruncate {
  private final String name;
  private WriteBuilder inner;

  OmniWriteBuilder(String name, LogicalWriteInfo info) {
    this.name = name;
    this.inner = new PythonWriteBuilder(Python.provider(), Python.FORMAT, info);
  }

  @Override
  public WriteBuilder truncate() {
    inner = ((SupportsTruncate) inner).truncate();
    return this;
  }

  @Override
  public Write build() {
    return new Named(name, inner.build());
  }

  private static final class Named implements Write {
    private final String name;
    private final Write inner;

    Named(String name, Write inner) {
      this.name = name;
      this.inner = inner;
    }

    @Override
    public String description() {
      return "omnigraph " + name;
    }

    @Override
    public String toString() {
      return description();
    }

    @Override
    public BatchWrite toBatch() {
      return new PlainWrite(inner.toBatch());
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return inner.supportedCustomMetrics();
    }
  }

  /** A write whose failures are told in our words. */
  private static final class PlainWrite implements BatchWrite {
    private final BatchWrite inner;

    PlainWrite(BatchWrite inner) {
      this.inner = inner;
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      try {
        return inner.createBatchWriterFactory(info);
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
}
