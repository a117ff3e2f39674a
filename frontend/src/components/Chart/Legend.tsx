import { ABSENT, isAbsent, utc } from "../format.ts";
import css from "./Chart.module.css";
import type { ChartSeries } from "./plot.ts";
import type { Reading } from "./series.ts";

interface LegendProps {
  series: readonly ChartSeries[];
  values: readonly Reading[];
  /** Unix seconds of the values; null where there are none. */
  at: number | null;
  /** Whether a cursor chose the time, rather than it being the latest. */
  pinned: boolean;
  format: (value: number) => string;
  unit?: string;
}

const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

/** Names, swatches and readings of a chart's series at one time. */
export function Legend({ series, values, at, pinned, format, unit }: LegendProps) {
  const date = at === null ? null : new Date(at * 1000);
  return (
    <div className={css.legend}>
      <div className={css.when} data-pinned={pinned || undefined}>
        {date ? (
          <time dateTime={date.toISOString()} title={utc(date)}>
            {clock.format(date)}
          </time>
        ) : (
          ABSENT
        )}
        <span className={css.whenNote}>{date ? (pinned ? " at the cursor" : " latest") : ""}</span>
      </div>
      <dl className={css.entries}>
        {series.map((one, index) => {
          const value = values[index];
          return (
            <div key={one.key} className={css.entry} title={one.title}>
              <dt>
                <span
                  className={one.shape === "area" ? css.block : css.stroke}
                  style={{ "--swatch": one.colour } as React.CSSProperties}
                  data-dashed={one.dash ? true : undefined}
                />
                {one.label}
              </dt>
              <dd>
                {isAbsent(value) ? (
                  <span title="not reported">{ABSENT}</span>
                ) : (
                  <>
                    {format(value)}
                    {unit ? <span className={css.unit}> {unit}</span> : null}
                  </>
                )}
              </dd>
            </div>
          );
        })}
      </dl>
    </div>
  );
}
