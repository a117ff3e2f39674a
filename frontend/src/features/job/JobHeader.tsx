import type { JobDetail } from "../../api/types.ts";
import { WarnIcon } from "../../components/icons.tsx";
import { PhaseTag } from "../../components/tags.tsx";
import { Absent, Age, Num, Time } from "../../components/values.tsx";
import css from "./Job.module.css";

/** Who the job is, and what is wrong with its policy, where something is. */
export function JobHeader({ job }: { job: JobDetail }) {
  return (
    <div className={css.header}>
      <div className={css.headline}>
        <h1 className={css.title}>{job.name}</h1>
        <PhaseTag phase={job.phase} />
        {job.observed_at ? null : <span className={css.unseen}>never observed</span>}
      </div>
      <dl className={css.facts}>
        <Fact label="namespace">{job.namespace}</Fact>
        <Fact label="kind">{job.kind}</Fact>
        <Fact label="team">{job.team || <Absent why="no team" />}</Fact>
        <Fact label="queue">{job.queue || <Absent why="no queue" />}</Fact>
        <Fact label="priority">
          <Num value={job.priority} />
          {job.priority_class ? ` ${job.priority_class}` : ""}
        </Fact>
        <Fact label="policy">
          {job.policy ? (
            `${job.policy} (${job.min_replicas} to ${job.max_replicas})`
          ) : job.policy_error ? (
            <span className={css.wrong}>{job.policy_name || "not readable"}</span>
          ) : (
            <Absent why="no elasticity policy: it keeps its size" />
          )}
        </Fact>
        <Fact label="a replica is">
          {job.pods_per_replica} {job.pods_per_replica === 1 ? "pod" : "pods"},{" "}
          {job.accelerator_resource ? (
            `${job.accelerators_per_replica} ${job.accelerator_resource}`
          ) : (
            <Absent why="no accelerators" />
          )}
        </Fact>
        <Fact label="created">
          <Age at={job.created_at} suffix=" ago" />
        </Fact>
        {job.finished_at ? (
          <Fact label="finished">
            <Time at={job.finished_at} />
          </Fact>
        ) : null}
      </dl>
      {job.policy_error ? (
        <p className={css.policyError} role="alert">
          <WarnIcon />
          <span>
            <b>This job is not resized: its elasticity policy can’t be used.</b> {job.policy_error}
          </span>
        </p>
      ) : null}
    </div>
  );
}

function Fact({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}
