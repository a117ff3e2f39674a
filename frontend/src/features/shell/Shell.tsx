import { ActionIcon, Menu, Select } from "@mantine/core";
import { Link, Outlet } from "@tanstack/react-router";
import type { ReactNode } from "react";
import {
  BellowsIcon,
  DecisionsIcon,
  ExternalIcon,
  FleetIcon,
  JobsIcon,
  UserIcon,
} from "../../components/icons.tsx";
import { ColourSchemeToggle } from "./ColourSchemeToggle.tsx";
import { ConnectionState } from "./ConnectionState.tsx";
import { DataAge } from "./DataAge.tsx";
import css from "./Shell.module.css";

export interface ShellProps {
  user: { username: string; is_staff: boolean };
  demo: boolean;
  clusters: readonly { name: string; last_observed_at: string | null; last_error: string }[];
  cluster: string | undefined;
  onCluster: (name: string) => void;
  onSignOut: () => void;
  /** What concerns every page: an error, a missing cluster. */
  notice: ReactNode;
}

const pages: { to: string; label: string; icon: ReactNode; exact: boolean }[] = [
  { to: "/", label: "Fleet", icon: <FleetIcon />, exact: true },
  { to: "/jobs", label: "Jobs", icon: <JobsIcon />, exact: false },
  { to: "/decisions", label: "Decisions", icon: <DecisionsIcon />, exact: false },
];

/** The frame of every page: navigation, cluster, connection, data age, and whose session it is. */
export function Shell(props: ShellProps) {
  const { clusters, cluster, demo } = props;
  const shown = clusters.find((one) => one.name === cluster);
  return (
    <div className={css.shell}>
      <a className={css.skip} href="#main">
        Skip to the page
      </a>
      <header className={css.top}>
        <Link to="/" className={css.brand} aria-label="Concertina, fleet">
          <BellowsIcon />
          <span>Concertina</span>
        </Link>
        <nav className={css.nav} aria-label="Pages">
          {pages.map((page) => (
            <Link
              key={page.to}
              to={page.to}
              className={css.navLink}
              activeOptions={{ exact: page.exact, includeSearch: false }}
              activeProps={{ "data-active": true, "aria-current": "page" }}
            >
              {page.icon}
              <span>{page.label}</span>
            </Link>
          ))}
        </nav>
        <div className={css.state}>
          {demo ? (
            <span className={css.demo} title="This installation runs the demo cluster.">
              demo
            </span>
          ) : null}
          {clusters.length > 1 ? (
            <Select
              className={css.picker}
              aria-label="Cluster"
              data={clusters.map((one) => one.name)}
              value={cluster ?? null}
              onChange={(name) => name && props.onCluster(name)}
            />
          ) : (
            <span className={css.cluster}>{cluster ?? ""}</span>
          )}
          <DataAge
            observedAt={shown?.last_observed_at ?? null}
            error={shown?.last_error ?? ""}
            known={shown !== undefined}
          />
          <ConnectionState />
        </div>
        <div className={css.tools}>
          <ColourSchemeToggle />
          <UserMenu user={props.user} onSignOut={props.onSignOut} />
        </div>
      </header>
      <main id="main" className={css.main} tabIndex={-1}>
        {props.notice}
        <Outlet />
      </main>
    </div>
  );
}

function UserMenu({ user, onSignOut }: Pick<ShellProps, "user" | "onSignOut">) {
  return (
    <Menu
      position="bottom-end"
      width={200}
      shadow="sm"
      withinPortal={false}
      withInitialFocusPlaceholder={false}
    >
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" aria-label={`Account of ${user.username}`}>
          <UserIcon />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item component="a" href="/api/v1/docs/" rightSection={<ExternalIcon />}>
          API reference
        </Menu.Item>
        {user.is_staff ? (
          <Menu.Item component="a" href="/admin/" rightSection={<ExternalIcon />}>
            Administration
          </Menu.Item>
        ) : null}
        <Menu.Divider />
        <Menu.Item onClick={onSignOut}>Sign out {user.username}</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
