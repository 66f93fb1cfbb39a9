import type { Overlay } from "../host/overlay.ts";
import type { ReadDomain } from "../protocol/domain-view.ts";
import type { Registration } from "./identity/identity.ts";
import type { DesiredDocuments } from "./shadow/desired.ts";
import type { Tunnels } from "./triggers/tunnels.ts";

export interface TunnelSources {
  readonly registration: () => Registration | undefined;
  readonly documents: Pick<DesiredDocuments, "current">;
  readonly domain: ReadDomain;
  /** Whoever speaks with the overlay program. */
  readonly overlay: Pick<Overlay, "status" | "mesh" | "echo" | "perf">;
}

/** What trigger events know of other nodes: names from the domain document, all else from the overlay. */
export function agentTunnels({ registration, documents, domain, overlay }: TunnelSources): Tunnels {
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
    mesh: (signal) => overlay.mesh(signal),
    echo: (request, signal) => overlay.echo(request, signal),
    perf: (request, onProgress, signal) => overlay.perf(request, onProgress, signal),
  };
}
