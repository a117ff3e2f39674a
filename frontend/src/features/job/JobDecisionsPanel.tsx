import { Link } from "@tanstack/react-router";
import { useDecisions } from "../../api/queries.ts";
import { Panel } from "../../components/Panel.tsx";
import { ScrollRegion } from "../../components/ScrollRegion.tsx";
import { CommandTag } from "../../components/tags.tsx";
import { Change, Time } from "../../components/values.tsx";
import css from "./Job.module.css";

const shown = 25;

export function JobDecisionsPanel({ id }: { id: string }) {
  const query = useDecisions({ job: id });
  return (
    <Panel
      title="Decisions"
      query={query}
      loadingHeight={220}
      flush
      actions={
        <Link to="/decisions" search={{ job: id }}>
          All of this job
        </Link>
      }
      empty={(decisions) =>
        decisions.length === 0 ? "Nothing has been decided for this job yet." : null
      }
    >
      {(decisions) => (
        <ScrollRegion label="List of this job’s decisions" className={css.events}>
          <ol className={css.eventList}>
            {decisions.slice(0, shown).map((decision) => (
              <li key={decision.id} className={css.event}>
                <div className={css.eventHead}>
                  <Time at={decision.at} />
                  <Change from={decision.current} to={decision.desired} />
                  {decision.command ? (
                    <CommandTag state={decision.command.state} kind={decision.command.kind} />
                  ) : null}
                  <Link
                    to="/decisions"
                    search={{ job: id, id: decision.id }}
                    className={css.downtime}
                    aria-label={`Details of decision ${decision.id}`}
                  >
                    details
                  </Link>
                </div>
                <p className={css.sentence}>{decision.sentence}</p>
              </li>
            ))}
          </ol>
        </ScrollRegion>
      )}
    </Panel>
  );
}
