"""Discrete-event simulation of the engine in virtual time (docs/guides/simulator.md).

It imports `controlplane.engine` and nothing else of the project; tests and benchmarks alone import
it.
"""
