"""The simulated cluster: nodes, workers, queues for slots, launches and ends of executions, storage."""
