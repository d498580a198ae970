"""The scale benchmark on small jobs: that it drives them to their end, and tells a line from a square."""

from __future__ import annotations

from xml.dom import minidom

import pytest
from benchmarks.control_plane import plot
from benchmarks.control_plane.scale import slope
from benchmarks.control_plane.scale_phases import EDGES, Shape, held_bytes, one_by_one, regions, run


@pytest.mark.parametrize("bulk", [True, False])
@pytest.mark.parametrize("edge", EDGES)
def test_a_static_job(edge, bulk):
    ran = run(Shape(50, edge, bulk=bulk))
    assert {"build", "start", "finish", "failover", "finish consumers"} <= set(ran.seconds)
    assert ("last" in ran.seconds) == (ran.descriptors is not None) == (edge != "pipelined")
    assert regions(Shape(50, edge)) > 0 and one_by_one(Shape(50, edge)) > 0


def test_a_dynamic_job_whose_consumer_is_as_wide_as_its_source():
    ran = run(Shape(40, dynamic=True, sizes=True))
    assert {"decide", "initialise", "deploy", "release"} <= set(ran.seconds)
    assert ran.descriptors is not None and ran.descriptors.group_raw == 40 * 16
    assert held_bytes(Shape(400, dynamic=True, sizes=True)) > held_bytes(Shape(100)) > 0


def test_slopes():
    assert slope([(n, 3.0 * n) for n in (10, 100, 1000)]) == pytest.approx(1)
    assert slope([(n, 0.1 * n**2) for n in (10, 100, 1000)]) == pytest.approx(2)


def test_the_plot_has_a_line_for_each_name_in_each_panel():
    lines = {"build & start": [(1e3, 0.2), (1e6, 150.0)], "finish": [(1e3, 8.0), (1e6, 9000.0)]}
    svg = minidom.parseString(plot.log_log({"all-to-all": lines, "pointwise": lines}, "subtasks", "ms"))
    assert len(svg.getElementsByTagName("polyline")) == 4
    assert len(svg.getElementsByTagName("circle")) == 8
    texts = [text.firstChild.data for text in svg.getElementsByTagName("text")]
    assert texts.count("build & start") == 1 and "1,000,000" in texts
