"""Java that writes all that planning needs to know of a DataFrame as JSON, in one call (with ``fieldName`` of its version).

Asking for a plan field by field takes a call over the socket each, thousands for a query. ``TreeNode.toJSON`` is one call, too,
but leaves out eval modes, projections, files and inner types; so every field of every node is written here, by its Scala name.
"""

SOURCE = r"""
private final java.util.ArrayList plans = new java.util.ArrayList();
private final java.util.IdentityHashMap shown = new java.util.IdentityHashMap();  // operators whose output is written, too
private final java.util.LinkedHashMap scans = new java.util.LinkedHashMap();  // the Filters right above each relation of files, by number
private final java.util.LinkedHashMap places = new java.util.LinkedHashMap();  // the number of each place in the user's code
private final java.util.HashSet written = new java.util.HashSet();  // kinds of expressions that the user has written
private final java.util.HashMap replaced = new java.util.HashMap();  // the user's functions for which Spark puts expressions of other kinds, by these
private java.lang.reflect.Method python = null;  // of an Origin, since Spark 4
private final java.util.HashMap types = new java.util.HashMap();
private final StringBuilder out = new StringBuilder();
private java.util.ArrayList above = new java.util.ArrayList();  // the Filters right above the operator that is written next

/** Of a Dataset. ``settings``: the names of those to tell, one a line. ``server``: of py4j. */
public String read(Object dataset, String settings, py4j.GatewayServer server) throws Exception {
    Object client = server.getCallbackClient();
    if (client instanceof py4j.Py4JPythonClientPerThread) {
        // Without this, all after the first 8 KiB waits 40 ms for an acknowledgement. A thread that has called Python back may have no connection.
        py4j.ClientServerConnection connection = ((py4j.Py4JPythonClientPerThread) client).getPerThreadConnection();
        if (connection != null) connection.getSocket().setTcpNoDelay(true);
    }
    return new SELF().all(execution(dataset), settings);
}

public String output(Object dataset, int number) throws Exception {
    SELF other = new SELF();
    Object plan = other.numbered(execution(dataset), number);
    other.out.setLength(0);
    other.value(((org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) plan).output());
    return other.out.toString();
}

public Object plan(Object dataset, int number) throws Exception {
    return new SELF().numbered(execution(dataset), number);
}

private org.apache.spark.sql.execution.QueryExecution execution(Object dataset) throws Exception {
    java.lang.reflect.Method method = dataset.getClass().getMethod("queryExecution", new Class[0]);
    return (org.apache.spark.sql.execution.QueryExecution) method.invoke(dataset, new Object[0]);
}

private Object numbered(org.apache.spark.sql.execution.QueryExecution execution, int number) {
    value(execution.optimizedPlan());
    return plans.get(number);
}

private String all(org.apache.spark.sql.execution.QueryExecution execution, String settings) {
    org.apache.spark.sql.catalyst.plans.logical.LogicalPlan root = execution.optimizedPlan();
    shown.put(root, root);
    name(execution.analyzed());
    out.append("{\"plan\":");
    value(root);
    out.append(",\"deterministic\":").append(root.deterministic());
    out.append(",\"first\":").append(asksFirst(execution.analyzed()));
    out.append(",\"schema\":").append(execution.analyzed().schema().json());
    out.append(",\"firsts\":[");
    firsts();
    out.append("],\"sizes\":{");
    sizes();
    out.append("},\"settings\":{");
    settings(execution.sparkSession().sessionState().conf(), settings.split("\n"));
    out.append("},\"files\":{");
    java.util.Iterator it = scans.keySet().iterator();
    while (it.hasNext()) {
        Integer number = (Integer) it.next();
        out.append('"').append(number).append("\":");
        int at = out.length();
        try {
            listed((org.apache.spark.sql.execution.datasources.LogicalRelation) plans.get(number.intValue()), (java.util.List) scans.get(number));
        } catch (Exception error) {
            out.setLength(at);
            text(error.toString());
        }
        if (it.hasNext()) out.append(',');
    }
    out.append("},\"places\":[");
    it = places.keySet().iterator();
    while (it.hasNext()) {
        text((String) it.next());
        if (it.hasNext()) out.append(',');
    }
    return out.append("]}").toString();
}

// first or last of groups, which are no ends of a window's frame.
private boolean asksFirst(org.apache.spark.sql.catalyst.trees.TreeNode node) {
    if (node instanceof org.apache.spark.sql.catalyst.expressions.WindowExpression) return false;
    if (node instanceof org.apache.spark.sql.catalyst.expressions.aggregate.First) return true;
    if (node instanceof org.apache.spark.sql.catalyst.expressions.aggregate.Last) return true;
    java.util.List below = below(node);
    for (int i = 0; i < below.size(); i++)
        if (asksFirst((org.apache.spark.sql.catalyst.trees.TreeNode) below.get(i))) return true;
    return false;
}

// The expressions and the plans of subqueries among them.
private java.util.List below(org.apache.spark.sql.catalyst.trees.TreeNode node) {
    java.util.ArrayList below = new java.util.ArrayList();
    scala.collection.Iterator it = node.children().iterator();
    while (it.hasNext()) below.add(it.next());
    if (node instanceof org.apache.spark.sql.catalyst.expressions.PlanExpression)
        below.add(((org.apache.spark.sql.catalyst.expressions.PlanExpression) node).plan());
    if (node instanceof org.apache.spark.sql.catalyst.plans.QueryPlan) {
        it = ((org.apache.spark.sql.catalyst.plans.QueryPlan) node).expressions().iterator();
        while (it.hasNext()) below.add(it.next());
    }
    return below;
}

// Learns what the user has written: the optimised plan has only what Spark puts in its place.
private void name(org.apache.spark.sql.catalyst.trees.TreeNode node) {
    java.util.List below = below(node);
    if (node instanceof org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules) {
        below.clear();
        scala.collection.Iterator it = ((org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules) node).parameters().iterator();
        while (it.hasNext()) below.add(it.next());
    }
    if (node instanceof org.apache.spark.sql.catalyst.expressions.Expression) written.add(kind(node));
    for (int i = 0; i < below.size(); i++) name((org.apache.spark.sql.catalyst.trees.TreeNode) below.get(i));
    if (node instanceof org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable)
        replace(((org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable) node).replacement(),
            ((org.apache.spark.sql.catalyst.expressions.Expression) node).prettyName());
}

private void replace(org.apache.spark.sql.catalyst.trees.TreeNode node, String name) {
    String kind = kind(node);
    if (written.contains(kind)) return;  // an argument
    Object known = replaced.get(kind);
    replaced.put(kind, known == null || known.equals(name) ? name : known + " or " + name);
    if (node instanceof org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable)
        replace(((org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable) node).replacement(), name);
    scala.collection.Iterator it = node.children().iterator();
    while (it.hasNext()) replace((org.apache.spark.sql.catalyst.trees.TreeNode) it.next(), name);
}

// Its class, and what it calls, if that is Java.
private String kind(Object node) {
    if (node instanceof org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke) {
        org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke call = (org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke) node;
        return call.staticObject().getName() + "." + call.functionName();
    }
    if (node instanceof org.apache.spark.sql.catalyst.expressions.objects.Invoke) {
        org.apache.spark.sql.catalyst.expressions.objects.Invoke call = (org.apache.spark.sql.catalyst.expressions.objects.Invoke) node;
        Object target = call.targetObject();
        if (target instanceof org.apache.spark.sql.catalyst.expressions.Literal) target = ((org.apache.spark.sql.catalyst.expressions.Literal) target).value();
        return target.getClass().getName() + "." + call.functionName();
    }
    return simple(node);
}

// What the user calls it, where that is not its class.
private String named(org.apache.spark.sql.catalyst.expressions.Expression e) {
    String kind = kind(e);
    Object other = written.contains(kind) ? null : replaced.get(kind);
    String name = other == null ? e.prettyName() : (String) other;
    return name.equalsIgnoreCase(simple(e)) ? null : name.toLowerCase();
}

// For each plan, the number of the first that gives the same rows, but for the ids of its columns.
private void firsts() {
    java.util.HashMap known = new java.util.HashMap();
    for (int i = 0; i < plans.size(); i++) {
        Object same = ((org.apache.spark.sql.catalyst.plans.QueryPlan) plans.get(i)).canonicalized();
        Object first = known.get(same);
        if (first == null) known.put(same, first = Integer.valueOf(i));
        if (i > 0) out.append(',');
        out.append(first);
    }
}

// In bytes, of what has no operator below it, as Spark estimates it.
private void sizes() {
    boolean first = true;
    for (int i = 0; i < plans.size(); i++) {
        org.apache.spark.sql.catalyst.plans.logical.LogicalPlan plan = (org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) plans.get(i);
        if (!plan.children().isEmpty()) continue;
        if (!first) out.append(',');
        first = false;
        out.append('"').append(i).append("\":");
        try {
            out.append(plan.stats().sizeInBytes());
        } catch (Exception unknown) {
            out.append(Long.MAX_VALUE);
        }
    }
}

private void settings(org.apache.spark.sql.internal.SQLConf conf, String[] names) {
    boolean first = true;
    for (int i = 0; i < names.length; i++) {
        String found;
        try {
            found = conf.getConfString(names[i]);
        } catch (Exception unknown) {
            continue;
        }
        if (!first) out.append(',');
        first = false;
        text(names[i]);
        out.append(':');
        value(found);
    }
}

/** The zone's name, and from 1900 to 2100 [second, offset from then on]. */
public String zone(String id) {
    return new SELF().clocks(id);
}

private String clocks(String id) {
    java.time.ZoneId zone = org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(id);
    java.time.zone.ZoneRules rules = zone.getRules();
    java.time.Instant at = java.time.Instant.parse("1900-01-01T00:00:00Z");
    java.time.Instant end = java.time.Instant.parse("2100-01-01T00:00:00Z");
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
    else if (v instanceof org.apache.spark.sql.types.DataType) out.append(type((org.apache.spark.sql.types.DataType) v));
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
        out.append("{\"rdd\":").append(((org.apache.spark.rdd.RDD) v).id());
        out.append(",\"driver\":").append(isOfDriver((org.apache.spark.rdd.RDD) v)).append('}');
        return;
    }
    out.append("{\"?\":");
    text(v.getClass().getName());
    out.append('}');
}

// Rows that are made of what the driver has handed over.
private boolean isOfDriver(org.apache.spark.rdd.RDD rdd) {
    while ((rdd instanceof org.apache.spark.rdd.MapPartitionsRDD || rdd instanceof org.apache.spark.api.python.PythonRDD)
        && rdd.dependencies().size() == 1)
        rdd = ((org.apache.spark.Dependency) rdd.dependencies().head()).rdd();
    return rdd.getClass().getName().equals("org.apache.spark.rdd.ParallelCollectionRDD");
}

private String simple(Object v) {
    String name = v.getClass().getName();
    name = name.substring(name.lastIndexOf('.') + 1);
    return name.endsWith("$") ? name.substring(0, name.length() - 1) : name;
}

private void node(Object v) {
    scala.Product p = (scala.Product) v;
    String kind = simple(v);
    out.append("{\"c\":");
    text(kind);
    java.util.ArrayList filters = above;
    if (v instanceof org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) {
        above = new java.util.ArrayList();
        operator((org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) v, kind, filters);
    }
    if (v instanceof org.apache.spark.sql.catalyst.expressions.Expression) typed(v);
    out.append(",\"f\":{");
    boolean rows = kind.equals("LocalRelation");
    for (int i = 0; i < p.productArity(); i++) {
        if (i > 0) out.append(',');
        String name = fieldName(v, i);
        text(name);
        out.append(':');
        if (rows && name.equals("data")) out.append(((scala.collection.Seq) p.productElement(i)).size());
        else if (v instanceof org.apache.spark.sql.catalyst.expressions.Literal && name.equals("value"))
            constant(p.productElement(i), ((org.apache.spark.sql.catalyst.expressions.Literal) v).dataType());
        else if (v instanceof org.apache.spark.sql.catalyst.expressions.aggregate.PivotFirst && name.equals("pivotColumnValues"))
            constants((scala.collection.Iterable) p.productElement(i), ((org.apache.spark.sql.catalyst.expressions.aggregate.PivotFirst) v).pivotColumn().dataType());
        else if (v instanceof org.apache.spark.sql.catalyst.plans.logical.Filter && name.equals("child")) {
            above = filters;
            above.add(v);
            value(p.productElement(i));
        }
        else value(p.productElement(i));
    }
    if (v instanceof org.apache.spark.sql.catalyst.expressions.aggregate.HyperLogLogPlusPlus)
        biases(((org.apache.spark.sql.catalyst.expressions.aggregate.HyperLogLogPlusPlus) v).relativeSD());
    if (v instanceof org.apache.spark.sql.catalyst.expressions.NamedExpression) {  // in a second list of parameters
        out.append(",\"exprId\":");
        value(((org.apache.spark.sql.catalyst.expressions.NamedExpression) v).exprId());
    }
    out.append("}}");
}

// What Spark has measured for sketches of this precision.
private void biases(double deviation) {
    int precision = (int) Math.ceil(2.0 * Math.log(1.106 / deviation) / Math.log(2.0));
    out.append(",\"precision\":").append(precision);
    if (precision > 18) return;
    org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper$ known = org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper$.MODULE$;
    out.append(",\"threshold\":").append(known.THRESHOLDS()[precision - 4]);
    out.append(",\"estimates\":").append(java.util.Arrays.toString(known.RAW_ESTIMATE_DATA()[precision - 4]));
    out.append(",\"biases\":").append(java.util.Arrays.toString(known.BIAS_DATA()[precision - 4]));
}

private void operator(org.apache.spark.sql.catalyst.plans.logical.LogicalPlan plan, String kind, java.util.List filters) {
    Integer number = Integer.valueOf(plans.size());
    plans.add(plan);
    out.append(",\"h\":").append(number);
    if (kind.equals("Union")) shown.put(plan, plan);
    if (kind.equals("Union") || kind.equals("Generate") || kind.startsWith("FlatMap")) {
        scala.collection.Iterator below = plan.children().iterator();
        while (below.hasNext()) {
            Object child = below.next();
            shown.put(child, child);
        }
    }
    if (shown.containsKey(plan)) {
        out.append(",\"o\":");
        value(plan.output());
    }
    if (plan instanceof org.apache.spark.sql.execution.datasources.LogicalRelation) {
        org.apache.spark.sql.execution.datasources.LogicalRelation l =
            (org.apache.spark.sql.execution.datasources.LogicalRelation) plan;
        if (l.relation() instanceof org.apache.spark.sql.execution.datasources.HadoopFsRelation && !l.isStreaming()) {
            Object index = ((org.apache.spark.sql.execution.datasources.HadoopFsRelation) l.relation()).location();
            if (index instanceof org.apache.spark.sql.execution.datasources.InMemoryFileIndex
                || index instanceof org.apache.spark.sql.execution.datasources.CatalogFileIndex) scans.put(number, filters);
        }
    }
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

private void constants(scala.collection.Iterable all, org.apache.spark.sql.types.DataType kind) {
    out.append('[');
    boolean first = true;
    scala.collection.Iterator it = all.iterator();
    while (it.hasNext()) {
        if (!first) out.append(',');
        first = false;
        constant(it.next(), kind);
    }
    out.append(']');
}

private void items(org.apache.spark.sql.catalyst.util.ArrayData a, org.apache.spark.sql.types.DataType kind) {
    out.append('[');
    for (int i = 0; i < a.numElements(); i++) {
        if (i > 0) out.append(',');
        constant(a.isNullAt(i) ? null : a.get(i, kind), kind);
    }
    out.append(']');
}

// A line of a script, or of the text of a query.
private String place(org.apache.spark.sql.catalyst.trees.Origin origin) {
    try {
        if (python == null) python = origin.getClass().getMethod("pysparkErrorContext", new Class[0]);
        scala.Option found = (scala.Option) python.invoke(origin, new Object[0]);
        if (found.isDefined()) return (String) ((scala.Tuple2) found.get())._2();
    } catch (Exception before) {
        // there is none
    }
    if (origin.line().isEmpty()) return null;
    return "line " + origin.line().get() + " of its SQL";
}

private void typed(Object v) {
    org.apache.spark.sql.catalyst.expressions.Expression e = (org.apache.spark.sql.catalyst.expressions.Expression) v;
    String place = place(e.origin());
    if (place != null) {
        if (!places.containsKey(place)) places.put(place, Integer.valueOf(places.size()));
        out.append(",\"w\":").append(places.get(place));
    }
    String name = named(e);
    if (name != null) {
        out.append(",\"n\":");
        text(name);
    }
    String type = "null";
    try {
        type = type(e.dataType());
    } catch (Exception unresolved) {
        type = "null";
    }
    out.append(",\"t\":").append(type);
}

private String type(org.apache.spark.sql.types.DataType kind) {
    String known = (String) types.get(kind);
    if (known == null) types.put(kind, known = kind.json().replace("string collate UTF8_BINARY", "string"));  // its bytes decide, as without
    return known;
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
    out.append(",\"partitions\":").append(type(r.partitionSchema()));
    out.append(",\"data\":");
    columns(r.dataSchema().fields());
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

// Of each its name, and whether files that lack it have a value all the same.
private void columns(org.apache.spark.sql.types.StructField[] fields) {
    out.append('[');
    for (int i = 0; i < fields.length; i++) {
        if (i > 0) out.append(',');
        out.append('[');
        text(fields[i].name());
        out.append(',').append(fields[i].metadata().contains("EXISTS_DEFAULT")).append(']');
    }
    out.append(']');
}

// The files of a relation, without directories that these Filter operators rule out.
private void listed(org.apache.spark.sql.execution.datasources.LogicalRelation l, java.util.List filters) {
    org.apache.spark.sql.execution.datasources.HadoopFsRelation r =
        (org.apache.spark.sql.execution.datasources.HadoopFsRelation) l.relation();
    org.apache.spark.sql.types.StructType columns = r.partitionSchema();
    scala.collection.immutable.List kept = scala.collection.immutable.Nil$.MODULE$;
    for (int i = 0; i < filters.size(); i++)
        kept = conditions(((org.apache.spark.sql.catalyst.plans.logical.Filter) filters.get(i)).condition(), l, columns, kept);
    scala.collection.immutable.Seq normal = (scala.collection.immutable.Seq)
        org.apache.spark.sql.execution.datasources.DataSourceStrategy$.MODULE$.normalizeExprs(kept, l.output());
    scala.collection.Iterator folders =
        r.location().listFiles(normal, scala.collection.immutable.Nil$.MODULE$).iterator();
    out.append('[');
    boolean first = true;
    while (folders.hasNext()) {
        if (!first) out.append(',');
        first = false;
        folder((org.apache.spark.sql.execution.datasources.PartitionDirectory) folders.next(), columns);
    }
    out.append(']');
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
