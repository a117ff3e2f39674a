import { isAbsent } from "../format.ts";
import { Num } from "../values.tsx";
import { type Counts, difference, type Rung, rungMeaning, rungs } from "./counts.ts";
import css from "./Ladder.module.css";

interface LadderProps {
  counts: Counts;
  /** The largest size that the policy allows; absent for an inelastic job. */
  max?: number | null;
}

const mostPips = 64;

/** The four replica counts under each other on one scale, with what each difference means. */
export function Ladder({ counts, max }: LadderProps) {
  const known = rungs
    .map((rung) => counts[rung])
    .filter((value): value is number => !isAbsent(value));
  const scale = Math.max(1, max ?? 0, ...known);
  return (
    <dl className={css.ladder}>
      {rungs.map((rung) => (
        <div key={rung} className={css.rung} data-rung={rung}>
          <dt>
            <span className={css.label}>{rung}</span>
            <span className={css.meaning}>{rungMeaning[rung]}</span>
          </dt>
          <dd className={css.number}>
            <Num value={counts[rung]} />
          </dd>
          <dd className={css.track} aria-hidden="true">
            <Track counts={counts} rung={rung} scale={scale} />
          </dd>
          <dd className={css.note}>{difference(counts, rung) ?? ""}</dd>
        </div>
      ))}
    </dl>
  );
}

function Track({ counts, rung, scale }: { counts: Counts; rung: Rung; scale: number }) {
  const value = counts[rung];
  if (isAbsent(value)) return <span className={css.unknown} />;
  if (scale > mostPips) {
    return (
      <span className={css.bar}>
        <span className={css.fill} style={{ width: `${(100 * value) / scale}%` }} />
      </span>
    );
  }
  return (
    <span className={css.pips}>
      {Array.from({ length: scale }, (_unused, index) => (
        <span
          // biome-ignore lint/suspicious/noArrayIndexKey: a pip is its position
          key={index}
          className={css.pip}
          data-on={index < value || undefined}
        />
      ))}
    </span>
  );
}
