import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Job } from "../../api/types.ts";
import { isAbsent, percent, quantity } from "../../components/format.ts";
import { difference, type Rung, rungMeaning } from "../../components/Ladder/counts.ts";
import { PhaseTag } from "../../components/tags.tsx";
import { Absent, Age, Num } from "../../components/values.tsx";
import css from "./Jobs.module.css";

export interface Column {
  key: string;
  label: string;
  title?: string;
  numeric?: boolean;
  /** The server's name for ordering by it; absent where it can't. */
  order?: string;
  cell: (job: Job) => ReactNode;
}

const rung = (name: Rung): Column => ({
  key: name,
  label: name,
  title: rungMeaning[name],
  numeric: true,
  cell: (job) => {
    const note = difference(job, name);
    return (
      <span className={note ? css.differs : undefined} title={note ?? undefined}>
        <Num value={job[name]} />
      </span>
    );
  },
});

export const columns: Column[] = [
  {
    key: "name",
    label: "job",
    order: "name",
    cell: (job) => (
      <span className={css.name}>
        <Link to="/jobs/$jobId" params={{ jobId: job.id }} className={css.link}>
          {job.name}
        </Link>
        <span className={css.place}>
          {job.namespace} · {job.kind}
        </span>
      </span>
    ),
  },
  { key: "phase", label: "phase", order: "phase", cell: (job) => <PhaseTag phase={job.phase} /> },
  rung("desired"),
  rung("granted"),
  rung("running"),
  rung("productive"),
  { key: "policy", label: "policy", cell: (job) => <Policy job={job} /> },
  {
    key: "priority",
    label: "priority",
    order: "priority",
    numeric: true,
    cell: (job) => (
      <span title={job.priority_class || undefined}>
        <Num value={job.priority} />
      </span>
    ),
  },
  { key: "progress", label: "progress", cell: (job) => <Progress job={job} /> },
  {
    key: "throughput",
    label: "samples/s",
    title: "as the trainer reports",
    numeric: true,
    cell: (job) => <Num value={job.throughput} format={quantity} />,
  },
  {
    key: "team",
    label: "team",
    order: "team",
    cell: (job) => job.team || <Absent why="no team" />,
  },
  {
    key: "report",
    label: "last report",
    numeric: true,
    cell: (job) =>
      job.last_report_at ? <Age at={job.last_report_at} suffix=" ago" /> : <Absent />,
  },
];

function Policy({ job }: { job: Job }) {
  if (job.policy_error) {
    return (
      <span className={css.policyError} title={job.policy_error}>
        {job.policy_name || "policy"}: error
      </span>
    );
  }
  if (!job.policy) return <Absent why="no elasticity policy" />;
  return (
    <span className={css.clip} title={`${job.min_replicas} to ${job.max_replicas} replicas`}>
      {job.policy}
    </span>
  );
}

function Progress({ job }: { job: Job }) {
  const { committed_steps: done, total_steps: all } = job;
  if (isAbsent(done)) return <Absent />;
  if (isAbsent(all) || all === 0) return <Num value={done} unit="steps" />;
  const part = Math.min(100, (100 * done) / all);
  return (
    <span className={css.progress} title={`${done} of ${all} steps`}>
      <span className={css.progressTrack} aria-hidden="true">
        <span className={css.progressFill} style={{ width: `${part}%` }} />
      </span>
      <span>{percent(done, all)}</span>
    </span>
  );
}
