import { ABSENT, duration, words } from "../format.ts";
import css from "./StageBar.module.css";
import { type Stage, segments, stageMeaning } from "./stages.ts";

interface StageBarProps {
  stages: readonly Stage[];
  /** Seconds that the whole width stands for; the same for events that are to be compared. */
  scale: number;
}

/** A recovery's stages on one time line. */
export function StageBar({ stages, scale }: StageBarProps) {
  const parts = segments(stages);
  const text = parts
    .map(
      (part) =>
        `${words(part.name)} ${part.duration === null ? "not reported" : duration(part.duration)}`,
    )
    .join(", ");
  return (
    <div className={css.bar} role="img" aria-label={text}>
      {parts.map((part, index) =>
        part.duration === null ? null : (
          <span
            key={part.name}
            className={css.segment}
            title={`${words(part.name)}: ${duration(part.duration)}, ${stageMeaning[part.name]}`}
            style={{
              left: `${(100 * part.start) / scale}%`,
              width: `${(100 * part.duration) / scale}%`,
              background: `var(--c-stage-${index})`,
            }}
          />
        ),
      )}
    </div>
  );
}

/** The stages' durations in their order, with the swatches of the bar. */
export function StageList({ stages }: { stages: readonly Stage[] }) {
  return (
    <dl className={css.list}>
      {segments(stages).map((part, index) => (
        <div key={part.name} className={css.item} title={stageMeaning[part.name]}>
          <dt>
            <span className={css.swatch} style={{ background: `var(--c-stage-${index})` }} />
            {words(part.name)}
          </dt>
          <dd>
            {part.duration === null ? (
              <span title="not reported">{ABSENT}</span>
            ) : (
              duration(part.duration)
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}
