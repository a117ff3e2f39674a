import { useNodes } from "../../api/queries.ts";
import type { Cluster, ClusterNode } from "../../api/types.ts";
import { type GridNode, NodeGrid } from "../../components/NodeGrid/NodeGrid.tsx";
import { Panel } from "../../components/Panel.tsx";
import { useCluster } from "../shell/useCluster.ts";

/** A tile for each accelerator kind of a node; nodes without accelerators have none. */
export function gridNodes(nodes: readonly ClusterNode[]): GridNode[] {
  return nodes.flatMap((node) =>
    node.resources.map((one) => ({
      name: node.resources.length > 1 ? `${node.name} ${one.resource}` : node.name,
      pool: node.pool ?? "no pool",
      ready: node.ready,
      unschedulable: node.unschedulable,
      resource: one.resource,
      total: one.total,
      states: one.states,
      taints: node.taints.map((taint) => `${taint.key}:${taint.effect}`),
    })),
  );
}

export function NodesPanel({ cluster }: { cluster: Cluster | undefined }) {
  const query = useNodes(cluster?.name);
  const { after, nothing } = useCluster();
  return (
    <Panel
      title="Nodes"
      query={after(query)}
      nothing={nothing}
      loadingHeight={236}
      observedAt={() => cluster?.last_observed_at ?? null}
      staleAfter={30}
      empty={(nodes) =>
        gridNodes(nodes).length === 0 ? "No node with accelerators was observed." : null
      }
    >
      {(nodes) => <NodeGrid nodes={gridNodes(nodes)} />}
    </Panel>
  );
}
