package omnigraph.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** The way to the Python data source, where all logic is: a question is a set of options, its answer a schema. */
final class Python {
  static final String FORMAT = "omnigraph";
  static final String QUESTION = "_op";

  // "omnigraph.errors.SomeError: [CODE] text": how a traceback ends when the error is one of ours.
  private static final Pattern OURS =
      Pattern.compile(".*omnigraph\\.errors\\.\\w+: (\\[[A-Z_]+\\] .*?)\\s*(?:SQLSTATE: \\w+)?\\s*$", Pattern.DOTALL);

  private Python() {}

  /** A provider of its own for every use: Spark keeps what a scan read inside the provider. */
  static PythonDataSourceV2 provider() {
    PythonDataSourceV2 provider = new PythonDataSourceV2();
    provider.setShortName(FORMAT);
    return provider;
  }

  static CaseInsensitiveStringMap options(Map<String, String> options) {
    return new CaseInsensitiveStringMap(options);
  }

  /** Ask one question; the last column of the answer carries what is no column. */
  static StructType ask(String question, Map<String, String> about) {
    return source(question, about).schema();
  }

  /** Ask one question; return its answer with the source that gave it, which scans can be planned from. */
  static PythonDataSourceCreationResult source(String question, Map<String, String> about) {
    Map<String, String> all = new HashMap<String, String>(about);
    all.put(QUESTION, question);
    PythonDataSourceCreationResult answer;
    try {
      answer = provider().getOrCreateDataSourceInPython(FORMAT, options(all), Option.empty());
    } catch (Throwable failed) {
      throw plain(failed);
    }
    Metadata told = told(answer.schema());
    if (told.contains("error")) {
      throw new IllegalArgumentException(told.getString("error"));
    }
    return answer;
  }

  /** A provider of its own, again, for a scan that goes on from a source that is there. */
  static PythonDataSourceV2 provider(PythonDataSourceCreationResult source) {
    PythonDataSourceV2 provider = new Known(source);
    provider.setShortName(FORMAT);
    return provider;
  }

  private static final class Known extends PythonDataSourceV2 {
    private final PythonDataSourceCreationResult source;

    Known(PythonDataSourceCreationResult source) {
      this.source = source;
    }

    @Override
    public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
        String name, CaseInsensitiveStringMap options, Option<StructType> columns) {
      return source;
    }
  }

  static Metadata told(StructType answer) {
    StructField[] fields = answer.fields();
    return fields[fields.length - 1].metadata();
  }

  static String text(Metadata told, String key) {
    return told.contains(key) ? told.getString(key) : null;
  }

  static String[] names(StructType answer) {
    return texts(told(answer), "names");
  }

  /** Spark can not tell what an empty list is a list of, so an empty one is not told at all. */
  static String[] texts(Metadata told, String key) {
    return told.contains(key) ? told.getStringArray(key) : new String[0];
  }

  /** Our own words out of a page of Java and Python, or the failure as it is. */
  static RuntimeException plain(Throwable failed) {
    for (Throwable each = failed; each != null; each = each.getCause()) {
      Matcher found = OURS.matcher(String.valueOf(each.getMessage()));
      if (found.find()) {
        return new IllegalArgumentException(found.group(1));
      }
    }
    return Python.<RuntimeException>as(failed);
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException as(Throwable failed) throws E {
    throw (E) failed;
  }
}
