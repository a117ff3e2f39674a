import type { CapacityPoint } from "../../api/types.ts";
import type { ChartSeries } from "../../components/Chart/plot.ts";
import { type Column, gapThreshold, type Table, withGaps } from "../../components/Chart/series.ts";
import { holderSlot } from "../../components/holders.ts";
import { categorical, lines, others, type Scheme } from "../../theme/tokens.ts";

/** Samples are written on change and every 10 s at least; a silence of this many seconds is a gap. */
export const longestSilence = 35;

const most = 8;

/** Holders by the most they ever held in the series, largest first. */
function byPeak(points: readonly CapacityPoint[]): string[] {
  const peaks = new Map<string, number>();
  for (const point of points) {
    for (const [holder, held] of Object.entries(point.holders)) {
      if (held > (peaks.get(holder) ?? 0)) peaks.set(holder, held);
    }
  }
  return [...peaks.entries()]
    .sort(([a, heldByA], [b, heldByB]) => heldByB - heldByA || a.localeCompare(b))
    .map(([holder]) => holder);
}

/**
 * The stacked chart of who holds what: the eight largest holders, the rest together, and the total
 * as a line. Within a sample, a holder that isn't named holds nothing; between samples too far
 * apart nothing is known.
 */
export function holderChart(
  points: readonly CapacityPoint[],
  scheme: Scheme,
): { series: ChartSeries[]; table: Table } {
  const ranked = byPeak(points);
  for (const holder of [...ranked].sort()) holderSlot(holder, most);
  const shown = ranked.slice(0, most).sort((a, b) => ranked.indexOf(a) - ranked.indexOf(b));
  const rest = ranked.slice(most);
  const palette = categorical[scheme];
  const series: ChartSeries[] = distinct(shown, palette).map(([holder, colour]) => ({
    key: holder,
    label: holder,
    colour,
    shape: "area",
    title: holder,
  }));
  const columns: Column[] = shown.map((holder) =>
    points.map((point) => point.holders[holder] ?? 0),
  );
  if (rest.length > 0) {
    series.push({
      key: "\u0000rest",
      label: `${rest.length} more`,
      colour: others[scheme],
      shape: "area",
      title: rest.join(", "),
    });
    columns.push(
      points.map((point) => rest.reduce((all, holder) => all + (point.holders[holder] ?? 0), 0)),
    );
  }
  series.push({
    key: "\u0000total",
    label: "total",
    colour: lines[scheme].desired,
    shape: "step",
    dash: [4, 3],
  });
  columns.push(points.map((point) => point.total));
  const x = points.map((point) => Date.parse(point.at) / 1000);
  return { series, table: withGaps({ x, columns }, gapThreshold(x, longestSilence)) };
}

/** Each holder's own colour; where two share one, the later takes the first that is left. */
function distinct(shown: readonly string[], palette: readonly string[]): [string, string][] {
  const taken = new Set<string>();
  return shown.map((holder) => {
    const own = palette[holderSlot(holder, palette.length)] as string;
    const colour = taken.has(own) ? (palette.find((one) => !taken.has(one)) ?? own) : own;
    taken.add(colour);
    return [holder, colour];
  });
}
