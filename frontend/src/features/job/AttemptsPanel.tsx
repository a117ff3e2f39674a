import { useAttempts } from "../../api/queries.ts";
import { count } from "../../components/format.ts";
import { Panel } from "../../components/Panel.tsx";
import { ScrollRegion } from "../../components/ScrollRegion.tsx";
import table from "../../components/table.module.css";
import { Absent, Num, Time } from "../../components/values.tsx";

/** The lives of the training loop: more than one means that it was restarted. */
export function AttemptsPanel({ id }: { id: string }) {
  const query = useAttempts(id);
  return (
    <Panel
      title="Attempts"
      query={query}
      loadingHeight={80}
      flush
      empty={(attempts) => (attempts.length === 0 ? "The trainer has not reported yet." : null)}
    >
      {(attempts) => (
        <ScrollRegion label="Table of attempts">
          <table className={table.table}>
            <thead>
              <tr>
                <th>attempt</th>
                <th>started</th>
                <th>ended</th>
                <th className={table.number}>steps</th>
                <th className={table.number}>replicas</th>
                <th className={table.number}>quorum</th>
              </tr>
            </thead>
            <tbody>
              {attempts.map((attempt) => (
                <tr key={attempt.id}>
                  <td className={table.mono} title={attempt.attempt}>
                    {attempt.attempt.slice(0, 12)}
                  </td>
                  <td>
                    <Time at={attempt.started_at} />
                  </td>
                  <td>
                    {attempt.ended_at ? <Time at={attempt.ended_at} /> : <Absent why="goes on" />}
                  </td>
                  <td className={table.number}>
                    {attempt.first_step === null || attempt.last_step === null ? (
                      <Absent />
                    ) : (
                      `${count(attempt.first_step)}\u2009–\u2009${count(attempt.last_step)}`
                    )}
                  </td>
                  <td className={table.number}>
                    <Num value={attempt.world_size} />
                  </td>
                  <td className={table.number}>
                    <Num value={attempt.quorum_id} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </ScrollRegion>
      )}
    </Panel>
  );
}
