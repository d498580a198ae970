"""A stream of amounts by country and day."""

from firesteel import ExecutionEnvironment

env = ExecutionEnvironment.get_or_create("local[2]")
stream = env.from_collection([{"country": "FR", "day": 1, "amount": 2.5}, {"country": "DE", "day": 2, "amount": 4.0}])
