"""The user's own modules that a job needs: those beside the script, or in the folder it was started in, with what they import from there.

They are no part of an environment that executors could have too, so their sources go with the job: of what its functions name, and of
whatever that imports, wherever the import stands. What is installed stays where it is, and so do files that are no modules.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from firesteel.compile.identity.modules import is_installed
from firesteel.task.executor.modules import ModuleSource

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
