import type { DiskSpace } from "../../host/files/files.ts";
import type { HealthChecks } from "../telemetry/conditions/health-checks.ts";
import { usedRatio } from "../telemetry/heartbeat.ts";

/** Converts milliseconds to Unix seconds. */
export function secondsOf(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : Math.floor(milliseconds / 1000);
}

/** Returns the used share of a disk, from 0 to 1. */
export function usedRatioOf(space: DiskSpace | undefined): number | undefined {
  return space === undefined ? undefined : usedRatio(space);
}

/** Reports whether the package repository answered the last check. */
export function repositoryState(health: HealthChecks | undefined): boolean | undefined {
  const answer = health?.results().repository;
  return answer === undefined ? undefined : answer === "ok";
}
