import { Skeleton } from "@mantine/core";
import { Link, useParams } from "@tanstack/react-router";
import { useEffect } from "react";
import { noteCounts } from "../../api/counts.ts";
import { useClusters, useJob } from "../../api/queries.ts";
import type { JobDetail } from "../../api/types.ts";
import { BackIcon } from "../../components/icons.tsx";
import { Failure } from "../../components/Panel.tsx";
import { AttemptsPanel } from "./AttemptsPanel.tsx";
import { CountsPanel } from "./CountsPanel.tsx";
import css from "./Job.module.css";
import { JobCharts } from "./JobCharts.tsx";
import { JobDecisionsPanel } from "./JobDecisionsPanel.tsx";
import { JobHeader } from "./JobHeader.tsx";
import { JobWhyPanel } from "./JobWhyPanel.tsx";
import { RecoveriesPanel } from "./RecoveriesPanel.tsx";
import { ReplicasPanel } from "./ReplicasPanel.tsx";
import { TrainingPanel } from "./TrainingPanel.tsx";

/** One training job: its size, how training goes, what interrupted it, and what was decided. */
export function JobPage() {
  const { jobId } = useParams({ from: "/jobs/$jobId" });
  const query = useJob(jobId);
  const job = query.data;
  const observedAt = useObservedAt(job);

  useEffect(() => {
    if (job) noteCounts(job);
  }, [job]);

  return (
    <>
      <Link to="/jobs" className={css.back}>
        <BackIcon /> Jobs
      </Link>
      {query.error && !job ? <h1 className={css.title}>Job</h1> : null}
      {query.error ? (
        <div className={css.failure}>
          <Failure query={query} kept={job !== undefined} />
        </div>
      ) : null}
      {job ? (
        <>
          <JobHeader job={job} />
          <div className={css.top}>
            <CountsPanel job={job} query={query} observedAt={observedAt} />
            <TrainingPanel job={job} query={query} />
          </div>
          <JobCharts job={job} observedAt={observedAt} />
          <div className={css.lower}>
            <div className={css.column}>
              <RecoveriesPanel id={job.id} />
              <ReplicasPanel job={job} />
            </div>
            <div className={css.column}>
              <JobWhyPanel job={job} />
              <JobDecisionsPanel id={job.id} />
              <AttemptsPanel id={job.id} />
            </div>
          </div>
        </>
      ) : query.error ? null : (
        <div aria-busy="true">
          <h1 className={css.title}>Job</h1>
          <div className={css.top}>
            <Skeleton height={172} radius={3} />
            <Skeleton height={172} radius={3} />
          </div>
          <Skeleton height={430} radius={3} mt={12} />
        </div>
      )}
    </>
  );
}

/**
 * When the job's counts were last true. A job that doesn't change is not written again, so that the
 * last observation of its whole cluster is what tells.
 */
function useObservedAt(job: JobDetail | undefined): string | null {
  const clusters = useClusters();
  if (!job?.observed_at) return null;
  const cluster = clusters.data?.find((one) => one.name === job.cluster);
  const whole = cluster?.last_observed_at;
  if (!whole || job.finished_at) return job.observed_at;
  return Date.parse(whole) > Date.parse(job.observed_at) ? whole : job.observed_at;
}
