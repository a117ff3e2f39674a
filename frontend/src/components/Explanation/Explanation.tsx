/** Why something is as it is: the numbers, the candidates that lost, and what would help. */
import { Button } from "@mantine/core";
import { Fragment, useState } from "react";
import type { Decision, Numbers, Reason, Rejection, Reservation } from "../../api/types.ts";
import { count, percent, quantity, words } from "../format.ts";
import { Absent } from "../values.tsx";
import css from "./Explanation.module.css";

/** Candidates shown at once: more are asked for. */
const page = 10;

export function NumberList({ numbers }: { numbers: Numbers }) {
  const entries = Object.entries(numbers);
  if (entries.length === 0) return <p className={css.none}>No numbers were recorded.</p>;
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

/** The same on one line, where there are many. */
function Facts({ numbers }: { numbers: Numbers }) {
  return (
    <dl className={css.facts}>
      {Object.entries(numbers).map(([name, value]) => (
        <div key={name}>
          <dt>{words(name)}</dt>
          <dd title={String(value)}>{typeof value === "number" ? quantity(value) : value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Who was weighed and why each lost, the first ones at once. */
export function RejectedList({ rejected }: { rejected: readonly Rejection[] }) {
  const [shown, setShown] = useState(page);
  if (rejected.length === 0) return <p className={css.none}>No other candidate was weighed.</p>;
  const left = rejected.length - shown;
  return (
    <>
      <ul className={css.rejected}>
        {rejected.slice(0, shown).map((one) => (
          <li key={`${one.candidate} ${one.code}`}>
            <b>{one.candidate}</b> {one.sentence}
            <Facts numbers={one.numbers} />
          </li>
        ))}
      </ul>
      {left > 0 ? (
        <Button
          mt={10}
          size="compact-xs"
          variant="default"
          onClick={() => setShown(shown + 2 * page)}
        >
          Show {Math.min(left, 2 * page)} more of {count(rejected.length)}
        </Button>
      ) : null}
    </>
  );
}

/** The smallest set of changes found; of several all are needed. */
export function Remedies({ unblock }: { unblock: readonly Reason[] }) {
  if (unblock.length === 0) return <p className={css.none}>Nothing was looked for.</p>;
  return (
    <>
      {unblock.length > 1 ? <p className={css.none}>All of these together:</p> : null}
      <ul className={css.remedies}>
        {unblock.map((one) => (
          <li key={`${one.code} ${one.sentence}`}>{one.sentence}</li>
        ))}
      </ul>
    </>
  );
}

/** What a job's queue gives it, and what its change brings. */
export function Reckoned({ decision }: { decision: Pick<Decision, "share" | "expected_gain"> }) {
  const { share, expected_gain: gain } = decision;
  return (
    <dl className={css.numbers}>
      <div>
        <dt>share of its queue, replicas</dt>
        <dd>{share === null ? <Absent why="not reckoned" /> : count(share)}</dd>
      </div>
      <div>
        <dt>expected gain in throughput</dt>
        <dd>{gain === null ? <Absent why="not reckoned" /> : percent(gain, 1)}</dd>
      </div>
    </dl>
  );
}

/** Places kept for a demand, by node. */
export function Reserved({ reservations }: { reservations: readonly Reservation[] }) {
  const kept = reservations.flatMap((one) => Object.entries(one.nodes));
  return (
    <dl className={css.numbers}>
      {kept.map(([node, amounts]) => (
        <div key={node}>
          <dt>{node}</dt>
          <dd>
            {Object.entries(amounts).map(([resource, n], index) => (
              <Fragment key={resource}>
                {index > 0 ? ", " : ""}
                {count(n)} {resource}
              </Fragment>
            ))}
          </dd>
        </div>
      ))}
    </dl>
  );
}
