import type { Maybe } from "../format.ts";

/** The stages of a recovery in their order, as the trainer names them on the wire. */
export const stageNames = [
  "detect",
  "abort",
  "rendezvous",
  "state_restore",
  "data_loader",
  "first_step",
] as const;
export type StageName = (typeof stageNames)[number];

export const stageMeaning: Record<StageName, string> = {
  detect: "until the fault was noticed",
  abort: "until the broken step was abandoned",
  rendezvous: "until the members found each other and connected",
  state_restore: "until model and optimizer state were back",
  data_loader: "until the data loader stood at the right sample",
  first_step: "until the first step was done again",
};

export interface Stage {
  stage: string;
  /** Seconds from the start of the event; absent where the trainer doesn't say. */
  start_s?: Maybe<number>;
  duration_s: Maybe<number>;
}

export interface Segment {
  name: StageName;
  /** Null where the trainer did not report the stage. */
  duration: number | null;
  start: number;
}

/**
 * Every named stage with its place on the time line. A stage without a start begins where the one
 * before it ended. Stages that were not reported have no duration and take no room.
 */
export function segments(stages: readonly Stage[]): Segment[] {
  let end = 0;
  return stageNames.map((name) => {
    const reported = stages.find((stage) => stage.stage === name);
    const duration = reported?.duration_s ?? null;
    const start = reported?.start_s ?? end;
    if (duration !== null) end = start + duration;
    return { name, duration, start };
  });
}

/** The event's downtime: as reported, else the sum of its stages; null where neither is known. */
export function downtime(stages: readonly Stage[], reported: Maybe<number>): number | null {
  if (reported !== null && reported !== undefined) return reported;
  const known = stages.map((stage) => stage.duration_s).filter((value) => value != null);
  return known.length === 0 ? null : known.reduce((total, value) => total + value, 0);
}
