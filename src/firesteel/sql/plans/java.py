"""Java of ours, compiled once per JVM by the compiler that Spark brings (Janino)."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

_classes: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""The compiled classes, by JVM gateway and source."""


def instance_of(source: str, session: Any) -> Any:
    """A new object of the class with this body."""
    jvm, gateway = session._jvm, session.sparkContext._gateway
    known = _classes.setdefault(gateway, {})
    if source not in known:
        compiler = jvm.org.codehaus.janino.ClassBodyEvaluator()
        compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
        compiler.cook(source)
        known[source] = compiler.getClazz()
    nothing = gateway.new_array(jvm.Class, 0), gateway.new_array(jvm.Object, 0)
    return known[source].getDeclaredConstructor(nothing[0]).newInstance(nothing[1])
