import { Button, Checkbox, Select } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { useDecisions, useJobs } from "../../api/queries.ts";
import { words } from "../../components/format.ts";
import { Panel } from "../../components/Panel.tsx";
import { useCluster } from "../shell/useCluster.ts";
import { DecisionDrawer } from "./DecisionDrawer.tsx";
import { DecisionList } from "./DecisionList.tsx";
import css from "./Decisions.module.css";
import type { DecisionSearch } from "./search.ts";

/** What was decided, for whom and why; one decision in full on the right. */
export function DecisionsPage() {
  const { cluster, after, nothing } = useCluster();
  const given = useSearch({ from: "/decisions" });
  const navigate = useNavigate();
  const query = useDecisions({
    cluster: cluster?.name,
    job: given.job,
    reason_code: given.reason,
    with_command: given.changes,
  });
  const change = (part: Partial<DecisionSearch>) =>
    void navigate({
      to: "/decisions",
      replace: true,
      search: (before) => ({ ...before, ...part }),
    });
  const filtered = Boolean(given.job || given.reason || given.changes);
  return (
    <>
      <h1 className={css.title}>Decisions</h1>
      <Panel
        title="Newest first"
        query={after(query)}
        nothing={nothing}
        loadingHeight={480}
        flush
        actions={
          <Filters
            given={given}
            cluster={cluster?.name}
            reasons={query.data?.map((one) => one.reason_code) ?? []}
            onChange={change}
          />
        }
        empty={(decisions) =>
          decisions.length > 0 ? null : filtered ? (
            <>
              <p>No decision matches these filters.</p>
              <Button
                mt={8}
                variant="default"
                onClick={() => change({ job: undefined, reason: undefined, changes: undefined })}
              >
                Show all
              </Button>
            </>
          ) : (
            "Nothing has been decided yet. Each plan records a decision for every managed job."
          )
        }
      >
        {(decisions) => (
          <DecisionList
            decisions={decisions}
            open={given.id}
            onOpen={(id) => change({ id })}
            more={query.hasNextPage}
            onMore={() => {
              if (!query.isFetchingNextPage) void query.fetchNextPage();
            }}
          />
        )}
      </Panel>
      <DecisionDrawer id={given.id} onClose={() => change({ id: undefined })} />
    </>
  );
}

interface FiltersProps {
  given: DecisionSearch;
  cluster: string | undefined;
  reasons: readonly string[];
  onChange: (part: Partial<DecisionSearch>) => void;
}

function Filters({ given, cluster, reasons, onChange }: FiltersProps) {
  const jobs = useJobs({ cluster });
  const jobOptions = useMemo(() => {
    const options = (jobs.data ?? []).map((job) => ({
      value: job.id,
      label: `${job.namespace}/${job.name}`,
    }));
    if (given.job && !options.some((option) => option.value === given.job))
      options.push({ value: given.job, label: "the chosen job" });
    return [{ value: "", label: "Any job" }, ...options];
  }, [jobs.data, given.job]);
  const reasonOptions = useMemo(() => {
    const codes = new Set(reasons);
    if (given.reason) codes.add(given.reason);
    const options = [...codes].sort().map((code) => ({ value: code, label: words(code) }));
    return [{ value: "", label: "Any reason" }, ...options];
  }, [reasons, given.reason]);
  return (
    <search className={css.filters}>
      <Checkbox
        size="xs"
        label="Changes only"
        checked={given.changes ?? false}
        onChange={(event) => onChange({ changes: event.currentTarget.checked || undefined })}
      />
      <Select
        aria-label="Job"
        searchable
        className={css.job}
        data={jobOptions}
        value={given.job ?? ""}
        onChange={(value) => onChange({ job: value || undefined })}
      />
      <Select
        aria-label="Reason"
        searchable
        className={css.reasonFilter}
        data={reasonOptions}
        value={given.reason ?? ""}
        onChange={(value) => onChange({ reason: value || undefined })}
      />
    </search>
  );
}
