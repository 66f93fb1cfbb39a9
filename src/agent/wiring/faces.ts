import { errnoOf, toError } from "../../errors.ts";
import type { Power } from "../../host/process/power.ts";
import type { FaultList } from "../faults/fault.ts";
import { serveLocalApi, type LocalApiOptions } from "../local-api/server.ts";
import type { MetricsEndpointOptions } from "../telemetry/metrics/endpoint.ts";
import type { AgentSettings } from "../settings.ts";

export interface OpenFacesOptions
  extends
    Omit<LocalApiOptions, "runDir" | "limits" | "onLost" | "onServed">,
    Omit<MetricsEndpointOptions, "listen" | "provider"> {
  readonly settings: Pick<AgentSettings, "runDir" | "metrics">;
  readonly faults: Pick<FaultList, "add" | "settled">;
  readonly power: Pick<Power, "isManaged" | "restartService">;
}

const RESTART_AGAIN_MS = 60_000;

/** Serves the local API, and the metrics for Prometheus if the settings enable them. */
export async function openFaces(options: OpenFacesOptions, stack: AsyncDisposableStack): Promise<void> {
  const { settings, provider, clock, faults, power } = options;
  const log = options.log.child({ component: "local-api" });
  let cancelRestart = (): void => undefined;
  /** A unit whose run directory was removed gets it back at its next start only: until then the path is read-only. */
  const restart = (): void => {
    log.warn({ runDir: settings.runDir }, "restarting, since the run directory was removed");
    power.restartService().catch((error: unknown) => log.error({ err: toError(error) }, "the restart failed"));
    cancelRestart = clock.after(RESTART_AGAIN_MS, restart);
  };
  const localApi = await serveLocalApi({
    runDir: settings.runDir,
    provider,
    clock,
    log,
    onLost(error) {
      faults.add("socket-lost", `the local API is not served: ${error.message}`, settings.runDir);
      if (power.isManaged && errnoOf(error.cause) === "EROFS") restart();
    },
    onServed() {
      cancelRestart();
      faults.settled(settings.runDir);
    },
  });
  stack.defer(async () => {
    cancelRestart();
    await localApi.close();
  });
  if (settings.metrics === undefined) return;
  const { serveMetrics } = await import("../telemetry/metrics/endpoint.ts");
  const metrics = await serveMetrics({
    ...options,
    listen: settings.metrics,
    log: options.log.child({ component: "metrics" }),
  });
  stack.defer(() => metrics.close());
}
