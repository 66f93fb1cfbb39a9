import { HostError, toError } from "../../errors.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import { withinTime } from "../../lib/async/within-time.ts";
import type { ReadDomain } from "../../protocol/documents/domain-view.ts";
import type { Registration } from "../identity/identity.ts";
import type { DesiredDocuments } from "../shadow/desired.ts";
import type { Tunnels } from "../triggers/diagnostics/tunnels.ts";

export interface TunnelSources {
  readonly registration: () => Registration | undefined;
  readonly documents: Pick<DesiredDocuments, "current">;
  readonly domain: ReadDomain;
  /** Client of the overlay program. */
  readonly overlay: Pick<Overlay, "status" | "view" | "mesh" | "echo" | "perf">;
  /** Additional time for the overlay beyond the given deadline. */
  readonly graceMs?: number;
}

const GRACE_MS = 3000;

/** Provides trigger events with tunnels: names from the domain document, all else from the overlay, with a deadline. */
export function agentTunnels(sources: TunnelSources): Tunnels {
  const { registration, documents, domain, overlay, graceMs = GRACE_MS } = sources;
  return {
    nodes() {
      const self = registration()?.node;
      if (self === undefined) return undefined;
      const view = domain(documents.current.domain?.body);
      const isActive = documents.current.node?.body.state !== "INACTIVE";
      return { self, domain: view?.fqdn ?? self.domain, peers: view?.peers ?? new Map(), isActive };
    },
    countedSince() {
      const { state, since } = overlay.status();
      return state === "up" ? since : undefined;
    },
    paths: () => overlay.view.mesh?.paths ?? [],
    mesh: (signal) => asked(signal, graceMs, (limit) => overlay.mesh(limit)),
    echo: (request, signal) => asked(signal, request.timeoutMs + graceMs, (limit) => overlay.echo(request, limit)),
    perf: (request, onProgress, signal) =>
      asked(signal, undefined, (limit) => overlay.perf(request, onProgress, limit)),
  };
}

/** Codes of the path; any other is a fault of the overlay itself. */
const OF_THE_WAY: ReadonlySet<string> = new Set([
  "timeout",
  "not-found",
  "not-connected",
  "overlay-absent",
  "disconnected",
  "cancelled",
]);

/** Calls the overlay. @throws errors of the path; {HostError} `timeout` or `exec-failed` for an overlay that hangs or fails. */
async function asked<T>(
  signal: AbortSignal,
  limitMs: number | undefined,
  ask: (limit: AbortSignal) => Promise<T>,
): Promise<T> {
  try {
    return await ask(limitMs === undefined ? signal : withinTime(signal, limitMs));
  } catch (thrown) {
    signal.throwIfAborted();
    const error = toError(thrown);
    if ("code" in error && typeof error.code === "string" && OF_THE_WAY.has(error.code)) throw error;
    const isLate = error.name === "TimeoutError";
    const message = isLate ? "the overlay does not answer" : `the overlay failed: ${error.message}`;
    throw new HostError(isLate ? "timeout" : "exec-failed", message, { cause: error });
  }
}
