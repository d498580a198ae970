"""Java of ours, compiled once per JVM by the compiler that Spark brings (Janino)."""

from __future__ import annotations

import uuid
from typing import Any
from weakref import WeakKeyDictionary

FIELD_NAME = """
private String fieldName(Object product, int i) {
    return ((scala.Product) product).productElementName(i);
}
"""
"""A part of a class's body: the name of a case class's field."""
FIELD_NAME_OF_COPY = """
private static final java.util.Map names = new java.util.concurrent.ConcurrentHashMap();

private String fieldName(Object product, int i) {
    Class kind = product.getClass();
    if (!names.containsKey(kind)) names.put(kind, parameters(kind, ((scala.Product) product).productArity()));
    java.lang.reflect.Parameter[] found = (java.lang.reflect.Parameter[]) names.get(kind);
    return found.length == 0 ? "?" + i : found[i].getName();
}

private java.lang.reflect.Parameter[] parameters(Class kind, int count) {
    java.lang.reflect.Method[] all = kind.getMethods();
    for (int k = 0; k < all.length; k++) {
        java.lang.reflect.Parameter[] of = all[k].getParameters();
        if (all[k].getName().equals("copy") && !all[k].isSynthetic() && of.length >= count && count > 0 && of[0].isNamePresent())
            return of;
    }
    return new java.lang.reflect.Parameter[0];
}
"""
"""The same where Scala does not tell it (2.12): by the parameters of ``copy``, which begin with the fields."""
_objects: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""Of each compiled class, by JVM gateway and source."""


def object_of(source: str, session: Any) -> Any:
    """The one object of the class with this body, in which ``SELF`` is the class's name. Any number of threads may call its methods at once."""
    gateway = session.sparkContext._gateway
    known = _objects.setdefault(gateway, {})
    if source not in known:
        known[source] = _made(source, f"Compiled_{uuid.uuid4().hex}", session._jvm, gateway)
    return known[source]


def _made(source: str, name: str, jvm: Any, gateway: Any) -> Any:
    """``name``: of the class; py4j takes the methods of two classes of one name for the same."""
    compiler = jvm.org.codehaus.janino.ClassBodyEvaluator()
    compiler.setClassName(f"firesteel.{name}")
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(source.replace("SELF", name))
    constructor = compiler.getClazz().getDeclaredConstructor(gateway.new_array(jvm.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.Object, 0))
