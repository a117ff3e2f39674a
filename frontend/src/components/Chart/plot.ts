/** Builds uPlot's options from ours. The only file that knows uPlot's vocabulary. */
import uPlot from "uplot";
import { type Scheme, surfaces } from "../../theme/tokens.ts";

export interface ChartSeries {
  key: string;
  label: string;
  colour: string;
  /** `step` holds a value until the next; `area` is a filled step, for stacks; `line` connects. */
  shape: "line" | "step" | "area";
  dash?: number[];
  width?: number;
  title?: string;
}

export interface Marker {
  /** Unix seconds. */
  at: number;
  colour: string;
  dash?: number[];
}

export interface PlotSettings {
  series: readonly ChartSeries[];
  scheme: Scheme;
  width: number;
  height: number;
  format: (value: number) => string;
  /** Fixed bounds of the value axis; where absent, from the data. */
  bounds?: { min?: number; max?: number };
  logarithmic?: boolean;
  syncKey?: string;
  integers?: boolean;
  axisWidth?: number;
  range: () => { from: number; to: number } | undefined;
  markers: () => readonly Marker[];
  onCursor: (row: number | null) => void;
}

const font = '11px "IBM Plex Sans Variable", system-ui, sans-serif';

export function plotOptions(settings: PlotSettings): uPlot.Options {
  const { series, scheme, width, height, logarithmic } = settings;
  const colours = surfaces[scheme];
  const axis = { stroke: colours["ink-3"], font, ticks: { show: false } };
  const grid = { stroke: colours.rule, width: 1 };
  return {
    width,
    height,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      points: { size: 6, width: 1.5, fill: colours.surface },
      drag: { x: false, y: false, setScale: false },
      ...(settings.syncKey ? { sync: { key: settings.syncKey, setSeries: false } } : {}),
    },
    scales: {
      x: { time: true, range: (_plot, min, max) => timeRange(settings.range(), min, max) },
      y: logarithmic
        ? { distr: 3 }
        : { range: valueRange(settings.bounds ?? {}, settings.integers) },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 72, size: 24, gap: 4, values: timeLabels },
      {
        ...axis,
        grid,
        size: settings.axisWidth ?? 44,
        gap: 6,
        space: 32,
        ...(settings.integers ? { incrs: wholeSteps } : {}),
        values: (_plot, ticks) => ticks.map((tick) => (tick === null ? "" : settings.format(tick))),
      },
    ],
    series: [{}, ...series.map((one) => seriesOptions(one, colours.surface))],
    hooks: {
      setCursor: [(plot) => settings.onCursor(plot.cursor.idx ?? null)],
      drawClear: [(plot) => drawMarkers(plot, settings.markers())],
    },
  };
}

const wholeSteps = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

function seriesOptions(one: ChartSeries, surface: string): uPlot.Series {
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  if (one.shape === "area") {
    return {
      label: one.label,
      stroke: surface,
      width: 1,
      fill: one.colour,
      paths: stepped,
      points: { show: false },
    };
  }
  return {
    label: one.label,
    stroke: one.colour,
    width: one.width ?? 1.5,
    dash: one.dash,
    ...(one.shape === "step" ? { paths: stepped, points: { show: false } } : {}),
  };
}

function timeRange(
  wanted: { from: number; to: number } | undefined,
  min: number | null,
  max: number | null,
): [number, number] {
  if (wanted) return [wanted.from, wanted.to];
  const to = max ?? Date.now() / 1000;
  const from = min ?? to - 60;
  return to - from < 1 ? [to - 60, to + 1] : [from, to];
}

function valueRange(
  bounds: { min?: number; max?: number },
  integers = false,
): uPlot.Range.Function {
  return (_plot, min, max) => {
    const low = bounds.min ?? min ?? 0;
    const high = Math.max(bounds.max ?? max ?? 1, integers ? low + 1 : low);
    if (bounds.max !== undefined) return [low, high];
    const room = high - low || Math.abs(high) || 1;
    return [bounds.min === undefined ? low - room * 0.06 : low, high + room * 0.08];
  };
}

const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const second = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

function timeLabels(_plot: uPlot, ticks: number[]): string[] {
  const step = (ticks[1] ?? 0) - (ticks[0] ?? 0);
  const form = step >= 86400 ? day : step >= 60 || step === 0 ? minute : second;
  return ticks.map((tick) => form.format(tick * 1000));
}

function drawMarkers(plot: uPlot, markers: readonly Marker[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  for (const marker of markers) {
    const left = plot.valToPos(marker.at, "x", true);
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.strokeStyle = marker.colour;
    ctx.setLineDash((marker.dash ?? []).map((part) => part * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
