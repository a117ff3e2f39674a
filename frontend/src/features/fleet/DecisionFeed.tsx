import { Link } from "@tanstack/react-router";
import { useDecisions } from "../../api/queries.ts";
import { Panel } from "../../components/Panel.tsx";
import { CommandTag } from "../../components/tags.tsx";
import { Change, Time } from "../../components/values.tsx";
import css from "./Fleet.module.css";

const shown = 30;

/** The newest decisions as they are made. */
export function DecisionFeed({ cluster }: { cluster: string | undefined }) {
  const query = useDecisions({ cluster });
  return (
    <Panel
      title="Decisions"
      query={query}
      loadingHeight={360}
      flush
      className={css.feed}
      actions={<Link to="/decisions">All decisions</Link>}
      empty={(decisions) => (decisions.length === 0 ? "Nothing has been decided yet." : null)}
    >
      {(decisions) => (
        <ol className={css.list} aria-live="off">
          {decisions.slice(0, shown).map((decision) => (
            <li key={decision.id} className={css.item}>
              <div className={css.itemHead}>
                <Link
                  className={css.itemName}
                  to="/decisions"
                  search={{ id: decision.id }}
                  title={`${decision.job.namespace}/${decision.job.name}`}
                >
                  {decision.job.name}
                </Link>
                <Change from={decision.current} to={decision.desired} />
                <span className={css.itemTime}>
                  <Time at={decision.at} />
                </span>
              </div>
              <p className={css.reason}>{decision.sentence}</p>
              {decision.command ? <CommandTag state={decision.command.state} /> : null}
            </li>
          ))}
        </ol>
      )}
    </Panel>
  );
}
