package omnigraph.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Whole batches of columns, where Spark would take rows one by one out of what a Python worker sends.
 *
 * <p>To Spark's Python source every read has one column of bytes. They are a stream of Arrow, cut into pieces.
 */
final class ArrowBatches implements PartitionReader<ColumnarBatch> {
  private final Pieces pieces;
  private final BufferAllocator allocator = new RootAllocator();
  private final ArrowStreamReader stream;
  private ColumnarBatch batch;
  private boolean isBroken;

  ArrowBatches(PartitionReader<InternalRow> rows) {
    pieces = new Pieces(rows);
    stream = new ArrowStreamReader(pieces, allocator);
  }

  /** What Python workers are asked for: one column, and beside it what it is to be made of. */
  static StructType pieces(Map<String, String> asked) {
    MetadataBuilder told = new MetadataBuilder();
    for (Object key : asked.keySet().toArray()) {
      told.putString((String) key, (String) asked.get(key));
    }
    Metadata beside = new MetadataBuilder().putMetadata("asked", told.build()).build();
    return new StructType().add("_piece", DataTypes.BinaryType, true, beside);
  }

  @Override
  public boolean next() throws IOException {
    isBroken = true; // until it went well
    boolean isThere = pieces.hasMore() && stream.loadNextBatch();
    if (isThere) {
      VectorSchemaRoot root = stream.getVectorSchemaRoot();
      if (batch == null) {
        batch = new ColumnarBatch(columns(root.getFieldVectors())); // the vectors stay, what is in them changes
      }
      batch.setNumRows(root.getRowCount());
    }
    isBroken = false;
    return isThere;
  }

  private static ColumnVector[] columns(List<?> vectors) {
    ColumnVector[] columns = new ColumnVector[vectors.size()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new ArrowColumnVector((ValueVector) vectors.get(i));
    }
    return columns;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return pieces.rows.currentMetricsValues();
  }

  @Override
  public void close() throws IOException {
    try {
      stream.close(false);
      allocator.close();
    } catch (IllegalStateException leaked) {
      if (!isBroken) { // a read that failed may have left a buffer behind, and its own error is the one to tell
        throw leaked;
      }
    } finally {
      pieces.rows.close();
    }
  }

  /** The bytes of all rows, one after the other. */
  private static final class Pieces implements ReadableByteChannel {
    private final PartitionReader<InternalRow> rows;
    private ByteBuffer piece = ByteBuffer.allocate(0);

    Pieces(PartitionReader<InternalRow> rows) {
      this.rows = rows;
    }

    boolean hasMore() throws IOException {
      while (!piece.hasRemaining()) {
        if (!rows.next()) {
          return false;
        }
        piece = ByteBuffer.wrap(((InternalRow) rows.get()).getBinary(0));
      }
      return true;
    }

    @Override
    public int read(ByteBuffer target) throws IOException {
      if (!hasMore()) {
        return -1;
      }
      int size = Math.min(piece.remaining(), target.remaining());
      target.put(piece.array(), piece.position(), size);
      piece.position(piece.position() + size);
      return size;
    }

    @Override
    public boolean isOpen() {
      return true;
    }

    @Override
    public void close() {}
  }

  /** Makes readers on executors, of the readers that Spark makes for Python sources. */
  static final class Factory implements PartitionReaderFactory {
    private final PartitionReaderFactory inner;

    Factory(PartitionReaderFactory inner) {
      this.inner = inner;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return new ArrowBatches(inner.createReader(partition));
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("a scan of omnigraph gives batches of columns, not rows");
    }
  }
}
