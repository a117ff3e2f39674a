import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  retainSearchParams,
} from "@tanstack/react-router";
import { type DecisionSearch, readDecisionSearch } from "./features/decisions/search.ts";
import { type FleetSearch, readFleetSearch } from "./features/fleet/search.ts";
import { readJobSearch } from "./features/job/search.ts";
import { type JobsSearch, readJobsSearch } from "./features/jobs/search.ts";
import { Frame } from "./features/shell/Frame.tsx";
import { PageError } from "./features/shell/PageError.tsx";
import { PageMissing } from "./features/shell/PageMissing.tsx";

/** What every page's address carries on: which cluster is looked at. */
export interface RootSearch {
  cluster?: string;
}

const root = createRootRoute({
  component: Frame,
  notFoundComponent: PageMissing,
  validateSearch: (search: Record<string, unknown>): RootSearch =>
    typeof search.cluster === "string" ? { cluster: search.cluster } : {},
  search: { middlewares: [retainSearchParams(["cluster"])] },
});

const fleet = createRoute({
  getParentRoute: () => root,
  path: "/",
  validateSearch: (search): FleetSearch => readFleetSearch(search),
  component: lazyRouteComponent(() => import("./features/fleet/FleetPage.tsx"), "FleetPage"),
});

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: (search): JobsSearch => readJobsSearch(search),
  component: lazyRouteComponent(() => import("./features/jobs/JobsPage.tsx"), "JobsPage"),
});

const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$jobId",
  validateSearch: readJobSearch,
  component: lazyRouteComponent(() => import("./features/job/JobPage.tsx"), "JobPage"),
});

const decisions = createRoute({
  getParentRoute: () => root,
  path: "/decisions",
  validateSearch: (search): DecisionSearch => readDecisionSearch(search),
  component: lazyRouteComponent(
    () => import("./features/decisions/DecisionsPage.tsx"),
    "DecisionsPage",
  ),
});

export function makeRouter() {
  return createRouter({
    routeTree: root.addChildren([fleet, jobs, job, decisions]),
    defaultPreload: "intent",
    defaultErrorComponent: PageError,
    scrollRestoration: true,
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
