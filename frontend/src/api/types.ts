/** The generated schema's objects by the names that the pages use. */
import type { components } from "./schema.d.ts";

type Schemas = components["schemas"];

export type Attempt = Schemas["Attempt"];
export type CapacityNow = Schemas["CapacityNow"];
export type CapacityPoint = Schemas["CapacityPoint"];
export type CapacitySeries = Schemas["CapacitySeries"];
export type Cluster = Schemas["Cluster"];
export type ClusterNode = Schemas["Node"];
export type Command = Schemas["Command"];
export type Decision = Schemas["Decision"];
export type FaultSignal = Schemas["FaultSignal"];
export type Job = Schemas["Job"];
export type JobDetail = Schemas["JobDetail"];
export type JobPhase = Schemas["JobPhase"];
export type Notice = Schemas["Notice"];
export type Notices = Schemas["Notices"];
export type Numbers = Decision["numbers"];
export type Pending = Schemas["Pending"];
export type PendingItem = Schemas["PendingDemand"];
export type Reason = Schemas["Reason"];
export type Recovery = Schemas["Recovery"];
export type Rejection = Schemas["Rejection"];
export type Replica = Schemas["Replica"];
export type Reservation = Schemas["Reservation"];
export type Sample = Schemas["SamplePoint"];
export type SampleSeries = Schemas["SampleSeries"];
export type Session = Schemas["Session"];
export type StreamEvents = Schemas["StreamEvents"];
export type WhyPending = Schemas["WhyPending"];

/** One page of a list, as every list of the API gives it. */
export interface Page<T> {
  next?: string | null;
  previous?: string | null;
  results: T[];
}
