import { useMediaQuery } from "@mantine/hooks";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import type { Job } from "../../api/types.ts";
import { DownIcon, UpIcon } from "../../components/icons.tsx";
import { ScrollRegion } from "../../components/ScrollRegion.tsx";
import { columns } from "./columns.tsx";
import css from "./Jobs.module.css";

interface JobsTableProps {
  jobs: readonly Job[];
  ordering: string | undefined;
  onOrder: (column: string) => void;
  more: boolean;
  onMore: () => void;
}

const rowHeight = 40;
const narrowRowHeight = 108;

/** Thousands of rows, of which only those in sight are in the document. */
export function JobsTable({ jobs, ordering, onOrder, more, onMore }: JobsTableProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const narrow = useMediaQuery("(max-width: 720px)", false, { getInitialValueInEffect: false });
  const height = narrow ? narrowRowHeight : rowHeight;
  const rows = useVirtualizer({
    count: jobs.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 12,
    getItemKey: (index) => jobs[index]?.id ?? index,
  });

  // biome-ignore lint/correctness/useExhaustiveDependencies: another row height, another layout
  useEffect(() => rows.measure(), [height]);

  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && last >= jobs.length - 20) onMore();
  }, [more, last, jobs.length, onMore]);

  return (
    <ScrollRegion ref={scroller} className={css.scroller} label="Jobs table">
      <div
        role="table"
        aria-label="Training jobs"
        aria-rowcount={more ? -1 : jobs.length + 1}
        className={css.table}
      >
        <div role="rowgroup" className={css.head}>
          <div role="row" className={css.row} aria-rowindex={1}>
            {columns.map((column) => (
              <ColumnHead key={column.key} column={column} ordering={ordering} onOrder={onOrder} />
            ))}
          </div>
        </div>
        <div role="rowgroup" className={css.body} style={{ height: rows.getTotalSize() }}>
          {items.map((item) => {
            const job = jobs[item.index];
            if (!job) return null;
            return (
              <div
                key={item.key}
                role="row"
                aria-rowindex={item.index + 2}
                className={css.row}
                data-floating
                style={{ height: item.size, transform: `translateY(${item.start}px)` }}
              >
                {columns.map((column) => (
                  <div
                    key={column.key}
                    role="cell"
                    className={css.cell}
                    data-column={column.key}
                    data-label={column.label}
                    data-numeric={column.numeric || undefined}
                  >
                    {column.cell(job)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </ScrollRegion>
  );
}

interface ColumnHeadProps {
  column: (typeof columns)[number];
  ordering: string | undefined;
  onOrder: (column: string) => void;
}

function ColumnHead({ column, ordering, onOrder }: ColumnHeadProps) {
  const { order } = column;
  const up = order !== undefined && ordering === order;
  const down = order !== undefined && ordering === `-${order}`;
  return (
    <div
      role="columnheader"
      className={css.headCell}
      data-column={column.key}
      data-numeric={column.numeric || undefined}
      aria-sort={up ? "ascending" : down ? "descending" : order ? "none" : undefined}
      title={column.title}
    >
      {order ? (
        <button type="button" className={css.sort} onClick={() => onOrder(order)}>
          {column.label}
          {up ? <UpIcon /> : down ? <DownIcon /> : null}
        </button>
      ) : (
        column.label
      )}
    </div>
  );
}
