"""The names of what nobody can compare: functions of the outer world, of chance and time, and of code that is made while it runs.

A list, so it is not complete: whoever reads files by a library that is not named here is not found out. It errs on the other side, too: a
vertex that names something harmless of the same name only runs again.
"""

from __future__ import annotations

_CODE = "runs code that is made while it runs"
_FILES = "opens files or asks for them itself"
_NETWORK = "speaks with other programs"
_CLOCK = "reads the clock"
_CHANCE = "draws at random"
_PLACE = "looks at the process or machine that it runs on"
RANDOM_ROWS = f"{_CHANCE} (an expression with random())"
NOW = frozenset(("now", "today"))
"""Constants that libraries take for the present time: ``pandas.to_datetime("now")``."""

_BUILTINS = {
    **dict.fromkeys(("eval", "exec", "compile", "__import__", "globals", "locals", "vars"), _CODE),
    **dict.fromkeys(("open", "input", "breakpoint"), _FILES),
    **dict.fromkeys(("hash", "id"), _PLACE),
}
_MODULES = {
    **dict.fromkeys(("importlib", "runpy", "pkgutil", "imp"), _CODE),
    **dict.fromkeys(("io", "glob", "shutil", "tempfile", "fileinput", "zipfile", "tarfile", "gzip", "bz2", "lzma", "dbm", "shelve", "mmap"), _FILES),
    **dict.fromkeys(("fsspec", "s3fs", "gcsfs", "adlfs", "pyarrow.fs", "pyarrow.dataset", "deltalake", "pyiceberg", "h5py", "zarr", "datasets"), _FILES),
    **dict.fromkeys(
        (
            "socket", "ssl", "select", "selectors", "http", "urllib.request", "ftplib", "smtplib", "imaplib", "poplib", "xmlrpc", "subprocess", "asyncio.subprocess",
            "requests", "urllib3", "httpx", "aiohttp", "websockets", "grpc", "boto3", "botocore", "google.cloud", "azure", "paramiko", "sqlite3",
            "sqlalchemy", "psycopg", "psycopg2", "asyncpg", "pymysql", "MySQLdb", "mysql", "oracledb", "cx_Oracle", "pyodbc", "pymssql", "snowflake",
            "redis", "pymongo", "motor", "cassandra", "elasticsearch", "opensearchpy", "kafka", "confluent_kafka", "pika", "openai", "anthropic",
            "duckdb",
        ),
        _NETWORK,
    ),
    **dict.fromkeys(("random", "secrets", "uuid", "numpy.random", "torch.random", "tensorflow.random"), _CHANCE),
    **dict.fromkeys(("platform", "getpass", "pwd", "resource", "psutil", "os", "sys", "threading", "multiprocessing", "gc", "inspect"), _PLACE),
    "time": _CLOCK,
}  # fmt: skip
_HARMLESS = (
    "os.path.basename", "os.path.dirname", "os.path.join", "os.path.split", "os.path.splitext", "os.path.normpath", "os.path.commonprefix",
    "os.sep", "os.linesep", "os.fspath", "os.PathLike", "sys.maxsize", "sys.float_info", "sys.intern", "sys.version_info", "sys.byteorder",
    "sys.stdout", "sys.stderr", "sys.getsizeof", "sys.exc_info", "time.sleep", "time.strptime", "time.struct_time", "time.mktime",
    "io.BytesIO", "io.StringIO", "io.TextIOWrapper", "gzip.compress", "gzip.decompress", "bz2.compress", "bz2.decompress", "lzma.compress", "lzma.decompress",
    "uuid.UUID", "uuid.uuid3", "uuid.uuid5", "uuid.NAMESPACE_DNS", "uuid.NAMESPACE_URL", "uuid.NAMESPACE_OID", "threading.Lock", "threading.RLock", "threading.local",
    "inspect.cleandoc", "gc.collect",
)  # fmt: skip
"""Of the modules above: the same everywhere."""
_ATTRIBUTES = {
    **dict.fromkeys(("now", "utcnow", "today"), _CLOCK),
    **dict.fromkeys(("environ", "getenv"), _PLACE),
    **dict.fromkeys(
        (
            "random", "sample", "shuffle", "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "multinomial", "bernoulli",
        ),
        _CHANCE,
    ),
    **dict.fromkeys(
        (
            "open", "read_text", "read_bytes", "iterdir", "rglob", "scandir", "listdir", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "from_pretrained",
            "read_csv", "read_table", "read_json", "read_parquet", "read_excel", "read_pickle", "read_feather", "read_orc", "read_hdf", "read_xml",
            "read_html", "read_fwf", "read_schema", "ParquetFile", "ParquetDataset", "open_file", "open_input_stream", "open_input_file", "memory_map", "OSFile",
            "scan_parquet", "scan_csv", "load_dataset", "load_model",
        ),
        _FILES,
    ),
    **dict.fromkeys(("connect", "urlopen", "urlretrieve", "read_sql", "read_sql_query", "read_sql_table", "read_gbq"), _NETWORK),
}  # fmt: skip
"""Of anything: an object may be a path, a library or a connection."""


def outside(name: str) -> str | None:
    """The reason why nobody can compare what this full name stands for (``builtins.open``, ``numpy.random.rand``), in words; None: it is not known to be
    such."""
    module, dot, attribute = name.partition(".")
    if module == "builtins":
        return _said(_BUILTINS.get(attribute.partition(".")[0]), attribute.partition(".")[0])
    if any(name == one or name.startswith(f"{one}.") for one in _HARMLESS):
        return None
    parts = name.split(".")
    found = [_MODULES.get(".".join(parts[:count])) for count in range(1, len(parts) + 1)]
    if module != "firesteel":  # whose steps may be called alike
        found.append(_ATTRIBUTES.get(parts[-1]))  # ``from pandas import read_csv``
    return _said(next(filter(None, found), None), name) if dot else None


def attribute_outside(name: str) -> str | None:
    """The same of an attribute, whatever it is one of."""
    return _said(_ATTRIBUTES.get(name), f".{name}")


def text_outside(text: str) -> str | None:
    """The same of a text in code."""
    return f"{_CLOCK} ('{text}')" if text in NOW else None


def imports_outside(module: str) -> str | None:
    """The same of a module that code imports, whatever it uses of it."""
    return outside(f"{module}.*")


def _said(why: str | None, name: str) -> str | None:
    return None if why is None else f"{why} ({name.removesuffix('.*')})"
