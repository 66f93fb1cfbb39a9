import { dialRequestFor, type Dialler } from "../../../host/net/dial.ts";
import type { Registration } from "../../identity/identity.ts";
import type { AgentSettings } from "../../settings.ts";
import type { DesiredDocuments } from "../../shadow/desired.ts";
import type { TransferTarget } from "./speed-transfer.ts";

export interface SpeedTestSources {
  readonly settings: Pick<AgentSettings, "speedTestUrl">;
  readonly documents: Pick<DesiredDocuments, "current">;
  readonly registration: () => Registration | undefined;
  readonly dialler: Dialler;
}

/** Returns the speed-test server: of the local settings, else of the control plane; undefined without either. */
export function speedTestTarget(sources: SpeedTestSources): TransferTarget | undefined {
  const { settings, documents, registration, dialler } = sources;
  const address = settings.speedTestUrl ?? documents.current.node?.body.settings.speedTestUrl;
  if (address === undefined) return undefined;
  const url = new URL(address);
  const request = dialRequestFor(url, registration()?.controlPlane.keys.spki ?? [], 10_000);
  return { url, connect: async (signal) => (await dialler.dial(request, signal)).socket };
}
