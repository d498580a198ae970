"""Java that writes a plan as JSON in one call (with ``fieldName`` of its version); Spark compiles it with the compiler it brings (Janino).

Asking for a plan field by field takes a call over the socket each, thousands for a query. ``TreeNode.toJSON`` is one call, too,
but leaves out eval modes, projections, files and inner types; so every field of every node is written here, by its Scala name.
"""

SOURCE = r"""
public final java.util.ArrayList plans = new java.util.ArrayList();
private final StringBuilder out = new StringBuilder();

public String read(Object plan) {
    out.setLength(0);
    value(plan);
    return out.toString();
}

public String output(int number) {
    return read(((org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) plans.get(number)).output());
}

/** The zone's name, and from 1900 to 2100 [second, offset from then on]. */
public String zone(String id) {
    java.time.ZoneId zone = org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(id);
    java.time.zone.ZoneRules rules = zone.getRules();
    java.time.Instant at = java.time.Instant.parse("1900-01-01T00:00:00Z");
    java.time.Instant end = java.time.Instant.parse("2100-01-01T00:00:00Z");
    out.setLength(0);
    out.append("{\"name\":");
    text(zone.getId());
    out.append(",\"fixed\":").append(rules.isFixedOffset());
    out.append(",\"offsets\":[");
    while (at.isBefore(end)) {
        out.append('[').append(at.getEpochSecond()).append(',').append(rules.getOffset(at).getTotalSeconds()).append(']');
        java.time.zone.ZoneOffsetTransition next = rules.nextTransition(at);
        at = next == null ? end : next.getInstant();
        if (at.isBefore(end)) out.append(',');
    }
    return out.append("]}").toString();
}

public Object plan(int number) { return plans.get(number); }

/** For each plan, the number of the first that gives the same rows, but for the ids of its columns. */
public String firsts() {
    StringBuilder firsts = new StringBuilder();
    java.util.HashMap known = new java.util.HashMap();
    for (int i = 0; i < plans.size(); i++) {
        Object same = ((org.apache.spark.sql.catalyst.plans.QueryPlan) plans.get(i)).canonicalized();
        Object first = known.get(same);
        if (first == null) known.put(same, first = Integer.valueOf(i));
        if (i > 0) firsts.append(' ');
        firsts.append(first);
    }
    return firsts.toString();
}

private void text(String s) {
    out.append('"');
    for (int i = 0; i < s.length(); i++) {
        char c = s.charAt(i);
        if (c == '"' || c == '\\') out.append('\\').append(c);
        else if (c < 32 || c > 126) {
            out.append("\\u");
            String hex = Integer.toHexString(c);
            for (int k = hex.length(); k < 4; k++) out.append('0');
            out.append(hex);
        } else out.append(c);
    }
    out.append('"');
}

private void value(Object v) {
    if (v == null) out.append("null");
    else if (v instanceof Boolean) out.append(v.toString());
    else if (v instanceof Integer || v instanceof Long || v instanceof Short || v instanceof Byte) out.append(v.toString());
    else if (v instanceof Double || v instanceof Float || v instanceof String || v instanceof Character) text(v.toString());
    else if (v instanceof org.apache.spark.unsafe.types.UTF8String) text(v.toString());
    else if (v instanceof org.apache.spark.sql.types.Decimal)
        text(((org.apache.spark.sql.types.Decimal) v).toJavaBigDecimal().toPlainString());
    else if (v instanceof byte[]) text(org.apache.spark.sql.catalyst.expressions.Hex.hex((byte[]) v).toString());
    else if (v instanceof Class) text(((Class) v).getName());
    else if (v instanceof org.apache.spark.sql.types.DataType)
        out.append(((org.apache.spark.sql.types.DataType) v).json());
    else if (v instanceof org.apache.spark.sql.catalyst.expressions.ExprId)
        out.append(((org.apache.spark.sql.catalyst.expressions.ExprId) v).id());
    else if (v instanceof scala.Option) {
        scala.Option o = (scala.Option) v;
        value(o.isEmpty() ? null : o.get());
    }
    else if (v instanceof scala.collection.Map) other(v);
    else if (v instanceof scala.collection.Iterable) {
        scala.collection.Iterator it = ((scala.collection.Iterable) v).iterator();
        out.append('[');
        boolean first = true;
        while (it.hasNext()) {
            if (!first) out.append(',');
            first = false;
            value(it.next());
        }
        out.append(']');
    }
    else if (v instanceof org.apache.spark.sql.catalyst.trees.TreeNode) node(v);
    else if (v.getClass().getName().startsWith("scala.Tuple")) node(v);
    else if (v instanceof scala.Product && plain(v.getClass().getName())) node(v);
    else if (v.getClass().getName().startsWith("scala.Enumeration")) text(v.toString());
    else if (v instanceof org.apache.spark.sql.execution.datasources.HadoopFsRelation) files(v);
    else if (v instanceof org.apache.spark.api.python.SimplePythonFunction) function(v);
    else other(v);
}

private boolean plain(String name) {
    return name.startsWith("org.apache.spark.sql.catalyst.expressions.")
        || name.startsWith("org.apache.spark.sql.catalyst.plans.");
}

private void other(Object v) {
    if (v instanceof org.apache.spark.rdd.RDD) {
        out.append("{\"rdd\":").append(((org.apache.spark.rdd.RDD) v).id()).append('}');
        return;
    }
    out.append("{\"?\":");
    text(v.getClass().getName());
    out.append('}');
}

private String simple(Object v) {
    String name = v.getClass().getName();
    name = name.substring(name.lastIndexOf('.') + 1);
    return name.endsWith("$") ? name.substring(0, name.length() - 1) : name;
}

private void node(Object v) {
    scala.Product p = (scala.Product) v;
    out.append("{\"c\":");
    text(simple(v));
    if (v instanceof org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) {
        out.append(",\"h\":").append(plans.size());
        plans.add(v);
    }
    if (v instanceof org.apache.spark.sql.catalyst.expressions.Expression) typed(v);
    out.append(",\"f\":{");
    boolean rows = simple(v).equals("LocalRelation");
    for (int i = 0; i < p.productArity(); i++) {
        if (i > 0) out.append(',');
        String name = fieldName(v, i);
        text(name);
        out.append(':');
        if (rows && name.equals("data")) out.append(((scala.collection.Seq) p.productElement(i)).size());
        else if (v instanceof org.apache.spark.sql.catalyst.expressions.Literal && name.equals("value"))
            constant(p.productElement(i), ((org.apache.spark.sql.catalyst.expressions.Literal) v).dataType());
        else value(p.productElement(i));
    }
    if (v instanceof org.apache.spark.sql.catalyst.expressions.NamedExpression) {  // in a second list of parameters
        out.append(",\"exprId\":");
        value(((org.apache.spark.sql.catalyst.expressions.NamedExpression) v).exprId());
    }
    out.append("}}");
}

// Arrays as lists, structs as lists of their fields, maps as two lists.
private void constant(Object v, org.apache.spark.sql.types.DataType kind) {
    if (v instanceof org.apache.spark.sql.catalyst.util.ArrayData && kind instanceof org.apache.spark.sql.types.ArrayType) {
        items((org.apache.spark.sql.catalyst.util.ArrayData) v, ((org.apache.spark.sql.types.ArrayType) kind).elementType());
    }
    else if (v instanceof org.apache.spark.sql.catalyst.util.MapData && kind instanceof org.apache.spark.sql.types.MapType) {
        org.apache.spark.sql.catalyst.util.MapData m = (org.apache.spark.sql.catalyst.util.MapData) v;
        out.append('[');
        items(m.keyArray(), ((org.apache.spark.sql.types.MapType) kind).keyType());
        out.append(',');
        items(m.valueArray(), ((org.apache.spark.sql.types.MapType) kind).valueType());
        out.append(']');
    }
    else if (v instanceof org.apache.spark.sql.catalyst.InternalRow && kind instanceof org.apache.spark.sql.types.StructType) {
        org.apache.spark.sql.catalyst.InternalRow r = (org.apache.spark.sql.catalyst.InternalRow) v;
        org.apache.spark.sql.types.StructField[] fields = ((org.apache.spark.sql.types.StructType) kind).fields();
        out.append('[');
        for (int i = 0; i < fields.length; i++) {
            if (i > 0) out.append(',');
            constant(r.isNullAt(i) ? null : r.get(i, fields[i].dataType()), fields[i].dataType());
        }
        out.append(']');
    }
    else value(v);
}

private void items(org.apache.spark.sql.catalyst.util.ArrayData a, org.apache.spark.sql.types.DataType kind) {
    out.append('[');
    for (int i = 0; i < a.numElements(); i++) {
        if (i > 0) out.append(',');
        constant(a.isNullAt(i) ? null : a.get(i, kind), kind);
    }
    out.append(']');
}

private void typed(Object v) {
    org.apache.spark.sql.catalyst.expressions.Expression e = (org.apache.spark.sql.catalyst.expressions.Expression) v;
    String type = "null";
    try {
        type = e.dataType().json();
    } catch (Exception unresolved) {
        type = "null";
    }
    out.append(",\"t\":").append(type);
}

private void function(Object v) {
    org.apache.spark.api.python.SimplePythonFunction f = (org.apache.spark.api.python.SimplePythonFunction) v;
    byte[] command = (byte[]) f.command().toArray(scala.reflect.ClassTag$.MODULE$.Byte());
    out.append("{\"c\":\"PythonFunction\",\"f\":{\"command\":");
    text(java.util.Base64.getEncoder().encodeToString(command));
    out.append(",\"executable\":");
    text(f.pythonExec());
    out.append(",\"version\":");
    text(f.pythonVer());
    out.append(",\"includes\":");
    texts(f.pythonIncludes());
    java.util.ArrayList variables = new java.util.ArrayList();
    java.util.Iterator it = f.envVars().entrySet().iterator();
    while (it.hasNext()) variables.add(it.next().toString());
    out.append(",\"environment\":");
    texts(variables);
    java.util.ArrayList files = new java.util.ArrayList();
    for (int i = 0; i < f.broadcastVars().size(); i++) {
        org.apache.spark.broadcast.Broadcast b = (org.apache.spark.broadcast.Broadcast) f.broadcastVars().get(i);
        files.add(b.id() + " " + ((org.apache.spark.api.python.PythonBroadcast) b.value()).path());
    }
    out.append(",\"broadcasts\":");
    texts(files);
    out.append("}}");
}

private void texts(java.util.List all) {
    out.append('[');
    for (int i = 0; i < all.size(); i++) {
        if (i > 0) out.append(',');
        text((String) all.get(i));
    }
    out.append(']');
}

private void files(Object v) {
    org.apache.spark.sql.execution.datasources.HadoopFsRelation r =
        (org.apache.spark.sql.execution.datasources.HadoopFsRelation) v;
    out.append("{\"c\":\"HadoopFsRelation\",\"f\":{\"format\":");
    text(simple(r.fileFormat()));
    out.append(",\"index\":");
    text(simple(r.location()));
    out.append(",\"partitions\":").append(r.partitionSchema().json());
    out.append(",\"data\":").append(r.dataSchema().json());
    out.append(",\"options\":[");
    scala.collection.Iterator it = r.options().iterator();
    boolean first = true;
    while (it.hasNext()) {
        scala.Tuple2 pair = (scala.Tuple2) it.next();
        if (!first) out.append(',');
        first = false;
        out.append('[');
        text((String) pair._1());
        out.append(',');
        text((String) pair._2());
        out.append(']');
    }
    out.append("]}}");
}

public String files(int number, String filters) {  // of a relation, without directories that these Filter operators rule out
    org.apache.spark.sql.execution.datasources.LogicalRelation l =
        (org.apache.spark.sql.execution.datasources.LogicalRelation) plans.get(number);
    org.apache.spark.sql.execution.datasources.HadoopFsRelation r =
        (org.apache.spark.sql.execution.datasources.HadoopFsRelation) l.relation();
    org.apache.spark.sql.types.StructType columns = r.partitionSchema();
    scala.collection.immutable.List kept = scala.collection.immutable.Nil$.MODULE$;
    if (filters.length() > 0) {
        String[] numbers = filters.split(",");
        for (int i = 0; i < numbers.length; i++) {
            org.apache.spark.sql.catalyst.plans.logical.Filter f =
                (org.apache.spark.sql.catalyst.plans.logical.Filter) plans.get(Integer.parseInt(numbers[i]));
            kept = conditions(f.condition(), l, columns, kept);
        }
    }
    scala.collection.immutable.Seq normal = (scala.collection.immutable.Seq)
        org.apache.spark.sql.execution.datasources.DataSourceStrategy$.MODULE$.normalizeExprs(kept, l.output());
    scala.collection.Iterator folders =
        r.location().listFiles(normal, scala.collection.immutable.Nil$.MODULE$).iterator();
    out.setLength(0);
    out.append('[');
    while (folders.hasNext()) {
        if (out.length() > 1) out.append(',');
        folder((org.apache.spark.sql.execution.datasources.PartitionDirectory) folders.next(), columns);
    }
    return out.append(']').toString();
}

private scala.collection.immutable.List conditions(
    org.apache.spark.sql.catalyst.expressions.Expression e,
    org.apache.spark.sql.execution.datasources.LogicalRelation l,
    org.apache.spark.sql.types.StructType columns,
    scala.collection.immutable.List kept
) {
    if (e instanceof org.apache.spark.sql.catalyst.expressions.And) {
        org.apache.spark.sql.catalyst.expressions.And both = (org.apache.spark.sql.catalyst.expressions.And) e;
        return conditions(both.right(), l, columns, conditions(both.left(), l, columns, kept));
    }
    boolean looks = e.deterministic() && !org.apache.spark.sql.catalyst.expressions.SubqueryExpression.hasSubquery(e);
    scala.collection.Iterator reads = e.references().iterator();
    looks = looks && reads.hasNext();
    while (looks && reads.hasNext()) {
        long id = ((org.apache.spark.sql.catalyst.expressions.Attribute) reads.next()).exprId().id();
        looks = false;
        scala.collection.Iterator known = l.output().iterator();
        while (known.hasNext()) {
            org.apache.spark.sql.catalyst.expressions.Attribute one =
                (org.apache.spark.sql.catalyst.expressions.Attribute) known.next();
            for (int i = 0; i < columns.length(); i++)
                if (one.exprId().id() == id && one.name().equalsIgnoreCase(columns.apply(i).name())) looks = true;
        }
    }
    return looks ? new scala.collection.immutable.$colon$colon(e, kept) : kept;
}

private void folder(
    org.apache.spark.sql.execution.datasources.PartitionDirectory folder, org.apache.spark.sql.types.StructType columns
) {
    out.append("{\"values\":[");
    for (int i = 0; i < columns.length(); i++) {
        if (i > 0) out.append(',');
        value(folder.values().isNullAt(i) ? null : folder.values().get(i, columns.apply(i).dataType()));
    }
    out.append("],\"files\":[");
    scala.collection.Iterator files = folder.files().iterator();
    boolean first = true;
    while (files.hasNext()) {
        org.apache.spark.sql.execution.datasources.FileStatusWithMetadata one =
            (org.apache.spark.sql.execution.datasources.FileStatusWithMetadata) files.next();
        java.net.URI at = one.getPath().toUri();
        if (!first) out.append(',');
        first = false;
        out.append('[');
        value(at.getScheme());
        out.append(',');
        value(at.getAuthority());
        out.append(',');
        text(at.getPath());
        out.append(',').append(one.getLen()).append(']');
    }
    out.append("]}");
}
"""
