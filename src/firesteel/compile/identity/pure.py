"""The modules and functions that give the same answer to the same arguments, in every process and at any time.

A result is kept only where all that a function uses is source that counts for its fingerprint, or has a name in these lists. Whatever has
no name here may read a file, the clock or the machine. A function can get hold of such a thing only by a name: a builtin, an import, a
global or a captured value. So attributes of other objects need no list, except for the few of listed classes that are not pure.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Collection
from types import ModuleType

RANDOM_ROWS = "draws at random (an expression with random())"
NOT_PURE = "does not know to be pure"
NOW = frozenset(("now", "today"))
"""Constants that libraries take for the present time: ``pandas.to_datetime("now")``."""

_BUILTINS = frozenset(name for name, held in vars(builtins).items() if isinstance(held, type)) | frozenset(
    [
        "abs",
        "aiter",
        "all",
        "anext",
        "any",
        "ascii",
        "bin",
        "callable",
        "chr",
        "delattr",
        "divmod",
        "format",
        "getattr",
        "hasattr",
        "hex",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "max",
        "min",
        "next",
        "oct",
        "ord",
        "pow",
        "print",
        "repr",
        "round",
        "setattr",
        "sorted",
        "sum",
        "NotImplemented",
        "Ellipsis",
        "__build_class__",
        "__debug__",
        "__doc__",
        "__name__",
        "__package__",
    ]
)
_WHOLE = frozenset(
    [
        "abc",
        "array",
        "ast",
        "base64",
        "binascii",
        "bisect",
        "calendar",
        "cmath",
        "collections",
        "collections.abc",
        "colorsys",
        "contextlib",
        "copy",
        "copyreg",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fnmatch",
        "fractions",
        "functools",
        "graphlib",
        "hashlib",
        "heapq",
        "hmac",
        "html",
        "html.entities",
        "html.parser",
        "ipaddress",
        "itertools",
        "json",
        "json.decoder",
        "json.encoder",
        "keyword",
        "math",
        "numbers",
        "operator",
        "pprint",
        "quopri",
        "re",
        "reprlib",
        "shlex",
        "string",
        "struct",
        "textwrap",
        "types",
        "typing",
        "typing_extensions",
        "unicodedata",
        "urllib.parse",
        "warnings",
        "zlib",
        "zoneinfo",
        "numpy.char",
        "numpy.dtypes",
        "numpy.exceptions",
        "numpy.fft",
        "numpy.lib.stride_tricks",
        "numpy.linalg",
        "numpy.ma",
        "numpy.polynomial",
        "numpy.strings",
        "pyarrow.types",
        "dateutil.relativedelta",
        "orjson",
        "pytz",
        "regex",
        "scipy.fft",
        "scipy.linalg",
        "scipy.special",
    ]
)
_BELOW = ("firesteel", "numpy._core", "numpy.typing", "numpy._typing", "numpy.polynomial", "numpy.ma", "pandas._libs", "pandas._typing", "pandas.api", "pandas.arrays", "pandas.core", "pandas.errors", "pandas.tseries", "pyspark.sql.types")  # fmt: skip
"""With all modules below them."""
_ALL_BUT = {
    module: frozenset(names.split())
    for module, names in {
        "codecs": "open",
        "numpy": "DataSource fromfile fromregex genfromtxt load loadtxt memmap save savetxt savez savez_compressed show_config show_runtime test",
        "numpy.rec": "fromfile",
        "pandas": "ExcelFile ExcelWriter HDFStore describe_option eval get_option option_context options set_option show_versions test",
        "pyarrow": "MemoryMappedFile NativeFile OSFile PythonFile cpu_count create_memory_map input_stream io_thread_count memory_map output_stream",
        "pyarrow._compute": "RandomOptions function_registry get_function",
        "pyarrow.compute": "function_registry get_function list_functions random register_aggregate_function register_scalar_function "
        "register_tabular_function register_vector_function",
        "statistics": "random",
    }.items()
}
_ALL_BUT["pyarrow.lib"] = _ALL_BUT["pyarrow"]
_READERS = "read_"
"""How functions of files begin in these modules."""
_ONLY = {
    module: frozenset(names.split())
    for module, names in {
        "bz2": "compress decompress",
        "gc": "collect",
        "gzip": "compress decompress",
        "inspect": "cleandoc",
        "io": "BytesIO StringIO TextIOWrapper",
        "logging": "CRITICAL DEBUG ERROR INFO Logger NOTSET WARNING getLogger",
        "lzma": "compress decompress",
        "os": "PathLike fspath linesep sep",
        "pathlib": "PurePath PurePosixPath PureWindowsPath",
        "posixpath": "basename commonprefix dirname join normpath sep split splitext",
        "pyspark.sql": "Row",
        "sys": "byteorder exc_info float_info getsizeof intern maxsize maxunicode stderr stdout version_info",
        "threading": "Lock RLock local",
        "time": "mktime sleep strptime struct_time",
        "tomllib": "loads TOMLDecodeError",
        "uuid": "NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 UUID uuid3 uuid5",
        "xml.etree.ElementTree": "Element ParseError QName SubElement XML fromstring tostring",
    }.items()
}
_ATTRIBUTES = frozenset(
    [
        "now",
        "today",
        "utcnow",
        "eval",
        "query",
        "sample",
        "samples",
        "to_feather",
        "to_hdf",
        "to_orc",
        "to_parquet",
        "to_sql",
        "__array_interface__",
        "__builtins__",
        "__code__",
        "__file__",
        "__firstlineno__",
        "__globals__",
        "__loader__",
        "__path__",
        "__self__",
        "__spec__",
        "__subclasses__",
        "ag_frame",
        "cr_frame",
        "f_back",
        "f_builtins",
        "f_globals",
        "f_locals",
        "gi_frame",
        "tb_frame",
        "tb_lineno",
    ]
)
"""Of objects and classes of the modules above: the clock, chance, variables of the caller (``DataFrame.query``), files that C++ writes, and
what leads out of a function to others."""
_BY_NAME = frozenset(("getattr", "__getattribute__", "attrgetter", "methodcaller", "call_function", "_call"))
"""They take the name of what they use as a text."""
TEXTS = NOW | _ATTRIBUTES | {"random"}
"""Constants in code that may matter."""


def unknown(module: str, path: tuple[str, ...], known: Collection[str] = ()) -> str | None:
    """The full name of what this path of a library's module stands for, where it is not known to be pure; None: it is. ``known``: names of
    modules and functions that the user says are pure."""
    name = ".".join((module, *path))
    if any(f"{name}.".startswith(f"{one}.") for one in known):
        return None
    if _is_listed(module, path) and _ATTRIBUTES.isdisjoint(path):
        return None
    return name.removeprefix("builtins.")


def _is_listed(module: str, path: tuple[str, ...]) -> bool:
    if module == "builtins":
        return bool(path) and path[0] in _BUILTINS
    if any(f"{module}.".startswith(f"{one}.") for one in _BELOW):
        return True
    for own in (module, module.removeprefix("_")):  # ``_operator``: in C
        if own in _WHOLE:
            return True
        if own in _ALL_BUT:
            return bool(path) and path[0] not in _ALL_BUT[own] and not path[0].startswith(_READERS)
        if own in _ONLY:
            return bool(path) and path[0] in _ONLY[own]
    return False


def resolved(module: str, path: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The module in which the path ends, and the rest of the path: a module may hold others (``json.codecs``). Imports listed modules only."""
    while path:
        held = sys.modules.get(module)
        if held is None and (module in _ALL_BUT or module in _WHOLE):
            try:
                held = importlib.import_module(module)
            except ImportError:
                return module, path
        inner = None if held is None else vars(held).get(path[0], sys.modules.get(f"{module}.{path[0]}"))
        if not isinstance(inner, ModuleType):
            return module, path
        module, path = inner.__name__, path[1:]
    return module, path


def attributes_outside(attributes: Collection[str]) -> list[str]:
    """Those of any object that are not pure."""
    return sorted(_ATTRIBUTES.intersection(attributes))


def texts_outside(texts: Collection[str], names: Collection[str]) -> list[str]:
    """Constants of code that stand for something that is not pure. ``names``: all that the code reads."""
    return sorted(set(texts) & (TEXTS if not _BY_NAME.isdisjoint(names) else NOW))
