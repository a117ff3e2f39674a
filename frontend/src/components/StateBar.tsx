import { capacityStates, describeStates, type StateCounts, stateMeaning, sum } from "./capacity.ts";
import { count } from "./format.ts";
import css from "./marks.module.css";

/** Capacity by state as one bar; its segments add up to the total, so it is always full. */
export function StateBar({ states }: { states: StateCounts | null | undefined }) {
  const total = sum(states);
  if (!states || !total) {
    return (
      <div className={css.bar} role="img" aria-label={describeStates(states)}>
        <span className={css.mark} data-state="unknown" style={{ width: "100%" }} />
      </div>
    );
  }
  return (
    <div className={css.bar} role="img" aria-label={describeStates(states)}>
      {capacityStates.map((state) => {
        const held = states[state] ?? 0;
        if (held === 0) return null;
        return (
          <span
            key={state}
            className={css.mark}
            data-state={state}
            title={`${count(held)} ${stateMeaning[state].label}`}
            style={{ width: `${(100 * held) / total}%` }}
          />
        );
      })}
    </div>
  );
}

/** The key of the states that occur (always with used and free), with their counts. */
export function StateKey({ states }: { states: StateCounts | null | undefined }) {
  const shown = capacityStates.filter(
    (state) => state === "used" || state === "free" || (states?.[state] ?? 0) > 0,
  );
  return (
    <ul className={css.key}>
      {shown.map((state) => (
        <li key={state} className={css.keyItem} title={stateMeaning[state].meaning}>
          <span className={css.mark} data-state={state} />
          {stateMeaning[state].label}
          {states ? <b>{count(states[state] ?? 0)}</b> : null}
        </li>
      ))}
    </ul>
  );
}
