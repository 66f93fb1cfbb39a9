import { readAddresses4 } from "../host/links.ts";
import type { Overlay } from "../host/overlay.ts";
import type { Reader } from "../host/reader.ts";
import type { Desired } from "./shadow/desired.ts";
import { reconciler, type Reconciler } from "./reconcile/section.ts";
import { isOwnName } from "./own-node.ts";
import { connectorsSection } from "./sections/connectors/section.ts";
import { servicesSection } from "./sections/services/section.ts";

export interface SectionDeps {
  readonly overlay: Overlay;
  /** The documents in force. */
  readonly documents: { readonly current: Desired };
  readonly reader: Reader;
}

/** Those that the overlay carries, and that depend on this machine's addresses. */
export const OVERLAY_SECTIONS: readonly string[] = ["services", "connectors"];

/** Every section that this node carries out, in the order in which they depend on each other. */
export function listSections({ overlay, documents, reader }: SectionDeps): readonly Reconciler[] {
  const node = () => documents.current.node?.body;
  const isHere = (name: string): boolean => isOwnName(node(), name);
  const addresses = () => addressesByLink(reader);
  return [
    reconciler(servicesSection({ overlay, addresses, isMember: () => node()?.cluster !== undefined })),
    reconciler(connectorsSection({ overlay, addresses, nodeType: () => node()?.type ?? "Node", isHere })),
  ];
}

/** This machine's IPv4 addresses by link, in the order of the kernel: a running link's own before what was added. */
export function addressesByLink(reader: Reader): ReadonlyMap<string, readonly string[]> {
  const byLink = new Map<string, string[]>();
  for (const { link, address } of readAddresses4(reader)) byLink.set(link, [...(byLink.get(link) ?? []), address]);
  return byLink;
}
