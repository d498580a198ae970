"""An environment."""

from firesteel import ExecutionEnvironment

env = ExecutionEnvironment.get_or_create("local[2]")
