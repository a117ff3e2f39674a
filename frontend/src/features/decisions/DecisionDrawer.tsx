import { Drawer } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useDecision } from "../../api/queries.ts";
import type { Decision, Numbers, Rejection } from "../../api/types.ts";
import { quantity, words } from "../../components/format.ts";
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
        <Rejected rejected={decision.rejected} />
      </section>
    </div>
  );
}

function Rejected({ rejected }: { rejected: readonly Rejection[] }) {
  if (rejected.length === 0) return <p className={css.facts}>No other candidate was weighed.</p>;
  return (
    <ul className={css.rejected}>
      {rejected.map((one) => (
        <li key={`${one.candidate} ${one.code}`}>
          <b>{one.candidate}</b> {one.sentence}
          <NumberList numbers={one.numbers} />
        </li>
      ))}
    </ul>
  );
}

function NumberList({ numbers }: { numbers: Numbers }) {
  const entries = Object.entries(numbers);
  if (entries.length === 0) return <p className={css.facts}>No numbers were recorded.</p>;
  return (
    <dl className={css.numbers}>
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{words(name)}</dt>
          <dd title={String(value)}>{typeof value === "number" ? quantity(value) : value}</dd>
        </div>
      ))}
    </dl>
  );
}
