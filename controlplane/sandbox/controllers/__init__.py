"""The controllers of the sandbox cluster: jobs, deployments, nodes, garbage collection."""
