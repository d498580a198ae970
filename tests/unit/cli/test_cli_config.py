"""firesteel run --config: options from a YAML file."""

from __future__ import annotations

import pytest

from firesteel.cli.main import given_options
from firesteel.errors import UsageError
from firesteel.options import Options
from firesteel.options.files import read_options
from firesteel.options.layers import surroundings


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes) -> str:
        (tmp_path / "c.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return "c.yaml"

    return write


def test_nested_keys_dotted_keys_and_both(config):
    file = config(
        "slot-sharing-group:\n"
        "  gpu: {cpu-cores: 2, task-heap-memory: 2 GiB, external.gpu: 1}\n"
        "  a.b.task-heap-memory: 1g\n"
        "restart-strategy:\n"
        "  type: off\n"
        "  fixed-delay: {delay: 500 ms}\n"
        "max-parallelism: 16  # a short name\n"
    )
    options = Options(given_options(None, configs=[file]))
    assert dict(options.items()) == {
        "slot-sharing-group.gpu.cpu-cores": 2.0,
        "slot-sharing-group.gpu.task-heap-memory": 2 << 30,
        "slot-sharing-group.gpu.external.gpu": 1.0,
        "slot-sharing-group.a.b.task-heap-memory": 1 << 30,
        "restart-strategy.type": "none",
        "restart-strategy.fixed-delay.delay": 0.5,
        "jobmanager.adaptive-batch-scheduler.max-parallelism": 16,
    }


def test_the_command_line_goes_over_the_file_by_whatever_name(config):
    file = config("max-parallelism: 16\nslot-sharing-group.gpu.cpu-cores: 2\nfiresteel.progress: true\n")
    pairs = ["jobmanager.adaptive-batch-scheduler.max-parallelism=8", "slot-sharing-group.gpu.cpu-cores=4"]
    options = Options(given_options(pairs, True, [file]))
    assert options["max-parallelism"] == 8
    assert options["slot-sharing-group.gpu.cpu-cores"] == 4
    assert options["firesteel.progress"] is False, "--quiet"


def test_of_several_files_the_later_goes_over(config, tmp_path):
    first = tmp_path / "first.yaml"
    first.write_text("max-parallelism: 16\nslot-sharing-group.gpu.cpu-cores: 2\n")
    later = config("jobmanager.adaptive-batch-scheduler.max-parallelism: 4\n")
    options = Options(given_options(None, configs=[str(first), later]))
    assert options["max-parallelism"] == 4
    assert options["slot-sharing-group.gpu.cpu-cores"] == 2


@pytest.mark.parametrize("text", ["", "# nothing\n", "max-parallelism:\n", "max-parallelism: null\n"])
def test_nothing_is_no_option(config, text):
    assert len(Options(given_options(None, configs=[config(text)]))) == 0


def test_a_mapping_can_be_named_and_used_again(config):
    file = config("slot-sharing-group:\n  a: &one {cpu-cores: 1, task-heap-memory: 1g}\n  b: *one\n")
    assert len(Options(given_options(None, configs=[file]))) == 4


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\nb: [1\n", r"c.yaml, line 3, column 1: this is not YAML: while parsing a flow sequence, expected"),
        ("a: 1\n---\nb: 1\n", r"c.yaml, line 2, column 1: this is not YAML: .*but found another document"),
        ("a: \x01\n", "c.yaml is not YAML: unacceptable character"),
        (b"\xff\xfe\x00", "c.yaml is not text in UTF-8. Give --config"),
        ("- 1\n", "c.yaml, line 1: options are values by key, not a list. Write lines such as 'max-parallelism: 16'"),
        ("just words\n", "c.yaml, line 1: options are values by key, not a single value"),
        (
            "cut: by-count\nmax-parallelism: [1, 2]\n",
            "c.yaml, line 2: 'max-parallelism' has a list, but an option has one",
        ),
        ("? [1]\n: 2\n", "c.yaml, line 1: the key of an option is text, not a list"),
        ("max-parallelism: 3\n\nmax-parallelism: 4\n", "c.yaml, line 3: 'max-parallelism' is in line 1 already"),
        (
            "restart-strategy: {type: none}\nrestart-strategy.type: none\n",
            "line 2: 'restart-strategy.type' is in line 1",
        ),
        (
            "cut: by-count\nmax-paralelism: 3\n",
            "c.yaml, line 2: There is no option .* Did you mean 'max-parallelism'",
        ),
        (
            "slot-sharing-group:\n  gpu:\n    cpu-core: 3\n",
            "line 3: There is no option 'slot-sharing-group.gpu.cpu-core'. Did you mean 'slot-sharing-group.gpu.cpu-cores'",
        ),
        ("cut: by-count\nmax-parallelism: lots\n", "c.yaml, line 2: Option 'max-parallelism' = 'lots' is not a whole"),
        ("firesteel: {progress: yes}\n", "c.yaml, line 1: Option 'firesteel.progress' = 'yes' is not true or false"),
        ("a: &a\n  b: *a\n", "c.yaml, line 2: 'a.b' holds itself"),
        (
            "max-parallelism: 3\njobmanager.adaptive-batch-scheduler.max-parallelism: 4\n",
            "c.yaml: Option .* is set twice, as 'max-parallelism' and as",
        ),
    ],
)
def test_what_is_wrong_is_a_sentence_with_its_line(config, text, sentence):
    with pytest.raises(UsageError, match=sentence):
        read_options(config(text))


def test_files_that_cannot_be_read(config, tmp_path):
    with pytest.raises(UsageError, match=r"There is no file 'missing\.yaml'\. Give --config the path"):
        read_options("missing.yaml")
    with pytest.raises(UsageError, match="Give FIRESTEEL_CONFIG the path"):
        surroundings({"FIRESTEEL_CONFIG": "missing.yaml"})
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_options(str(tmp_path))


def test_a_deprecated_key_is_said_as_on_the_command_line(config, capsys, monkeypatch):
    monkeypatch.setattr("firesteel.options.registry._warned", set())
    given_options(None, configs=[config("restart-strategy: none\n")])
    assert capsys.readouterr().err == (
        "firesteel: Option 'restart-strategy' is deprecated; write 'restart-strategy.type'.\n"
    )
