"""The modules and functions that give the same answer to the same arguments, in every process and at any time.

A result is kept only where all that a function uses is source that counts for its fingerprint, or has a name in these lists. Whatever has
no name here may read a file, the clock or the machine. A function can get hold of such a thing only by a name: a builtin, an import, a
global or a captured value. So attributes of other objects need no list, except for the few of listed classes that are not pure.
"""

from __future__ import annotations

import builtins
import importlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from types import ModuleType
from typing import Any

RANDOM_ROWS = "draws at random (an expression with random())"
_NOW = frozenset(("now", "today"))
"""Texts that numpy and pandas take for the present time, in any case: ``numpy.datetime64("Now")``."""
_TODAY = re.compile(r"(datetime64|[<>]?M8)\[.*|\d{1,2}:\d\d(:\d\d(\.\d+)?)?")
"""Texts with which pandas may add the date of today to a time: types to parse for, and times."""
_CLOCK = frozenset(("DatetimeIndex", "Timestamp", "bdate_range", "date_range", "to_datetime"))
"""Names of pandas that add the date of today to a text that is only a time."""


def _named(*texts: str) -> frozenset[str]:
    """The names in texts of names."""
    return frozenset(name for text in texts for name in text.split())


_BUILTINS = frozenset(name for name, held in vars(builtins).items() if isinstance(held, type)) | _named(
    "abs aiter all anext any ascii bin callable chr delattr divmod format getattr hasattr hex isinstance",
    "issubclass iter len max min next oct ord pow print repr round setattr sorted sum NotImplemented Ellipsis",
    "__build_class__ __debug__ __doc__ __name__ __package__",
)
_WHOLE = _named(
    "abc array ast base64 binascii bisect calendar cmath collections collections.abc colorsys contextlib copy",
    "copyreg csv dataclasses datetime decimal difflib enum fnmatch fractions functools graphlib hashlib _blake2",
    "heapq hmac html html.entities html.parser ipaddress itertools json json.decoder json.encoder keyword math",
    "numbers operator pprint quopri re reprlib shlex string struct textwrap types typing typing_extensions",
    "unicodedata urllib.parse warnings zlib zoneinfo numpy.char numpy.dtypes numpy.exceptions numpy.fft",
    "numpy.lib.stride_tricks numpy.linalg numpy.ma numpy.polynomial numpy.strings pyarrow.types",
    "dateutil.relativedelta orjson pytz regex scipy.fft scipy.linalg scipy.special",
)
"""``_blake2``: of ``hashlib``."""
_BELOW = ("firesteel", "numpy._core", "numpy.typing", "numpy._typing", "numpy.polynomial", "numpy.ma", "pandas._libs", "pandas._typing", "pandas.api", "pandas.arrays", "pandas.core", "pandas.errors", "pandas.tseries", "pyspark.sql.types")  # fmt: skip
"""With all modules below them."""
_ALL_BUT = {
    module: frozenset(names.split())
    for module, names in {
        "codecs": "open",
        "numpy": "DataSource fromfile fromregex genfromtxt load loadtxt memmap save savetxt savez savez_compressed show_config show_runtime test",
        "numpy.rec": "fromfile",
        "pandas": "ExcelFile ExcelWriter HDFStore describe_option eval get_option option_context options set_option show_versions test",
        "pyarrow": "CompressedInputStream CompressedOutputStream MemoryMappedFile NativeFile OSFile PythonFile _RecordBatchFileReader "
        "_RecordBatchFileWriter _RecordBatchStreamReader _RecordBatchStreamWriter cpu_count create_memory_map input_stream io_thread_count "
        "memory_map output_stream transcoding_input_stream",
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
        "logging": "CRITICAL DEBUG ERROR INFO Logger NOTSET WARNING critical debug error exception getLogger info log warning",
        "lzma": "compress decompress",
        "os": "PathLike fspath linesep sep",
        "pandas.io.json._normalize": "json_normalize",
        "pathlib": "PurePath PurePosixPath PureWindowsPath",
        "posixpath": "basename commonprefix dirname join normpath sep split splitext",
        "pyspark.sql": "Row",
        "sys": "byteorder exc_info float_info getsizeof intern maxsize maxunicode stderr stdout version_info",
        "threading": "Lock RLock local",
        "time": "mktime sleep strptime struct_time",
        "tomllib": "loads TOMLDecodeError",
        "tomllib._parser": "loads TOMLDecodeError",
        "uuid": "NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 UUID uuid3 uuid5",
        "xml.etree.ElementTree": "Element ParseError QName SubElement XML fromstring tostring",
    }.items()
}
_ATTRIBUTES = _named(
    "now today utcnow to_feather to_hdf to_orc to_parquet to_sql __array_interface__ __builtins__ __code__",
    "__file__ __firstlineno__ __globals__ __loader__ __path__ __self__ __spec__ __subclasses__ ag_frame cr_frame",
    "f_back f_builtins f_globals f_locals gi_frame tb_frame tb_lineno",
)
"""Of objects and classes of the modules above: the clock, files that C++ writes, and what leads out of a function to others."""
_OF_FRAMES = frozenset(("eval", "query", "sample", "samples"))
"""The same, where an object may be of pandas, ``statistics`` or another library: chance, and variables of the caller."""
_NO_FRAMES = frozenset(("builtins", "dateutil", "duckdb", "firesteel", "numpy", "orjson", "pyarrow", "pytz", "regex", "typing_extensions")) | (
    sys.stdlib_module_names - {"statistics"}
)  # fmt: skip
"""Libraries whose objects have no such attributes."""
_BY_NAME = frozenset(("getattr", "__getattribute__", "attrgetter", "methodcaller", "call_function", "_call"))
"""They take the name of what they use as a text."""
_MATTERS = re.compile("|".join((f"(?i:{'|'.join(_NOW)})", _TODAY.pattern, *_ATTRIBUTES, *_OF_FRAMES, "random")))
_TEXT = (str, bytes)
_LONGEST = 32
"""Characters of a text that may matter."""


def unknown(module: str, path: tuple[str, ...], known: Collection[str] = ()) -> str | None:
    """The full name of what this path of a library's module stands for, where it is not known to be pure; None: it is. ``known``: names of
    modules and functions that the user says are pure."""
    name = ".".join((module, *path))
    if any(f"{name}.".startswith(f"{one}.") for one in known):
        return None
    is_listed = _is_listed(module, path) and _is_listed(*_made_in(module, path))
    if is_listed and not takes_clock(module, path) and (_ATTRIBUTES | _OF_FRAMES).isdisjoint(path):
        return None
    return name.removeprefix("builtins.")


def takes_clock(module: str, path: tuple[str, ...]) -> bool:
    """Returns whether this is a name of pandas that adds the date of today to a text that is only a time."""
    return module.partition(".")[0] == "pandas" and path[:1] != () and path[0] in _CLOCK


def _made_in(module: str, path: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The module that defines what another one has: ``pyarrow.ipc`` for ``pyarrow.RecordBatchFileReader``."""
    if path and not module.startswith("firesteel.") and (module in _ALL_BUT or _is_below(module)):
        held = vars(sys.modules[module]).get(path[0]) if module in sys.modules else None
        made = getattr(held, "__module__", None) if callable(held) else None
        if isinstance(made, str) and made not in ("builtins", "importlib._bootstrap"):  # of classes that C makes
            return made, path
    return module, path


def _is_below(module: str) -> bool:
    return any(f"{module}.".startswith(f"{one}.") for one in _BELOW)


def _is_listed(module: str, path: tuple[str, ...]) -> bool:
    if module == "builtins":
        return bool(path) and path[0] in _BUILTINS
    if _is_below(module):
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


def texts_that_matter(constants: Iterable[Any]) -> list[str]:
    """The texts among constants, and within them, that may stand for something that is not pure."""
    found: list[str] = []
    for one in constants:
        if isinstance(one, _TEXT):
            if len(one) <= _LONGEST:
                text = one if isinstance(one, str) else one.decode("latin-1")
                found += [text] if _MATTERS.fullmatch(text) else []
        elif isinstance(one, tuple | frozenset):
            found += texts_that_matter(one)
    return found


def outside(
    attributes: Collection[str], names: Collection[str], texts: Collection[str], reached: Collection[str]
) -> Iterator[str]:
    """The attributes and texts that stand for something that is not pure. ``names``: all that the code reads. ``reached``: top-level modules of
    which objects may be met."""
    has_frames = not _NO_FRAMES.issuperset(reached)
    suspects = _ATTRIBUTES | _OF_FRAMES if has_frames else _ATTRIBUTES
    yield from (f".{name}" for name in suspects.intersection(attributes))
    by_name = suspects | {"random"} if not _BY_NAME.isdisjoint(names) else frozenset[str]()
    for text in texts:
        is_now = text.lower() in _NOW and (has_frames or "numpy" in reached)
        if text in by_name or is_now or (has_frames and _TODAY.fullmatch(text)):
            yield f"'{text}'"
