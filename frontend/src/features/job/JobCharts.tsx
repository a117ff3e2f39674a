import { SegmentedControl } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { useCountsSeen } from "../../api/counts.ts";
import { useDecisions, useRecoveries, useSamples } from "../../api/queries.ts";
import type { JobDetail, Sample } from "../../api/types.ts";
import { Chart } from "../../components/Chart/Chart.tsx";
import type { ChartSeries, Marker } from "../../components/Chart/plot.ts";
import { gapThreshold, type Table, withGaps } from "../../components/Chart/series.ts";
import { useTimeWindow } from "../../components/Chart/window.ts";
import { count, decimals, quantity } from "../../components/format.ts";
import { rungs } from "../../components/Ladder/counts.ts";
import { Panel } from "../../components/Panel.tsx";
import { lines, type Scheme, surfaces } from "../../theme/tokens.ts";
import { useScheme } from "../../theme/useScheme.ts";
import { type RangeName, ranges } from "../fleet/search.ts";
import { countsTable } from "./counts.ts";
import css from "./Job.module.css";

const height = 168;
const syncKey = "job";

/** A sample at least this often while training goes on, in seconds; longer is a gap. */
const usualStep = 15;

type Measured = "loss" | "samples_per_s" | "global_batch_size";

function measured(samples: readonly Sample[], field: Measured): Table {
  const x = samples.map((sample) => Date.parse(sample.at) / 1000);
  const columns = [samples.map((sample) => sample[field])];
  return withGaps({ x, columns }, gapThreshold(x, usualStep));
}

const one = (key: keyof (typeof lines)["light"], label: string, scheme: Scheme): ChartSeries[] => [
  { key, label, colour: lines[scheme][key], shape: key === "batch" ? "step" : "line" },
];

/** Replicas, loss, throughput and batch over one time axis, with one cursor. */
export function JobCharts({ job, observedAt }: { job: JobDetail; observedAt: string | null }) {
  const { range = "15m" } = useSearch({ from: "/jobs/$jobId" });
  const navigate = useNavigate();
  const seconds = ranges[range];
  const samples = useSamples(job.id, seconds);
  const series = samples.data?.series;
  // Sizes are decided before the trainer first reports.
  const first = job.created_at;
  const window = useTimeWindow(seconds, Date.parse(first) / 1000);
  const markers = useMarkers(job.id);
  const scheme = useScheme();
  const common = { height, syncKey, range: window, markers, axisWidth: 48 };
  const empty = () => (series?.length === 0 ? "No reports in this time." : null);
  const tables = useMemo(
    () => ({
      loss: measured(series ?? [], "loss"),
      throughput: measured(series ?? [], "samples_per_s"),
      batch: measured(series ?? [], "global_batch_size"),
    }),
    [series],
  );
  return (
    <section aria-label="Over time">
      <div className={css.rangeBar}>
        <h2>Over time</h2>
        <MarkerKey />
        <SegmentedControl
          aria-label="How far back"
          data={Object.keys(ranges)}
          value={range}
          onChange={(chosen) =>
            void navigate({
              to: "/jobs/$jobId",
              params: { jobId: job.id },
              replace: true,
              search: (before) => ({ ...before, range: chosen as RangeName }),
            })
          }
        />
      </div>
      <div className={css.charts}>
        <CountsChart
          job={job}
          observedAt={observedAt}
          samples={series}
          scheme={scheme}
          common={common}
        />
        <Panel title="Loss" level={3} query={samples} loadingHeight={height + 24} empty={empty}>
          {() => (
            <Chart
              label="Loss over time"
              series={one("loss", "loss", scheme)}
              table={tables.loss}
              format={(value) => decimals(value, 3)}
              {...common}
            />
          )}
        </Panel>
        <Panel
          title="Throughput"
          level={3}
          query={samples}
          loadingHeight={height + 24}
          empty={empty}
        >
          {() => (
            <Chart
              label="Throughput over time, samples a second"
              series={one("throughput", "samples/s", scheme)}
              table={tables.throughput}
              format={quantity}
              bounds={fromZero}
              {...common}
            />
          )}
        </Panel>
        <Panel
          title="Global batch size"
          level={3}
          query={samples}
          loadingHeight={height + 24}
          empty={empty}
        >
          {() => (
            <Chart
              label="Global batch size over time, samples"
              series={one("batch", "samples", scheme)}
              table={tables.batch}
              format={count}
              bounds={fromZero}
              integers
              {...common}
            />
          )}
        </Panel>
      </div>
    </section>
  );
}

const fromZero = { min: 0 };

interface CountsChartProps {
  job: JobDetail;
  observedAt: string | null;
  samples: readonly Sample[] | undefined;
  scheme: Scheme;
  common: Omit<React.ComponentProps<typeof Chart>, "label" | "series" | "table">;
}

function CountsChart({ job, observedAt, samples, scheme, common }: CountsChartProps) {
  const decisions = useDecisions({ job: job.id });
  const seen = useCountsSeen(job.id);
  const table = useMemo(
    () =>
      countsTable({
        job: { ...job, observed_at: observedAt },
        decisions: decisions.data ?? [],
        samples: samples ?? [],
        seen,
      }),
    [job, observedAt, decisions.data, samples, seen],
  );
  const series = useMemo<ChartSeries[]>(
    () =>
      rungs.map((rung) => ({
        key: rung,
        label: rung,
        colour: lines[scheme][rung],
        shape: "step",
        width: rung === "productive" ? 2 : 1.5,
        ...(rung === "desired" ? { dash: [4, 3] } : {}),
        ...(rung === "running" ? { title: "known only since this page was opened" } : {}),
      })),
    [scheme],
  );
  return (
    <Panel title="Replicas over time" level={3} query={decisions} loadingHeight={height + 24}>
      {() => (
        <Chart
          label="Replica counts over time: desired, granted, running, productive"
          series={series}
          table={table}
          format={count}
          integers
          bounds={fromZero}
          {...common}
        />
      )}
    </Panel>
  );
}

function useMarkers(id: string): readonly Marker[] {
  const recoveries = useRecoveries(id);
  const decisions = useDecisions({ job: id });
  const scheme = useScheme();
  return useMemo(() => {
    const colours = surfaces[scheme];
    const faults = (recoveries.data ?? []).map((event) => ({
      at: Date.parse(event.started_at) / 1000,
      colour: colours.bad,
      dash: [2, 2],
    }));
    const resizes = (decisions.data ?? []).flatMap(({ command }) =>
      command?.applied_at
        ? [{ at: Date.parse(command.applied_at) / 1000, colour: colours["rule-strong"] }]
        : [],
    );
    return [...resizes, ...faults];
  }, [recoveries.data, decisions.data, scheme]);
}

function MarkerKey() {
  return (
    <ul className={css.markerKey}>
      <li>
        <span className={css.resizeMark} /> resize
      </li>
      <li>
        <span className={css.recoveryMark} /> recovery
      </li>
    </ul>
  );
}
