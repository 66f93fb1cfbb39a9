import { createPublicKey } from "node:crypto";
import { once } from "node:events";
import { onTestFinished } from "vitest";
import { compileMesh } from "../../../src/agent/sections/gateway/mesh.ts";
import { Domain, domainDocument } from "../../../src/controller/channel/documents/domain.ts";
import { meshNode } from "../../../src/controller/channel/documents/mesh-node.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { Mesh } from "../../../src/overlay/mesh/mesh.ts";
import { p256Thumbprint } from "../../../src/overlay/mesh/transport/tls.ts";
import { readDomain } from "../../../src/protocol/documents/domain-view.ts";
import type { MeshState } from "../../../src/protocol/overlay/mesh.ts";
import { normaliseGateway } from "../../../src/protocol/sections/gateway/gateway.ts";
import { overlayIdentity } from "./mesh-identity.ts";
import { connectors, meshRecord } from "./mesh-records.ts";
import { aClient, aListener, aServer, aService, echo, planeRig, type PlaneRig } from "./overlay-rig.ts";
import { freePort } from "../machine/programs.ts";
import { tempDir } from "../temp-dir.ts";
import { waitFor } from "../wait-for.ts";

/** The gateway section of each node by its name, without `host` and `port`; undefined for a node without one. */
export type Sections = Readonly<Record<string, Readonly<Record<string, unknown>> | undefined>>;

/** Nodes of one domain in this process, each with the mesh of its control plane and sections, over loopback sockets. */
export interface DomainRig {
  state(node: string): MeshState;
  uidOf(node: string): string;
  /** Gives nodes other sections, and every node the resulting documents. */
  change(sections: Sections): Promise<void>;
  /** Waits until every path of every node is up. */
  settled(): Promise<void>;
  /** Connects to the connector of a pair: `served` if echoed, else the reason of the refusal. */
  ask(source: string, dest: string): Promise<string>;
  /** Returns the number of streams that a gateway has relayed. */
  relayed(node: string): number;
}

interface RigNode {
  readonly number: number;
  readonly key: string;
  readonly port: number;
  readonly mesh: Mesh;
  readonly plane: PlaneRig;
  readonly pairs: ReadonlyMap<string, number>;
}

/** Starts nodes whose uids are in the order of `sections`; for each pair, the source has a connector to the echo service of the other. */
export async function domainRig(
  sections: Sections,
  pairs: readonly (readonly [source: string, dest: string])[],
): Promise<DomainRig> {
  const current = new Map(Object.entries(sections));
  const nodes = new Map<string, RigNode>();
  const target = await aServer(echo);
  for (const [at, name] of Object.keys(sections).entries()) {
    const ports = pairs
      .filter(([source]) => source === name)
      .map(async ([, dest]) => [dest, await freePort()] as const);
    nodes.set(name, await aNode(at + 1, new Map(await Promise.all(ports))));
  }

  const nodeOf = (name: string): RigNode => {
    const node = nodes.get(name);
    if (node === undefined) throw new Error(`no node ${name}`);
    return node;
  };
  const recordOf = (name: string) => {
    const { number, key, port, pairs } = nodeOf(name);
    const section = current.get(name);
    return meshRecord(number, {
      name,
      key,
      gateway: section === undefined ? undefined : { host: "127.0.0.1", port, enabled: false, ...section },
      connectors: connectors(...[...pairs].map(([dest, port]) => [dest, "web", { port }] as const)),
    });
  };
  const applyAll = async (): Promise<void> => {
    const records = [...nodes.keys()].map(recordOf);
    const domain = new Domain(records.map(meshNode));
    for (const record of records) {
      const { uid, name, fqdn } = record;
      const { gateway } = normaliseGateway(record.gateway, { nodeType: "Node" });
      const view = readDomain(domainDocument(record.domain, domain.get(uid), domain));
      const surroundings = {
        isActive: true,
        self: { uid, name, fqdn },
        domain: view,
        local: new Set<string>(),
        hasIpv6: false,
      };
      await nodeOf(name).mesh.apply(compileMesh(gateway, surroundings, undefined));
    }
  };

  for (const { plane, pairs } of nodes.values()) {
    const listeners = [...pairs].map(([dest, port]) =>
      aListener(port, { peer: meshRecord(nodeOf(dest).number).uid, service: "web" }),
    );
    await plane.apply(listeners, [aService("web", target)]);
  }
  await applyAll();

  return {
    state: (node) => nodeOf(node).mesh.state(),
    uidOf: (node) => meshRecord(nodeOf(node).number).uid,
    async change(sections) {
      for (const [name, section] of Object.entries(sections)) current.set(name, section);
      await applyAll();
    },
    async settled() {
      const isUp = ({ mesh }: RigNode): boolean => mesh.state().paths.every(({ state }) => state === "up");
      await waitFor("every path is up", () => [...nodes.values()].every(isUp));
    },
    async ask(source, dest) {
      const { plane, pairs } = nodeOf(source);
      const port = pairs.get(dest) ?? 0;
      const client = aClient(port);
      await once(client.socket, "connect");
      const { localPort } = client.socket;
      client.socket.end("?");
      await waitFor("an answer or an end", () => client.fate() !== undefined);
      // Flows served for other nodes are recorded too.
      let flow = await plane.nextFlow();
      while (flow.listener === "" || flow.sourcePort !== localPort) flow = await plane.nextFlow();
      return flow.reason ?? (client.text() === "?" ? "served" : "cut");
    },
    relayed: (node) => nodeOf(node).mesh.state().server.relays.total,
  };
}

async function aNode(number: number, pairs: RigNode["pairs"]): Promise<RigNode> {
  const plane = planeRig();
  const mesh = new Mesh({
    local: plane.plane.local,
    files: hostFiles(),
    stateDir: tempDir(),
    askName: () => Promise.reject(new Error("no names here")),
    localAddresses: () => [],
    random: Math.random,
    onStream: () => undefined,
    onChanged: () => undefined,
    onEvent: () => undefined,
    onBuckets: () => undefined,
  });
  onTestFinished(() => mesh.close());
  const identity = overlayIdentity(meshRecord(number).uid);
  await mesh.setIdentity(identity);
  plane.plane.connectTo(mesh.remote);
  const key = p256Thumbprint(createPublicKey({ key: identity.key, format: "jwk" }));
  if (key === undefined) throw new Error("not a P-256 key");
  return { number, key, port: await freePort(), mesh, plane, pairs };
}
