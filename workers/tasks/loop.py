"""Tasks of the control loop. Each loads ids and calls one function; each may run twice."""

from __future__ import annotations

from celery import Task

from workers.celery import app


@app.task(name="workers.reconcile", ignore_result=True)
def reconcile(cluster_id: str, epoch: int) -> None:
    """Plan one cluster on its newest snapshot, and record and queue what follows."""
    from workers.reconcile import reconcile_wanted

    reconcile_wanted(cluster_id, epoch)


@app.task(name="workers.carry_out", ignore_result=True, bind=True, max_retries=3)
def carry_out(self: Task, command_id: str) -> None:
    """Write one command to its cluster; tried again soon when the cluster doesn't answer."""
    from workers.carry_out import carry_out as run

    verdict = run(command_id)
    if verdict is not None and verdict.state is None:
        # the tick picks it up later still
        raise self.retry(countdown=1 + self.request.retries)


@app.task(name="workers.tick", ignore_result=True)
def tick() -> None:
    """The safety net, every few seconds: nothing here is needed while all goes well."""
    from workers.upkeep import tick as run

    run()
