"""``python -m benchmarks [NAME ...] [--runs N] [--only CASE]``: prints tables; without a name, of all but ``readme``. ``profile CASE ...`` as well."""

from __future__ import annotations

import argparse
import importlib

FOLDERS = {
    "jobs": (
        "exchange",
        "adaptive",
        "fixed",
        "far",
        "sql",
        "large",
        "tasks",
        "starts",
        "sweep",
        "costs",
        "monitoring",
        "resuming",
        "readme",
    ),
    "keyed": ("aggregates", "distinct", "heavy_keys", "sort", "partitioned", "memory", "requests", "fan_in"),
    "joins": ("joins", "star", "chains", "filtered", "ordered_joins"),
    "control_plane": ("scale", "detector", "digest", "slots", "waves", "mirrors", "page"),
    "cluster": ("speculation", "recovery", "resources", "standing"),
    "streams": ("load", "rescale"),
    "functions": ("setup_once", "map_async"),
}
MODULES = {name: f"benchmarks.{folder}.{name}" for folder, names in FOLDERS.items() for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help=f"any of {', '.join(MODULES)}; none: all but readme; or: profile CASE ..."
    )
    parser.add_argument("--runs", type=int, default=5, help="counted warm runs of each contender (default 5)")
    parser.add_argument("--only", default="", help="only the cases of this name")
    parser.add_argument("--write", action="store_true", help="readme: also put the table into README.md")
    parser.add_argument("--plot", action="store_true", help="scale: also draw docs/scale.svg")
    arguments = parser.parse_args()
    if arguments.names[:1] == ["profile"]:
        from benchmarks.profile import main as profile

        profile.main(arguments.runs, arguments.names[1:])
        return
    unknown = [n for n in arguments.names if n not in MODULES]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; choose from {', '.join(MODULES)}")
    for name in arguments.names or [one for one in MODULES if one != "readme"]:
        own = {"draw": True} if name == "scale" and arguments.plot else {}
        own |= {"write": True} if name == "readme" and arguments.write else {}
        importlib.import_module(MODULES[name]).main(arguments.runs, arguments.only, **own)


if __name__ == "__main__":
    main()
