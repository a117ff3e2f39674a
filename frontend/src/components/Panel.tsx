import { Button, Skeleton } from "@mantine/core";
import { type ReactNode, useId } from "react";
import { ageOf, useServerNow } from "../api/clock.ts";
import { describeError } from "../api/errors.ts";
import { age } from "./format.ts";
import { RetryIcon, WarnIcon } from "./icons.tsx";
import css from "./Panel.module.css";

/** What a panel needs to know of its query. TanStack's results have this shape. */
export interface PanelQuery<T> {
  data: T | undefined;
  error: unknown;
  isFetching?: boolean;
  refetch: () => unknown;
}

interface PanelProps<T> {
  title: ReactNode;
  query: PanelQuery<T>;
  children: (data: T) => ReactNode;
  /** Height of the skeleton in pixels; give the height that the content will have. */
  loadingHeight: number;
  /** A sentence for when there is nothing to ask about, so that no answer will come. */
  nothing?: ReactNode | null;
  /** A sentence for when there is nothing, or null where there is something. */
  empty?: (data: T) => ReactNode | null;
  actions?: ReactNode;
  /** When the shown data was true, for the age; `staleAfter` seconds later it is marked. */
  observedAt?: (data: T) => string | null | undefined;
  staleAfter?: number;
  className?: string;
  flush?: boolean;
  level?: 2 | 3;
}

/** One panel of a page in each of its states: loading, failing, empty, stale, and well. */
export function Panel<T>(props: PanelProps<T>) {
  const { title, query, loadingHeight, actions, className, flush, level = 2 } = props;
  const id = useId();
  const Heading = level === 2 ? "h2" : "h3";
  const { data } = query;
  return (
    <section className={`${css.panel} ${className ?? ""}`} aria-labelledby={id}>
      <header className={css.head}>
        <Heading id={id} className={css.title}>
          {title}
        </Heading>
        <div className={css.actions}>
          {data !== undefined && props.observedAt ? (
            <StaleMark at={props.observedAt(data)} after={props.staleAfter ?? 15} />
          ) : null}
          {actions}
        </div>
      </header>
      {query.error ? <Failure query={query} kept={data !== undefined} /> : null}
      {query.error && data === undefined ? null : (
        <div className={flush ? css.flush : css.body} aria-busy={data === undefined}>
          <Content {...props} height={loadingHeight} />
        </div>
      )}
    </section>
  );
}

function Content<T>(props: PanelProps<T> & { height: number }) {
  const { query, children, height } = props;
  const { data } = query;
  const sentence = data === undefined ? props.nothing : props.empty?.(data);
  if (sentence) {
    return (
      <div className={css.empty} style={{ minHeight: Math.min(height, 120) }}>
        {sentence}
      </div>
    );
  }
  if (data === undefined) return <Waiting height={height} rows={props.flush} />;
  return children(data);
}

/** Room for what is coming: rows for a list, a plain area for a chart. */
function Waiting({ height, rows = false }: { height: number; rows?: boolean }) {
  if (!rows) {
    return (
      <>
        <span className={css.spoken}>Loading</span>
        <Skeleton className={css.skeleton} height={height} radius={2} aria-hidden="true" />
      </>
    );
  }
  const count = Math.max(1, Math.floor(height / 40));
  return (
    <div className={css.waitingRows} style={{ height }}>
      <span className={css.spoken}>Loading</span>
      {Array.from({ length: count }, (_unused, row) => (
        <Skeleton
          // biome-ignore lint/suspicious/noArrayIndexKey: rows of nothing
          key={row}
          className={css.skeleton}
          height={12}
          width={`${40 + ((row * 37) % 50)}%`}
        />
      ))}
    </div>
  );
}

/** The error, whether older data is still shown, and a way to try again. */
export function Failure<T>({ query, kept }: { query: PanelQuery<T>; kept: boolean }) {
  return (
    <div className={css.failure} role="alert">
      <WarnIcon />
      <div className={css.failureText}>
        {describeError(query.error)}
        {kept ? " What is shown below is from before." : null}
      </div>
      <Button
        size="compact-xs"
        variant="default"
        leftSection={<RetryIcon />}
        loading={query.isFetching}
        onClick={() => void query.refetch()}
      >
        Try again
      </Button>
    </div>
  );
}

/** Nothing while data is fresh; its age once it is not. */
export function StaleMark({ at, after }: { at: string | null | undefined; after: number }) {
  const seconds = ageOf(at, useServerNow());
  if (seconds === null) return <span className={css.stale}>never observed</span>;
  if (seconds <= after) return null;
  return (
    <span className={css.stale} title={at ?? undefined}>
      <WarnIcon /> {age(seconds)} old
    </span>
  );
}
