"""The scheduler: binds pending pods to nodes by priority and age; never preempts.

Source for rules and wording: k8s.io/kubernetes `pkg/scheduler`.
"""

from controlplane.sandbox.scheduler.loop import Scheduler, run

__all__ = ["Scheduler", "run"]
