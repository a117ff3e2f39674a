import type { Command } from "../../api/types.ts";
import explanation from "../../components/Explanation/Explanation.module.css";
import { duration } from "../../components/format.ts";
import { CommandTag } from "../../components/tags.tsx";
import { Absent, Change, Time } from "../../components/values.tsx";
import css from "./Decisions.module.css";

interface Moment {
  name: string;
  at: string | null;
  /** Seconds since the moment before; null where either time is absent. */
  after: number | null;
}

/** The command's three moments and the time between them. */
export function life(command: Command): Moment[] {
  const named: [string, string | null][] = [
    ["recorded", command.created_at],
    ["written to the cluster", command.applied_at],
    [command.state === "done" ? "confirmed" : "ended", command.finished_at],
  ];
  let before: number | null = null;
  return named.map(([name, at]) => {
    const time = at ? Date.parse(at) : null;
    const after = time !== null && before !== null ? (time - before) / 1000 : null;
    if (time !== null) before = time;
    return { name, at, after };
  });
}

/** What became of a command. */
export function CommandLife({ command }: { command: Command }) {
  return (
    <div className={css.life}>
      <p className={css.lifeHead}>
        {command.kind} <Change from={command.from_replicas} to={command.to_replicas} />
        <CommandTag state={command.state} />
      </p>
      {command.result_sentence ? <p>{command.result_sentence}</p> : null}
      <ol className={css.moments}>
        {life(command).map((moment) => (
          <li key={moment.name} data-done={moment.at ? true : undefined}>
            <span className={css.momentName}>{moment.name}</span>
            {moment.at ? <Time at={moment.at} /> : <Absent why="not yet" />}
            <span className={css.facts}>
              {moment.after === null ? "" : `after ${duration(moment.after)}`}
            </span>
          </li>
        ))}
      </ol>
      <dl className={explanation.numbers}>
        <div>
          <dt>attempts</dt>
          <dd>{command.attempts}</dd>
        </div>
        <div>
          <dt>lease epoch</dt>
          <dd>{command.epoch}</dd>
        </div>
        <div>
          <dt>pods that leave</dt>
          <dd>{command.victims.length === 0 ? "none named" : command.victims.join(", ")}</dd>
        </div>
      </dl>
    </div>
  );
}
