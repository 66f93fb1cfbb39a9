import type { Clock } from "../../host/clock.ts";
import type { Reader } from "../../host/reader.ts";
import { WIRE_STATES, type ContainerStatus } from "./model/compute.ts";

export interface ContainerMetricsSources {
  readonly clock: Pick<Clock, "elapsed">;
  readonly reader: Pick<Reader, "read">;
  readonly containers: () => readonly ContainerStatus[];
}

/** Possible control groups of all containers, by the engine's driver. */
const GROUPS = ["holdfast.slice/holdfast-containers.slice", "holdfast-containers"].map(
  (group) => `/sys/fs/cgroup/${group}`,
);

/**
 * Returns a sampler of the containers: their number, how many run, their memory in bytes and, since the last sample, their processor
 * time in percent of one core. Reads two files of their control group; returns nothing without containers.
 */
export function containerMetrics(sources: ContainerMetricsSources): () => Readonly<Record<string, number>> {
  const { clock, reader, containers } = sources;
  let before: { readonly at: number; readonly usedMs: number } | undefined;
  return () => {
    const all = containers();
    if (all.length === 0) return {};
    const count = (is: (one: ContainerStatus) => boolean): number => all.filter(is).length;
    const group = GROUPS.find((path) => reader.read(`${path}/cgroup.procs`) !== undefined);
    const memory = group === undefined ? undefined : wholeNumber(reader.read(`${group}/memory.current`));
    const used = group === undefined ? undefined : usedMsOf(reader.read(`${group}/cpu.stat`));
    const now = used === undefined ? undefined : { at: clock.elapsed(), usedMs: used };
    const cpu = percentBetween(before, now);
    before = now;
    return {
      containers: all.length,
      "containers.running": count(({ state }) => WIRE_STATES[state] === "RUNNING"),
      "containers.unhealthy": count(({ health }) => health === "unhealthy"),
      "containers.restarts": all.reduce((sum, { restarts }) => sum + restarts, 0),
      ...(memory === undefined ? {} : { "containers.mem": memory }),
      ...(cpu === undefined ? {} : { "containers.cpu": cpu }),
    };
  };
}

interface Used {
  readonly at: number;
  readonly usedMs: number;
}

function percentBetween(before: Used | undefined, now: Used | undefined): number | undefined {
  if (before === undefined || now === undefined) return undefined;
  const [ms, used] = [now.at - before.at, now.usedMs - before.usedMs];
  return ms <= 0 || used < 0 ? undefined : Math.round((100_000 * used) / ms) / 1000;
}

function usedMsOf(stat: string | undefined): number | undefined {
  const [, microseconds] = /^usage_usec (\d+)$/m.exec(stat ?? "") ?? [];
  return microseconds === undefined ? undefined : Number(microseconds) / 1000;
}

function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+\s*$/.test(text) ? Number(text) : undefined;
}
