"""The Secret `<job>-concertina`: where a managed job's pods find the control plane and their token.

Pod templates take it with `envFrom`; until it exists, the kubelet holds the pods back. Only a
token's digest is in our record, so a Secret that was lost can't be written again as it was: the
token is rotated.
"""

from __future__ import annotations

import base64
import logging

from django.conf import settings

from apps.training import actions
from apps.training.models import TrainingJob
from controlplane import wiring
from controlplane.cluster.interface import Cluster, ClusterError, Manifest, NotFound
from controlplane.cluster.resources import JOBS, SECRETS
from workers import mailbox

log = logging.getLogger(__name__)

JOB_ID = "concertina.dev/job-id"  # annotation: which of our jobs it was written for


def secret_name(job: TrainingJob) -> str:
    return f"{job.name}-concertina"


def ensure_job_secret(job_id: str, *, cluster: Cluster | None = None) -> bool:
    """Write the Secret if it is missing or not ours; True when it was written.

    Idempotent. Raises ClusterError when the cluster refuses or doesn't answer.
    """
    job = TrainingJob.objects.select_related("cluster").get(pk=job_id)
    if job.finished_at is not None:
        return False
    target = cluster or wiring.cluster_for(job.cluster)
    with mailbox.exclusive(f"secret:{job.pk}") as held:
        if not held or is_current(target, job):
            return False
        token = actions.issue_job_token(job)
        target.apply(SECRETS, secret_manifest(job, token))
    log.info("wrote Secret %s/%s", job.namespace, secret_name(job))
    return True


def is_current(cluster: Cluster, job: TrainingJob) -> bool:
    """Whether the cluster holds a Secret with a token of this job that is still good."""
    try:
        found = cluster.get(SECRETS, job.namespace, secret_name(job))
    except NotFound:
        return False
    notes = found["metadata"].get("annotations") or {}
    encoded = (found.get("data") or {}).get("CONCERTINA_TOKEN", "")
    try:
        token = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return False
    return notes.get(JOB_ID) == str(job.pk) and actions.is_job_token(job, token)


def secret_manifest(job: TrainingJob, token: str) -> Manifest:
    """Owned by the job's object, so that it goes with it."""
    values = {
        "CONCERTINA_URL": settings.CONCERTINA_PUBLIC_URL,
        "CONCERTINA_TOKEN": token,
        "CONCERTINA_JOB": str(job.pk),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "namespace": job.namespace,
            "name": secret_name(job),
            "labels": {"app.kubernetes.io/managed-by": "concertina"},
            "annotations": {JOB_ID: str(job.pk)},
            "ownerReferences": [
                {
                    "apiVersion": JOBS.api_version,
                    "kind": job.kind,
                    "name": job.name,
                    "uid": job.uid,
                }
            ],
        },
        "data": {k: base64.b64encode(v.encode()).decode() for k, v in values.items()},
    }


def ensure_all() -> int:
    """Look at every live job's Secret; how many were written. Trouble with one stops no other."""
    written = 0
    jobs = TrainingJob.objects.filter(finished_at=None, cluster__enabled=True)
    for job_id in jobs.values_list("pk", flat=True):
        try:
            written += ensure_job_secret(str(job_id))
        except ClusterError as error:
            log.warning("the Secret of job %s: %s", job_id, error)
    return written
