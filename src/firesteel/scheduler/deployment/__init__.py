"""Deployment of executions: what may run, readiness of inputs, slots asked for, deployment descriptors. Begin with ``deployment``."""
