import { describe, expect, test } from "vitest";
import { compileMesh, meshCompiler } from "../../../../../src/agent/sections/gateway/mesh.ts";
import type { GatewayActual } from "../../../../../src/agent/sections/gateway/plan.ts";
import { OverlayMesh } from "../../../../../src/protocol/overlay/mesh.ts";
import { normaliseGateway } from "../../../../../src/protocol/sections/gateway/gateway.ts";
import { aDomain, aGatewayActual } from "../../../../support/overlay/gateway-model.ts";
import { aPeer, SELF, uidOf } from "../../../../support/overlay/mesh.ts";

const SERVER = { enabled: true, type: "public", host: "192.0.2.9", port: 9443 };

function compiled(raw: unknown, more: Partial<GatewayActual> = {}, before?: OverlayMesh["server"]) {
  const { gateway } = normaliseGateway(raw, { nodeType: "Node" });
  const mesh = compileMesh(gateway, aGatewayActual(more), before);
  // It is valid for the overlay.
  return mesh === undefined ? undefined : OverlayMesh.parse(mesh);
}

const idsOf = (mesh: OverlayMesh | undefined): readonly string[] =>
  (mesh?.paths ?? []).map(({ gateway, id, isDefault }) => `${gateway.at(-1)}/${id}${isDefault ? "*" : ""}`);

describe("the paths to other nodes", () => {
  test("without a section are one built-in path to each gateway, all peers, and their grants", () => {
    expect(compiled(undefined)).toEqual({
      self: SELF,
      peers: [
        { uid: uidOf(2), fqdn: "gw1.example.org", key: aPeer(2, "gw1").key },
        { uid: uidOf(3), fqdn: "gw2.example.org", key: aPeer(3, "gw2").key },
        { uid: uidOf(4), fqdn: "branch.example.org", key: aPeer(4, "branch").key },
      ],
      paths: [
        { gateway: uidOf(2), id: "", host: "gw1.example.net", port: 8443, isDefault: true },
        { gateway: uidOf(3), id: "", host: "gw2.example.net", port: 8443, isDefault: true },
      ],
      grants: [{ source: uidOf(4), service: "web", protocol: "tcp" }],
      routes: [],
    });
  });

  test("carry the local policy for literal addresses, if there is one", () => {
    const literals = { allow: ["10.0.8.0/24"], own: true as const };
    expect(compiled(undefined, { literals })).toMatchObject({ literals });
    expect(compiled(undefined)).not.toHaveProperty("literals");
  });

  test.each([
    ["a node that is switched off", undefined, { isActive: false }],
    ["a node without a document of its domain", SERVER, { domain: undefined }],
    ["a node that is not known to itself", undefined, { self: undefined }],
    ["a node that is alone", undefined, { domain: aDomain([]) }],
    ["a node that has only itself as a peer", undefined, { domain: aDomain([aPeer(1, "me")]) }],
  ] as const)("of %s are empty", (_, raw, more) => {
    expect(compiled(raw, more)).toBeUndefined();
  });

  test("do not depend on the order of the document", () => {
    const peers = [aPeer(2, "gw1"), aPeer(3, "gw2"), aPeer(4, "branch")];
    const grants = (["web", "api"] as const).map(
      (service) => ({ source: uidOf(4), service, protocol: "tcp" }) as const,
    );
    const one = compiled(undefined, { domain: aDomain(peers, [...grants, ...grants]) });
    const other = compiled(undefined, { domain: aDomain(peers.toReversed(), grants.toReversed()) });
    expect(one).toEqual(other);
    expect(one?.grants.map(({ service }) => service)).toEqual(["api", "web"]);
  });

  test("leave public gateways out if the section excludes them", () => {
    const hub = aPeer(5, "gwhub", { gateway: { type: "hub", host: "192.0.2.5", port: 8443 } });
    const mesh = compiled({ connectToPublic: false }, { domain: aDomain([aPeer(2, "gw1"), hub]) });
    expect(idsOf(mesh)).toEqual(["5/*"]);
    expect(mesh?.peers.map(({ isHub }) => isHub)).toEqual([undefined, true]);
  });
});

describe("configured paths", () => {
  const path = { id: "wan2", node: "gw1", host: "192.0.2.7", port: 8443 };

  test("are added to the built-in one", () => {
    expect(idsOf(compiled({ paths: [{ ...path, local: "10.0.0.2" }] }))).toEqual(["2/*", "2/wan2", "3/*"]);
    expect(compiled({ paths: [{ ...path, local: "10.0.0.2" }] })?.paths[1]).toMatchObject({
      host: "192.0.2.7",
      local: "10.0.0.2",
    });
  });

  test("replace it when they are the default, and only one of them does", () => {
    const paths = [
      { ...path, default: true },
      { ...path, id: "wan3", node: "gw1.example.org", default: true },
    ];
    expect(idsOf(compiled({ paths }))).toEqual(["2/wan2*", "2/wan3", "3/*"]);
  });

  test("that are off, or lead to no gateway, change nothing", () => {
    const paths = [
      { ...path, enabled: false, default: true },
      { ...path, id: "lost", node: "nobody" },
      { ...path, id: "plain", node: "branch" },
    ];
    expect(idsOf(compiled({ paths }))).toEqual(["2/*", "3/*"]);
  });
});

describe("this node's own gateway", () => {
  test("listens on every address of the machine's families, also without clients", () => {
    expect(compiled(SERVER)?.server).toEqual({ addresses: ["0.0.0.0", "::"], port: 9443 });
    expect(compiled(SERVER, { hasIpv6: false, domain: aDomain([]) })?.server?.addresses).toEqual(["0.0.0.0"]);
  });

  test("keeps running when the section is invalid", () => {
    const before = { addresses: ["0.0.0.0"], port: 7443 };
    expect(compiled({ ...SERVER, port: 0 }, {}, before)?.server).toEqual(before);
    expect(compiled({ ...SERVER, enabled: false }, {}, before)?.server).toBeUndefined();
  });

  test("relays the listed pairs, by name, and ignores unknown nodes", () => {
    const acls = [
      { source: "branch", dest: "me.example.org" },
      { source: "nobody", dest: "branch" },
    ];
    expect(compiled({ ...SERVER, acls })?.server?.relays).toEqual([{ source: uidOf(4), dest: SELF }]);
    expect(compiled({ ...SERVER, acls: acls.slice(1) })?.server?.relays).toEqual([]);
    expect(compiled({ ...SERVER, acls: [] })?.server).not.toHaveProperty("relays");
  });

  test("admits the nodes that the document allows", () => {
    const domain = aDomain([aPeer(4, "branch", { mayDial: true })]);
    expect(compiled(SERVER, { domain })?.peers).toMatchObject([{ uid: uidOf(4), mayDial: true }]);
  });
});

test("compiles a mesh once for the same documents, and again for any other", () => {
  const { gateway } = normaliseGateway({ ...SERVER, port: 0 }, { nodeType: "Node" });
  const compile = meshCompiler();
  const actual = aGatewayActual();
  const before = { addresses: ["0.0.0.0"], port: 7443 };
  const first = compile(gateway, actual, before);
  expect(compile(gateway, { ...actual, local: new Set() }, before)).toBe(first);
  expect(compile(gateway, actual, { ...before, port: 1 })?.server?.port).toBe(1);
  expect(compile(gateway, { ...actual, domain: aDomain([]) }, undefined)).toBeUndefined();
  expect(compile(gateway, { ...actual, isActive: false }, before)).toBeUndefined();
  const other = normaliseGateway({}, { nodeType: "Node" }).gateway;
  expect(compile(other, actual, before)?.server).toBeUndefined();
});

test("limits and static routes use the table's units and uids", () => {
  const routes = [
    { route: "branch", dest: "gw2", metric: 20 },
    { route: "branch.example.org", dest: "gw1", metric: 10 },
    { route: "nobody", dest: "gw1", metric: 1 },
  ];
  expect(compiled({ maxmbps: 20, maxClientWriteMbps: 5, routes })).toMatchObject({
    ingressBitsPerSecond: 20_000_000,
    egressBitsPerSecond: 5_000_000,
    routes: [
      { to: uidOf(4), via: uidOf(2), metric: 10 },
      { to: uidOf(4), via: uidOf(3), metric: 20 },
    ],
  });
});
