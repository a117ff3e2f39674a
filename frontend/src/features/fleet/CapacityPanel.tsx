import { useClusters } from "../../api/queries.ts";
import type { CapacityNow } from "../../api/types.ts";
import { Panel } from "../../components/Panel.tsx";
import { StateBar, StateKey } from "../../components/StateBar.tsx";
import { Absent, Num } from "../../components/values.tsx";
import { useCluster } from "../shell/useCluster.ts";
import css from "./Fleet.module.css";

/** Capacity by state, one row a resource. Resources are never added up. */
export function CapacityPanel() {
  const query = useClusters();
  const { cluster } = useCluster();
  return (
    <Panel
      title="Capacity by state"
      query={query}
      loadingHeight={108}
      observedAt={() => cluster?.last_observed_at ?? null}
      staleAfter={30}
      empty={() =>
        !cluster
          ? "No cluster to show."
          : cluster.capacity.length === 0
            ? "No accelerators were observed on this cluster."
            : null
      }
    >
      {() => (
        <div className={css.resources}>
          {largestFirst(cluster?.capacity ?? []).map((one) => (
            <Resource key={one.resource} capacity={one} />
          ))}
        </div>
      )}
    </Panel>
  );
}

function largestFirst(capacity: readonly CapacityNow[]): CapacityNow[] {
  return [...capacity].sort((a, b) => (b.total ?? 0) - (a.total ?? 0));
}

function Resource({ capacity }: { capacity: CapacityNow }) {
  const { resource, total, states } = capacity;
  const held = states
    ? (states.used ?? 0) + (states.used_unhealthy ?? 0) + (states.terminating ?? 0)
    : null;
  return (
    <div className={css.resource}>
      <div className={css.resourceHead}>
        <h3 className={css.resourceName}>{resource}</h3>
        <span className={css.held}>
          {held === null && total === null ? (
            <Absent why="not known: the last observation is too old" />
          ) : (
            <>
              <b>
                <Num value={held} />
              </b>{" "}
              of <Num value={total} /> held
            </>
          )}
        </span>
      </div>
      <StateBar states={states} />
      <StateKey states={states} />
    </div>
  );
}
