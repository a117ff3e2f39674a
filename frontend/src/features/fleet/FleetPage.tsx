import { useNavigate, useSearch } from "@tanstack/react-router";
import { useNodes } from "../../api/queries.ts";
import type { ClusterNode } from "../../api/types.ts";
import { useCluster } from "../shell/useCluster.ts";
import { CapacityPanel } from "./CapacityPanel.tsx";
import { DecisionFeed } from "./DecisionFeed.tsx";
import css from "./Fleet.module.css";
import { HoldersPanel } from "./HoldersPanel.tsx";
import { NodesPanel } from "./NodesPanel.tsx";
import { NoticesPanel } from "./NoticesPanel.tsx";
import { PendingPanel } from "./PendingPanel.tsx";

/** The whole of one cluster: what there is, who holds it, what waits, and what was decided. */
export function FleetPage() {
  const { cluster } = useCluster();
  const { range = "15m", resource: wanted, why } = useSearch({ from: "/" });
  const navigate = useNavigate();
  const resources = cluster?.capacity.map((one) => one.resource) ?? [];
  const nodes = useNodes(cluster?.name);
  // Until the nodes are known (or can't be) no resource is shown, rather than one and then another.
  const known = nodes.data !== undefined || nodes.error !== null;
  const most = known ? mostOf(resources, nodes.data ?? []) : undefined;
  const resource = wanted && resources.includes(wanted) ? wanted : most;
  return (
    <>
      <h1 className={css.title}>Fleet</h1>
      <div className={css.grid}>
        <div className={css.column}>
          <CapacityPanel />
          <HoldersPanel
            cluster={cluster?.name}
            resource={resource}
            resources={resources}
            range={range}
            onChange={(change) =>
              void navigate({ to: "/", search: (before) => ({ ...before, ...change }) })
            }
          />
          <NodesPanel cluster={cluster} />
        </div>
        <div className={css.side}>
          <PendingPanel
            cluster={cluster?.name}
            why={why}
            onWhy={(workload) =>
              void navigate({
                to: "/",
                replace: true,
                search: (before) => ({ ...before, why: workload }),
              })
            }
          />
          <NoticesPanel cluster={cluster?.name} />
          <DecisionFeed cluster={cluster?.name} />
        </div>
      </div>
    </>
  );
}

/** The resource of which most nodes have some: what the chart opens with. */
export function mostOf(
  resources: readonly string[],
  nodes: readonly Pick<ClusterNode, "resources">[],
): string | undefined {
  const having = (resource: string) =>
    nodes.filter((node) => node.resources.some((one) => one.resource === resource)).length;
  return [...resources].sort((a, b) => having(b) - having(a))[0];
}
