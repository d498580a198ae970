"""SlotSharingGroup: what it holds, what it refuses, and how options make one."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest

from firesteel import ExecutionEnvironment, SlotSharingGroup
from firesteel.errors import UsageError
from firesteel.model.group_options import groups_of
from firesteel.options import Options

MIB, GIB = 1 << 20, 1 << 30


def gpu() -> SlotSharingGroup:
    return SlotSharingGroup("gpu", 2, "2 GiB", "512 MiB", 1 << 20, {"gpu": 1, "fpga": 0.5})


class TestValues:
    def test_mb_are_mebibytes_as_in_flink(self):
        group = SlotSharingGroup("a", 0.5, "3 MB", 17, "1 MB")
        assert (group.task_heap_memory, group.managed_memory, group.task_off_heap_memory) == (3 * MIB, MIB, 17)

    def test_integers_are_bytes_numpys_too(self):
        group = SlotSharingGroup("a", np.float64(1.5), np.int64(GIB), "2048")
        assert (group.cpu_cores, group.task_heap_memory, group.task_off_heap_memory) == (1.5, GIB, 2048)
        assert type(group.task_heap_memory) is int and type(group.cpu_cores) is float

    @pytest.mark.parametrize(
        ("resources", "why"),
        [
            ({"cpu_cores": 1e-9}, "from 0.000001 to 1,000,000"),
            ({"cpu_cores": 1e14}, "from 0.000001 to 1,000,000"),
            ({"task_heap_memory": "9999999999 TiB"}, "no slot has more than 1 PiB"),
            ({"external_resources": {"gpu": 1e-9}}, "from 0.000001 to 1,000,000"),
        ],
    )
    def test_a_slip_in_the_unit_is_refused_before_it_is_counted(self, resources, why):
        with pytest.raises(UsageError, match=why):
            SlotSharingGroup("a", **{"cpu_cores": 1, "task_heap_memory": GIB} | resources)

    def test_what_is_not_said_is_zero_and_nothing_at_all_is_coarse(self):
        group = SlotSharingGroup("a", cpu_cores=1, task_heap_memory=GIB)
        assert (group.task_off_heap_memory, group.managed_memory, dict(group.external_resources)) == (0, 0, {})
        assert group.has_resources
        assert not SlotSharingGroup("a").has_resources

    def test_every_field_counts_for_equality(self):
        others = [
            dataclasses.replace(gpu(), name="b"),
            dataclasses.replace(gpu(), cpu_cores=3),
            dataclasses.replace(gpu(), task_heap_memory=1),
            dataclasses.replace(gpu(), task_off_heap_memory=1),
            dataclasses.replace(gpu(), managed_memory=2),
            dataclasses.replace(gpu(), external_resources={"gpu": 1}),
        ]
        assert len({gpu(), *others}) == 7
        assert gpu() == dataclasses.replace(gpu(), external_resources={"fpga": 0.5, "gpu": 1})

    def test_it_never_changes(self):
        given = {"gpu": 1.0}
        group = SlotSharingGroup("a", 1, 1, external_resources=given)
        given["gpu"] = 2.0
        assert group.external_resources["gpu"] == 1.0
        with pytest.raises(dataclasses.FrozenInstanceError):
            group.cpu_cores = 3  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(TypeError):
            group.external_resources["gpu"] = 3  # pyright: ignore[reportIndexIssue]

    def test_pickled_copied_and_printed_it_is_the_same(self):
        for group in (gpu(), SlotSharingGroup("a"), SlotSharingGroup("b", 0.25, 1537)):
            assert pickle.loads(pickle.dumps(group)) == group == copy.deepcopy(group)
            assert eval(repr(group)) == group
        assert repr(SlotSharingGroup("a", 1, GIB)) == "SlotSharingGroup('a', cpu_cores=1, task_heap_memory='1 GiB')"
        assert str(gpu()) == "gpu (2 cores, 2 GiB heap, 512 MiB off-heap, 1 MiB managed, 0.5 fpga, 1 gpu)"
        assert str(SlotSharingGroup("a")) == "a"


class TestRefusals:
    @pytest.mark.parametrize("cores", [-1, math.nan, math.inf, True, "2", None, 1j])
    def test_cores(self, cores):
        with pytest.raises(
            UsageError, match=r"CPU cores of slot sharing group 'a' are .*number of cores.* Give a number"
        ):
            SlotSharingGroup("a", cores, GIB)

    @pytest.mark.parametrize("kind", ["task_heap_memory", "task_off_heap_memory", "managed_memory"])
    @pytest.mark.parametrize("memory", [-1, "-1 GiB", "lots", "2 parsec", "", 2.5, True, None, math.nan])
    def test_memory(self, kind, memory):
        name = {"task_off_heap_memory": "task off-heap memory"}.get(kind, kind.replace("_", " "))
        with pytest.raises(UsageError, match=f"The {name} of slot sharing group 'a' is .*bytes, or text with a unit"):
            SlotSharingGroup("a", 1, **{"task_heap_memory": 1, kind: memory})

    @pytest.mark.parametrize(
        ("given", "lacks"),
        [
            ({"cpu_cores": 1}, "no task heap memory"),
            ({"task_heap_memory": 1}, "no CPU cores"),
            ({"managed_memory": 1}, "no CPU cores and no task heap memory"),
            ({"task_off_heap_memory": 1}, "no CPU cores and no task heap memory"),
            ({"external_resources": {"gpu": 1}}, "no CPU cores and no task heap memory"),
        ],
    )
    def test_a_part_of_a_slot(self, given, lacks):
        with pytest.raises(UsageError, match=f"'a' is given resources, but {lacks}. .*above 0"):
            SlotSharingGroup("a", **given)

    @pytest.mark.parametrize("amount", [0, -1, math.nan, math.inf, True, "1", None])
    def test_external_amounts(self, amount):
        with pytest.raises(
            UsageError, match="of the external resource 'gpu': it must be a number of gpu units above 0"
        ):
            SlotSharingGroup("a", 1, 1, external_resources={"gpu": amount})

    def test_several_units_are_never_a_fraction(self):
        with pytest.raises(UsageError, match=r"needs 1\.5 units .*'gpu': above 1 they are whole units.* Give 1 or 2"):
            SlotSharingGroup("a", 1, 1, external_resources={"gpu": 1.5})
        for amount in (0.3, 1, 2.0, 16):
            assert SlotSharingGroup("a", 1, 1, external_resources={"gpu": amount}).external_resources["gpu"] == amount

    @pytest.mark.parametrize("name", ["", "a b", "1gpu", "vendor.com/gpu", None, "cpus", "memory", "offHeap", "Cores"])
    def test_external_names(self, name):
        with pytest.raises(UsageError, match=r"cannot have the external resource .*Name one that the executors offer"):
            SlotSharingGroup("a", 1, 1, external_resources={name: 1})

    def test_external_resources_that_are_no_mapping(self):
        with pytest.raises(UsageError, match=r"are amounts by name, not \['gpu'\]"):
            SlotSharingGroup("a", 1, 1, external_resources=["gpu"])  # pyright: ignore[reportArgumentType]

    @pytest.mark.parametrize("name", ["", "  ", None, 3])
    def test_names(self, name):
        with pytest.raises(UsageError, match="name of a slot sharing group is a string that is not empty"):
            SlotSharingGroup(name)


class TestOptions:
    def test_all_of_them(self):
        prefix = "slot-sharing-group.a.b."
        options = {
            "cpu-cores": "1.5",
            "task-heap-memory": "2 GiB",
            "task-off-heap-memory": "1m",
            "managed-memory": 7,
            "external.gpu": "1",
            "external.x-y": 0.5,
        }
        given = {prefix + key: value for key, value in options.items()}
        assert groups_of(Options(given)) == {
            "a.b": SlotSharingGroup("a.b", 1.5, "2 GiB", "1 MiB", 7, {"gpu": 1, "x-y": 0.5})
        }

    def test_keys_are_options_like_others(self):
        options = Options({"slot-sharing-group.gpu.cpu-cores": "2"})
        more = options.with_values({"slot-sharing-group.gpu.cpu-cores": 3, "slot-sharing-group.b.cpu-cores": None})
        assert dict(more.items()) == {"slot-sharing-group.gpu.cpu-cores": 3.0}
        assert options["slot-sharing-group.gpu.cpu-cores"] == 2.0
        assert options["slot-sharing-group.b.cpu-cores"] is None
        assert pickle.loads(pickle.dumps(more)) == more

    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            ("slot-sharing-group.gpu.cpu-core", "slot-sharing-group.gpu.cpu-cores"),
            ("slot-sharing-group.gpu", "slot-sharing-group.gpu.cpu-cores"),
            ("slot-sharing-groups.gpu.managed-memory", "slot-sharing-group.gpu.managed-memory"),
            ("slot-sharing-group.gpu.heap-memory", "slot-sharing-group.gpu.task-heap-memory"),
            ("slot-sharing-group.a.externals.gpu", "slot-sharing-group.a.external.gpu"),
            ("cpu-cores", "slot-sharing-group.<name>.cpu-cores"),
        ],
    )
    def test_did_you_mean(self, key, meant):
        with pytest.raises(UsageError, match=f"no option '{key}'. Did you mean '{meant}'"):
            Options({key: 1})

    def test_the_key_as_the_page_has_it_is_no_option(self):
        with pytest.raises(UsageError, match=r"There is no option 'slot-sharing-group\.<name>.cpu-cores'"):
            Options({"slot-sharing-group.<name>.cpu-cores": 1})

    @pytest.mark.parametrize(
        ("key", "value", "complaint"),
        [
            ("cpu-cores", "two", "is not a number"),
            ("cpu-cores", 0, "must be greater than 0"),
            ("cpu-cores", "nan", "is not a finite number"),
            ("task-heap-memory", "-1g", "must not be negative"),
            ("task-heap-memory", 0, "must be at least 1 byte"),
            ("managed-memory", "much", "is not a size"),
            ("external.gpu", 0, "must be greater than 0"),
        ],
    )
    def test_bad_values(self, key, value, complaint):
        with pytest.raises(UsageError, match=f"Option 'slot-sharing-group.a.{key}' = .* {complaint}"):
            Options({f"slot-sharing-group.a.{key}": value})

    def test_a_part_of_a_slot_names_the_keys_to_set(self):
        for given, lacks in (
            ({"cpu-cores": 1}, "not slot-sharing-group.a.task-heap-memory"),
            ({"task-heap-memory": 1}, "not slot-sharing-group.a.cpu-cores"),
            ({"external.gpu": 1}, "not slot-sharing-group.a.cpu-cores and slot-sharing-group.a.task-heap-memory"),
        ):
            with pytest.raises(UsageError, match=f"The options give slot sharing group 'a' resources, but {lacks}"):
                ExecutionEnvironment(options={f"slot-sharing-group.a.{key}": value for key, value in given.items()})
