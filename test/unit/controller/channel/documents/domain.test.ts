import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  affectedBy,
  domainDocument,
  Domain,
  MAX_PEERS,
} from "../../../../../src/controller/channel/documents/domain.ts";
import { meshNode, type MeshRecord } from "../../../../../src/controller/channel/documents/mesh-node.ts";
import { DomainDocument } from "../../../../../src/protocol/documents/documents.ts";
import { DomainGrant, DomainPeer } from "../../../../../src/protocol/sections/gateway/domain-items.ts";
import { connectors, meshRecord, server, uidOf } from "../../../../support/overlay/mesh-records.ts";

/** The document of every node, by name. */
function compile(...records: readonly MeshRecord[]) {
  const nodes = records.map((record) => meshNode(record));
  const domain = new Domain(nodes);
  return Object.fromEntries(
    nodes.map((node) => {
      const document = domainDocument("net.example", node, domain);
      expect(DomainDocument.parse(document)).toEqual(document);
      const peers = document.peers.map((peer) => DomainPeer.parse(peer));
      const grants = document.grants.map((grant) => DomainGrant.parse(grant));
      expect([peers, grants]).toEqual([document.peers, document.grants]);
      return [node.name, { peers, grants }] as const;
    }),
  );
}

/** Returns in words which nodes dial each other, and which only know each other. */
function ways(...records: readonly MeshRecord[]): readonly string[] {
  return Object.entries(compile(...records))
    .flatMap(([self, { peers }]) =>
      peers.map(({ name, gateway, mayDial }) => {
        if (gateway !== undefined)
          return mayDial === true ? `${self} dials and serves ${name}` : `${self} dials ${name}`;
        return mayDial === true ? `${self} serves ${name}` : `${self} knows ${name}`;
      }),
    )
    .sort();
}

const edge = meshRecord(1, { name: "edge" });
const both = (from: string, to: string) => [`${from} dials ${to}`, `${to} serves ${from}`];

describe("who dials whom", () => {
  const dialler = {
    edge: undefined,
    shy: { enabled: false, connectToPublic: false },
    private: server("private"),
    "shy private": server("private", { connectToPublic: false }),
    public: server("public"),
    hub: server("hub"),
  };
  it.each([
    ["edge", "public", true],
    ["edge", "private", false],
    ["edge", "private listing it", true],
    ["edge", "private that switched it off", false],
    ["edge", "hub", true],
    ["shy", "public", false],
    ["shy", "private listing it", true],
    ["shy", "hub", true],
    ["private", "public", true],
    ["private", "private", false],
    ["private", "private listing it", true],
    ["private", "hub", true],
    ["shy private", "public", false],
    ["shy private", "hub", true],
    ["public", "public", false],
    ["public", "private", false],
    ["public", "private listing it", true],
    ["public", "hub", true],
    ["hub", "public", false],
    ["hub", "private", false],
    ["hub", "private listing it", true],
    ["hub", "hub", true],
  ] as const)("%s → %s: %s", (from, to, isDialled) => {
    const servers = {
      public: server("public"),
      hub: server("hub"),
      private: server("private", { clients: [{ name: "other", enabled: true }] }),
      "private listing it": server("private", { clients: [{ name: "a", enabled: true }] }),
      "private that switched it off": server("private", { clients: [{ name: "a", enabled: false }] }),
    };
    const a = meshRecord(1, { name: "a", gateway: dialler[from] });
    const { a: dialling, b: dialled } = compile(a, meshRecord(2, { name: "b", gateway: servers[to] }));
    expect(dialling?.peers.some(({ gateway }) => gateway !== undefined)).toBe(isDialled);
    expect(dialled?.peers.some(({ mayDial }) => mayDial === true)).toBe(isDialled);
  });

  it("an agent as an edge, and never its own server", () => {
    const agent = meshRecord(3, { name: "a", type: "Agent", gateway: server("public") });
    expect(ways(agent, meshRecord(2, { name: "b", gateway: server("public") }), edge)).toEqual(
      [...both("a", "b"), "b serves edge", "edge dials b"].sort(),
    );
  });

  it("of two hubs the one with the smaller uid, and the other is told that it is a hub", () => {
    const [a, b] = [1, 2].map((number) => meshRecord(number, { name: `hub${number}`, gateway: server("hub") }));
    expect(a !== undefined && b !== undefined && ways(b, a)).toEqual(both("hub1", "hub2"));
    const documents = a !== undefined && b !== undefined ? compile(a, b) : {};
    expect(documents["hub2"]?.peers).toMatchObject([{ name: "hub1", mayDial: true, isHub: true }]);
    expect(documents["hub1"]?.peers[0]).not.toHaveProperty("isHub");
  });

  it.each(["edge", "edge.net.example", uidOf(1), "pair", "pair.net.example"])(
    "a private gateway listing %s",
    (name) => {
      const member = { ...edge, cluster: "pair.net.example" };
      const gateway = server("private", { clients: [{ name, enabled: true }] });
      expect(ways(member, meshRecord(2, { name: "gw", gateway }))).toEqual(both("edge", "gw"));
    },
  );

  it("two private gateways that list each other both dial", () => {
    const listing = (name: string) => server("private", { clients: [{ name, enabled: true }] });
    const found = ways(
      meshRecord(1, { name: "a", gateway: listing("b") }),
      meshRecord(2, { name: "b", gateway: listing("a") }),
    );
    expect(found).toEqual(["a dials and serves b", "b dials and serves a"]);
  });

  it("nobody a gateway that is off or cannot be used, and nobody another domain's", () => {
    const off = [{ ...server("public"), enabled: false }, server("public", { host: undefined }), server("edge"), 7];
    for (const gateway of off) expect(ways(edge, meshRecord(2, { gateway }))).toEqual([]);
    const abroad = meshRecord(2, { domain: "else.example", gateway: server("public") });
    expect(ways(edge, abroad)).toEqual([]);
  });
});

describe("a gateway", () => {
  it("is told as it advertises itself", () => {
    const gateway = server("public", {
      host: "GW.Example.net",
      port: 9443,
      udpEnabled: true,
      requestClientsMonitorHops: true,
    });
    const { edge: mine } = compile(edge, meshRecord(2, { name: "gw", gateway }));
    expect(mine).toEqual({
      peers: [
        {
          uid: uidOf(2),
          name: "gw",
          fqdn: "gw.net.example",
          type: "Node",
          key: meshRecord(2, { name: "gw" }).key,
          gateway: { type: "public", host: "gw.example.net", port: 9443, udpPort: 8443, requestsHops: true },
        },
      ],
      grants: [],
    });
    const plain = compile(edge, meshRecord(2, { name: "gw", gateway: server("hub") }));
    expect(plain["edge"]?.peers[0]?.gateway).toEqual({ type: "hub", host: "gw.example.net", port: 8443 });
  });

  it("gives no edge away to another", () => {
    const found = ways(edge, meshRecord(2), meshRecord(3, { name: "gw", gateway: server("public") }));
    expect(found.filter((way) => !way.includes("gw"))).toEqual([]);
  });

  it("knows whom its routes and pairs name, who need not know it", () => {
    const routes = [{ route: "far.net.example", dest: "hub", metric: 1 }];
    const acls = [
      { source: "near", dest: "far" },
      { source: "pair.net.example", dest: "far" },
    ];
    const records = [
      meshRecord(2, { name: "far" }),
      meshRecord(3, { name: "member", cluster: "pair.net.example" }),
      meshRecord(4, { name: "near" }),
      meshRecord(5, { name: "stranger" }),
    ];
    const gateway = server("private", { routes, acls });
    expect(ways(meshRecord(1, { name: "gw", gateway }), ...records)).toEqual(["gw knows far", "gw knows near"]);
    const off = { ...gateway, enabled: false };
    expect(ways(meshRecord(1, { name: "gw", gateway: off }), ...records)).toEqual([]);
  });
});

describe("a cluster", () => {
  const member = meshRecord(2, { name: "member", cluster: "pair.net.example", state: "INACTIVE" });

  it.each(["pair", "pair.net.example"])("that a connector calls %s is named, and its members are not", (name) => {
    const source = meshNode(meshRecord(1, { name: "source", connectors: connectors([name, "web"], ["none", "web"]) }));
    const bystander = meshNode(meshRecord(3));
    const documentOf = (self: typeof source, ...members: readonly MeshRecord[]) =>
      domainDocument(
        "net.example",
        self,
        new Domain([source, bystander, ...members.map((record) => meshNode(record))]),
      );
    expect(documentOf(source, member)).toEqual({ fqdn: "net.example", peers: [], grants: [], clusters: [name] });
    const none = { fqdn: "net.example", peers: [], grants: [] };
    expect(documentOf(bystander, member)).toEqual(none);
    expect(documentOf(source)).toEqual(none);
    expect(documentOf(source, { ...member, domain: "else.example", cluster: "pair.else.example" })).toEqual(none);
  });
});

describe("grants", () => {
  const target = meshRecord(2, { name: "target" });

  it.each(["target", "target.net.example", uidOf(2)])("come of a connector to %s", (name) => {
    const source = meshRecord(1, { name: "source", connectors: connectors([name, "web"]) });
    const documents = compile(source, target);
    expect(documents["target"]?.grants).toEqual([{ source: uidOf(1), service: "web", protocol: "tcp" }]);
    expect(documents["source"]?.grants).toEqual([]);
    expect(ways(source, target)).toEqual(["source knows target", "target knows source"]);
  });

  it.each([
    [
      "of both forms",
      { version: 2, items: { x: { node: "target", service: "web", protocol: "tcp", port: 1 } } },
      ["web tcp"],
    ],
    [
      "by transport",
      connectors(
        ["target", "a", { protocol: "udp" }],
        ["target", "b", { protocol: "tftp" }],
        ["target", "c", { protocol: "ssh" }],
        ["target", "d", { protocol: "ftp" }],
      ),
      ["a udp", "b udp", "c tcp", "d tcp"],
    ],
    ["to an address", connectors(["target", "10.1.2.3:443"]), ["10.1.2.3:443 tcp"]],
    ["once for two connectors", connectors(["target", "web"], ["target.net.example", "web"]), ["web tcp"]],
    [
      "for each protocol",
      connectors(["target", "dns"], ["target", "dns", { protocol: "udp" }]),
      ["dns tcp", "dns udp"],
    ],
    ["not when it is off", connectors(["target", "web", { enabled: false }]), []],
    ["not when the section is off", { ...connectors(["target", "web"]), enabled: false }, []],
    ["not for itself or local", connectors(["local", "web"], ["source", "web"], ["LOCAL", "x"]), []],
    ["not of what cannot be used", connectors(["target", "web", { port: 0 }], ["target", "a b"]), []],
    ["not to whom nobody is", connectors(["nobody", "web"]), []],
    ["not to a cluster yet", connectors(["pair", "web"], ["pair.net.example", "web"]), []],
  ])("%s", (_, section, expected) => {
    const source = meshRecord(1, { name: "source", connectors: section });
    const documents = compile(source, { ...target, cluster: "pair.net.example" });
    expect(documents["target"]?.grants.map(({ service, protocol }) => `${service} ${protocol}`)).toEqual(expected);
    expect(documents["source"]?.peers).toHaveLength(expected.length > 0 ? 1 : 0);
  });

  it("are in one order, whatever order they were written in", () => {
    const records = [3, 1].map((number) =>
      meshRecord(number, { connectors: connectors(["target", "z"], ["target", "a"]) }),
    );
    const text = JSON.stringify(compile(...records, target)["target"]);
    expect(JSON.stringify(compile(target, ...records.toReversed())["target"])).toBe(text);
    expect(compile(...records, target)["target"]?.grants.map(({ source, service }) => [source, service])).toEqual([
      [uidOf(1), "a"],
      [uidOf(1), "z"],
      [uidOf(3), "a"],
      [uidOf(3), "z"],
    ]);
  });
});

describe("a node that is not active", () => {
  it("is in nobody's document and has an empty one", () => {
    const gw = meshRecord(2, { name: "gw", gateway: server("public"), connectors: connectors(["edge", "x"]) });
    const source = { ...edge, connectors: connectors(["gw", "web"]) };
    for (const records of [
      [{ ...source, state: "INACTIVE" as const }, gw],
      [source, { ...gw, state: "INACTIVE" as const }],
    ]) {
      expect(compile(...records)).toEqual({ edge: { peers: [], grants: [] }, gw: { peers: [], grants: [] } });
    }
    expect(domainDocument("net.example", undefined, new Domain())).toEqual({
      fqdn: "net.example",
      peers: [],
      grants: [],
    });
  });
});

describe("a domain larger than a document", () => {
  it("keeps whom the node dials and who may use something, and what the schema takes", () => {
    const crowd = Array.from({ length: MAX_PEERS + 5 }, (_, at) => meshRecord(at + 1));
    const user = meshRecord(20_000, { name: "user", connectors: connectors(["gw", "web"]) });
    const hub = meshRecord(20_001, { name: "hub", gateway: server("hub") });
    const gw = meshNode(meshRecord(20_002, { name: "gw", gateway: server("public") }));
    const domain = new Domain([...crowd, user, hub].map((record) => meshNode(record)).concat(gw));
    const document = DomainDocument.parse(domainDocument("net.example", gw, domain));
    expect(document.peers).toHaveLength(MAX_PEERS);
    expect(document.peers.slice(-2).map(({ name }) => name)).toEqual(["user", "hub"]);
    expect(document.grants).toEqual([{ source: uidOf(20_000), service: "web", protocol: "tcp" }]);
  });
});

const anyRecord = (number: number): fc.Arbitrary<MeshRecord> => {
  const other = fc.constantFrom("n1", "n2", "N3", "n4.net.example", uidOf(5), "pair", "local", "nobody");
  const item = fc.tuple(
    other,
    fc.constantFrom("web", "db", "10.0.0.1:80"),
    fc.record({ enabled: fc.boolean(), protocol: fc.constantFrom("tcp", "udp", "http") }),
  );
  const gateway = fc.record({
    enabled: fc.boolean(),
    type: fc.constantFrom("public", "private", "hub", "none"),
    host: fc.constantFrom("192.0.2.1", "gw.example"),
    port: fc.constantFrom(8443, 0),
    connectToPublic: fc.boolean(),
    clients: fc.array(fc.record({ name: other, enabled: fc.boolean() }), { maxLength: 3 }),
    routes: fc.array(fc.record({ route: other, dest: other, metric: fc.nat(5) }), { maxLength: 2 }),
  });
  return fc
    .record({
      type: fc.constantFrom("Node" as const, "Node" as const, "Agent" as const),
      state: fc.constantFrom("ACTIVE" as const, "ACTIVE" as const, "INACTIVE" as const),
      cluster: fc.constantFrom(undefined, "pair.net.example"),
      gateway: fc.oneof(fc.constant(undefined), gateway, fc.anything()),
      connectors: fc.array(item, { maxLength: 3 }).map((items) => connectors(...items)),
    })
    .map((change) => meshRecord(number, change));
};
const anyDomain = fc.tuple(...[1, 2, 3, 4, 5].map((number) => anyRecord(number)));

describe("in any domain", () => {
  it("no node learns of one it has no business with, and what one knows of the other fits", () => {
    fc.assert(
      fc.property(anyDomain, (records) => {
        const documents = compile(...records);
        for (const record of records) {
          const { peers, grants } = documents[record.name] ?? { peers: [], grants: [] };
          expect(peers.map(({ uid }) => uid)).not.toContain(record.uid);
          expect(new Set(peers.map(({ uid }) => uid)).size).toBe(peers.length);
          for (const { source } of grants) expect(peers.map(({ uid }) => uid)).toContain(source);
          for (const peer of peers) {
            const theirs = documents[peer.name]?.peers.find(({ uid }) => uid === record.uid);
            const isGateway = meshNode(record).server !== undefined;
            // Only a gateway's routes and pairs are one-sided.
            if (theirs === undefined)
              expect([isGateway, peer.gateway, peer.mayDial]).toEqual([true, undefined, undefined]);
            else expect(theirs.mayDial === true).toBe(peer.gateway !== undefined);
            const isNamed =
              grants.some(({ source }) => source === peer.uid) ||
              (documents[peer.name]?.grants ?? []).some(({ source }) => source === record.uid);
            expect(peer.gateway !== undefined || peer.mayDial === true || isNamed || isGateway).toBe(true);
          }
        }
      }),
    );
  });

  it("who is told of a change is exactly whose document differs, and perhaps the node itself", () => {
    fc.assert(
      fc.property(anyDomain, anyRecord(3), fc.boolean(), (records, replacement, isRemoved) => {
        const before = records.map((record) => meshNode(record));
        const after = isRemoved ? undefined : meshNode(replacement);
        const nodes = before.flatMap((node) => (node.uid === uidOf(3) ? (after ?? []) : node));
        const texts = (all: typeof before) => {
          const domain = new Domain(all);
          return new Map(all.map((node) => [node.uid, JSON.stringify(domainDocument("net.example", node, domain))]));
        };
        const [old, fresh] = [texts(before), texts(nodes)];
        const differing = [...fresh].filter(([uid, text]) => uid === uidOf(3) || old.get(uid) !== text);
        const changed = new Domain(before);
        changed.replace(before[2], after);
        const told = affectedBy(before[2], after, changed);
        expect([...told].sort()).toEqual(differing.map(([uid]) => uid).sort());
      }),
    );
  });
});
