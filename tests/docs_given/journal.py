"""A job that has run."""

from firesteel import ExecutionEnvironment

env = ExecutionEnvironment.get_or_create("local[2]")
assert env.from_collection([{"n": 1}, {"n": 2}]).count() == 2
