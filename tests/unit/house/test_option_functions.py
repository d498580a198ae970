"""Functions that options name as ``module:function``."""

from __future__ import annotations

import math
import pickle
import re

import pytest

from firesteel.errors import UsageError
from firesteel.option_functions import OptionFunctionError, load_function

KEY = "firesteel.some.function"


class Kinds:
    def half(self, number: int) -> float:
        return number / 2


def raising(number: int) -> int:
    return _deeper(number)


def _deeper(number: int) -> int:
    raise KeyError(f"number {number}")


def leaving() -> None:
    raise SystemExit(3)


def refusing() -> None:
    raise UsageError("Not like this.")


def test_a_function_is_loaded_and_called():
    assert load_function(KEY, "math:sqrt")(9.0) == math.sqrt(9.0)
    assert load_function(KEY, f"{__name__}:Kinds.half").named == f"{__name__}:Kinds.half"


def test_a_class_is_a_function_and_its_methods_are_called_likewise():
    made = load_function(KEY, f"{__name__}:Kinds")
    assert made.call(made().half, 3) == 1.5
    with pytest.raises(OptionFunctionError, match=r"some\.function = '.*:Kinds' raised TypeError: unsupported operand"):
        made.call(made().half, None)


@pytest.mark.parametrize("text", ["math", "math:", ":sqrt", "", "math.sqrt"])
def test_what_names_no_function_is_a_sentence(text):
    with pytest.raises(
        UsageError, match=re.escape(f"{KEY} = '{text}' does not name a function. Write 'module:function'.")
    ):
        load_function(KEY, text)


def test_a_module_or_a_name_that_is_not_there_is_a_sentence_without_frames():
    with pytest.raises(UsageError, match="cannot be imported: No module named 'no_such_module'") as caught:
        load_function(KEY, "no_such_module:f")
    assert caught.value.cause_trace is None
    with pytest.raises(UsageError, match="there is no 'no_root' in math"):
        load_function(KEY, "math:no_root")
    with pytest.raises(UsageError, match="is float, which cannot be called"):
        load_function(KEY, "math:pi")


@pytest.mark.parametrize(
    ("body", "words"), [("1 / 0", "ZeroDivisionError: division by zero"), ("exit(4)", "SystemExit: 4")]
)
def test_a_module_that_raises_shows_its_own_frames(body, words, tmp_path, monkeypatch):
    (tmp_path / "raises_on_import.py").write_text(f"x = 1\n{body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"cannot be imported: {words}") as caught:
        load_function(KEY, "raises_on_import:f")
    files = re.findall(r'File "([^"]+)", line (\d+)', caught.value.cause_trace or "")
    assert files[0] == (str(tmp_path / "raises_on_import.py"), "2")
    assert not any("firesteel/option_functions" in file or "importlib" in file for file, _ in files)


def test_what_it_raises_is_told_with_its_own_frames_only():
    function = load_function(KEY, f"{__name__}:raising")
    with pytest.raises(OptionFunctionError) as caught:
        function(7)
    assert caught.value.message == f"{KEY} = '{__name__}:raising' raised KeyError: 'number 7'."
    assert re.findall(r"in (\w+)", caught.value.cause_trace or "") == ["raising", "_deeper"]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.message, again.cause_trace) == (caught.value.message, caught.value.cause_trace)


def test_it_may_not_end_the_program_and_our_own_errors_pass():
    with pytest.raises(OptionFunctionError, match="raised SystemExit: 3"):
        load_function(KEY, f"{__name__}:leaving")()
    with pytest.raises(UsageError, match=r"^Not like this\.$"):
        load_function(KEY, f"{__name__}:refusing")()
