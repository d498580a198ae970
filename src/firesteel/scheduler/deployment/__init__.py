"""Deployment of executions: scheduling strategies, readiness of inputs, slots asked for, deployment descriptors.

``deployment`` puts the parts together. Begin with ``vertexwise_strategy`` (adaptive batch) or ``region_strategy`` (default), then
``deployer``.
"""
