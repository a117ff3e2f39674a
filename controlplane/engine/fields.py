"""What may be written into fields, and what is wrong with what was."""

from __future__ import annotations

from dataclasses import dataclass

#: Kubernetes' own limit for an Indexed Job (completions and parallelism, batch/v1 validation)
MOST_REPLICAS = 100_000


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field, in a sentence that says the remedy. `field` may be a path into
    a list of mappings, e.g. `schedule[0].from`."""

    field: str
    value: object
    message: str
