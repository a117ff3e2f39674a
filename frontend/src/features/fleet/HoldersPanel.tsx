import { SegmentedControl, Select } from "@mantine/core";
import { useMemo } from "react";
import { useCapacity } from "../../api/queries.ts";
import type { CapacitySeries } from "../../api/types.ts";
import { Chart } from "../../components/Chart/Chart.tsx";
import { useTimeWindow } from "../../components/Chart/window.ts";
import { count } from "../../components/format.ts";
import { Panel } from "../../components/Panel.tsx";
import { useScheme } from "../../theme/useScheme.ts";
import { useCluster } from "../shell/useCluster.ts";
import css from "./Fleet.module.css";
import { holderChart } from "./holders.ts";
import { type FleetSearch, type RangeName, ranges } from "./search.ts";

interface HoldersPanelProps {
  cluster: string | undefined;
  resource: string | undefined;
  resources: readonly string[];
  range: RangeName;
  onChange: (change: FleetSearch) => void;
}

const height = 260;

/** Who held how many accelerators, over time and now. */
export function HoldersPanel({ cluster, resource, resources, range, onChange }: HoldersPanelProps) {
  const query = useCapacity(cluster, resource, ranges[range]);
  const { after, nothing } = useCluster();
  const noAccelerators = cluster !== undefined && resources.length === 0;
  return (
    <Panel
      title="Who holds what"
      query={after(query)}
      loadingHeight={height}
      nothing={
        nothing ?? (noAccelerators ? "No accelerators were observed on this cluster." : null)
      }
      empty={(data) =>
        data.series.length === 0 ? `No samples of ${data.resource} in this time.` : null
      }
      actions={
        <>
          {resources.length > 1 ? (
            <Select
              aria-label="Accelerator"
              className={css.resourcePicker}
              data={[...resources]}
              value={resource ?? null}
              onChange={(chosen) => chosen && onChange({ resource: chosen })}
            />
          ) : null}
          <SegmentedControl
            aria-label="How far back"
            data={Object.keys(ranges)}
            value={range}
            onChange={(chosen) => onChange({ range: chosen as RangeName })}
          />
        </>
      }
    >
      {(data) => <Holders data={data} range={range} />}
    </Panel>
  );
}

function Holders({ data, range }: { data: CapacitySeries; range: RangeName }) {
  const scheme = useScheme();
  const { series, table } = useMemo(() => holderChart(data.series, scheme), [data.series, scheme]);
  const window = useTimeWindow(ranges[range], table.x[0]);
  const total = data.series.at(-1)?.total;
  const bounds = useMemo(() => ({ min: 0, max: total }), [total]);
  return (
    <Chart
      label={`Accelerators (${data.resource}) by holder over time, stacked`}
      series={series}
      table={table}
      height={height}
      stacked
      format={count}
      integers
      bounds={bounds}
      range={window}
      legend="beside"
    />
  );
}
