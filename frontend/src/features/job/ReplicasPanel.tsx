import { Button } from "@mantine/core";
import { useState } from "react";
import { useReplicas, useSession } from "../../api/queries.ts";
import type { JobDetail, Replica } from "../../api/types.ts";
import { BoltIcon } from "../../components/icons.tsx";
import { Panel } from "../../components/Panel.tsx";
import { ScrollRegion } from "../../components/ScrollRegion.tsx";
import table from "../../components/table.module.css";
import { PhaseTag } from "../../components/tags.tsx";
import { Absent, Age } from "../../components/values.tsx";
import { InjectFault } from "./InjectFault.tsx";
import css from "./Job.module.css";

const permission = "training.inject_fault";

/** The replicas as they are now; in a sandbox, a fault can be injected into each. */
export function ReplicasPanel({ job }: { job: JobDetail }) {
  const query = useReplicas(job.id);
  const session = useSession();
  const permitted = session.data?.user?.permissions.includes(permission) ?? false;
  const [chosen, setChosen] = useState<Replica | null>(null);
  const [sent, setSent] = useState("");
  return (
    <Panel
      title="Replicas now"
      query={query}
      loadingHeight={160}
      flush
      actions={
        <span role="status" className={css.sizes}>
          {sent}
        </span>
      }
      empty={(replicas) => (replicas.length === 0 ? "The job holds no replica." : null)}
    >
      {(replicas) => (
        <ScrollRegion label="Table of replicas">
          <table className={table.table}>
            <thead>
              <tr>
                <th className={table.number}>replica</th>
                <th>phase</th>
                <th>pod</th>
                <th>node</th>
                <th className={table.number}>age</th>
                {job.sandbox ? <th>fault</th> : null}
              </tr>
            </thead>
            <tbody>
              {replicas.map((replica) => (
                <tr key={replica.index}>
                  <td className={table.number}>{replica.index}</td>
                  <td>
                    <PhaseTag phase={replica.phase} />
                  </td>
                  <td className={table.mono}>
                    {replica.pod_name || <Absent why="no pod yet" />}
                    {replica.pods.length > 1 ? ` +${replica.pods.length - 1}` : ""}
                  </td>
                  <td className={table.mono}>
                    {replica.node_name || <Absent why="not bound to a node" />}
                  </td>
                  <td className={table.number}>
                    {replica.started_at ? (
                      <Age at={replica.started_at} />
                    ) : (
                      <Absent why="not started" />
                    )}
                  </td>
                  {job.sandbox ? (
                    <td>
                      <Button
                        size="compact-xs"
                        variant="default"
                        leftSection={<BoltIcon />}
                        disabled={!permitted || !replica.pod_name}
                        title={permitted ? undefined : `Needs the permission ${permission}.`}
                        aria-label={`Inject a fault into replica ${replica.index}`}
                        onClick={() => setChosen(replica)}
                      >
                        Inject fault
                      </Button>
                    </td>
                  ) : null}
                </tr>
              ))}
            </tbody>
          </table>
          <InjectFault
            job={job}
            replica={chosen}
            onClose={() => setChosen(null)}
            onSent={(text) => {
              setSent(text);
              setChosen(null);
            }}
          />
        </ScrollRegion>
      )}
    </Panel>
  );
}
