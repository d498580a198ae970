"""Writes what is generated in docs/: the options page, the API reference, the rooms and states of docs/architecture.md, the states of
docs/streams.md, the dictionary of docs/steps.md, and the README's picture.

``./dev docs`` writes; a test compares, so that the pages stay true.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from firesteel.options import Option, all_options, format_value
from firesteel.scheduler.kernel.states import EXECUTION_STATES, Transitions
from firesteel.scheduler.streaming.states import RESCALE_PHASES, SCHEDULER_STATES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "firesteel"


def _is_of_speculation(key: str) -> bool:
    return ".speculative." in key or "slow-task-detector." in key


def _is_of_streams(key: str) -> bool:
    return key.startswith(("jobmanager.adaptive-scheduler.", "execution.checkpointing.", "firesteel.stream."))


_MEMORY_OF_SLOTS = ("firesteel.memory.framework", "firesteel.memory.watch")
SECTIONS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    (
        "Deciding parallelism",
        "FLIP-187's keys, and what Firesteel adds to them.",
        lambda key: (
            (
                key.startswith(("jobmanager.", "parallelism.", "firesteel.decider.", "execution."))
                or key == "firesteel.subpartition-factor"
            )
            and not _is_of_speculation(key)
            and not _is_of_streams(key)
        ),
    ),
    ("Speculative execution", "FLIP-168's keys, and what Firesteel adds to them.", _is_of_speculation),
    ("Streams", "FLIP-461's keys, today's keys of Flink around them, and what Firesteel adds.", _is_of_streams),
    (
        "Resources",
        "What slots need (FLIP-169). `<name>` is that of a slot sharing group, `<resource>` that of an external resource: "
        "`slot-sharing-group.gpu.external.gpu`.",
        lambda key: key.startswith(
            ("fine-grained.", "slot-sharing-group.", "slot.", "firesteel.executor.memory", *_MEMORY_OF_SLOTS)
        ),
    ),
    ("Failures", "Flink's keys.", lambda key: key.startswith("restart-strategy")),
    (
        "Page and REST",
        "Flink's keys where Flink has them.",
        lambda key: key.startswith(("rest.", "firesteel.ui.")),
    ),
    ("Running", "What only Firesteel has.", lambda _key: True),
)
BEGIN, END = "<!-- generated: {} -->", "<!-- end of {} -->"


def options_page() -> str:
    """docs/options.md."""
    left = list(all_options())
    parts = [
        "# Options\n\nGenerated from `src/firesteel/options/` by `./dev docs`.\n\n"
        "Where a value can come from, the higher going over the lower:\n\n"
        "1. a step: `set_parallelism(16)`, `set_max_parallelism(64)` and others of its kind;\n"
        '2. the program: `ExecutionEnvironment(options={"max-parallelism": 16})`;\n'
        "3. the command line: `firesteel run -O max-parallelism=16 script.py`;\n"
        "4. an environment variable: `FIRESTEEL_MAX_PARALLELISM=16`;\n"
        "5. Spark's configuration: `spark.firesteel.max-parallelism=16`, in `spark-defaults.conf` or with `spark-submit --conf`;\n"
        '6. YAML files, by dotted or nested keys: `ExecutionEnvironment(config="firesteel.yaml")` over `firesteel run --config '
        "FILE` over the file that `FIRESTEEL_CONFIG` names;\n"
        "7. the default.\n\n"
        "`firesteel options --changed` shows what is set, and where that was said; `--json` for machines.\n\n"
        "A short name, the end of a key after a dot, is enough where it is unambiguous. The variable of a name is `FIRESTEEL_` and "
        "the name in capitals, with `_` for each dot and dash,\nwithout a leading `firesteel.`: `FIRESTEEL_RESULTS_CODEC` for "
        "`firesteel.results.codec`. Names that stand for `<name>` are in small letters then;\nan empty variable is unset; one that "
        "names no option is warned of (`FIRESTEEL_EXECUTOR_MEMORY` is an executor's own, and no option).\n\n"
        "After the default of each stands what it is for. One of batch jobs that the program or the command line sets for a stream is "
        "told of, and changes\nnothing there; files, the environment and Spark's configuration hold for both kinds.\n\n"
        "Sizes are binary (`64 MiB`, `1g`); a duration without a unit is in milliseconds, as in Flink (`500 ms`, `2 min`); a share "
        "is a number or a percentage (`0.75`, `75%`)."
    ]
    for title, intro, belongs in SECTIONS:
        parts.append(f"## {title}\n\n{intro}")
        parts += [_entry(option) for option in left if belongs(option.key)]
        left = [option for option in left if not belongs(option.key)]
    return "\n\n".join(parts) + "\n"


def _entry(option: Option[object]) -> str:
    lines = [
        f"### `{option.key}`",
        "",
        f"{option.kind}, default `{format_value(option, option.default)}`; {option.scope.value}",
        "",
        option.doc,
    ]
    if option.aliases:
        lines += ["", "Also: " + ", ".join(f"`{key}`" for key in option.aliases)]
    if option.deprecated_keys:
        lines += ["", "Deprecated: " + ", ".join(f"`{key}`" for key in option.deprecated_keys)]
    return "\n".join(lines)


def with_diagrams(text: str, drawn: Mapping[str, Transitions[Any]]) -> str:
    """A page with its state diagrams as the tables have them now."""
    for name, table in drawn.items():
        text = replace_part(text, name, f"```mermaid\n{table.diagram()}```")
    return text


def rooms() -> str:
    """Folders of the package, by the first sentences of their docstrings, and their walls."""
    from tools.walls import COMMON, in_words

    lines = ["| room | for | imports |", "|---|---|---|"]
    for file in sorted(PACKAGE.glob("*/__init__.py")):
        room = file.parent.name
        lines.append(f"| `{room}/` | {first_sentence(file)} | {in_words(room)} |")
    modules = ", ".join(f"`{name}.py`" for name in sorted(COMMON))
    return "\n".join([*lines, f"| {modules} | Modules that every room may import. | |"])


def first_sentence(file: Path) -> str:
    """Of a module's docstring."""
    words = (
        (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0].replace("``", "`").replace("\n", " ")
    )
    return words.split(". ")[0].rstrip(".") + "."


def replace_part(text: str, name: str, content: str) -> str:
    """Raises ValueError if the page lacks the marks of this part."""
    begin, end = BEGIN.format(name), END.format(name)
    before, mark, rest = text.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise ValueError(f"The page lacks '{begin}' ... '{end}'.")
    return f"{before}{begin}\n{content}\n{end}{after}"


def pages() -> dict[Path, str]:
    """Every page that is generated or has a generated part, as it should be."""
    from tools.api_reference import api_page, dictionary
    from tools.picture import SVG, picture

    architecture, steps, streams = (ROOT / "docs" / f"{name}.md" for name in ("architecture", "steps", "streams"))
    house = replace_part(architecture.read_text(), "rooms", rooms())
    return {
        ROOT / "docs" / "options.md": options_page(),
        ROOT / "docs" / "api.md": api_page(),
        architecture: with_diagrams(house, {"execution states": EXECUTION_STATES}),
        streams: with_diagrams(
            streams.read_text(), {"stream states": SCHEDULER_STATES, "rescale phases": RESCALE_PHASES}
        ),
        steps: replace_part(steps.read_text(), "dictionary", dictionary()),
        SVG: picture(),
    }


def main() -> None:
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
