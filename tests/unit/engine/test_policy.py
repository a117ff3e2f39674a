"""What a policy may say, and the error that names the field where it may not."""

from __future__ import annotations

import dataclasses
import math

import pytest

from controlplane.engine.policy import validate
from tests.builders import make_policy

ORDINARY = make_policy(min_replicas=2, max_replicas=8)


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, []),
        ({"replica_increment_step": 3}, []),
        ({"replica_discrete_values": (2, 4, 8)}, []),
        ({"min_replicas": 0}, ["min_replicas"]),
        ({"min_replicas": True}, ["min_replicas"]),
        ({"max_replicas": 1}, ["max_replicas"]),
        ({"max_replicas": 2**31 - 1}, ["max_replicas"]),
        ({"min_replicas": 0, "max_replicas": 0}, ["min_replicas", "max_replicas"]),
        ({"replica_increment_step": 0}, ["replica_increment_step"]),
        ({"replica_increment_step": 1, "replica_discrete_values": (2, 4)},
         ["replica_discrete_values"]),
        ({"replica_discrete_values": ()}, ["replica_discrete_values"]),
        ({"replica_discrete_values": (2, 0)}, ["replica_discrete_values"]),
        ({"replica_discrete_values": (2, 9)}, ["replica_discrete_values"]),
        ({"replica_discrete_values": (4, 8)}, ["replica_discrete_values"]),
        ({"cooldown": -1.0}, ["cooldown"]),
        ({"cooldown": math.nan}, ["cooldown"]),
        ({"scaling_timeout": math.inf}, ["scaling_timeout"]),
        ({"min_gain": -0.1}, ["min_gain"]),
        ({"restart_budget": -1}, ["restart_budget"]),
        ({"restart_budget": 0}, []),
        ({"batch_policy": "grow"}, ["batch_policy"]),
        ({"batch_policy": "scale", "lr_rule": "linear"}, []),
        ({"lr_rule": "linear"}, ["lr_rule"]),
        ({"schedule": ({"name": "n", "from": "22:00", "until": "6", "timezone": "UTC",
                        "max_replicas": 4},)}, ["schedule[0].until"]),
    ],
)  # fmt: skip
def test_validate_names_the_field(fields, want):
    errors = validate(dataclasses.replace(ORDINARY, **fields))
    assert [error.field for error in errors] == want
    assert all(error.message.startswith(("must ", "give ")) for error in errors)
