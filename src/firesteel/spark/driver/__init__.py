"""One job on the driver: submitted (``runtime``), run by a loop (``loop``) of messages, ends of batches and timers, each ``batch`` one Spark job."""
