import type { CapacityPoint } from "../../api/types.ts";
import type { ChartSeries } from "../../components/Chart/plot.ts";
import { type Column, gapThreshold, type Table, withGaps } from "../../components/Chart/series.ts";
import { holderSlot } from "../../components/holders.ts";
import { categorical, lines, others, type Scheme } from "../../theme/tokens.ts";

/** Samples are written on change and every 10 s at least; a silence of this many seconds is a gap. */
export const longestSilence = 35;

const most = 8;
/** A band of its own needs this share of the total, on average over the samples. */
const visible = 0.015;
/** As many bands are drawn however small they are. */
const least = 3;

/** Holders by their mean over the samples, largest first, with that mean's share of the total. */
function byMean(points: readonly CapacityPoint[]): { holder: string; share: number }[] {
  const sums = new Map<string, number>();
  let total = 0;
  for (const point of points) {
    total += point.total;
    for (const [holder, held] of Object.entries(point.holders)) {
      sums.set(holder, (sums.get(holder) ?? 0) + held);
    }
  }
  return [...sums.entries()]
    .map(([holder, sum]) => ({ holder, share: total > 0 ? sum / total : 0 }))
    .sort((a, b) => b.share - a.share || a.holder.localeCompare(b.holder));
}

/** Short names: `Job/train/atlas` is `atlas`, or `train/atlas` where another has that name too. */
export function shortNames(holders: readonly string[]): Map<string, string> {
  const last = (holder: string) => holder.split("/").at(-1) ?? holder;
  const uses = new Map<string, number>();
  for (const holder of holders) uses.set(last(holder), (uses.get(last(holder)) ?? 0) + 1);
  return new Map(
    holders.map((holder) => {
      const unique = uses.get(last(holder)) === 1;
      return [holder, unique ? last(holder) : holder.split("/").slice(-2).join("/")];
    }),
  );
}

/**
 * The stacked chart of who holds what: the largest holders (eight at most), the rest together, and
 * the total as a line. Within a sample, a holder that isn't named holds nothing; between samples too far
 * apart nothing is known.
 */
export function holderChart(
  points: readonly CapacityPoint[],
  scheme: Scheme,
): { series: ChartSeries[]; table: Table } {
  const ranked = byMean(points);
  const bands = Math.min(
    most,
    Math.max(least, ranked.filter((one) => one.share >= visible).length),
  );
  const shown = ranked.slice(0, bands).map((one) => one.holder);
  const rest = ranked.slice(bands).map((one) => one.holder);
  for (const holder of [...shown].sort()) holderSlot(holder, most);
  const names = shortNames(shown);
  const palette = categorical[scheme];
  const series: ChartSeries[] = distinct(shown, palette).map(([holder, colour]) => ({
    key: holder,
    label: names.get(holder) ?? holder,
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
      label: `${rest.length} smaller`,
      colour: others[scheme],
      shape: "area",
      title: rest.slice(0, 20).join(", "),
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
