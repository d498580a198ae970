"""Ships to executors what they do not have: Firesteel's own part as a zip, DuckDB as an archive, once per Spark context each, and the modules beside the script.

Modules travel as sources, which a worker imports from memory (``task.executor.information``), so classes keep their identity and modules
their state. By value, as functions of ``__main__`` travel, each subtask would get its own copy of a module, without the imports inside of functions.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from firesteel.compile.identity.modules import is_installed
from firesteel.connectors import merging
from firesteel.engine.package import EnginePackage, this_platform
from firesteel.errors import UsageError
from firesteel.package_files import contents, write_zip
from firesteel.spark.storage.directories import private_directory
from firesteel.task.executor.information import ModuleSource
from firesteel.task.operators import fragments, groups, join

KEPT_SECONDS = 30 * 86400
_OF_ENGINE = tuple(module.__name__.encode() for module in (fragments, groups, join, merging))
"""One of them stands in the program of a vertex that needs DuckDB."""
_shipped: dict[tuple[str, str], str] = {}
"""(Spark application, package) to the name of what was shipped to it."""
_shipping = threading.Lock()
"""Jobs may begin at the same time."""


def ship(context: Any) -> str:
    """Adds the package to the context's Python files; a second call for the same context does nothing. The zip's name."""
    return _once(context, "firesteel", contents, context.addPyFile)


def engine_of(context: Any, programs: Iterable[bytes], *, there: bool) -> EnginePackage | None:
    """The driver's DuckDB, for programs with fragments; None: there are none. It is sent unless it is ``there``, on all executors.

    Its native library cannot be loaded from a zip, so Spark unpacks it on each executor, for all of its workers, and removes it with the
    executor.
    """
    if not any(name in program for program in programs for name in _OF_ENGINE):
        return None
    try:
        engine = distribution("duckdb")
    except PackageNotFoundError:
        raise UsageError("The driver's Python needs duckdb.", hint="Install it: pip install 'duckdb>=2,<3'.") from None
    archive = "" if there else _once(context, f"duckdb-{engine.version}", lambda: _files_of(engine), context.addArchive)
    return EnginePackage(engine.version, this_platform(), archive)


def _files_of(package: Distribution) -> list[tuple[str, bytes]]:
    """(path, bytes) of what its installation put beside other packages."""
    own = [path for path in package.files or () if ".." not in path.parts and "__pycache__" not in path.parts]
    return sorted((path.as_posix(), path.read_binary()) for path in own)


def _once(context: Any, package: str, read: Callable[[], list[tuple[str, bytes]]], add: Callable[[str], None]) -> str:
    """The name of the package's zip, which was given to ``add`` once for this context."""
    with _shipping:
        key = context.applicationId, package
        if key not in _shipped:
            _shipped[key] = _add(package, read(), add)
        return _shipped[key]


def _add(package: str, files: list[tuple[str, bytes]], add: Callable[[str], None]) -> str:
    directory = private_directory() / "ship"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = build_zip(directory, package, files)
    _prune(directory)
    search_path = list(sys.path)
    try:
        add(str(path))
    finally:
        sys.path[:] = search_path  # Spark puts Python files before everything else, on the driver too
    return path.name


def build_zip(directory: Path, package: str, files: list[tuple[str, bytes]]) -> Path:
    """The package's files, without times: the same content has the same bytes and the same name.

    One that is there already is used again.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name, data in files:
        digest.update(name.encode() + b"\0" + data + b"\0")
    target = directory / f"{package}-{digest.hexdigest()}.zip"
    if target.exists():
        os.utime(target)
        return target
    partial = target.with_suffix(f".{os.getpid()}.part")
    write_zip(files, partial)
    partial.replace(target)
    return target


def _prune(directory: Path) -> None:
    """Removes what other versions shipped long ago; a driver serves its file for as long as it runs."""
    for path in directory.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_SECONDS:
                path.unlink()


_EVERYWHERE = ("__main__", "firesteel", "pyspark", "py4j", "pyarrow", "numpy", "pandas")
"""Never a user's own, wherever they lie: Spark's folder may be the working directory."""
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]+))", re.MULTILINE
)
"""In a docstring as well: a module too many does no harm."""


def modules_beside(programs: Iterable[bytes]) -> tuple[ModuleSource, ...]:
    """The sources of the modules that these pickles name and of those that they import, in the order of their names."""
    beside = _beside()
    wanted = {name for program in programs for name in _named(program, beside)}
    found: dict[str, ModuleSource] = {}
    while wanted:
        name = wanted.pop()
        module = None if name in found else _source(name, beside)
        if module is not None:
            found[name] = module
            package, dot, _ = name.rpartition(".")
            wanted.update({package} if dot else (), (other for other in _imports(module) if _top(other) in beside))
    return tuple(found[name] for name in sorted(found))


def _named(program: bytes, beside: dict[str, Path]) -> Iterator[str]:
    """Modules whose names stand in the pickle as strings, or begin one."""
    tops = {name for name in beside if _stands_in(program, name)}
    yield from tops
    if tops:  # else a look at thousands of modules would find none
        inside = tuple(f"{top}." for top in tops)
        yield from (name for name in list(sys.modules) if name.startswith(inside) and name.encode() in program)


def _stands_in(program: bytes, name: str) -> bool:
    text = name.encode()
    return bytes((0x8C, len(text) & 0xFF)) + text in program or text + b"." in program  # SHORT_BINUNICODE


def _top(name: str) -> str:
    return name.partition(".")[0]


def _beside() -> dict[str, Path]:
    """Top-level module to its file, or a package's folder."""
    roots = _roots()
    inside = [str(root) for root in roots]
    found: dict[str, Path] = {}
    for entry in itertools.chain.from_iterable(map(_files, roots)):
        name = entry.name.removesuffix(".py")
        if not name.isidentifier():
            continue
        if name != entry.name:
            found.setdefault(name, Path(entry.path))
        elif entry.is_dir() and Path(entry.path, "__init__.py").is_file():
            found[name] = Path(entry.path)
    for name, module in list(sys.modules.items()):  # where something was imported from, that counts
        if "." not in name and (path := _path_of(module)) is not None:
            found.pop(name, None)
            if _lies_in(path, inside):
                found[name] = Path(path)
    for name in (*_EVERYWHERE, *sys.stdlib_module_names):
        found.pop(name, None)
    return {
        name: path for name, path in found.items() if not (is_installed(path) or is_installed(path.resolve()))
    }  # a link to what is installed is no module of the user's


def _files(folder: Path) -> list[os.DirEntry[str]]:
    """Empty for a folder that Python does not look for modules in, or cannot read. No Path for each of what may be thousands."""
    try:
        return list(os.scandir(folder)) if folder in {Path(one).absolute() for one in sys.path} else []
    except OSError:
        return []


def _path_of(module: object) -> str | None:
    """Of its file, or a package's folder. No Path: of hundreds of modules it would take milliseconds, for each job."""
    folders, file = list(getattr(module, "__path__", ())), getattr(module, "__file__", None)
    found = folders[0] if folders else file
    if not isinstance(found, str) or not (folders or found.endswith(".py")):
        return None
    return str(Path(found)) if "//" in found or "/./" in found else found


def _roots() -> list[Path]:
    """The script's folder and the working directory."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [Path(script).resolve().parent] if script else []
    folders += map(Path, filter(None, sys.path[:1]))
    with suppress(OSError):  # it was removed
        folders.insert(0, Path.cwd())
    return [folder for folder in dict.fromkeys(folders) if not is_installed(folder)]


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    text = f"{path}/"
    return any(text.startswith(os.path.join(folder, "")) for folder in folders)  # noqa: PTH118 - Path takes ten times as long


def _source(name: str, beside: dict[str, Path]) -> ModuleSource | None:
    """None: there is no such module, or it is no source. A folder without ``__init__.py`` is an empty package."""
    top, *parts = name.split(".")
    path = beside[top].joinpath(*parts)
    if path.is_dir():
        file, is_package = path / "__init__.py", True
    else:
        file, is_package = path if path.suffix == ".py" else path.with_suffix(".py"), False
    try:
        return ModuleSource(name, str(file), file.read_bytes(), is_package)
    except FileNotFoundError:
        return ModuleSource(name, str(file), b"", is_package) if is_package else None
    except OSError:  # importing it tells what is wrong
        return None


def _imports(module: ModuleSource) -> Iterator[str]:
    """The full names of what is imported anywhere in it; of ``from a import b`` both a and a.b, which may be a module."""
    for base, names, plain in _IMPORT.findall(module.source.decode(errors="replace")):
        yield from _listed(plain)
        if base:
            origin = _absolute(base, module)
            yield origin
            yield from (f"{origin}.{name}" for name in _listed(names))


def _listed(names: str) -> Iterator[str]:
    """Each of ``a as b, c``, in parentheses or with comments, without what it is called here."""
    return (part.split()[0] for part in re.sub(r"#[^\n]*|[()\\]", "", names).split(",") if part.strip())


def _absolute(base: str, module: ModuleSource) -> str:
    """``..models`` in the package ``shop.parts`` is ``shop.models``."""
    inner = base.lstrip(".")
    level = len(base) - len(inner)
    if not level:
        return inner
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    return ".".join([*package[: len(package) - level + 1], *([inner] if inner else [])])
