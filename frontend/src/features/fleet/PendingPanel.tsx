import { usePending } from "../../api/queries.ts";
import type { Pending, PendingItem } from "../../api/types.ts";
import { count } from "../../components/format.ts";
import { Panel } from "../../components/Panel.tsx";
import { Absent, Age } from "../../components/values.tsx";
import { useCluster } from "../shell/useCluster.ts";
import css from "./Fleet.module.css";

/** What one pod asks for, accelerators first; cpu and memory are left to the title. */
function asks(item: PendingItem): string {
  const accelerators = Object.entries(item.requests).filter(([name]) => name.includes("/"));
  return accelerators.map(([name, n]) => `${count(n * item.pods)} ${name}`).join(", ");
}

/** Demand that waits, most urgent first, and why. */
export function PendingPanel({ cluster }: { cluster: string | undefined }) {
  const query = usePending(cluster);
  const { after, nothing } = useCluster();
  return (
    <Panel<Pending>
      title={
        <>
          Pending demand{" "}
          {query.data?.items ? <span className={css.tally}>{query.data.items.length}</span> : null}
        </>
      }
      query={after(query)}
      nothing={nothing}
      loadingHeight={120}
      flush
      observedAt={(data) => data.last_seen_at}
      staleAfter={30}
      empty={(data) =>
        data.items === null
          ? "No plan has been made for this cluster yet."
          : data.items.length === 0
            ? "Nothing waits for accelerators."
            : null
      }
    >
      {(data) => (
        <ul className={css.list}>
          {data.items?.map((item) => (
            <li key={item.workload} className={css.item}>
              <div className={css.itemHead}>
                <span className={css.itemName} title={item.workload}>
                  {item.workload}
                </span>
                <span className={css.itemTime}>
                  {item.since ? (
                    <>
                      waits <Age at={item.since} />
                    </>
                  ) : null}
                </span>
              </div>
              <div className={css.itemFacts}>
                <span>{asks(item) || "no accelerators"}</span>
                <span>
                  {count(item.pods)} {item.pods === 1 ? "pod" : "pods"}
                </span>
                <span>priority {count(item.priority)}</span>
              </div>
              <p className={css.reason}>
                {item.reason ? item.reason.sentence : <Absent why="no reason given" />}
              </p>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
