"""firesteel decide, and the function behind it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import firesteel
from firesteel.api.deciding import Slices, decide
from firesteel.cli.answers import answer_file, answers
from firesteel.errors import UsageError
from firesteel.options import Options

MIB = 1 << 20


def ask(*requests, defaults=None):
    """Answers to requests, which are values or lines as they are."""
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in requests]
    found = answers(io.BytesIO(b"\n".join(lines)), Options(defaults), "the test")
    return [json.loads(text) for text, _ in found]


def one(inputs, **options):
    options = {key.replace("_", "-"): value for key, value in options.items()}
    return ask({"options": options, "inputs": inputs})[0]


def test_an_answer_has_the_keys_of_the_contract_and_half_open_ranges():
    answer = one([{"pattern": "all-to-all", "broadcast": False, "keyed": True, "bytes": [[5, 5, 1], [5, 5, 1]]}],
                 data_volume_per_task=12)  # fmt: skip
    assert answer == {
        "parallelism": 2,
        "ranges": [
            [
                [{"partitions": [0, 2], "subpartitions": [0, 1]}],
                [{"partitions": [0, 2], "subpartitions": [1, 3]}],
            ]
        ],
        "rule": "by-bytes",
        "bounds": [],
        "reason": "2 subtasks: 22 B over 12 B each, bounded by nothing; largest range 12 B, smallest 10 B",
    }


def test_missing_options_are_the_products_defaults():
    rows = [[64 * MIB] * 300]
    assert ask({"inputs": [{"bytes": rows}]}) == [one([{"bytes": rows}], max_parallelism=128, min_parallelism=1,
                                                       data_volume_per_task=64 * MIB, cut="by-bytes",
                                                       parallelism=None)]  # fmt: skip
    assert one([{"bytes": rows}])["parallelism"] == 100, "of 128, as more would not make the largest range smaller"
    assert one([{"bytes": rows}])["bounds"] == ["max-parallelism 128, where 100 have as small a largest range"]
    assert one([{"bytes": [[64 * MIB, 64 * MIB]]}], data_volume_per_task=None)["parallelism"] == 2


def test_pattern_decides_whether_an_input_is_keyed_unless_it_says():
    cells = [[3, 3], [3, 3]]
    whole = {"partitions": [0, 2], "subpartitions": [0, 1]}
    cell = {"partitions": [0, 1], "subpartitions": [0, 1]}
    for keyed in ({"pattern": "all-to-all"}, {}, {"pattern": "pointwise", "keyed": True}, {"keyed": None}):
        assert one([{**keyed, "bytes": cells}], data_volume_per_task=3)["ranges"][0][0] == [whole], keyed
    for unkeyed in ({"pattern": "pointwise"}, {"pattern": "all-to-all", "keyed": False}):
        assert one([{**unkeyed, "bytes": cells}], data_volume_per_task=3)["ranges"][0][0] == [cell], unkeyed


def test_a_broadcast_is_read_whole_by_each_and_its_bytes_come_off_the_volume():
    small = {"broadcast": True, "bytes": [[1, 2], [0, 1]]}  # 4 of 8: at most half is taken
    answer = one([{"bytes": [[4, 4, 4]]}, small], data_volume_per_task=8)
    assert answer["parallelism"] == 3
    assert answer["ranges"][1] == [[{"partitions": [0, 2], "subpartitions": [0, 2]}]] * 3
    assert one([small], min_parallelism=2)["parallelism"] == 2, "all broadcast: the minimum"


def test_by_count_is_the_seeds_formula():
    answer = one([{"bytes": [[6, 0, 0, 0, 0]]}, {"broadcast": True, "bytes": [[9]]}], cut="by-count",
                 data_volume_per_task=3)  # fmt: skip
    assert answer["parallelism"] == 4, "6 / (3 - 1.5)"
    assert [r[0]["subpartitions"] for r in answer["ranges"][0]] == [[0, 1], [1, 2], [2, 3], [3, 5]]
    assert one([{"bytes": [[3]]}], cut="by-count", data_volume_per_task=1)["parallelism"] == 4, "a tie goes up"
    fixed = one([{"bytes": [[1] * 7]}], cut="by-count", parallelism=3)
    assert (fixed["parallelism"], fixed["rule"]) == (3, "fixed")
    assert [r[0]["subpartitions"] for r in fixed["ranges"][0]] == [[0, 2], [2, 4], [4, 7]]


def test_sizes_and_options_as_people_write_them():
    answer = one([{"bytes": [["64 MiB", "1g", 0], [1, "2 kb", "0"]]}], data_volume_per_task="512 MiB")
    assert answer["parallelism"] == 2
    assert one([{"bytes": [["1 MiB", "1 MiB"]]}], **{"data-volume-per-task": MIB})["parallelism"] == 2
    long_names = {"jobmanager.adaptive-batch-scheduler.max-parallelism": 1, "firesteel.decider.cut": "BY-COUNT"}
    assert one([{"bytes": [[MIB] * 999]}], **long_names)["rule"] == "by-count"


# --- heavy subpartitions of joins ------------------------------------------------------------------------------

HEAVY, EVEN = {"bytes": [[9, 500, 9]]}, {"bytes": [[5, 5, 5]]}
FOUR = {"slots": 4, "data_volume_per_task": 160}


def parts_of(answer):
    """Of each subtask, the parts that it reads of either side."""
    sides = [[[r.get("part", [0, 1]) for r in subtask] for subtask in side] for side in answer["ranges"]]
    return list(zip(*sides, strict=True))


def joined(join, left, right, **options):
    options = {key.replace("_", "-"): value for key, value in {**FOUR, **options}.items()}
    return ask({"join": join, "options": options, "inputs": [left, right]})[0]


def test_rows_of_a_heavy_subpartition_are_dealt_out_where_the_join_allows_it():
    whole = [[0, 1]]
    for join in ("inner", "left", "leftouter", "Semi", "anti"):
        answer = joined(join, HEAVY, EVEN)
        assert parts_of(answer)[:3] == [([[part, 3]], whole) for part in range(3)], join
        assert "divided: subpartition 1 (505 B) among 3 subtasks" in answer["reason"]
    assert parts_of(joined("right", EVEN, HEAVY))[:3] == [(whole, [[part, 3]]) for part in range(3)]
    for join, sides, why in (
        ("right", (HEAVY, EVEN), "only right rows may be in a join of kind 'right'"),
        ("left", (EVEN, HEAVY), "only left rows may be in a join of kind 'left'"),
        ("full", (HEAVY, EVEN), "no rows may be in a join of kind 'full'"),
    ):
        answer = joined(join, *sides)
        assert answer["reason"].endswith(f"subpartition 1 (505 B) is not divided: {why}")
        assert not any(part != [0, 1] for parts in parts_of(answer) for side in parts for part in side)


def test_a_grid_where_both_sides_are_heavy():
    answer = joined("inner", HEAVY, HEAVY, data_volume_per_task=100, slots=16)
    pairs = [(*left[0], *right[0]) for left, right in parts_of(answer) if left[0][1] > 1]
    lefts, rights = pairs[0][1], pairs[0][3]
    assert lefts > 1 < rights
    assert sorted(pairs) == [(a, lefts, b, rights) for a in range(lefts) for b in range(rights)]


def test_a_request_may_say_by_itself_what_is_divisible():
    alone = joined(None, {**HEAVY, "divisible": True}, EVEN)
    assert alone == joined("left", HEAVY, EVEN)
    assert joined("full", {**HEAVY, "divisible": True}, EVEN) == alone
    forbidden = joined("inner", {**HEAVY, "divisible": False}, EVEN)
    assert forbidden["reason"].endswith("is not divided: as the request says")
    assert joined("left", HEAVY, EVEN, **{"firesteel.join.skew": "none"}) == joined(None, HEAVY, EVEN)
    beside = {"broadcast": True, "bytes": [[1]]}
    assert ask({"join": "left", "options": {"slots": 4, "data-volume-per-task": 160}, "inputs": [HEAVY, beside, EVEN]})[
        0
    ]["reason"].endswith("among 3 subtasks, which read 172 B each")


def test_rows_may_be_parted_by_value_where_there_is_one_input():
    answer = one([{**HEAVY, "divisible": "by-value"}, {"broadcast": True, "bytes": [[1]]}], **FOUR)
    assert parts_of(answer)[:3] == [([[part, 3]], [[0, 1]]) for part in range(3)]
    assert "among 3 subtasks, which keep 167 B each" in answer["reason"]
    assert one([HEAVY], **FOUR)["parallelism"] == 3


def test_the_python_function_tells_parts():
    decided = decide([HEAVY, EVEN], {"slots": 4, "data-volume-per-task": 160}, join="left")
    assert decided.ranges[0][0] == [Slices((0, 1), (1, 2), (0, 3))]
    assert decided.ranges[1][0] == [Slices((0, 1), (1, 2))]
    assert decided.bytes is not None
    assert decided.bytes.sum() == 518 + 15 + 2 * 5, "two read the right side's subpartition once more"


def test_nothing_to_read():
    assert one([{"bytes": [[0, 0], [0, 0]]}])["parallelism"] == 1
    answer = one([{"bytes": [[0]]}], parallelism=3)
    assert [len(r) for r in answer["ranges"][0]] == [1, 0, 0], "a subtask without input has no ranges"
    assert one([{"bytes": [[0, 0, 0]]}], min_parallelism=2)["parallelism"] == 2


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({}, "A request needs 'inputs', a list."),
        ([], "A request is an object, values by key, not a list."),
        (None, "A request is an object, values by key, not nothing."),
        ({"inputs": []}, "A step without inputs has nothing to be decided from."),
        ({"inputs": {}}, "'inputs' is a list, not an object."),
        ({"inputs": [[]]}, "Input 0 is an object, values by key, not a list."),
        ({"input": []}, "There is no key in a request: 'input'. Did you mean 'inputs'?"),
        ({"inputs": [{"byte": [[1]]}]}, "There is no key in input 0: 'byte'. Did you mean 'bytes'?"),
        ({"inputs": [{"bytes": [[1]], "patern": "x"}]}, "Did you mean 'pattern'?"),
        ({"inputs": [{"bytes": [[1]], "pattern": "all"}]}, "Input 0: there is no pattern 'all'."),
        ({"join": "innner", "inputs": [HEAVY, EVEN]}, "There is no join of kind 'innner'."),
        ({"join": 3, "inputs": [HEAVY, EVEN]}, "'join' is a number, not the kind of a join."),
        ({"join": "left", "inputs": [HEAVY]}, "two keyed all-to-all inputs, left and right, and here is 1."),
        ({"join": "left", "inputs": [HEAVY] * 3}, "two keyed all-to-all inputs, left and right, and here are 3."),
        ({"inputs": [{**HEAVY, "divisible": "by-value"}, EVEN]}, "divisible by value is the only one that is not broadcast"),
        ({"inputs": [{**HEAVY, "divisible": "by-value", "pattern": "pointwise"}]}, "only a keyed all-to-all input can be"),
        ({"inputs": [{**HEAVY, "divisible": 1}]}, "Input 0: 'divisible' is 1, which is neither true nor false."),
        ({"inputs": [{**HEAVY, "divisible": True, "keyed": False}]}, "Input 0: only a keyed all-to-all input can be"),
        ({"inputs": [{**HEAVY, "divisible": True, "broadcast": True}]}, "Input 0: only a keyed all-to-all input can be"),
        ({"inputs": [{"bytes": [[1]], "keyed": "yes"}]}, "Input 0: 'keyed' is 'yes', which is neither true nor false."),
        ({"inputs": [{"pattern": "pointwise"}]}, "Input 0 needs 'bytes', a list of lists, not nothing."),
        ({"inputs": [{"bytes": []}]}, "Input 0 has no producers."),
        ({"inputs": [{"bytes": [[], []]}]}, "Input 0 has no subpartitions."),
        ({"inputs": [{"bytes": [1, 2]}]}, "Input 0: the sizes of producer 0 are a list, not a number."),
        ({"inputs": [{"bytes": [[1]]}, {"bytes": [[1, 2], [3]]}]}, "producer 0 has 2 subpartitions, producer 1 has 1."),
        ({"inputs": [{"bytes": [[1, -1]]}]}, "Input 0: bytes[0][1] = -1 must not be negative."),
        ({"inputs": [{"bytes": [[1, True]]}]}, "Input 0: bytes[0][1] = True is not a size"),
        ({"inputs": [{"bytes": [[0.5]]}]}, "Input 0: bytes[0][0] = 0.5 is not a size"),
        ({"inputs": [{"bytes": [["many"]]}]}, "Input 0: bytes[0][0] = 'many' is not a size such as"),
        ({"inputs": [{"bytes": [[1 << 62]]}]}, "is 4 EiB or more"),
        ({"inputs": [{"bytes": [[10**30]]}]}, "is not a size below 8 EiB"),
        ({"inputs": [{"bytes": [[1 << 61, 1 << 61]]}]}, "hold 4 EiB or more"),
        ({"inputs": [{"bytes": [[1 << 61]]}, {"bytes": [[1 << 61]]}]}, "hold 4 EiB or more"),
        ({"inputs": [{"bytes": [[1]]}, {"bytes": [[1, 2]]}]}, "keyed together need equally many subpartitions"),
        ({"options": [], "inputs": [{"bytes": [[1]]}]}, "'options' is an object, values by key, not a list."),
        ({"options": {"max-paralelism": 1}, "inputs": [{"bytes": [[1]]}]}, "Did you mean 'max-parallelism'?"),
        ({"options": {"paralelism": 1}, "inputs": [{"bytes": [[1]]}]}, "Did you mean 'parallelism'?"),
        ({"options": {"firesteel.progress": True}, "inputs": [{"bytes": [[1]]}]}, "has no part in this decision"),
        ({"options": {"parallelism": 0}, "inputs": [{"bytes": [[1]]}]}, "'parallelism' = 0 must be at least 1."),
        ({"options": {"parallelism": 1.5}, "inputs": [{"bytes": [[1]]}]}, "is not a whole number"),
        ({"options": {"parallelism": 10**7}, "inputs": [{"bytes": [[1]]}]}, "10,000,000 subtasks are more than"),
        ({"options": {"min-parallelism": 10**9, "max-parallelism": 10**9}, "inputs": [{"bytes": [[1]]}]}, "are more than"),
        ({"options": {"max-parallelism": 10**12, "data-volume-per-task": 1, "cut": "by-count"},
          "inputs": [{"bytes": [[10**12]]}]}, "are more than one step may have"),
        ({"options": {"min-parallelism": 9, "max-parallelism": 8}, "inputs": [{"bytes": [[1]]}]},
         "min-parallelism 9 and max-parallelism 8 leave no parallelism to choose."),
        ({"options": {"min-parallelism": 5, "max-parallelism": 7, "cut": "by-count"}, "inputs": [{"bytes": [[1]]}]},
         "No power of two lies between"),
        ({"options": {"data-volume-per-task": "9" * 400}, "inputs": [{"bytes": [[1]]}]}, "is not a size below 8 EiB"),
        ({"options": {"data-volume-per-task": 0}, "inputs": [{"bytes": [[1]]}]}, "must be at least 1 byte"),
    ],
)  # fmt: skip
def test_what_cannot_be_met_is_a_sentence(request_, sentence):
    (answer,) = ask(request_)
    assert set(answer) == {"error"}
    assert sentence in answer["error"]


def test_one_bad_line_does_not_stop_the_rest():
    good = {"inputs": [{"bytes": [[1]]}]}
    found = ask(good, b'{"inputs": [', b"", b"nonsense", b'{"inputs": "\xff"}', b"[" * 10_000, good)
    assert ["error" in answer for answer in found] == [False, True, True, True, True, False]
    assert all("JSON" in answer["error"] for answer in found[1:5])
    for wrong in (b'{"inputs": [', b'{"inputs": "\xff"}'):
        first = ask(wrong, good)
        assert ["error" in answer for answer in first] == [True, False]


def test_one_object_over_several_lines_is_one_request():
    request = {"inputs": [{"pattern": "pointwise", "bytes": [[1, 2], [3, 4]]}]}
    pretty = json.dumps(request, indent=1).encode()
    assert ask(pretty) == ask(request) == ask(b"\xef\xbb\xbf" + pretty.replace(b"\n", b"\r\n"))
    broken = ask(pretty.replace(b"[\n", b"[,\n"))
    assert len(broken) == 1
    assert "This is not JSON" in broken[0]["error"]


def test_lines_are_answered_as_they_come():
    """Line by line: the second is asked for when the first was answered."""
    seen = []

    class Lines(io.BytesIO):
        def __iter__(self):
            for number in range(3):
                seen.append(number)
                yield b'{"inputs": [{"bytes": [[1]]}]}\n'

    found = answers(Lines(), Options(), "the test")
    next(found)
    assert seen == [0]


def test_options_of_the_command_stand_in_for_those_that_a_request_leaves_out():
    rows = [{"bytes": [[1, 1, 1, 1]]}]
    kept, over = ask({"inputs": rows}, {"options": {"data-volume-per-task": 4}, "inputs": rows},
                     defaults={"data-volume-per-task": 1})  # fmt: skip
    assert (kept["parallelism"], over["parallelism"]) == (4, 1)


def test_a_file_that_is_not_there_or_empty(tmp_path):
    with pytest.raises(UsageError, match="There is no file"):
        list(answer_file(str(tmp_path / "none"), Options()))
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        list(answer_file(str(tmp_path), Options()))
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(UsageError, match="There is no request in"):
        list(answer_file(str(tmp_path / "empty"), Options()))


def test_the_command(tmp_path):
    file = tmp_path / "requests.jsonl"
    file.write_text('{"inputs": [{"bytes": [[1]]}]}\n{"inputs": []}\n')
    command = [sys.executable, "-m", "firesteel", "decide"]
    shown = subprocess.run([*command, file], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (1, "")
    assert ["error" in json.loads(line) for line in shown.stdout.splitlines()] == [False, True]
    piped = subprocess.run([*command, "-"], input=b'{"inputs":\n[{"bytes": [[1]]}]}', capture_output=True, check=False)
    assert piped.returncode == 0
    assert json.loads(piped.stdout)["parallelism"] == 1


@pytest.mark.full
def test_the_command_misses_a_file():
    command = [sys.executable, "-m", "firesteel", "decide", "missing"]
    missing = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("firesteel: There is no file 'missing'.")


def test_many_requests_take_seconds():
    numbers = np.random.default_rng(0).integers(0, 10 * MIB, (200, 4, 16)).tolist()
    requests = [{"inputs": [{"bytes": rows}, {"pattern": "pointwise", "bytes": rows}]} for rows in numbers]
    started = time.process_time()
    found = ask(*requests)
    assert all(answer["parallelism"] > 5 for answer in found)
    assert time.process_time() - started < 3, "it takes 0.4 s of CPU"


def test_the_python_function():
    assert firesteel.decide is decide
    decided = decide([{"bytes": np.array([[4, 4], [4, 4]])}], {"data-volume-per-task": 8})
    assert isinstance(decided, firesteel.Decided)
    assert decided.parallelism == 2
    assert decided.ranges == [[[Slices((0, 2), (0, 1))], [Slices((0, 2), (1, 2))]]]
    assert decided.bytes is not None
    assert decided.bytes.tolist() == [8, 8]
    assert (decided.rule, decided.bounds) == ("by-bytes", [])
    with pytest.raises(UsageError, match="has no producers"):
        decide([{"bytes": []}])


def test_the_python_function_takes_arrays_and_complains_in_sentences():
    rows = [np.array([5, 5, 1]), [np.int64(5), 5, np.int32(1)]]
    assert decide([{"bytes": rows}], {"data-volume-per-task": 12}).parallelism == 2
    for inputs in (None, 5, "text", {"bytes": [[1]]}):
        with pytest.raises(UsageError, match="'inputs'"):
            decide(inputs)  # pyright: ignore[reportArgumentType]


def test_a_long_value_is_not_repeated_whole():
    with pytest.raises(UsageError) as caught:
        decide([{"bytes": [["x" * 100_000]]}])
    assert len(str(caught.value)) < 300
    with pytest.raises(UsageError, match="must not be negative"):
        decide([{"bytes": [[np.int64(-1)]]}])


def test_the_page_shows_what_is_answered():
    page = (Path(__file__).parents[3] / "docs" / "decide.md").read_text()
    examples = re.findall(r"echo '(.*?)' \| firesteel decide -\n(.*?)```", page, re.S)
    assert len(examples) == 2
    for request, shown in examples:
        assert [json.loads(shown)] == ask(request.encode())
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(code, {})
