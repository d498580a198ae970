"""The registry of options: parsing, names, complaints, printing."""

from __future__ import annotations

import pickle
import warnings
from datetime import timedelta

import pytest

from firesteel import options as registry
from firesteel.errors import UsageError
from firesteel.options import (
    CUT,
    DATA_VOLUME_PER_TASK,
    DEFAULT_SOURCE_PARALLELISM,
    MAX_PARALLELISM,
    MEMORY_PER_TASK,
    MIB,
    MIN_PARALLELISM,
    PROGRESS,
    RESTART_DELAY,
    RESTART_STRATEGY,
    STORAGE_DIR,
    Options,
    all_options,
    format_value,
    lookup,
    parse_seconds,
    parse_size,
)
from firesteel.options import registry as option_registry
from firesteel.options import registry as option_values
from firesteel.options.layers import read_environment


@pytest.mark.parametrize(
    ("text", "size"),
    [("16 MiB", 16 << 20), ("1g", 1 << 30), ("1.5k", 1536), (4096, 4096), ("4096", 4096), ("2 TB", 2 << 40), ("7B", 7)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1 MiB", "1 parsec", "1 MiB 2", True, None])
def test_no_sizes(text):
    with pytest.raises(ValueError, match="a size such as"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1 s", 1), ("500 ms", 0.5), ("2 min", 120), (250, 0.25), ("1h", 3600), (timedelta(seconds=3), 3), ("1 d", 86400)],
)
def test_durations(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds)


def test_typed_values_and_defaults():
    options = Options({"max-parallelism": "8", CUT.key: "BY-COUNT", PROGRESS.key: "False", STORAGE_DIR.key: "/x"})
    assert options[MAX_PARALLELISM] == 8
    assert options[CUT] == "by-count"
    assert options[PROGRESS] is False
    assert options[STORAGE_DIR] == "/x"
    assert options[MIN_PARALLELISM] == 1
    assert options["min-parallelism"] == 1
    assert options.is_set(MAX_PARALLELISM)
    assert not options.is_set(MIN_PARALLELISM)
    assert dict(options.items())[MAX_PARALLELISM.key] == 8
    assert "max-parallelism" in options
    assert MIN_PARALLELISM.key not in options
    assert len(options) == 4
    assert pickle.loads(pickle.dumps(options)) == options


def test_aliases_are_todays_flink_keys():
    options = Options({"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "1 MiB"})
    assert options[DATA_VOLUME_PER_TASK] == MIB


def test_none_means_unset():
    options = Options({MEMORY_PER_TASK.key: None, MAX_PARALLELISM.key: None})
    assert not options.is_set(MEMORY_PER_TASK)
    assert options[MAX_PARALLELISM] == MAX_PARALLELISM.default


def test_later_values_replace_earlier_ones_by_any_name():
    options = Options({"max-parallelism": 8, "cut": "by-count"})
    changed = options.with_values({"execution.batch.adaptive.auto-parallelism.max-parallelism": 16})
    assert (changed[MAX_PARALLELISM], changed[CUT]) == (16, "by-count")
    assert options[MAX_PARALLELISM] == 8


def test_one_option_set_twice_differently_is_refused():
    alias = "execution.batch.adaptive.auto-parallelism.max-parallelism"
    assert Options({"max-parallelism": 8, alias: "8"})[MAX_PARALLELISM] == 8
    with pytest.raises(UsageError, match="set twice, as 'max-parallelism' and as 'execution"):
        Options({"max-parallelism": 8, alias: 9})


def test_every_last_part_of_a_key_that_is_unambiguous_is_a_name():
    shorts: dict[str, set[str]] = {}
    whole = {key for option in all_options() for key in (option.key, *option.aliases, *option.deprecated_keys)}
    for option in all_options():
        if "<" in option.key:  # whole keys only: a name must be in them
            continue
        for key in (option.key, *option.aliases, *option.deprecated_keys):
            shorts.setdefault(key.rsplit(".", 1)[-1], set()).add(option.key)
    for short, keys in shorts.items():
        if len(keys) == 1 and "." in next(iter(keys)):
            assert lookup(short).key in keys
    assert lookup("max-parallelism") is MAX_PARALLELISM, "as it was before pipeline.max-parallelism"
    ambiguous = [short for short, keys in shorts.items() if len(keys) > 1 and short not in whole]
    for short in ambiguous:
        with pytest.raises(UsageError, match="ambiguous"):
            lookup(short)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("max-paralelism", "max-parallelism"),
        ("jobmanager.adaptive-batch-scheduler.max-parallelsim", MAX_PARALLELISM.key),
        ("firesteel.decider.cutt", CUT.key),
    ],
)
def test_did_you_mean(key, meant):
    with pytest.raises(UsageError, match=f"no option '{key}'. Did you mean '{meant}'") as caught:
        Options({key: 1})
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (["max-parallelism=3"], "Options are values by key, not a list."),
        ({3: 4}, "The key of an option is a string, not 3."),
    ],
)
def test_what_is_no_mapping_of_keys_is_a_sentence(values, complaint):
    with pytest.raises(UsageError, match=complaint):
        Options(values)


def test_nothing_like_it():
    with pytest.raises(UsageError, match=r"no option 'qqq'.*'firesteel options' lists"):
        lookup("qqq")


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("max-parallelism", "many", "Option 'max-parallelism' = 'many' is not a whole number."),
        ("max-parallelism", True, "is not a whole number"),
        ("max-parallelism", 0, "Option 'max-parallelism' = 0 must be at least 1."),
        ("data-volume-per-task", "12 apples", "is not a size such as '64 MiB'"),
        ("data-volume-per-task", 0, "must be at least 1 byte"),
        ("restart-strategy.fixed-delay.delay", "soon", "is not a duration such as '500 ms'"),
        ("firesteel.progress", "yes", "is not true or false"),
        ("firesteel.decider.cut", "by-name", "is not one of by-bytes, by-count"),
    ],
)
def test_bad_values_are_sentences(key, value, complaint):
    with pytest.raises(UsageError) as caught:
        Options({key: value})
    assert complaint in str(caught.value)


def test_a_deprecated_key_works_and_warns_once(monkeypatch):
    monkeypatch.setattr(option_registry, "_warned", set())
    with pytest.warns(FutureWarning, match="'restart-strategy' is deprecated; write 'restart-strategy.type'") as caught:
        assert Options({"restart-strategy": "none"})[RESTART_STRATEGY] == "none"
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options({"restart-strategy": "none"})


def test_values_are_printed_as_one_would_write_them():
    assert format_value(DATA_VOLUME_PER_TASK, 64 * MIB) == "64 MiB"
    assert format_value(DATA_VOLUME_PER_TASK, 1537) == "1537 B"
    assert format_value(RESTART_DELAY, 0.5) == "500 ms"
    assert format_value(RESTART_DELAY, 1.0) == "1 s"
    assert format_value(PROGRESS, True) == "true"
    assert format_value(DEFAULT_SOURCE_PARALLELISM, None) == "unset"
    for option in all_options():
        text = format_value(option, option.default)
        if option.default is not None:
            assert option.parse(text) == option.default, f"{option.key}: '{text}' is not read back"


def test_every_option_is_documented_and_its_default_is_legal():
    for option in all_options():
        assert option.doc.endswith("."), option.key
        assert option.kind in ("int", "float", "size", "duration", "bool", "enum", "string"), option.key
        assert option.default is None or option.check(option.default) is None, option.key


def test_each_option_is_read_somewhere():
    from pathlib import Path

    own = Path(registry.__file__).parent
    source = "\n".join(p.read_text() for p in own.parent.rglob("*.py") if p.parent != own)
    names = {name: value for name, value in vars(registry).items() if isinstance(value, registry.Option)}
    assert len(names) == len(all_options())
    assert [name for name in names if name not in source] == [], "options that nobody reads"


@pytest.mark.parametrize("pair", [("merge.request-time", "-1s"), ("merge.threshold", "-5"), ("merge.threshold", -5)])
def test_a_negative_quantity_is_said_to_be_one(pair):
    with pytest.raises(UsageError, match=rf"'{pair[0]}' = '?{pair[1]}'? must not be negative\."):
        Options(dict([pair]))


def test_nothing_of_a_unit_is_zero():
    assert format_value(DATA_VOLUME_PER_TASK, 0) == "0" == format_value(RESTART_DELAY, 0.0)


def test_a_share_is_a_number_or_a_percentage():
    assert option_values.parse_number("75%") == option_values.parse_number(0.75) == 0.75
    with pytest.raises(ValueError, match="a number"):
        option_values.parse_number("%")


def test_a_removed_option_warns_once(monkeypatch):
    monkeypatch.setattr(option_registry, "_warned", set())
    with pytest.warns(FutureWarning, match=r"'firesteel.sql.min-input-bytes' has no effect any more. Small queries"):
        assert not read_environment({"FIRESTEEL_SQL_MIN_INPUT_BYTES": "0"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options({"firesteel.sql.min-input-bytes": "3 apples"})
