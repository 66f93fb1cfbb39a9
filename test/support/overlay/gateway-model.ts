import fc from "fast-check";
import { readDomain, type DomainView } from "../../../src/protocol/documents/domain-view.ts";
import type { GatewayActual } from "../../../src/agent/sections/gateway/plan.ts";
import { gatewaySection, type GatewayOptions } from "../../../src/agent/sections/gateway/section.ts";
import type { DomainGrant, DomainPeer } from "../../../src/protocol/sections/gateway/domain-items.ts";
import type { JsonObject, NodeType } from "../../../src/protocol/values/values.ts";
import { aPeer, SELF, uidOf } from "./mesh.ts";

/** A domain of two gateways and a branch, which may use the service `web` of this node. */
export function aDomain(
  peers: readonly DomainPeer[] = [aPeer(2, "gw1"), aPeer(3, "gw2"), aPeer(4, "branch")],
  grants: readonly DomainGrant[] = [{ source: uidOf(4), service: "web", protocol: "tcp" }],
  clusters: readonly string[] = [],
): DomainView {
  return readDomain({ fqdn: "example.org", peers: [...peers], grants: [...grants], clusters: [...clusters] });
}

/** An empty overlay on the node `me` of that domain. */
export function aGatewayActual(more: Partial<GatewayActual> = {}): GatewayActual {
  return {
    isActive: true,
    self: { uid: SELF, name: "me", fqdn: "me.example.org" },
    domain: aDomain(),
    local: new Set(["127.0.0.1", "10.0.0.2"]),
    hasIpv6: true,
    mesh: undefined,
    standing: undefined,
    ...more,
  };
}

/** The section over an overlay; `actual` returns its surroundings. */
export function gatewayOver(
  overlay: GatewayOptions["overlay"],
  actual: () => GatewayActual = aGatewayActual,
  nodeType: NodeType = "Node",
) {
  return gatewaySection({ overlay, nodeType: () => nodeType, surroundings: () => surroundingsOf(actual()) });
}

function surroundingsOf({ isActive, self, domain, local, hasIpv6 }: GatewayActual) {
  return { isActive, self, domain, local, hasIpv6 };
}

/** Stored sections, with valid and invalid parts. */
export function rawGateways(): fc.Arbitrary<unknown> {
  const some = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined });
  const names = fc.constantFrom<unknown>("gw1", "gw2.example.org", "branch", "me", "nobody", uidOf(2), 7, "");
  const list = (item: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<unknown> =>
    fc.oneof(
      { weight: 6, arbitrary: some(fc.array(fc.record(item), { maxLength: 3 })) },
      { weight: 1, arbitrary: fc.constantFrom<unknown>(null, "x", [7]) },
    );
  const section: fc.Arbitrary<JsonObject> = fc.record({
    enabled: some(fc.constantFrom<unknown>(true, false, "yes")),
    type: some(fc.constantFrom<unknown>("public", "private", "hub", "other")),
    host: some(fc.constantFrom<unknown>("192.0.2.1", "gw.example.org", "x y", 7)),
    port: some(fc.constantFrom<unknown>(8443, "9443", 0)),
    maxmbps: some(fc.constantFrom<unknown>(0, 20, -1, "5")),
    maxClientWriteMbps: some(fc.constantFrom<unknown>(0.5, 10)),
    connectToPublic: some(fc.boolean()),
    paths: list({
      id: fc.constantFrom("wan2", "wan3"),
      node: names,
      host: fc.constantFrom("192.0.2.7", "nowhere"),
      port: fc.constantFrom<unknown>(8443, 70_000),
      local: some(fc.constantFrom("10.0.0.2", "10.0.0.9")),
      default: some(fc.boolean()),
      enabled: some(fc.boolean()),
    }),
    routes: list({ route: names, dest: names, metric: fc.constantFrom<unknown>(1, -1) }),
    acls: list({ source: names, dest: fc.oneof(names, fc.constantFrom("10.0.0.0/8")) }),
    latencyMonitors: list({ node: names, maxLatency: fc.constantFrom<unknown>(100, 0) }),
  });
  return fc.oneof(
    { weight: 8, arbitrary: section },
    { weight: 1, arbitrary: fc.constantFrom<unknown>(undefined, {}, [], "x", null) },
  );
}
