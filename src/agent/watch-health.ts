import type { Logger } from "pino";
import { toError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import type { Reader } from "../host/reader.ts";
import { askServer, readNameServers } from "../host/resolver.ts";
import { isSshLocal } from "../host/sockets.ts";
import type { EventLog } from "./telemetry/events.ts";
import { startHealthChecks, type HealthChecks } from "./telemetry/health-checks.ts";
import { checkRepository } from "./telemetry/repository-check.ts";

export interface WatchHealthOptions {
  readonly clock: Clock;
  readonly reader: Reader;
  readonly log: Logger;
  readonly events: EventLog;
  /** Where the control plane is: name servers are asked for its name. */
  readonly sessionUrl: string;
  readonly repositoryUrl: string | undefined;
  readonly onResults: () => void;
}

/** Checks from time to time what a registered node lives on: name servers, the package repository, and who may reach its SSH. */
export function watchHealth(options: WatchHealthOptions): HealthChecks {
  const { clock, reader, log, events, sessionUrl, repositoryUrl, onResults } = options;
  return startHealthChecks({
    clock,
    events,
    name: new URL(sessionUrl).hostname.replace(/^\[|\]$/g, ""),
    servers: () => readNameServers(reader),
    ask: askServer,
    isSshLocal: () => isSshLocal(reader),
    repository: repositoryUrl === undefined ? undefined : (signal) => checkRepository(new URL(repositoryUrl), signal),
    onResults,
    onError: (error) => log.warn({ err: toError(error) }, "health check failed"),
  });
}
