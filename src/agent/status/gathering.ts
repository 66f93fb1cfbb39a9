import type { DiskSpace } from "../../host/files/files.ts";
import type { HealthChecks } from "../telemetry/conditions/health-checks.ts";
import { usedRatio } from "../telemetry/heartbeat.ts";

/** Unix seconds of a time in milliseconds. */
export function secondsOf(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : Math.floor(milliseconds / 1000);
}

/** How full a disk is, from 0 to 1. */
export function usedRatioOf(space: DiskSpace | undefined): number | undefined {
  return space === undefined ? undefined : usedRatio(space);
}

/** Whether the package repository answered when it was last asked. */
export function repositoryState(health: HealthChecks | undefined): boolean | undefined {
  const answer = health?.results().repository;
  return answer === undefined ? undefined : answer === "ok";
}
