import {
  type KeyboardEvent,
  type RefObject,
  useEffect,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useScheme } from "../../theme/useScheme.ts";
import { quantity } from "../format.ts";
import css from "./Chart.module.css";
import { Legend } from "./Legend.tsx";
import { type ChartSeries, type Marker, plotOptions } from "./plot.ts";
import { latestRow, type Reading, stack, type Table } from "./series.ts";

export interface ChartProps {
  /** What the chart shows, for people who can't see it. */
  label: string;
  series: readonly ChartSeries[];
  table: Table;
  height: number;
  format?: (value: number) => string;
  unit?: string;
  /** Areas are summed from the first series up; lines after them are not. */
  stacked?: boolean;
  bounds?: { min?: number; max?: number };
  range?: { from: number; to: number };
  logarithmic?: boolean;
  integers?: boolean;
  syncKey?: string;
  markers?: readonly Marker[];
  axisWidth?: number;
  legend?: "beside" | "below";
}

const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

/** Values as drawn: areas become running sums, highest first so that lower ones are painted over. */
function drawn(series: readonly ChartSeries[], table: Table, stacked: boolean) {
  if (!stacked) return { order: series, columns: table.columns };
  const areas = series.flatMap((one, index) => (one.shape === "area" ? [index] : []));
  const sums = stack(areas.map((index) => table.columns[index] ?? []));
  const order: ChartSeries[] = [];
  const columns: Reading[][] = [];
  for (let at = areas.length - 1; at >= 0; at--) {
    order.push(series[areas[at] as number] as ChartSeries);
    columns.push(sums[at] ?? []);
  }
  series.forEach((one, index) => {
    if (one.shape === "area") return;
    order.push(one);
    columns.push(table.columns[index] ?? []);
  });
  return { order, columns };
}

/**
 * A time chart: uPlot, wrapped once. Null readings are gaps. The legend reads out the values under
 * the cursor, or the latest. Arrow keys move the cursor; the chart is a slider over its times.
 */
export function Chart(props: ChartProps) {
  const { series, table, height, stacked = false, format = quantity } = props;
  const scheme = useScheme();
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame);
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const descriptionId = useId();

  const { order, columns } = useMemo(() => drawn(series, table, stacked), [series, table, stacked]);
  const data = useMemo(() => [table.x, ...columns] as uPlot.AlignedData, [table.x, columns]);

  // What uPlot asks for while drawing; kept in a ref so that new data doesn't rebuild the plot.
  const live = useRef(props);
  live.current = props;
  const latest = useRef(data);
  latest.current = data;

  const shape = JSON.stringify([order, scheme, height, props.logarithmic, props.bounds]);
  const ready = width > 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: `shape` stands for the settings read
  useLayoutEffect(() => {
    if (!ready || !host.current) return;
    const options = plotOptions({
      series: order,
      scheme,
      width,
      height,
      format,
      bounds: props.bounds,
      logarithmic: props.logarithmic,
      integers: props.integers,
      syncKey: props.syncKey,
      axisWidth: props.axisWidth,
      range: () => live.current.range,
      markers: () => live.current.markers ?? [],
      onCursor: setCursor,
    });
    const created = new uPlot(options, latest.current, host.current);
    plot.current = created;
    return () => {
      created.destroy();
      plot.current = null;
    };
  }, [shape, ready]);

  useEffect(() => {
    if (ready) plot.current?.setSize({ width, height });
  }, [width, height, ready]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new range or marker redraws too
  useEffect(() => {
    plot.current?.setData(data);
  }, [data, props.range?.from, props.range?.to, props.markers]);

  const last = useMemo(() => latestRow(table.columns), [table.columns]);
  const row = cursor !== null && cursor < table.x.length ? cursor : last;
  const reading = readout(series, table, row, format, props.unit);

  const move = (event: KeyboardEvent) => {
    const to = nextRow(event.key, cursor ?? last, table.x.length);
    const current = plot.current;
    if (to === undefined || !current) return;
    event.preventDefault();
    if (to === null) return current.setCursor({ left: -10, top: -10 });
    current.setCursor({ left: current.valToPos(table.x[to] as number, "x"), top: height / 2 });
  };

  return (
    <div className={props.legend === "beside" ? css.beside : css.below}>
      <div ref={frame} className={css.frame} style={{ height }}>
        <div
          ref={host}
          className={css.plot}
          role="slider"
          tabIndex={0}
          aria-label={props.label}
          aria-describedby={descriptionId}
          aria-valuemin={0}
          aria-valuemax={Math.max(0, table.x.length - 1)}
          aria-valuenow={row ?? 0}
          aria-valuetext={reading}
          onKeyDown={move}
        />
        <span id={descriptionId} className={css.spoken}>
          Time chart. Arrow keys move the cursor; Escape leaves it.
        </span>
      </div>
      <Legend
        series={series}
        at={row === null ? null : (table.x[row] ?? null)}
        pinned={cursor !== null}
        values={series.map((_one, index) => (row === null ? null : table.columns[index]?.[row]))}
        format={format}
        unit={props.unit}
      />
    </div>
  );
}

/** Width of an element in pixels: measured before the first paint, then whenever it changes. */
function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const { current } = element;
    if (!current) return;
    const measure = () => setWidth(current.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    return () => observer.disconnect();
  }, [element]);
  return width;
}

function readout(
  series: readonly ChartSeries[],
  table: Table,
  row: number | null,
  format: (value: number) => string,
  unit = "",
): string {
  if (row === null) return "no data";
  const at = new Date((table.x[row] as number) * 1000);
  const values = series.map((one, index) => {
    const value = table.columns[index]?.[row];
    const text =
      value === null || value === undefined ? "not reported" : `${format(value)} ${unit}`;
    return `${one.label} ${text.trim()}`;
  });
  return `${clock.format(at)}: ${values.join(", ")}`;
}

/** The row that a key moves to; null leaves the cursor, undefined is not our key. */
function nextRow(key: string, row: number | null, rows: number): number | null | undefined {
  if (rows === 0) return undefined;
  const at = row ?? rows - 1;
  const page = Math.max(1, Math.round(rows / 10));
  const to: Record<string, number> = {
    ArrowLeft: at - 1,
    ArrowRight: at + 1,
    PageDown: at - page,
    PageUp: at + page,
    Home: 0,
    End: rows - 1,
  };
  if (key === "Escape") return null;
  const wanted = to[key];
  return wanted === undefined ? undefined : Math.min(rows - 1, Math.max(0, wanted));
}
