package omnigraph.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Takes columns, filters and a limit from Spark, and hands them to a scan of its own as options. */
final class OmniScanBuilder
    implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit {
  private final Place place;
  private final StructType table;
  private final CaseInsensitiveStringMap options;
  private final Filters filters;
  private StructType columns;
  private final List<Predicate> pushed = new ArrayList<Predicate>();
  private int limit = -1;

  OmniScanBuilder(Place place, StructType columns, CaseInsensitiveStringMap options) {
    this.place = place;
    this.table = columns;
    this.columns = columns;
    this.options = options;
    this.filters = place.filters(columns);
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    List<Predicate> again = new ArrayList<Predicate>();
    for (int i = 0; i < predicates.length; i++) {
      boolean isExact = filters.isExact(predicates[i]);
      if (!isExact) {
        again.add(predicates[i]);
      }
      if (isExact || filters.isWeak(predicates[i])) {
        pushed.add(predicates[i]);
      }
    }
    if (!Filters.isWithinBounds(pushed)) {
      pushed.clear();
      return predicates;
    }
    return (Predicate[]) again.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return (Predicate[]) pushed.toArray(new Predicate[0]);
  }

  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true; // every task stops there, so Spark has to stop once more
  }

  @Override
  public Scan build() {
    // Without a column there are no rows to count: on Spark 4.0 an empty batch loses them.
    StructType read = columns.fields().length > 0 ? columns : cheapest();
    Map<String, String> all = place.reading(options);
    all.put("_filter", Filters.json(pushed));
    all.put("_read", Writes.plain(read).json());
    all.put("_parallelism", Integer.toString(SparkContext.getOrCreate().defaultParallelism()));
    if (limit >= 0) {
      all.put("_limit", Integer.toString(limit));
    }
    Scan scan = new PythonScanBuilder(place.source(), Python.FORMAT, ArrowBatches.pieces(all), options).build();
    String what = place.name() + " version " + place.version() + Filters.shown(pushed) + (limit < 0 ? "" : ", limit " + limit);
    return new OmniScan(scan, what, read, place.rows);
  }

  private StructType cheapest() {
    return new StructType(new org.apache.spark.sql.types.StructField[] {table.fields()[0]});
  }
}
