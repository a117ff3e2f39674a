import { type KeyboardEvent, memo, useRef, useState } from "react";
import { describeStates, expand, type StateCounts, sum } from "../capacity.ts";
import { count } from "../format.ts";
import marks from "../marks.module.css";
import css from "./NodeGrid.module.css";

/** A node as the grid shows it: one accelerator kind of it. */
export interface GridNode {
  name: string;
  pool: string;
  ready: boolean;
  unschedulable: boolean;
  resource: string;
  total: number | null;
  /** Null while nothing was observed of the node. */
  states: StateCounts | null;
  taints: readonly string[];
}

/** Every node as a tile of its accelerators; a tile's details are read out below the grid. */
export function NodeGrid({ nodes }: { nodes: readonly GridNode[] }) {
  const [chosen, setChosen] = useState<string | null>(null);
  const tiles = useRef(new Map<string, HTMLButtonElement>());
  const pools = poolsOf(nodes);
  const detail = nodes.find((node) => node.name === chosen);
  const first = nodes.find((node) => node.pool === pools[0]);
  const tabStop = detail ? detail.name : first?.name;

  const move = (event: KeyboardEvent, name: string) => {
    const to = neighbour(event.key, name, nodes, tiles.current);
    if (!to) return;
    event.preventDefault();
    tiles.current.get(to)?.focus();
  };

  return (
    <div>
      {pools.map((pool) => {
        const members = nodes.filter((node) => node.pool === pool);
        return (
          <div key={pool} className={css.pool} role="group" aria-label={`Node pool ${pool}`}>
            <h3 className={css.poolName}>
              {pool} <span>{poolSummary(members)}</span>
            </h3>
            <div className={css.tiles}>
              {members.map((node) => (
                <Tile
                  key={node.name}
                  node={node}
                  tabStop={node.name === tabStop}
                  chosen={node.name === chosen}
                  register={(element) => {
                    if (element) tiles.current.set(node.name, element);
                    else tiles.current.delete(node.name);
                  }}
                  onChoose={() => setChosen(node.name)}
                  onKey={(event) => move(event, node.name)}
                />
              ))}
            </div>
          </div>
        );
      })}
      <div className={css.detail}>
        {detail ? <Detail node={detail} /> : "Point at a node, or move to it with the arrow keys."}
      </div>
    </div>
  );
}

/** Pool names, the largest first. */
function poolsOf(nodes: readonly GridNode[]): string[] {
  const sizes = new Map<string, number>();
  for (const node of nodes) sizes.set(node.pool, (sizes.get(node.pool) ?? 0) + 1);
  return [...sizes.keys()].sort(
    (a, b) => (sizes.get(b) ?? 0) - (sizes.get(a) ?? 0) || a.localeCompare(b),
  );
}

function poolSummary(members: readonly GridNode[]): string {
  const resource = members[0]?.resource ?? "";
  const totals = members.map((node) => node.total);
  const known = totals.filter((total): total is number => total !== null);
  const total = known.length === 0 ? "unknown" : count(known.reduce((all, n) => all + n, 0));
  return `${count(members.length)} nodes, ${total} ${resource}`;
}

interface TileProps {
  node: GridNode;
  tabStop: boolean;
  chosen: boolean;
  register: (element: HTMLButtonElement | null) => void;
  onChoose: () => void;
  onKey: (event: KeyboardEvent) => void;
}

const Tile = memo(function Tile({ node, tabStop, chosen, register, onChoose, onKey }: TileProps) {
  const cells = cellsOf(node);
  return (
    <button
      ref={register}
      type="button"
      className={css.tile}
      tabIndex={tabStop ? 0 : -1}
      data-chosen={chosen || undefined}
      data-down={!node.ready || undefined}
      aria-label={`${node.name}: ${conditionOf(node)}${describeStates(node.states)}`}
      onFocus={onChoose}
      onMouseEnter={onChoose}
      onKeyDown={onKey}
    >
      <span className={css.cells} data-single={cells.length === 1 || undefined}>
        {cells.map((state, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a cell is its position
          <span key={index} className={marks.mark} data-state={state} />
        ))}
      </span>
      <span className={css.name}>{shortName(node)}</span>
    </button>
  );
});

function cellsOf(node: GridNode): string[] {
  if (node.states) return expand(node.states);
  return new Array<string>(Math.max(1, node.total ?? 1)).fill("unknown");
}

/** A node's name without its pool's: `main-07` in pool main is `07`. */
function shortName(node: GridNode): string {
  const prefix = `${node.pool}-`;
  return node.name.startsWith(prefix) ? node.name.slice(prefix.length) : node.name;
}

function conditionOf(node: GridNode): string {
  const conditions = [node.ready ? "" : "not ready", node.unschedulable ? "cordoned" : ""];
  const text = conditions.filter(Boolean).join(", ");
  return text ? `${text}; ` : "";
}

function Detail({ node }: { node: GridNode }) {
  return (
    <>
      <b className={css.detailName}>{node.name}</b>
      <span>
        {node.total === null ? "unknown" : count(node.total)} {node.resource}
      </span>
      <span>
        {conditionOf(node)}
        {describeStates(node.states)}
      </span>
      {node.taints.length > 0 ? <span>taint {node.taints.join(", ")}</span> : null}
      {node.states && node.total !== null && sum(node.states) !== node.total ? (
        <span className={css.alarm}>states add up to {count(sum(node.states))}</span>
      ) : null}
    </>
  );
}

/** The tile that an arrow key leads to; up and down go by where tiles lie on the page. */
function neighbour(
  key: string,
  name: string,
  nodes: readonly GridNode[],
  tiles: ReadonlyMap<string, HTMLElement>,
): string | undefined {
  const ordered = poolsOf(nodes).flatMap((pool) =>
    nodes.filter((node) => node.pool === pool).map((node) => node.name),
  );
  const at = ordered.indexOf(name);
  if (key === "ArrowRight") return ordered[at + 1];
  if (key === "ArrowLeft") return ordered[at - 1];
  if (key === "Home") return ordered[0];
  if (key === "End") return ordered[ordered.length - 1];
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const here = tiles.get(name)?.getBoundingClientRect();
  if (!here) return undefined;
  const onward = key === "ArrowDown" ? ordered.slice(at + 1) : ordered.slice(0, at).reverse();
  let row: number | undefined;
  let best: { name: string; off: number } | undefined;
  for (const other of onward) {
    const box = tiles.get(other)?.getBoundingClientRect();
    if (!box || Math.abs(box.top - here.top) < 4) continue;
    row ??= box.top;
    if (Math.abs(box.top - row) >= 4) break;
    const off = Math.abs(box.left - here.left);
    if (!best || off < best.off) best = { name: other, off };
  }
  return best?.name;
}
