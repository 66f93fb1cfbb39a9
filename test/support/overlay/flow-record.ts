import type { FlowRecord } from "../../../src/protocol/documents/telemetry.ts";

/** A flow record that ended at a time in Unix milliseconds, one second after its start; parts can be given. */
export function flowAt(endedAt: number, change: Partial<FlowRecord> = {}): FlowRecord {
  return {
    sourceNode: "local",
    destNode: "local",
    sourceIP: "192.0.2.7",
    destIP: "10.0.0.5",
    sourcePort: 40_000,
    destPort: 80,
    sourceBytes: 100,
    destBytes: 900,
    startTime: new Date(endedAt - 1000).toISOString(),
    endTime: new Date(endedAt).toISOString(),
    protocol: "TCP",
    flags: "0",
    meta: { connector: "web", service: "intranet" },
    ...change,
  };
}
