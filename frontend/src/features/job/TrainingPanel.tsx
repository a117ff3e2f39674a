import type { ReactNode } from "react";
import type { JobDetail } from "../../api/types.ts";
import { count, decimals, isAbsent, percent, quantity } from "../../components/format.ts";
import { Panel, type PanelQuery } from "../../components/Panel.tsx";
import { Absent, Num } from "../../components/values.tsx";
import css from "./Job.module.css";

/** What the trainer last reported. */
export function TrainingPanel({ job, query }: { job: JobDetail; query: PanelQuery<JobDetail> }) {
  return (
    <Panel
      title="Training"
      query={{ ...query, error: null }}
      loadingHeight={124}
      observedAt={job.last_report_at && !job.finished_at ? () => job.last_report_at : undefined}
      staleAfter={30}
      actions={job.last_report_at ? null : <span className={css.sizes}>no report yet</span>}
    >
      {() => (
        <>
          <dl className={css.readings}>
            <Reading label="loss">
              <Num value={job.loss} format={(value) => decimals(value, 4)} />
            </Reading>
            <Reading label="throughput">
              <Num value={job.throughput} format={quantity} unit="samples/s" />
            </Reading>
            <Reading label="global batch">
              <Num value={job.global_batch_size} format={count} unit="samples" />
            </Reading>
            <Reading label="quorum">
              <Num value={job.quorum_id} />
            </Reading>
          </dl>
          <Progress done={job.committed_steps} all={job.total_steps} />
        </>
      )}
    </Panel>
  );
}

function Reading({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Progress({ done, all }: { done: number | null; all: number | null }) {
  const known = !isAbsent(done) && !isAbsent(all) && all > 0;
  return (
    <div className={css.progress}>
      <div className={css.progressTrack} data-unknown={known ? undefined : true} aria-hidden="true">
        {known ? <span style={{ width: `${Math.min(100, (100 * done) / all)}%` }} /> : null}
      </div>
      <p>
        step <Num value={done} /> of{" "}
        {isAbsent(all) ? <Absent why="total not reported" /> : count(all)}
        {known ? `, ${percent(done, all)}` : ""}
      </p>
    </div>
  );
}
