package omnigraph.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One type at one commit: where it is read and written, and nothing that may not be shown. */
final class Place {
  private final OmniCatalog catalog;
  private final String branch;
  private final String type;
  private final PythonDataSourceCreationResult source;
  private final String commit;
  private final String version;
  private final String[] exact;
  private final String[] floats;
  final long rows;
  final boolean isPast;
  final Map<String, String> properties = new HashMap<String, String>();

  Place(OmniCatalog catalog, String branch, String type, PythonDataSourceCreationResult source, boolean isPast) {
    Metadata told = Python.told(source.schema());
    this.source = source;
    this.catalog = catalog;
    this.branch = branch;
    this.type = type;
    this.commit = told.getString("commit");
    this.version = told.getString("version");
    this.rows = Long.parseLong(told.getString("rows"));
    this.exact = Python.texts(told, "exact");
    this.floats = Python.texts(told, "floats");
    this.isPast = isPast;
    properties.put("omnigraph.table", told.getString("table"));
    properties.put("omnigraph.commit", commit);
    properties.put("omnigraph.version", version);
    properties.put("omnigraph.rows", told.getString("rows"));
  }

  String name() {
    return catalog.name() + "." + quoted(branch) + "." + type;
  }

  String version() {
    return version;
  }

  Filters filters(StructType columns) {
    return new Filters(columns, exact, floats);
  }

  /** What a scan is told beside what its source knows: that is this commit, whatever the branch is by now. */
  Map<String, String> reading(CaseInsensitiveStringMap given) {
    refuse(given, "filter", "WHERE");
    refuse(given, "columns", "SELECT");
    return with(new HashMap<String, String>(), given);
  }

  /** The source that a scan is planned from. */
  PythonDataSourceV2 source() {
    return Python.provider(source);
  }

  Map<String, String> writing(CaseInsensitiveStringMap given) {
    return with(catalog.about(branch, type), given);
  }

  /** What a row-level change is told: the branch it goes to, and the commit its rows were read from. */
  Map<String, String> changing(CaseInsensitiveStringMap given) {
    Map<String, String> all = writing(given);
    all.put(Python.QUESTION, "change");
    all.put("_base", commit);
    return all;
  }

  void ask(String question, String key, String value) {
    Map<String, String> about = catalog.about(branch, type);
    about.put("_base", commit);
    about.put(key, value);
    Python.ask(question, about);
  }

  private static void refuse(CaseInsensitiveStringMap given, String option, String instead) {
    if (given.containsKey(option)) {
      throw new IllegalArgumentException(
          "[INVALID_OPTION] option '" + option + "' is for reads without SQL; write " + instead);
    }
  }

  private static Map<String, String> with(Map<String, String> all, CaseInsensitiveStringMap given) {
    Map<String, String> theirs = given.asCaseSensitiveMap();
    for (Object key : theirs.keySet().toArray()) {
      String name = (String) key;
      // Spark has travelled in time already, and leaves the words behind.
      if (!name.equalsIgnoreCase("versionAsOf") && !name.equalsIgnoreCase("timestampAsOf")) {
        all.put(name, (String) theirs.get(key));
      }
    }
    return all;
  }

  private static String quoted(String name) {
    return name.matches("\\w+") ? name : "`" + name.replace("`", "``") + "`";
  }
}
