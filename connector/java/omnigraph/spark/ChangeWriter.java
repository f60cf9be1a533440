package omnigraph.spark;

import java.io.IOException;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;

/**
 * Hands changed rows to the Python writer as they come. Spark pushes rows one by one, Python's writer pulls an
 * iterator: so the writer runs in a thread of its own, and a short queue stands between the two.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class ChangeWriter implements DeltaWriter, Iterator, Runnable {
  private static final int ROWS_WAITING_MAX = 1024;
  private static final long LOOK_AGAIN_MILLIS = 100;
  private static final Object END = new Object();

  private final DataWriter inner;
  private final int[] places;
  private final StructType columns;
  private final TaskContext task = TaskContext.get();
  private final ArrayBlockingQueue queue = new ArrayBlockingQueue(ROWS_WAITING_MAX);
  private final Thread reader = new Thread(this, "omnigraph-change");
  private volatile Throwable problem;
  private volatile boolean isDone;
  private Object next;

  ChangeWriter(DataWriter inner, int[] places, StructType columns) {
    this.inner = inner;
    this.places = places;
    this.columns = columns;
    reader.setDaemon(true);
    reader.start();
  }

  // -- Spark's thread: rows come in -----------------------------------------------------------------

  @Override
  public void delete(Object metadata, Object id) throws IOException {
    put(ChangedRow.of(ChangedRow.DELETE, (InternalRow) id, null, places, columns));
  }

  @Override
  public void update(Object metadata, Object id, Object row) throws IOException {
    put(ChangedRow.of(ChangedRow.PUT, (InternalRow) id, (InternalRow) row, places, columns));
  }

  @Override
  public void reinsert(Object metadata, Object row) throws IOException {
    insert(row);
  }

  @Override
  public void insert(Object row) throws IOException {
    put(ChangedRow.of(ChangedRow.INSERT, null, (InternalRow) row, places, columns));
  }

  @Override
  public void write(Object row) throws IOException {
    insert(row);
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    put(END);
    try {
      reader.join();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new IOException("the task was stopped while its rows were staged", stopped);
    }
    refuseProblem();
    return inner.commit();
  }

  @Override
  public void abort() throws IOException {
    stop();
    inner.abort();
  }

  @Override
  public void close() throws IOException {
    stop();
    inner.close();
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return inner.currentMetricsValues();
  }

  private void put(Object row) throws IOException {
    try {
      while (!queue.offer(row, LOOK_AGAIN_MILLIS, TimeUnit.MILLISECONDS)) {
        refuseProblem();
        if (isDone) {
          throw new IOException("the Python writer ended before all rows were given to it");
        }
      }
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new IOException("the task was stopped while its rows were staged", stopped);
    }
  }

  private void refuseProblem() throws IOException {
    if (problem != null) {
      throw new IOException(problem.getMessage(), problem);
    }
  }

  private void stop() {
    if (!isDone) {
      reader.interrupt();
    }
  }

  // -- the other thread: rows go out ----------------------------------------------------------------

  @Override
  public void run() {
    org.apache.spark.TaskContext$.MODULE$.setTaskContext(task);
    try {
      inner.writeAll(this);
    } catch (Throwable failed) {
      problem = failed;
    } finally {
      isDone = true;
      org.apache.spark.TaskContext$.MODULE$.unset();
    }
  }

  @Override
  public boolean hasNext() {
    if (next == null) {
      try {
        next = queue.take();
      } catch (InterruptedException stopped) {
        throw new IllegalStateException("the task was stopped while its rows were staged");
      }
    }
    return next != END;
  }

  @Override
  public Object next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    Object row = next;
    next = null;
    return row;
  }

  @Override
  public void remove() {
    throw new UnsupportedOperationException();
  }
}
