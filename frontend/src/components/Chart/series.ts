/** Pure preparation of chart data: gaps, stacks, and the index of the latest reading. */
/** Null: not known at that time (a gap). Undefined: another series' time (the line goes on). */
export type Reading = number | null | undefined;
export type Column = Reading[];

export interface Table {
  /** Unix seconds, ascending. */
  x: number[];
  /** One column a series, each as long as x. */
  columns: Column[];
}

/**
 * Where two readings lie further apart than `largest` seconds, nothing is known in between: a row
 * of nulls is put there, so that no line crosses the gap.
 */
export function withGaps(table: Table, largest: number): Table {
  const { x, columns } = table;
  const outX: number[] = [];
  const out: Column[] = columns.map(() => []);
  for (let row = 0; row < x.length; row++) {
    const at = x[row] as number;
    const before = x[row - 1];
    if (before !== undefined && at - before > largest) {
      outX.push(before + largest / 2);
      for (const column of out) column.push(null);
    }
    outX.push(at);
    columns.forEach((column, index) => {
      out[index]?.push(column[row]);
    });
  }
  return { x: outX, columns: out };
}

/** The largest usual distance: three times the median, and no less than `least` seconds. */
export function gapThreshold(x: readonly number[], least: number): number {
  if (x.length < 3) return Number.POSITIVE_INFINITY;
  const steps: number[] = [];
  for (let row = 1; row < x.length; row++) steps.push((x[row] as number) - (x[row - 1] as number));
  steps.sort((a, b) => a - b);
  return Math.max(least, 3 * (steps[Math.floor(steps.length / 2)] as number));
}

/** Running sums from the first column up. A row in which every column is null stays null. */
export function stack(columns: readonly Column[]): Column[] {
  const rows = columns[0]?.length ?? 0;
  const sums: Column[] = columns.map(() => new Array<Reading>(rows).fill(null));
  for (let row = 0; row < rows; row++) {
    if (columns.every((column) => column[row] === null || column[row] === undefined)) continue;
    let sum = 0;
    columns.forEach((column, index) => {
      sum += column[row] ?? 0;
      (sums[index] as Column)[row] = sum;
    });
  }
  return sums;
}

/** The last row in which any column has a reading; null where there is none. */
export function latestRow(columns: readonly Column[]): number | null {
  const rows = columns[0]?.length ?? 0;
  for (let row = rows - 1; row >= 0; row--) {
    if (columns.some((column) => column[row] !== null && column[row] !== undefined)) return row;
  }
  return null;
}

/**
 * Merges series that have their own times into one table. `hold` carries a reading on until the
 * next (a step: a desired size stays until it is changed); otherwise the times of other series are
 * undefined, over which a line goes on.
 */
export function merge(
  parts: readonly { points: readonly (readonly [number, Reading])[]; hold: boolean }[],
): Table {
  const x = [...new Set(parts.flatMap((part) => part.points.map(([at]) => at)))].sort(
    (a, b) => a - b,
  );
  const columns = parts.map(({ points, hold }) => {
    const sorted = [...points].sort((a, b) => a[0] - b[0]);
    let next = 0;
    let last: Reading = null;
    return x.map((at) => {
      let fresh = false;
      while (next < sorted.length && (sorted[next]?.[0] as number) <= at) {
        last = sorted[next]?.[1] ?? null;
        fresh = true;
        next++;
      }
      return hold || fresh ? last : undefined;
    });
  });
  return { x, columns };
}
