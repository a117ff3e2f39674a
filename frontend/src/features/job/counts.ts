import type { CountsSeen } from "../../api/counts.ts";
import type { Decision, Job, Sample } from "../../api/types.ts";
import { merge, type Reading, type Table } from "../../components/Chart/series.ts";

type Points = [number, Reading][];

const seconds = (iso: string) => Date.parse(iso) / 1000;

/** A trainer that has not reported for this long is not known to have kept its size. */
export const silence = 30;

interface CountsSources {
  job: Job;
  decisions: readonly Decision[];
  samples: readonly Sample[];
  seen: readonly CountsSeen[];
}

/**
 * The four replica counts over time, from what recorded each of them:
 *
 * - desired: the decisions, each good until the next
 * - granted: what a decision found written to the cluster, and the commands since
 * - running: only what this tab saw (the server keeps no history of it)
 * - productive: the world size in the trainer's samples
 *
 * All end with the job's own counts at the time that they were observed. A time of which nothing
 * was recorded stays without a value.
 */
export function countsTable({ job, decisions, samples, seen }: CountsSources): Table {
  const desired: Points = [];
  const granted: Points = [];
  for (const decision of decisions) {
    const at = seconds(decision.at);
    desired.push([at, decision.desired]);
    granted.push([at, decision.current]);
    const { command } = decision;
    if (command?.applied_at) granted.push([seconds(command.applied_at), command.to_replicas]);
  }
  const running: Points = [];
  const productive = productivePoints(samples);
  for (const one of seen) {
    desired.push([one.at, one.desired]);
    granted.push([one.at, one.granted]);
    running.push([one.at, one.running]);
    productive.push([one.at, one.productive]);
  }
  if (job.observed_at) {
    const at = seconds(job.observed_at);
    desired.push([at, job.desired]);
    granted.push([at, job.granted]);
    running.push([at, job.running]);
  }
  if (job.last_report_at) productive.push([seconds(job.last_report_at), job.productive]);
  return merge([desired, granted, running, productive].map((points) => ({ points, hold: true })));
}

function productivePoints(samples: readonly Sample[]): Points {
  const points: Points = [];
  for (const sample of samples) {
    const at = seconds(sample.at);
    const last = points.at(-1);
    if (last && at - last[0] > silence) points.push([last[0] + silence, null]);
    points.push([at, sample.world_size]);
  }
  return points;
}
