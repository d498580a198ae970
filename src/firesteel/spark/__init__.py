"""The Spark runtime: executes the control plane's commands on Spark and turns what Spark reports into events."""
