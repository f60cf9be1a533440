package omnigraph.spark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A graph in SQL: namespaces are its branches, tables its node and edge types. */
public class OmniCatalog implements TableCatalog, SupportsNamespaces {
  private static final String ROOT = "root";
  private static final String BRANCH = "branch";
  private static final String TYPES_COME_FROM_THE_SCHEMA =
      "[INVALID_OPTION] %s: the types of a graph are those of its schema; change the schema instead";

  private String name;
  private Map<String, String> conf;
  private String defaultBranch;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    if (options.get(ROOT) == null) {
      throw new IllegalArgumentException(
          "[INVALID_OPTION] catalog " + name + " does not say where its graph is; set spark.sql.catalog." + name + ".root");
    }
    conf = new HashMap<String, String>(options.asCaseSensitiveMap());
    String root = take(ROOT);
    String branch = take(BRANCH);
    conf.put("path", root);
    defaultBranch = branch == null ? "main" : branch;
  }

  /** Take a setting out of the configuration, however its name is written. */
  private String take(String wanted) {
    String found = null;
    for (Object key : conf.keySet().toArray()) {
      if (((String) key).equalsIgnoreCase(wanted)) {
        found = (String) conf.remove(key);
      }
    }
    return found;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String[] defaultNamespace() {
    return new String[] {defaultBranch};
  }

  Map<String, String> about(String branch) {
    Map<String, String> all = new HashMap<String, String>(conf);
    all.put(BRANCH, branch);
    return all;
  }

  Map<String, String> about(String branch, String type) {
    Map<String, String> all = about(branch);
    all.put("type", type);
    return all;
  }

  // -- tables ---------------------------------------------------------------------------------------

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    String branch = existing(namespace);
    String[] types = Python.names(Python.ask("list_tables", about(branch)));
    Identifier[] found = new Identifier[types.length];
    for (int i = 0; i < types.length; i++) {
      found[i] = Identifier.of(new String[] {branch}, types[i]);
    }
    return found;
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    return load(table, null, null);
  }

  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    return load(table, "_version", version);
  }

  @Override
  public Table loadTable(Identifier table, long micros) throws NoSuchTableException {
    return load(table, "_micros", Long.toString(micros));
  }

  private Table load(Identifier table, String travel, String to) throws NoSuchTableException {
    if (table.namespace().length != 1) {
      throw new NoSuchTableException(table);
    }
    Map<String, String> about = about(table.namespace()[0], table.name());
    if (travel != null) {
      about.put(travel, to);
    }
    PythonDataSourceCreationResult source = Python.source("load_table", about);
    StructType answer = source.schema();
    Metadata told = Python.told(answer);
    if (told.contains("missing")) {
      throw new NoSuchTableException(table);
    }
    Object[] columns = Arrays.copyOf(answer.fields(), answer.fields().length - 1);
    Place place = new Place(this, table.namespace()[0], table.name(), source, travel != null);
    return new OmniTable(place, new StructType((org.apache.spark.sql.types.StructField[]) columns));
  }

  @Override
  public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties) {
    throw new UnsupportedOperationException(String.format(TYPES_COME_FROM_THE_SCHEMA, new Object[] {"CREATE TABLE"}));
  }

  @Override
  public Table createTable(Identifier table, StructType schema, Transform[] partitions, Map<String, String> properties) {
    throw new UnsupportedOperationException(String.format(TYPES_COME_FROM_THE_SCHEMA, new Object[] {"CREATE TABLE"}));
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) {
    throw new UnsupportedOperationException(String.format(TYPES_COME_FROM_THE_SCHEMA, new Object[] {"ALTER TABLE"}));
  }

  @Override
  public boolean dropTable(Identifier table) {
    throw new UnsupportedOperationException(String.format(TYPES_COME_FROM_THE_SCHEMA, new Object[] {"DROP TABLE"}));
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw new UnsupportedOperationException(String.format(TYPES_COME_FROM_THE_SCHEMA, new Object[] {"RENAME TABLE"}));
  }

  // -- branches -------------------------------------------------------------------------------------

  @Override
  public String[][] listNamespaces() {
    String[] branches = Python.names(Python.ask("list_branches", conf));
    String[][] found = new String[branches.length][];
    for (int i = 0; i < branches.length; i++) {
      found[i] = new String[] {branches[i]};
    }
    return found;
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) {
      return listNamespaces();
    }
    existing(namespace);
    return new String[0][];
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 1 && describe(namespace[0]) != null;
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    StructType answer = describe(existing(namespace));
    Map<String, String> told = new HashMap<String, String>();
    for (String key : new String[] {"comment", "location", "head", "version"}) {
      String value = Python.text(Python.told(answer), key);
      if (value != null) {
        told.put(key, value);
      }
    }
    return told;
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties)
      throws NamespaceAlreadyExistsException {
    Map<String, String> about = about(one(namespace));
    if (describe(namespace[0]) != null) {
      throw new NamespaceAlreadyExistsException(namespace);
    }
    for (Object key : properties.keySet().toArray()) {
      if (!"owner".equals(key)) {
        about.put("_property." + key, (String) properties.get(key));
      }
    }
    Python.ask("create_branch", about);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw new UnsupportedOperationException("[INVALID_OPTION] ALTER NAMESPACE: a branch has no properties to change");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) throws NoSuchNamespaceException {
    Map<String, String> about = about(existing(namespace));
    about.put("_cascade", Boolean.toString(cascade));
    Python.ask("drop_branch", about);
    return true;
  }

  private StructType describe(String branch) {
    StructType answer = Python.ask("describe_branch", about(branch));
    return Python.told(answer).contains("missing") ? null : answer;
  }

  private String existing(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) {
      return defaultBranch;
    }
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return namespace[0];
  }

  private String one(String[] namespace) {
    if (namespace.length != 1) {
      throw new IllegalArgumentException(
          "[INVALID_NAME] " + String.join(".", namespace) + " is several names; put a branch's whole name in one pair of backquotes");
    }
    return namespace[0];
  }
}
