import { SegmentedControl } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { useDecisions } from "../../api/queries.ts";
import { Panel } from "../../components/Panel.tsx";
import { ScrollRegion } from "../../components/ScrollRegion.tsx";
import { CommandTag } from "../../components/tags.tsx";
import { Change, Time } from "../../components/values.tsx";
import { useCluster } from "../shell/useCluster.ts";
import css from "./Fleet.module.css";

const shown = 30;

/** The newest decisions as they are made. */
export function DecisionFeed({ cluster }: { cluster: string | undefined }) {
  const [all, setAll] = useState(false);
  const query = useDecisions({ cluster, ...(all ? {} : { with_command: true }) });
  const { after, nothing } = useCluster();
  return (
    <Panel
      title="Decisions"
      query={after(query)}
      nothing={nothing}
      loadingHeight={360}
      flush
      actions={
        <>
          <SegmentedControl
            aria-label="Which decisions"
            data={[
              { value: "changes", label: "changes" },
              { value: "all", label: "all" },
            ]}
            value={all ? "all" : "changes"}
            onChange={(value) => setAll(value === "all")}
          />
          <Link to="/decisions">Open</Link>
        </>
      }
      empty={(decisions) =>
        decisions.length > 0
          ? null
          : all
            ? "Nothing has been decided yet."
            : "No size has been changed yet."
      }
    >
      {(decisions) => (
        <ScrollRegion label="Newest decisions" className={css.feedScroll}>
          <ol className={css.list}>
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
                {decision.command ? (
                  <CommandTag state={decision.command.state} kind={decision.command.kind} />
                ) : null}
              </li>
            ))}
          </ol>
        </ScrollRegion>
      )}
    </Panel>
  );
}
