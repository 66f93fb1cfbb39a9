import { z } from "zod";
import { DomainPeer } from "../protocol/domain-items.ts";
import type { DomainDocument } from "../protocol/documents.ts";
import type { Registration } from "./identity/identity.ts";
import type { DesiredDocuments } from "./shadow/desired.ts";
import type { Tunnels, TunnelPeer } from "./triggers/tunnels.ts";

export interface TunnelSources {
  readonly registration: () => Registration | undefined;
  readonly documents: Pick<DesiredDocuments, "current">;
  /** Whoever speaks with the overlay program. */
  readonly overlay: Omit<Tunnels, "nodes">;
}

const Named = DomainPeer.pick({ uid: true, fqdn: true, mayDial: true, gateway: true }).extend({
  // Also a peer that this version cannot meet has a name.
  gateway: z.object({ host: z.string(), port: z.number() }).optional().catch(undefined),
  mayDial: DomainPeer.shape.mayDial.catch(undefined),
});

/** What trigger events know of other nodes: names from the domain document, all else from the overlay. */
export function agentTunnels({ registration, documents, overlay }: TunnelSources): Tunnels {
  let read: DomainDocument | undefined;
  let peers: readonly TunnelPeer[] = [];
  return {
    nodes() {
      const self = registration()?.node;
      if (self === undefined) return undefined;
      const { node, domain } = documents.current;
      const document = domain?.body;
      if (document !== read) peers = peersOf(document);
      read = document;
      const { uid, fqdn } = self;
      const isActive = node?.body.state !== "INACTIVE";
      return { self: { uid, fqdn }, domain: document?.fqdn ?? self.domain, peers, isActive };
    },
    mesh: (signal) => overlay.mesh(signal),
    echo: (request, signal) => overlay.echo(request, signal),
    perf: (request, onProgress, signal) => overlay.perf(request, onProgress, signal),
  };
}

function peersOf(document: DomainDocument | undefined): readonly TunnelPeer[] {
  return (document?.peers ?? []).flatMap((item) => {
    const parsed = Named.safeParse(item);
    return parsed.success ? [parsed.data] : [];
  });
}
