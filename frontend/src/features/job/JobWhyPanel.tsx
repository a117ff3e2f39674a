import { Link } from "@tanstack/react-router";
import { useDecisions, useWhyPending } from "../../api/queries.ts";
import type { Decision, JobDetail, WhyPending } from "../../api/types.ts";
import {
  Reckoned,
  RejectedList,
  Remedies,
  Reserved,
} from "../../components/Explanation/Explanation.tsx";
import { Panel } from "../../components/Panel.tsx";
import { Age, Time } from "../../components/values.tsx";
import css from "./Job.module.css";

/** Why a job has the size it has, or waits: what the last plan said, without asking for a new one. */
export function JobWhyPanel({ job }: { job: JobDetail }) {
  const ended = job.finished_at !== null;
  const name = `${job.kind}/${job.namespace}/${job.name}`;
  const query = useWhyPending(job.cluster, ended ? undefined : name);
  return (
    <Panel<WhyPending>
      title={query.data?.waits || job.phase === "suspended" ? "Why pending" : "Why no more"}
      query={query}
      loadingHeight={96}
      nothing={ended ? "It has ended." : null}
      observedAt={(why) => why.last_seen_at}
      staleAfter={30}
      empty={(why) =>
        why.items.length === 0 && why.decision === null
          ? "Nothing has been decided for this job yet."
          : null
      }
    >
      {(why) => (
        <div className={css.why}>
          <Stopped job={job} />
          <Standing why={why} />
        </div>
      )}
    </Panel>
  );
}

/** Since when and for whom a suspended job stands still, if it was stopped by us. */
function Stopped({ job }: { job: JobDetail }) {
  const suspended = job.phase === "suspended";
  const decisions = useDecisions({ job: job.id }, suspended);
  const last = suspended ? suspensionOf(decisions.data ?? []) : undefined;
  if (!last) return null;
  return (
    <p className={css.stopped}>
      <b>{last.reason_code === "preempted" ? "Preempted" : "Suspended"}</b> <Time at={last.at} />.{" "}
      {last.sentence}{" "}
      <Link to="/decisions" search={{ job: job.id, id: last.id }}>
        details
      </Link>
    </p>
  );
}

/** The newest decision that suspended the job; undefined if it was let run again since. */
export function suspensionOf(decisions: readonly Decision[]): Decision | undefined {
  const last = decisions.find((one) => one.command !== null && one.command.state !== "superseded");
  return last?.command?.kind === "suspend" ? last : undefined;
}

/** What waits of the job; if nothing does, its newest decision. */
export function Standing({ why }: { why: WhyPending }) {
  const { decision } = why;
  const reasons = why.items.flatMap((item) => (item.reason ? [item.reason] : []));
  const unblock = why.items.find((item) => item.unblock.length > 0)?.unblock;
  const remedies = unblock ?? (why.waits ? [] : (decision?.unblock ?? []));
  const rejected = why.waits
    ? why.items.flatMap((item) => item.rejected ?? [])
    : (decision?.rejected ?? []);
  return (
    <>
      {reasons.length > 0 ? (
        reasons.map((reason) => <p key={`${reason.code} ${reason.sentence}`}>{reason.sentence}</p>)
      ) : decision ? (
        <p>
          {decision.sentence}{" "}
          <span className={css.since}>
            decided <Age at={decision.at} suffix=" ago" />
          </span>
        </p>
      ) : null}
      {remedies.length > 0 ? (
        <section>
          <h3>What would help</h3>
          <Remedies unblock={remedies} />
        </section>
      ) : null}
      {why.reservations.length > 0 ? (
        <section>
          <h3>Reserved for it</h3>
          <Reserved reservations={why.reservations} />
        </section>
      ) : null}
      {decision && !why.waits ? (
        <section>
          <h3>Share and gain</h3>
          <Reckoned decision={decision} />
        </section>
      ) : null}
      {rejected.length > 0 ? (
        <section>
          <h3>Rejected candidates</h3>
          <RejectedList rejected={rejected} />
        </section>
      ) : null}
    </>
  );
}
