import { Skeleton } from "@mantine/core";
import { useWhyPending } from "../../api/queries.ts";
import type { PendingItem, WhyPending as Why } from "../../api/types.ts";
import { RejectedList, Remedies, Reserved } from "../../components/Explanation/Explanation.tsx";
import { count } from "../../components/format.ts";
import { Failure } from "../../components/Panel.tsx";
import css from "./Fleet.module.css";

/** All that the last plan knows of why one workload waits. */
export function WhyPending({ cluster, workload }: { cluster: string; workload: string }) {
  const query = useWhyPending(cluster, workload);
  return (
    <div className={css.why} aria-busy={query.data === undefined && !query.error}>
      {query.error ? <Failure query={query} kept={query.data !== undefined} /> : null}
      {query.data ? <Explained why={query.data} /> : null}
      {query.data || query.error ? null : (
        <Skeleton height={64} radius={2} aria-label="Loading why it waits" />
      )}
    </div>
  );
}

/** One workload's explanation. */
export function Explained({ why }: { why: Why }) {
  if (!why.waits) return <p className={css.reason}>It no longer waits in the newest plan.</p>;
  const several = why.items.length > 1;
  return (
    <>
      {why.items.map((item, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: parts of one demand, in the plan's order
        <Part key={index} item={item} headed={several} />
      ))}
      {why.reservations.length > 0 ? (
        <section>
          <h3>Reserved for it</h3>
          <Reserved reservations={why.reservations} />
        </section>
      ) : null}
    </>
  );
}

function Part({ item, headed }: { item: PendingItem; headed: boolean }) {
  const rejected = item.rejected ?? [];
  return (
    <>
      {headed && item.reason ? (
        <p className={css.reason}>
          {count(item.pods)} {item.pods === 1 ? "pod" : "pods"}: {item.reason.sentence}
        </p>
      ) : null}
      <section>
        <h3>What would help</h3>
        <Remedies unblock={item.unblock} />
      </section>
      <section>
        <h3>
          Who could have given places{" "}
          {rejected.length > 0 ? <span className={css.tally}>{count(rejected.length)}</span> : null}
        </h3>
        <RejectedList rejected={rejected} />
      </section>
    </>
  );
}
