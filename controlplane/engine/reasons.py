"""Why: a closed set of codes, each with one sentence whose numbers are those that decided.

`docs/reason-codes.md` lists them; a test holds that page and this table together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

Number = int | float | str


class ReasonCode(StrEnum):
    # a job's decision
    GROWS = "grows"
    SHRINKS_FOR_PRIORITY = "shrinks_for_priority"
    SHRINKS_AFTER_FAULT = "shrinks_after_fault"
    SHRINKS_TO_POLICY = "shrinks_to_policy"
    GROWS_TO_MINIMUM = "grows_to_minimum"
    ADMITTED = "admitted"
    AT_MAXIMUM = "at_maximum"
    NO_ROOM = "no_room"
    STABILIZING = "stabilizing"
    COOLING_DOWN = "cooling_down"
    SNOOZED = "snoozed"
    BUDGET_SPENT = "budget_spent"
    GAIN_TOO_SMALL = "gain_too_small"
    IN_FLIGHT = "in_flight"
    REPAIRING = "repairing"
    WAITS_FOR_MINIMUM = "waits_for_minimum"
    WAITS_FOR_RELEASE = "waits_for_release"
    RECLAIMS = "reclaims"
    SHRINKS_FOR_SHARE = "shrinks_for_share"
    SHRINKS_TO_SCHEDULE = "shrinks_to_schedule"
    SHRINKS_BEFORE_DEPARTURE = "shrinks_before_departure"
    SHRINKS_TO_QUOTA = "shrinks_to_quota"
    PREEMPTED = "preempted"
    SUSPENDED_FOR_SHARE = "suspended_for_share"
    BACKING_OFF = "backing_off"
    QUOTA_EXHAUSTED = "quota_exhausted"
    CAPACITY_KEPT = "capacity_kept"
    WAITS_FOR_QUOTA = "waits_for_quota"
    WAITS_FOR_SHARE = "waits_for_share"
    WAITS_FOR_RESERVATION = "waits_for_reservation"
    NOT_ELASTIC = "not_elastic"
    POLICY_NOT_FOUND = "policy_not_found"
    POLICY_INVALID = "policy_invalid"
    FINISHED = "finished"
    SNAPSHOT_INCOMPLETE = "snapshot_incomplete"
    SNAPSHOT_STALE = "snapshot_stale"
    # pending demand
    FITS = "fits"
    NO_CAPACITY = "no_capacity"
    PREEMPTS = "preempts"
    RESERVES = "reserves"
    BIND_BACK_OFF = "bind_back_off"
    # a candidate that was weighed and lost
    PRIORITY_NOT_LOWER = "priority_not_lower"
    AT_MINIMUM = "at_minimum"
    FREES_NOTHING_USEFUL = "frees_nothing_useful"
    RESIZE_UNDER_WAY = "resize_under_way"
    DOES_NOT_FIT = "does_not_fit"
    MAY_NOT_PREEMPT = "may_not_preempt"
    DISRUPTION_BOUND = "disruption_bound"
    NOMINAL_KEPT = "nominal_kept"
    # a notice: something that an operator should know
    HANGS_TERMINATING = "hangs_terminating"
    REPEAT_OFFENDER = "repeat_offender"
    NODE_DEPARTS = "node_departs"
    FLAPPED = "flapped"
    # what would help a demand that waits
    ADD_NODES = "add_nodes"
    UNCORDON_NODES = "uncordon_nodes"
    TOLERATE_TAINT = "tolerate_taint"
    RELAX_SELECTOR = "relax_selector"
    RAISE_QUOTA = "raise_quota"
    RAISE_PRIORITY = "raise_priority"
    ALLOW_RECLAIM = "allow_reclaim"
    LOWER_MINIMUM = "lower_minimum"
    WAIT_FOR_RELEASE = "wait_for_release"
    NOTHING_FOUND = "nothing_found"
    # a command that may no longer be written
    WORKLOAD_GONE = "workload_gone"
    SIZE_CHANGED = "size_changed"
    SUSPENSION_CHANGED = "suspension_changed"
    NO_LONGER_FITS = "no_longer_fits"


#: the sentence of each code; {names} are the reason's numbers
SENTENCES: Mapping[ReasonCode, str] = {
    ReasonCode.GROWS: "Grows from {from} to {to} replicas into idle accelerators.",
    ReasonCode.SHRINKS_FOR_PRIORITY: "Shrinks from {from} to {to} replicas: {demand} of priority "
    "{demand_priority} needs {accelerators} {resource} and this job has priority {priority}.",
    ReasonCode.SHRINKS_AFTER_FAULT: "Shrinks from {from} to {to} replicas: only {running} have "
    "run for {short_s} s, longer than fault_scale_down_timeout ({timeout_s} s).",
    ReasonCode.SHRINKS_TO_POLICY: "Shrinks from {from} to {to} replicas: {from} is not a valid "
    "size of policy {policy}.",
    ReasonCode.GROWS_TO_MINIMUM: "Grows from {from} to its minimum of {to} replicas.",
    ReasonCode.ADMITTED: "Starts with its minimum of {to} replicas.",
    ReasonCode.AT_MAXIMUM: "Has its maximum of {to} replicas.",
    ReasonCode.NO_ROOM: "No room to grow from {to} to {next} replicas: {missing} of {pods} further "
    "pods with {accelerators} {resource} each find no node.",
    ReasonCode.STABILIZING: "Room to grow to {next} replicas has lasted {waited_s} s; it grows "
    "once that is scaling_timeout ({timeout_s} s).",
    ReasonCode.COOLING_DOWN: "Could grow to {next} replicas; the last resize was {since_s} s ago "
    "and cooldown is {timeout_s} s.",
    ReasonCode.SNOOZED: "Could grow to {next} replicas; it restarted {since_s} s ago and "
    "scale_up_snooze is {timeout_s} s.",
    ReasonCode.BUDGET_SPENT: "Could grow to {next} replicas; {resizes} resizes within the hour "
    "have spent restart_budget ({budget}).",
    ReasonCode.GAIN_TOO_SMALL: "Could grow to {next} replicas; the expected gain of {gain_percent} "
    "% is below min_gain ({min_gain_percent} %).",
    ReasonCode.IN_FLIGHT: "A resize from {from} to {to} replicas is under way.",
    ReasonCode.REPAIRING: "{running} of {to} replicas run; the missing ones get their places back "
    "before anything grows.",
    ReasonCode.WAITS_FOR_MINIMUM: "Waits: its minimum of {min} replicas finds no room.",
    ReasonCode.WAITS_FOR_RELEASE: "Waits for {pods} places that are being released.",
    ReasonCode.RECLAIMS: "Waits for {pods} places that {donors} give back.",
    ReasonCode.SHRINKS_FOR_SHARE: "Shrinks from {from} to {to} replicas: {receiver} of the same "
    "priority is below its share by {objective}.",
    ReasonCode.SHRINKS_TO_SCHEDULE: "Shrinks from {from} to {to} replicas: window {window} of "
    "its policy allows at most {max}.",
    ReasonCode.SHRINKS_BEFORE_DEPARTURE: "Shrinks from {from} to {to} replicas: {nodes} will "
    "leave, and its last replicas run there.",
    ReasonCode.SHRINKS_TO_QUOTA: "Shrinks from {from} to {to} replicas: {owner} takes back its "
    "nominal quota of {resource}, and queue {queue} borrows {borrowed}.",
    ReasonCode.PREEMPTED: "Is suspended from {from} replicas: {demand} of priority "
    "{demand_priority} needs {accelerators} {resource}, elastic jobs alone can't give them, and "
    "its class preempts whole jobs.",
    ReasonCode.SUSPENDED_FOR_SHARE: "Is suspended from {from} replicas for now: {receiver} of the "
    "same priority is served first by {objective}.",
    ReasonCode.BACKING_OFF: "Could grow to {next} replicas; its last {failures} resizes failed "
    "and it is tried again after {wait_s} s.",
    ReasonCode.QUOTA_EXHAUSTED: "Could grow to {next} replicas; queue {queue} may use "
    "{available} more {resource} and needs {accelerators}.",
    ReasonCode.CAPACITY_KEPT: "Could grow to {next} replicas; {accelerators} {resource} are kept "
    "free ({purpose}).",
    ReasonCode.WAITS_FOR_QUOTA: "Waits: queue {queue} may use {available} more {resource} and "
    "its minimum needs {accelerators}.",
    ReasonCode.WAITS_FOR_SHARE: "Waits for its turn: by {objective}, others of priority {priority} "
    "are served first.",
    ReasonCode.WAITS_FOR_RESERVATION: "{next} replicas would fit, but the places are reserved for "
    "{holder}, which has waited longer.",
    ReasonCode.NOT_ELASTIC: "Names no elasticity policy; its size is left alone.",
    ReasonCode.POLICY_NOT_FOUND: "Names the elasticity policy {policy}, which doesn't exist; "
    "its size is left alone. Create the policy or correct the annotation.",
    ReasonCode.POLICY_INVALID: "Its elasticity policy {policy} is invalid ({field} {problem}); "
    "its size is left alone.",
    ReasonCode.FINISHED: "Has finished.",
    ReasonCode.SNAPSHOT_INCOMPLETE: "Nothing is decided: part of the cluster hasn't answered.",
    ReasonCode.SNAPSHOT_STALE: "Nothing is decided: the last observation is {age_s} s old.",
    ReasonCode.FITS: "Fits into free capacity; waits to be bound.",
    ReasonCode.NO_CAPACITY: "{placed} of {pods} pods find room; {accelerators} {resource} are "
    "missing, and no elastic job of lower priority can give enough.",
    ReasonCode.PREEMPTS: "Waits for {pods} places that whole jobs give up: {victims}.",
    ReasonCode.RESERVES: "Waits; {reserved} of the {pods} places that it needs are reserved for "
    "it.",
    ReasonCode.BIND_BACK_OFF: "Fits, but was not bound within {timeout_s} s ({refusals} times): "
    "its place goes to others until {wait_s} s have passed. Look at the events of its pods.",
    ReasonCode.PRIORITY_NOT_LOWER: "Has priority {priority}, not below {demand_priority}.",
    ReasonCode.AT_MINIMUM: "Is at its minimum of {min} replicas.",
    ReasonCode.FREES_NOTHING_USEFUL: "Shrinking it to {to} replicas would free nothing that "
    "{demand} can use.",
    ReasonCode.RESIZE_UNDER_WAY: "A resize to {to} replicas is under way.",
    ReasonCode.DOES_NOT_FIT: "{to} replicas don't fit: {missing} pods find no node.",
    ReasonCode.MAY_NOT_PREEMPT: "Its priority class {priority_class} takes nothing back (Never).",
    ReasonCode.DISRUPTION_BOUND: "Could give {most} of its {running} replicas in one cycle "
    "(max_disruption_ratio).",
    ReasonCode.NOMINAL_KEPT: "Its queue {queue} holds no more than its nominal quota, and "
    "keeps that against every priority (protect_nominal).",
    ReasonCode.HANGS_TERMINATING: "Should have gone {late_s} s ago and still holds "
    "{accelerators} {resource} on {node}. Look at the node and the pod's finalizers; delete it "
    "by force only if its node is gone.",
    ReasonCode.REPEAT_OFFENDER: "Hurt jobs {faults} times within {window_s} s; nothing new goes "
    "there for {rest_s} s.",
    ReasonCode.NODE_DEPARTS: "Leaves ({kind}, by {source}); nothing new goes there and its "
    "replicas go first.",
    ReasonCode.FLAPPED: "Went from {before} to {after} replicas and back within its cooldown "
    "({cooldown_s} s).",
    ReasonCode.ADD_NODES: "Nodes with {accelerators} free {resource} each: {nodes} more.",
    ReasonCode.UNCORDON_NODES: "Uncordon {nodes}.",
    ReasonCode.TOLERATE_TAINT: "Tolerate the taint {taint} of {nodes}.",
    ReasonCode.RELAX_SELECTOR: "Drop {selector} from its node selector or affinity: {nodes} "
    "would do.",
    ReasonCode.RAISE_QUOTA: "{accelerators} more {resource} for queue {queue}.",
    ReasonCode.RAISE_PRIORITY: "A priority above {priority}: {donors} could give the places.",
    ReasonCode.ALLOW_RECLAIM: "Preemption policy {policy} for its priority class: {donors} could "
    "give the places.",
    ReasonCode.LOWER_MINIMUM: "A minimum of {min} replicas: so many find room now.",
    ReasonCode.WAIT_FOR_RELEASE: "Nothing: the places are being released.",
    ReasonCode.NOTHING_FOUND: "No single change was found that would help; {accelerators} "
    "{resource} are missing in all.",
    ReasonCode.WORKLOAD_GONE: "{workload} has ended or is no longer there.",
    ReasonCode.SIZE_CHANGED: "{workload} has {granted} replicas, not {from} as decided on.",
    ReasonCode.SUSPENSION_CHANGED: "{workload} was suspended or resumed by somebody else.",
    ReasonCode.NO_LONGER_FITS: "{to} replicas no longer fit: {missing} pods find no node.",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A code, the sentence that it makes, and the numbers in it."""

    code: ReasonCode
    sentence: str
    numbers: Mapping[str, Number]


@lru_cache(maxsize=16_384, typed=True)  # most of a cycle's reasons are those of the last
def because(code: ReasonCode, /, **numbers: Number) -> Reason:
    """The reason with its sentence filled in; `from_` is written as {from}.

    Raises KeyError if the sentence needs a number that is missing.
    """
    named = {key.rstrip("_"): _short(value) for key, value in numbers.items()}
    return Reason(code, SENTENCES[code].format(**named), named)


def _short(value: Number) -> Number:
    """Seconds and percentages to one decimal: what a sentence can carry."""
    return round(value, 1) if isinstance(value, float) else value
