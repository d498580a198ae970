"""``python -m benchmarks [aggregates|exchange|adaptive|tasks|memory|sweep|digest|large|requests|scale|speculation|recovery|mirrors|resources|slots|rescale|load|sort|starts|joins|chains|distinct|costs|star|filtered|heavy_keys|map_async|partitioned|sql|setup_once ...] [--runs N]``: prints tables. ``profile [CASE ...]`` as well."""

from __future__ import annotations

import argparse

from benchmarks import (
    adaptive,
    aggregates,
    chains,
    costs,
    detector,
    digest,
    distinct,
    exchange,
    filtered,
    heavy_keys,
    joins,
    large,
    load,
    map_async,
    memory,
    mirrors,
    partitioned,
    recovery,
    requests,
    rescale,
    resources,
    scale,
    setup_once,
    slots,
    sort,
    speculation,
    sql,
    star,
    starts,
    sweep,
    tasks,
)
from benchmarks.profile import main as profile

BENCHMARKS = {
    "aggregates": aggregates.main,
    "exchange": exchange.main,
    "adaptive": adaptive.main,
    "costs": costs.main,
    "tasks": tasks.main,
    "memory": memory.main,
    "sweep": sweep.main,
    "digest": digest.main,
    "large": large.main,
    "requests": requests.main,
    "scale": scale.main,
    "detector": detector.main,
    "speculation": speculation.main,
    "partitioned": partitioned.main,
    "recovery": recovery.main,
    "mirrors": mirrors.main,
    "resources": resources.main,
    "slots": slots.main,
    "rescale": rescale.main,
    "load": load.main,
    "sort": sort.main,
    "starts": starts.main,
    "joins": joins.main,
    "chains": chains.main,
    "map_async": map_async.main,
    "distinct": distinct.main,
    "star": star.main,
    "filtered": filtered.main,
    "heavy_keys": heavy_keys.main,
    "sql": sql.main,
    "setup_once": setup_once.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(BENCHMARKS)}; none: all; or: profile CASE ...")
    parser.add_argument("--runs", type=int, default=5, help="counted warm runs of each contender (default 5)")
    parser.add_argument("--only", default="", help="only the cases of this name")
    parser.add_argument("--plot", action="store_true", help="scale: also draw docs/scale.svg")
    arguments = parser.parse_args()
    if arguments.names[:1] == ["profile"]:
        profile.main(arguments.runs, arguments.names[1:])
        return
    unknown = [n for n in arguments.names if n not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    for name in arguments.names or BENCHMARKS:
        if name == "scale" and arguments.plot:
            scale.main(arguments.runs, arguments.only, draw=True)
        else:
            BENCHMARKS[name](arguments.runs, arguments.only)


if __name__ == "__main__":
    main()
