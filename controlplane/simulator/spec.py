"""What a simulation is given: the cluster, the work, what happens to it, and what things cost.

Times are seconds since the start of the simulation; durations are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.engine.policy import ElasticityPolicy, PolicySet
from controlplane.engine.snapshot import Node
from controlplane.engine.types import VictimChoice
from controlplane.simulator.model import JobModel

#: virtual time 0 in unix seconds: Monday, 1 January 2024, 0:00 UTC
EPOCH = 1_704_067_200.0
#: progress is reported in so many steps a job, whatever its unit
STEPS = 100_000
DAY_S = 86_400.0
HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A training job. `work`: progress to make, in the unit of its model. `fixed_replicas`: the
    size that it has under policies which don't resize. `requests`: what one pod asks for.
    `scaled`: how it goes when batch and learning rate follow the size (`batch_policy: scale`);
    None: the same as `model`. `scaled_work` belongs to it."""

    name: str
    submit_s: float
    work: float
    model: JobModel
    requests: Mapping[str, int]
    fixed_replicas: int
    elasticity: ElasticityPolicy
    pods_per_replica: int = 1
    priority: int = 100
    priority_class: str = "training"
    team: str = "training"
    queue: str = "default"
    weight: float = 1.0
    node_selector: Mapping[str, str] = field(default_factory=dict)
    topology: str = ""
    topology_required: bool = False
    victims: VictimChoice = VictimChoice.HIGHEST_INDEX
    scaled: JobModel | None = None
    scaled_work: float | None = None


@dataclass(frozen=True, slots=True)
class PodSpec:
    """An inelastic pod (inference, notebook) that is wanted from `start_s` to `end_s`, whether it
    has found a place by then or not. `workload`: the Deployment that it belongs to."""

    name: str
    start_s: float
    end_s: float
    requests: Mapping[str, int]
    priority: int = 1000
    priority_class: str = "inference"
    workload: str = "inference"
    node_selector: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """`kind`: fail, recover, cordon, uncordon or drain. A failed or drained node comes back after
    `duration_s` (infinite: only by another event). A drained one is cordoned at once and its
    pods leave `notice_s` later."""

    at_s: float
    kind: str
    node: str
    duration_s: float = math.inf
    notice_s: float = 0.0


NODE_EVENTS = ("fail", "recover", "cordon", "uncordon", "drain")


@dataclass(frozen=True, slots=True)
class Faults:
    """Random node failures: mean time between failures of one node and mean time to repair, both
    exponential; None: nodes don't fail by themselves."""

    mtbf_s: float | None = None
    mttr_s: float = HOUR_S


@dataclass(frozen=True, slots=True)
class Costs:
    """`resize_pause_s`: no progress for so long after each change of a job's running replicas;
    `start_pause_s` and `fault_pause_s` the same at a start and after losing replicas to a fault
    (None: `resize_pause_s`). `lost_work_s`: seconds of progress that a fault undoes. `leave_s`:
    from the command to shrink until the pods have gone (None: the policy's
    `graceful_shutdown_timeout`). `pod_start_s`: from binding to ready. `eviction_s`: from a node's
    failure until its pods are replaced. `restart`: a resize starts all replicas anew (from a
    checkpoint, anywhere), instead of only those that come and go."""

    resize_pause_s: float = 5.0
    start_pause_s: float | None = None
    fault_pause_s: float | None = None
    lost_work_s: float = 0.0
    leave_s: float | None = None
    inference_leave_s: float = 0.0
    pod_start_s: float = 0.0
    eviction_s: float = 60.0
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Cycle:
    """A plan every `period_s`; also `delay_s` after each event if `on_events`. `follow_ups`: most
    further plans at the same instant, after the commands of the first. `rest_s`: while nothing has
    happened and nothing is due, planned again only after so long (0: at every period)."""

    period_s: float = 60.0
    on_events: bool = True
    delay_s: float = 0.0
    follow_ups: int = 8
    rest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One day (or month) to simulate. `horizon_s`: when it ends at the latest. `policies`: queues,
    cohorts, preemption and the cluster's; elasticity policies come with the jobs. `packing`: where
    the scheduler puts a job's pods: `packed` on the fewest nodes, or `spread`."""

    name: str
    nodes: tuple[Node, ...]
    jobs: tuple[JobSpec, ...]
    pods: tuple[PodSpec, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    faults: Faults = Faults()
    costs: Costs = Costs()
    cycle: Cycle = Cycle()
    policies: PolicySet = field(default_factory=PolicySet)
    horizon_s: float = math.inf
    start: float = EPOCH
    resource: str = "nvidia.com/gpu"
    packing: str = "packed"
    description: str = ""
