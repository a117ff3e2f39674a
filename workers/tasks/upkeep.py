"""Tasks beside the loop: pruning, and the Secrets that trainers report with."""

from __future__ import annotations

from workers.celery import app


@app.task(name="workers.prune", ignore_result=True)
def prune() -> None:
    """Delete old samples and plans."""
    from workers.upkeep import prune as run

    run()


@app.task(name="workers.record_inflow", ignore_result=True)
def record_inflow() -> None:
    """Sum the last hours' capacity up for the forecasts."""
    from workers.upkeep import record_inflow as run

    run()


@app.task(name="workers.ensure_job_secret", ignore_result=True)
def ensure_job_secret(job_id: str) -> None:
    """Give a managed job the Secret that its pods take their telemetry settings from."""
    from workers.secrets import ensure_job_secret as run

    run(job_id)


@app.task(name="workers.check_secrets", ignore_result=True)
def check_secrets() -> None:
    """Write the Secrets that were lost on their clusters."""
    from workers.secrets import ensure_all

    ensure_all()
