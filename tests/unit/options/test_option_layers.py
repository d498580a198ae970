"""Where options come from, in which order, and that each value knows where it was said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import pytest

from firesteel import ExecutionEnvironment
from firesteel.api import environment
from firesteel.cli.options_list import chosen_options, options_json, options_text
from firesteel.cli.shared import given_options
from firesteel.errors import UsageError
from firesteel.options import (
    CODEC,
    DATA_VOLUME_PER_TASK,
    MAX_PARALLELISM,
    MIB,
    MIN_PARALLELISM,
    RESTART_DELAY,
    RESTART_STRATEGY,
    Layer,
    Options,
    all_options,
)
from firesteel.options import layers as option_layers
from firesteel.options.layers import read_environment, read_spark_conf, surroundings, variable_of


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(option_layers, "_warned", set())
    monkeypatch.setattr(environment, "_defaults", environment._Defaults())
    for name in [name for name in os.environ if name.startswith("FIRESTEEL_")]:
        monkeypatch.delenv(name)


def test_each_layer_goes_over_the_ones_below(tmp_path, monkeypatch):
    """Everything sets one option; the highest layer is taken away until only the default is left."""
    general, own = tmp_path / "general.yaml", tmp_path / "own.yaml"
    general.write_text("# all programs here\nmax-parallelism: 2\nmin-parallelism: 2\n")
    own.write_text("max-parallelism: 3\n")
    conf = [("spark.firesteel.max-parallelism", "4"), ("spark.app.name", "x")]

    def made(options=None, config=None):
        env = ExecutionEnvironment(options=options, config=config)
        env._take_conf(conf)
        return env.options[MAX_PARALLELISM], env.options.origin(MAX_PARALLELISM).where

    monkeypatch.setenv("FIRESTEEL_CONFIG", str(general))
    monkeypatch.setenv("FIRESTEEL_MAX_PARALLELISM", "5")
    environment.set_defaults(options={"max-parallelism": 6})
    assert made({"max-parallelism": 7}, own) == (7, "options=")
    assert made({}, own) == (6, "-O")
    environment.set_defaults()
    assert made({}, own) == (5, "FIRESTEEL_MAX_PARALLELISM")
    monkeypatch.delenv("FIRESTEEL_MAX_PARALLELISM")
    assert made({}, own) == (4, "spark.firesteel.max-parallelism")
    conf.clear()
    assert made({}, own) == (3, f"{own}, line 1")
    assert made() == (2, f"{general}, line 2")
    monkeypatch.delenv("FIRESTEEL_CONFIG")
    assert made() == (128, "default")


def test_a_step_goes_over_all():
    env = ExecutionEnvironment(options={"max-parallelism": 3})
    env.from_collection([(1, 1)], "k int, a int").key_by("k").aggregate({"a": "sum"}).set_parallelism(5).write_parquet(
        "unused"
    )
    assert [v.parallelism for v in env.compile().job_graph.vertices][-1] == 5


def test_two_variables_of_one_option_must_agree():
    whole = variable_of("jobmanager.adaptive-batch-scheduler.max-parallelism")
    agreed = read_environment({whole: "8", "FIRESTEEL_MAX_PARALLELISM": "8"})
    assert agreed["max-parallelism"] == 8
    with pytest.raises(UsageError, match=f"'{whole}' and 'FIRESTEEL_MAX_PARALLELISM' set the option"):
        read_environment({whole: "9", "FIRESTEEL_MAX_PARALLELISM": "8"})


def test_the_command_line_goes_over_the_environment_and_files(tmp_path, monkeypatch):
    file = tmp_path / "c.yaml"
    file.write_text("max-parallelism: 2\nmin-parallelism: 2\ncut: by-count\n")
    monkeypatch.setenv("FIRESTEEL_MIN_PARALLELISM", "1")
    given = given_options(["max-parallelism=9"], quiet=True, configs=[str(file)])
    assert (given["max-parallelism"], given["min-parallelism"], given["cut"]) == (9, 1, "by-count")
    assert [given.origin(key).where for key in ("max-parallelism", "min-parallelism", "cut", "progress")] == [
        "-O",
        "FIRESTEEL_MIN_PARALLELISM",
        f"{file}, line 3",
        "--quiet",
    ]
    environment.set_defaults(options=given)
    env = ExecutionEnvironment()
    env._take_conf([("spark.firesteel.min-parallelism", "3"), ("spark.firesteel.cut", "by-bytes")])
    assert (env.options[MIN_PARALLELISM], env.options["cut"]) == (1, "by-bytes"), "Spark's is between the two"


def test_every_option_has_a_variable_of_its_own():
    variables = [variable_of(option.key) for option in all_options()]
    assert len(set(variables)) == len(variables)
    plain = [option for option in all_options() if "<" not in option.key]
    for option in plain:
        if variable_of(option.key) in option_layers._OTHERS:
            continue
        text = {"int": "7", "size": "3 MiB", "duration": "2 s", "bool": "true", "float": "0.5"}.get(option.kind)
        text = text or str(option.default or "x")
        try:
            expected = option.parse(text)
        except ValueError:
            continue
        if option.check(expected) is None:
            assert read_environment({variable_of(option.key): text})[option] == expected, option.key


def test_variables_by_short_names_aliases_and_families():
    found = read_environment(
        {
            "FIRESTEEL_EXECUTION_BATCH_ADAPTIVE_AUTO_PARALLELISM_AVG_DATA_VOLUME_PER_TASK": "16 MiB",
            "FIRESTEEL_RESULTS_CODEC": "zstd",
            "FIRESTEEL_SLOT_SHARING_GROUP_GPU_CPU_CORES": "2",
            "FIRESTEEL_SLOT_SHARING_GROUP_GPU_EXTERNAL_FPGA": "1",
            "FIRESTEEL_RESTART_STRATEGY_FIXED_DELAY_DELAY": "500 ms",
            "FIRESTEEL_CUT": " ",
            "FIRESTEEL_EXECUTOR_MEMORY": "an executor's own",
            "HOME": "/",
        }
    )
    assert dict(found) == {
        DATA_VOLUME_PER_TASK.key: 16 * MIB,
        CODEC.key: "zstd",
        "slot-sharing-group.gpu.cpu-cores": 2.0,
        "slot-sharing-group.gpu.external.fpga": 1.0,
        RESTART_DELAY.key: 0.5,
    }
    assert found.origin(CODEC).layer is Layer.ENVIRONMENT


def test_a_variable_that_is_no_option_is_warned_of_once():
    sentence = "'FIRESTEEL_MAX_PARALELISM' is not an option. Did you mean 'FIRESTEEL_MAX_PARALLELISM'"
    with pytest.warns(UserWarning, match=sentence) as heard:
        assert not read_environment({"FIRESTEEL_MAX_PARALELISM": "3"})
    assert heard[0].filename == __file__, "the nearest line that is not ours"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_environment({"FIRESTEEL_MAX_PARALELISM": "3"})


def test_a_bad_value_names_its_place(tmp_path):
    with pytest.raises(
        UsageError, match=r"Option '.*max-parallelism' = 'x' \(from FIRESTEEL_MAX_PARALLELISM\) is not a whole"
    ):
        surroundings({"FIRESTEEL_MAX_PARALLELISM": "x"})
    with pytest.raises(UsageError, match=r"'cut' = 'x' \(from spark\.firesteel\.cut\) is not one of"):
        read_spark_conf([("spark.firesteel.cut", "x")])
    (tmp_path / "c.yaml").write_text("\ncut: x\n")
    with pytest.raises(UsageError, match=r"c\.yaml, line 2: Option 'cut' = 'x' is not one of"):
        surroundings({"FIRESTEEL_CONFIG": str(tmp_path / "c.yaml")})
    with pytest.raises(UsageError, match=r"There is no file 'missing\.yaml'"):
        surroundings({"FIRESTEEL_CONFIG": "missing.yaml"})


def test_sparks_configuration_in_long_and_short_keys():
    pairs = [
        ("spark.firesteel.firesteel.results.codec", "zstd"),
        ("spark.firesteel.max-parallelism", "4"),
        ("spark.firesteel.slot-sharing-group.gpu.cpu-cores", "2"),
        ("spark.firesteel.slot-sharing-group.gpu.task-heap-memory", "2g"),
        ("spark.firesteel.max-paralelism", "4"),
        ("spark.executor.memory", "1g"),
    ]
    with pytest.warns(UserWarning, match=r"no option 'max-paralelism'.*Did you mean 'max-parallelism'"):
        found = read_spark_conf(pairs)
    members = {"slot-sharing-group.gpu.cpu-cores", "slot-sharing-group.gpu.task-heap-memory"}
    assert set(found) == {CODEC.key, MAX_PARALLELISM.key, *members}
    env = ExecutionEnvironment()
    env._take_conf(pairs)
    assert env._groups["gpu"].name == "gpu"


def test_a_slot_sharing_group_may_be_given_in_two_places(monkeypatch):
    """Its cores by the program, its memory by the configuration of the session that is there."""

    class Conf:
        def getAll(self):
            return [("spark.firesteel.slot-sharing-group.gpu.task-heap-memory", "2g")]

    class Context:
        getConf = Conf

    options = {"slot-sharing-group.gpu.cpu-cores": 2}
    with pytest.raises(UsageError, match=r"but not slot-sharing-group\.gpu\.task-heap-memory"):
        ExecutionEnvironment(options=options)
    monkeypatch.setattr(environment, "running_context", Context)
    group = ExecutionEnvironment(options=options)._groups["gpu"]
    assert (group.cpu_cores, group.task_heap_memory) == (2, 2 << 30)


def test_a_deprecated_key_warns_wherever_it_stands(monkeypatch):
    monkeypatch.setattr("firesteel.options.registry._warned", set())
    with pytest.warns(FutureWarning, match="'restart-strategy' is deprecated"):
        assert read_environment({"FIRESTEEL_RESTART_STRATEGY": "none"})[RESTART_STRATEGY] == "none"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_spark_conf([("spark.firesteel.restart-strategy", "none")])[RESTART_STRATEGY] == "none"


def test_options_that_were_parsed_are_not_parsed_again():
    """A duration of Options is in seconds; as text without a unit it would be in milliseconds."""
    given = Options({RESTART_DELAY.key: "2 s"})
    assert Options().merged(given).merged(Options({"cut": "by-count"}))[RESTART_DELAY] == 2
    assert Options({"cut": "by-count"}).with_values(given)[RESTART_DELAY] == 2
    assert given.without([RESTART_DELAY.key]) == {}


def test_the_list_shows_value_origin_and_default():
    given = Options(
        {"max-parallelism": 8, "slot-sharing-group.gpu.cpu-cores": 2, "storage.directory": "s3://a:bbb@c/d"}
    )
    text = options_text(given, chosen_options(given, ["max-parallelism"]))
    assert text.startswith(f"{MAX_PARALLELISM.key}: 8 (from options=; default 128)\n")
    assert "variable: FIRESTEEL_JOBMANAGER_ADAPTIVE_BATCH_SCHEDULER_MAX_PARALLELISM" in text
    changed = chosen_options(given, changed=True)
    assert {o.key for o in changed} == set(given)
    assert options_text(given, []) == "Nothing is set: every option has its default."
    told = {entry["key"]: entry for entry in json.loads(options_json(given, changed))}
    assert told[MAX_PARALLELISM.key]["value"] == 8
    assert told["slot-sharing-group.gpu.cpu-cores"]["origin"] == "options="
    assert told["firesteel.storage.directory"]["value"] == "s3://***@c/d"
    assert len(json.loads(options_json(Options(), chosen_options(Options())))) == len(all_options())
    with pytest.raises(UsageError, match=r"No option is about 'max-paralelism'\. Did you mean 'max-parallelism'"):
        chosen_options(given, ["max-paralelism"])
    assert len(chosen_options(Options(), ["checkpoint"])) > 1


def test_the_command(tmp_path):
    (tmp_path / "c.yaml").write_text("min-parallelism: 2\n")
    shown = subprocess.run(
        [sys.executable, "-m", "firesteel", "options", "--changed", "--json", "-O", "max-parallelism=8"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "FIRESTEEL_CONFIG": "c.yaml", "FIRESTEEL_CUT": "by-count", "FIRESTEEL_CUTT": "x"},
    )
    assert {entry["key"].rsplit(".", 1)[-1]: entry["origin"] for entry in json.loads(shown.stdout)} == {
        "min-parallelism": "c.yaml, line 1",
        "max-parallelism": "-O",
        "cut": "FIRESTEEL_CUT",
    }
    assert shown.stderr.startswith("firesteel: The environment variable 'FIRESTEEL_CUTT' is not an option.")
