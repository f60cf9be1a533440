package omnigraph.spark;

import java.util.Map;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What writes share. */
final class Writes {
  private Writes() {}

  static LogicalWriteInfo with(LogicalWriteInfo info, StructType schema, Map<String, String> options) {
    return new Told(info.queryId(), schema, Python.options(options));
  }

  /** Names and types only: Python is asked for no more, and would be held to it. */
  static StructType plain(StructType schema) {
    StructField[] fields = schema.fields();
    StructField[] loose = new StructField[fields.length];
    for (int i = 0; i < fields.length; i++) {
      loose[i] = new StructField(fields[i].name(), fields[i].dataType(), true, Metadata.empty());
    }
    return new StructType(loose);
  }

  private static final class Told implements LogicalWriteInfo {
    private final String query;
    private final StructType schema;
    private final CaseInsensitiveStringMap options;

    Told(String query, StructType schema, CaseInsensitiveStringMap options) {
      this.query = query;
      this.schema = schema;
      this.options = options;
    }

    @Override
    public CaseInsensitiveStringMap options() {
      return options;
    }

    @Override
    public String queryId() {
      return query;
    }

    @Override
    public StructType schema() {
      return schema;
    }
  }
}
