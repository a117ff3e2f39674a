import { Drawer } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useDecision } from "../../api/queries.ts";
import type { Decision } from "../../api/types.ts";
import {
  NumberList,
  Reckoned,
  RejectedList,
  Remedies,
} from "../../components/Explanation/Explanation.tsx";
import { words } from "../../components/format.ts";
import { Panel } from "../../components/Panel.tsx";
import { Change, Time } from "../../components/values.tsx";
import { CommandLife } from "./CommandLife.tsx";
import css from "./Decisions.module.css";

/** One decision in full: the sentence, its numbers, what was rejected, and its command's life. */
export function DecisionDrawer({ id, onClose }: { id: number | undefined; onClose: () => void }) {
  const query = useDecision(id);
  return (
    <Drawer.Root opened={id !== undefined} onClose={onClose} position="right" size={520}>
      <Drawer.Overlay />
      <Drawer.Content>
        {/* A plain div: a header here would be a second banner of the page. */}
        <Drawer.Header {...{ component: "div" }}>
          <Drawer.Title className={css.drawerTitle}>Decision {id}</Drawer.Title>
          <Drawer.CloseButton aria-label="Close the decision" />
        </Drawer.Header>
        <Drawer.Body>
          {query.data ? (
            <Details decision={query.data} />
          ) : (
            <Panel title="Loading the decision" query={query} loadingHeight={240}>
              {() => null}
            </Panel>
          )}
        </Drawer.Body>
      </Drawer.Content>
    </Drawer.Root>
  );
}

function Details({ decision }: { decision: Decision }) {
  const { job } = decision;
  return (
    <div className={css.details}>
      <section>
        <p className={css.headline}>
          <Link to="/jobs/$jobId" params={{ jobId: job.id }}>
            {job.namespace}/{job.name}
          </Link>{" "}
          <Change from={decision.current} to={decision.desired} />
        </p>
        <p>{decision.sentence}</p>
        <p className={css.facts}>
          {words(decision.reason_code)}, <Time at={decision.at} />, plan {decision.plan}
        </p>
      </section>
      <section aria-labelledby="numbers">
        <h3 id="numbers">Numbers it came from</h3>
        <NumberList numbers={decision.numbers} />
      </section>
      <section aria-labelledby="reckoned">
        <h3 id="reckoned">Share and gain</h3>
        <Reckoned decision={decision} />
      </section>
      {decision.unblock.length > 0 ? (
        <section aria-labelledby="unblock">
          <h3 id="unblock">What would help</h3>
          <Remedies unblock={decision.unblock} />
        </section>
      ) : null}
      <section aria-labelledby="command">
        <h3 id="command">Command</h3>
        {decision.command ? (
          <CommandLife command={decision.command} />
        ) : (
          <p className={css.facts}>None: nothing had to be changed, or nothing could be.</p>
        )}
      </section>
      <section aria-labelledby="rejected">
        <h3 id="rejected">Rejected candidates</h3>
        <RejectedList rejected={decision.rejected} />
      </section>
    </div>
  );
}
