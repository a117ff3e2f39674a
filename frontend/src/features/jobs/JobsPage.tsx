import { Select, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { useJobs } from "../../api/queries.ts";
import { words } from "../../components/format.ts";
import { SearchIcon } from "../../components/icons.tsx";
import { Panel } from "../../components/Panel.tsx";
import { useCluster } from "../shell/useCluster.ts";
import css from "./Jobs.module.css";
import { JobsTable } from "./JobsTable.tsx";
import { type JobsSearch, type Phase, phases, toggled } from "./search.ts";

/** Every training job of the cluster, the four replica counts apart. */
export function JobsPage() {
  const { cluster, after, nothing } = useCluster();
  const given = useSearch({ from: "/jobs" });
  const navigate = useNavigate();
  const query = useJobs({ ...given, cluster: cluster?.name });
  const change = (part: Partial<JobsSearch>) =>
    void navigate({ to: "/jobs", replace: true, search: (before) => ({ ...before, ...part }) });
  const filtered = Boolean(given.search || given.phase || given.team);
  return (
    <>
      <h1 className={css.title}>Jobs</h1>
      <Panel
        title={
          <>
            Training jobs{" "}
            <span className={css.tally}>{tally(query.data?.length, query.hasNextPage)}</span>
          </>
        }
        query={after(query)}
        nothing={nothing}
        loadingHeight={420}
        flush
        observedAt={() => cluster?.last_observed_at ?? null}
        staleAfter={30}
        actions={<Filters given={given} onChange={change} />}
        empty={(jobs) =>
          jobs.length > 0
            ? null
            : filtered
              ? "No job matches these filters."
              : "No managed job was observed. A workload is managed when it carries the label concertina.dev/managed=true."
        }
      >
        {(jobs) => (
          <JobsTable
            jobs={jobs}
            ordering={given.ordering}
            onOrder={(column) => change({ ordering: toggled(given.ordering, column) })}
            more={query.hasNextPage}
            onMore={() => {
              if (!query.isFetchingNextPage) void query.fetchNextPage();
            }}
          />
        )}
      </Panel>
    </>
  );
}

function tally(loaded: number | undefined, more: boolean): string {
  return loaded === undefined ? "" : `${loaded}${more ? "+" : ""}`;
}

interface FiltersProps {
  given: JobsSearch;
  onChange: (part: Partial<JobsSearch>) => void;
}

function Filters({ given, onChange }: FiltersProps) {
  const [text, setText] = useState(given.search ?? "");
  const search = useDebouncedCallback((value: string) => {
    onChange({ search: value.trim() || undefined });
  }, 250);
  return (
    <search className={css.filters}>
      <TextInput
        aria-label="Search by name or namespace"
        placeholder="Name or namespace"
        className={css.search}
        leftSection={<SearchIcon />}
        value={text}
        onChange={(event) => {
          setText(event.currentTarget.value);
          search(event.currentTarget.value);
        }}
      />
      <Select
        aria-label="Phase"
        className={css.phase}
        data={[
          { value: "", label: "Any phase" },
          ...phases.map((phase) => ({ value: phase, label: words(phase) })),
        ]}
        value={given.phase ?? ""}
        onChange={(value) => onChange({ phase: (value || undefined) as Phase | undefined })}
      />
    </search>
  );
}
