"""The Kubernetes resources that the control plane reads or writes; the only list of them."""

from controlplane.cluster.interface import Resource

NODES = Resource("", "v1", "nodes", "Node", False)
PODS = Resource("", "v1", "pods", "Pod", True)
SECRETS = Resource("", "v1", "secrets", "Secret", True)
JOBS = Resource("batch", "v1", "jobs", "Job", True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True)
REPLICASETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)

#: what a watcher lists and watches. Every one must have answered before anything is decided.
WATCHED: tuple[Resource, ...] = (NODES, PODS, JOBS, DEPLOYMENTS, REPLICASETS, PRIORITY_CLASSES)
