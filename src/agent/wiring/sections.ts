import { addressesByLink } from "../../host/network/ip/links.ts";
import type { SourceFilterDriver } from "../../host/network/firewall/source-filter.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import type { Reader } from "../../host/reader.ts";
import { parsedSections } from "../applying/parsed-sections.ts";
import { isActiveMember } from "../network/active-member.ts";
import { typeHere, type Profile } from "../profile.ts";
import type { Desired } from "../shadow/desired.ts";
import { reconciler, type Reconciler } from "../reconcile/section.ts";
import { isOwnName } from "../../protocol/documents/own-name.ts";
import type { ReadDomain } from "../../protocol/documents/domain-view.ts";
import type { ExecParts } from "./containers/compute.ts";
import { connectorsSection } from "../sections/connectors/section.ts";
import type { MeshSurroundings } from "../sections/gateway/mesh.ts";
import { gatewaySection } from "../sections/gateway/section.ts";
import { execSection } from "../sections/exec/section.ts";
import { networkSection, type NetworkOptions } from "../sections/network/section.ts";
import { servicesSection } from "../sections/services/section.ts";
import { defined } from "../../lib/defined.ts";

export interface SectionDeps {
  readonly profile: Profile;
  readonly overlay: Overlay;
  /** The applied documents. */
  readonly documents: { readonly current: Desired };
  readonly domain: ReadDomain;
  readonly reader: Reader;
  /** The literal addresses that the local policy permits to other nodes. */
  readonly literals?: MeshSurroundings["literals"];
  readonly network: Omit<NetworkOptions, "context" | "isActiveMember">;
  readonly sourceFilter?: SourceFilterDriver;
  readonly exec: ExecParts;
}

/** Sections that the overlay serves, and that depend on this machine's addresses. */
export const OVERLAY_SECTIONS: readonly string[] = ["gateway", "services", "connectors"];

/** Returns every section that this node applies, in the order of their dependencies. */
export function listSections({
  profile,
  overlay,
  documents,
  domain,
  reader,
  literals,
  network,
  sourceFilter,
  exec,
}: SectionDeps): readonly Reconciler[] {
  const node = () => documents.current.node?.body;
  const isHere = (name: string): boolean => isOwnName(node(), name);
  const addresses = () => addressesByLink(reader);
  const nodeType = () => typeHere(profile, node()?.type);
  const peers = () => domain(documents.current.domain?.body);
  const surroundings = (): MeshSurroundings => ({
    isActive: node()?.state === "ACTIVE",
    self: node(),
    domain: peers(),
    local: new Set([...addresses().values()].flat()),
    hasIpv6: speaksIpv6(reader),
    literals,
  });
  const isMember = (): boolean => node()?.cluster !== undefined;
  const parsed = parsedSections();
  return [
    reconciler(
      networkSection({
        ...network,
        gateways: () => [...new Set((overlay.view.mesh?.paths ?? []).map(({ host }) => host))],
        // Not of the overlay's table, which is unknown until the overlay is connected, as at the start of an agent.
        pathSources: () =>
          parsed
            .gateway(node()?.config.gateway, nodeType())
            .gateway.paths.flatMap(({ enabled, local }) => (enabled ? (local ?? []) : [])),
        context: () => ({ nodeType: nodeType(), isMember: isMember() }),
        isActiveMember: () => isActiveMember(node()),
      }),
    ),
    reconciler(gatewaySection({ overlay, nodeType, surroundings })),
    reconciler(servicesSection({ overlay, addresses, isMember })),
    reconciler(
      connectorsSection({
        overlay,
        addresses,
        nodeType,
        isHere,
        peers,
        ...defined({ filter: sourceFilter }),
      }),
    ),
    reconciler(execSection({ ...exec, surroundings: (...seen) => exec.surroundings(documents.current, ...seen) })),
  ];
}

/** Reports whether any link of this machine has an IPv6 address, the loopback's included. */
function speaksIpv6(reader: Reader): boolean {
  return (reader.read("/proc/net/if_inet6") ?? "").trim() !== "";
}
