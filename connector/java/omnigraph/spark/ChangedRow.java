package omnigraph.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** A row of a change as Python gets it: the mark, the id it had, its columns. */
final class ChangedRow {
  static final UTF8String DELETE = UTF8String.fromString("delete");
  static final UTF8String PUT = UTF8String.fromString("put");
  static final UTF8String INSERT = UTF8String.fromString("insert");
  private static final int AHEAD = 2;

  private ChangedRow() {}

  /** Where each column stands in the rows Spark gives; nowhere is -1. */
  static int[] places(StructType columns, StructType given) {
    int[] places = new int[columns.fields().length];
    for (int i = 0; i < places.length; i++) {
      places[i] = -1;
      for (int j = 0; j < given.fields().length; j++) {
        if (given.fields()[j].name().equals(columns.fields()[i].name())) {
          places[i] = j;
        }
      }
    }
    return places;
  }

  static InternalRow of(UTF8String mark, InternalRow id, InternalRow row, int[] places, StructType columns) {
    Object[] values = new Object[places.length + AHEAD];
    values[0] = mark;
    // Spark reuses its rows, and who reads this one is another thread.
    values[1] = id == null ? null : id.getUTF8String(0).clone();
    if (row != null) {
      InternalRow kept = row.copy();
      for (int i = 0; i < places.length; i++) {
        if (places[i] >= 0 && !kept.isNullAt(places[i])) {
          values[i + AHEAD] = kept.get(places[i], columns.fields()[i].dataType());
        }
      }
    }
    return new GenericInternalRow(values);
  }
}
