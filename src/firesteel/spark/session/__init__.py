"""Spark sessions: Java found, the JVM started, versions told apart, executors looked at before a job. Begin with ``sessions``."""
