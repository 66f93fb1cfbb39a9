import { serveLocalApi, type LocalApiOptions } from "./local-api/server.ts";
import type { MetricsEndpoint, MetricsEndpointOptions } from "./metrics-endpoint.ts";
import type { AgentSettings } from "./settings.ts";

export interface OpenFacesOptions
  extends Omit<LocalApiOptions, "runDir" | "limits">, Omit<MetricsEndpointOptions, "listen" | "provider"> {
  readonly settings: Pick<AgentSettings, "runDir" | "metrics">;
}

/** Serves people and, where the settings ask for it, Prometheus; nothing of the latter is loaded where they do not. */
export async function openFaces(options: OpenFacesOptions): Promise<{ close(): Promise<void> }> {
  const { settings, provider, clock, log } = options;
  const localApi = await serveLocalApi({
    runDir: settings.runDir,
    provider,
    clock,
    log: log.child({ component: "local-api" }),
  });
  let metrics: MetricsEndpoint | undefined;
  if (settings.metrics !== undefined) {
    const { serveMetrics } = await import("./metrics-endpoint.ts");
    metrics = await serveMetrics({ ...options, listen: settings.metrics, log: log.child({ component: "metrics" }) });
  }
  return {
    async close() {
      metrics?.close();
      await localApi.close();
    },
  };
}
