package omnigraph.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.AlwaysFalse;
import org.apache.spark.sql.connector.expressions.filter.AlwaysTrue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Which filters mean the same to Spark and to Lance, and those as a tree that Python reads. Values travel as values:
 * nothing is ever made into SQL text. What is not surely the same stays with Spark.
 */
final class Filters {
  private static final int TESTS_MAX = 32;
  private static final int DEPTH_MAX = 6;
  private static final int VALUES_MAX = 1024;
  private static final Set<String> COMPARISONS = new HashSet<String>(Arrays.asList("=", "<=>", "<>", "<", "<=", ">", ">="));
  private static final Set<String> RANGES = new HashSet<String>(Arrays.asList("=", "<", "<=", ">", ">="));

  private final StructType columns;
  private final Set<String> exact;
  private final Set<String> floats;

  /** Columns whose values compare alike in both, and columns of floats, which do but for NaN and zeros. */
  Filters(StructType columns, String[] exact, String[] floats) {
    this.columns = columns;
    this.exact = new HashSet<String>(Arrays.asList(exact));
    this.floats = new HashSet<String>(Arrays.asList(floats));
  }

  /** A filter that Lance answers as Spark would, so that Spark need not look again. */
  boolean isExact(Predicate predicate) {
    String name = predicate.name();
    Expression[] parts = predicate.children();
    if (predicate instanceof AlwaysTrue || predicate instanceof AlwaysFalse) {
      return false;
    }
    if (name.equals("AND") || name.equals("OR") || name.equals("NOT")) {
      boolean all = parts.length > 0;
      for (int i = 0; i < parts.length; i++) {
        all = all && parts[i] instanceof Predicate && isExact((Predicate) parts[i]);
      }
      return all;
    }
    return isTest(name, parts, exact);
  }

  /** A filter on floats of which Lance finds every row, and perhaps some more: Spark has to look again. */
  boolean isWeak(Predicate predicate) {
    Expression[] parts = predicate.children();
    if (!RANGES.contains(predicate.name()) || !isTest(predicate.name(), parts, floats)) {
      return false;
    }
    Object value = ((Literal) parts[1]).value();
    return !Double.isNaN(((Number) value).doubleValue());
  }

  private boolean isTest(String name, Expression[] parts, Set<String> among) {
    if (parts.length == 0 || !(parts[0] instanceof NamedReference)) {
      return false;
    }
    String[] path = ((NamedReference) parts[0]).fieldNames();
    if (path.length != 1 || !among.contains(path[0])) {
      return false;
    }
    DataType type = columns.apply(path[0]).dataType();
    if (name.equals("IS_NULL") || name.equals("IS_NOT_NULL")) {
      return parts.length == 1;
    }
    if (name.equals("IN")) {
      return parts.length > 1 && parts.length <= VALUES_MAX && areValues(parts, type);
    }
    boolean isText = (name.equals("STARTS_WITH") || name.equals("CONTAINS")) && type.equals(DataTypes.StringType);
    return parts.length == 2 && (isText || COMPARISONS.contains(name)) && areValues(parts, type);
  }

  private static boolean areValues(Expression[] parts, DataType type) {
    boolean all = true;
    for (int i = 1; i < parts.length; i++) {
      all = all && parts[i] instanceof Literal && isValue((Literal) parts[i], type);
    }
    return all;
  }

  private static boolean isValue(Literal literal, DataType type) {
    return literal.value() != null && literal.dataType().equals(type);
  }

  /** The filters that leave something out: a DELETE without a condition comes with one that is always true. */
  static List<Predicate> withoutTrue(Predicate[] predicates) {
    List<Predicate> asked = new ArrayList<Predicate>();
    for (int i = 0; i < predicates.length; i++) {
      if (!(predicates[i] instanceof AlwaysTrue)) {
        asked.add(predicates[i]);
      }
    }
    return asked;
  }

  // -- bounds: what Lance spends on planning grows with the square of the tests and with every level -----------

  static boolean isWithinBounds(List<Predicate> predicates) {
    int tests = 0;
    int depth = 0;
    for (Object each : predicates) {
      tests += tests((Predicate) each);
      depth = Math.max(depth, depth((Predicate) each, "AND"));
    }
    return tests <= TESTS_MAX && depth <= DEPTH_MAX;
  }

  private static int tests(Predicate predicate) {
    int count = 0;
    Expression[] parts = predicate.children();
    for (int i = 0; i < parts.length; i++) {
      count += parts[i] instanceof Predicate ? tests((Predicate) parts[i]) : 0;
    }
    return Math.max(1, count);
  }

  private static int depth(Predicate predicate, String above) {
    int deepest = 0;
    Expression[] parts = predicate.children();
    for (int i = 0; i < parts.length; i++) {
      if (parts[i] instanceof Predicate) {
        deepest = Math.max(deepest, depth((Predicate) parts[i], predicate.name()));
      }
    }
    return predicate.name().equals(above) ? deepest : deepest + 1;
  }

  // -- the tree -------------------------------------------------------------------------------------

  static String json(List<Predicate> predicates) {
    ArrayNode all = node("AND");
    for (Object each : predicates) {
      all.add(tree((Predicate) each));
    }
    return all.toString();
  }

  private static ArrayNode tree(Predicate predicate) {
    ArrayNode node = node(predicate.name());
    Expression[] parts = predicate.children();
    for (int i = 0; i < parts.length; i++) {
      if (parts[i] instanceof Predicate) {
        node.add(tree((Predicate) parts[i]));
      } else if (parts[i] instanceof NamedReference) {
        node.add(((NamedReference) parts[i]).fieldNames()[0]);
      } else {
        addValue(node, (Literal) parts[i]);
      }
    }
    return node;
  }

  private static ArrayNode node(String name) {
    return JsonNodeFactory.instance.arrayNode().add(name);
  }

  /** Days since 1970 for a date, microseconds since then for a moment: as Spark holds them. */
  private static void addValue(ArrayNode node, Literal literal) {
    Object value = literal.value();
    DataType type = literal.dataType();
    if (type instanceof BooleanType) {
      node.add(((Boolean) value).booleanValue());
    } else if (value instanceof Float || value instanceof Double) {
      node.add(((Number) value).doubleValue());
    } else if (value instanceof Number) {
      node.add(((Number) value).longValue());
    } else {
      node.add(value.toString());
    }
  }

  /** What a plan shows. */
  static String shown(List<Predicate> predicates) {
    return predicates.isEmpty() ? "" : ", filter " + json(predicates);
  }
}
