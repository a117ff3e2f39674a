import { ageOf, useServerNow } from "../../api/clock.ts";
import { age, utc } from "../../components/format.ts";
import { WarnIcon } from "../../components/icons.tsx";
import css from "./Shell.module.css";

/** Seconds without an observation after which the cluster's data is called old. */
const oldAfter = 30;

interface DataAgeProps {
  observedAt: string | null;
  error: string;
  /** False until the cluster itself is known. */
  known: boolean;
}

/** How old the shown cluster's last complete observation is, and why, where it failed. */
export function DataAge({ observedAt, error, known }: DataAgeProps) {
  const seconds = ageOf(observedAt, useServerNow());
  if (!known) return null;
  if (seconds === null || !observedAt) {
    return (
      <span className={css.age} data-old title={error || "No observation of this cluster yet."}>
        <WarnIcon /> never observed
      </span>
    );
  }
  const old = seconds > oldAfter;
  const title = `Last observed ${utc(new Date(observedAt))}.${error ? ` Last error: ${error}` : ""}`;
  const text = age(seconds);
  return (
    <span className={css.age} data-old={old || undefined} title={title}>
      {old ? <WarnIcon /> : null}
      <span className={css.agePrefix}>data</span> {text === "now" ? "now" : `${text} old`}
    </span>
  );
}
