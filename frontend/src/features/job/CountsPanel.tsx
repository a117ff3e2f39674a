import type { JobDetail } from "../../api/types.ts";
import { Ladder } from "../../components/Ladder/Ladder.tsx";
import { Panel, type PanelQuery } from "../../components/Panel.tsx";
import css from "./Job.module.css";

interface CountsPanelProps {
  job: JobDetail;
  query: PanelQuery<JobDetail>;
  /** When the counts were last known to be true. */
  observedAt: string | null;
}

export function CountsPanel({ job, query, observedAt }: CountsPanelProps) {
  return (
    <Panel
      title="Replica counts"
      query={{ ...query, error: null }}
      loadingHeight={124}
      observedAt={job.finished_at ? undefined : () => observedAt}
      staleAfter={30}
      actions={job.valid_sizes ? <Sizes sizes={job.valid_sizes} /> : null}
    >
      {() => <Ladder counts={job} max={job.max_replicas} />}
    </Panel>
  );
}

function Sizes({ sizes }: { sizes: readonly number[] }) {
  const many = sizes.length > 10;
  const shown = many ? [...sizes.slice(0, 4), "…", sizes.at(-1)] : sizes;
  return (
    <span className={css.sizes} title={`The policy allows ${sizes.join(", ")}`}>
      valid sizes {shown.join(" ")}
    </span>
  );
}
