import { join } from "node:path";
import type { MeshPath } from "../../../src/protocol/overlay/mesh.ts";
import type { OverlayListener, OverlayService } from "../../../src/protocol/overlay/overlay.ts";
import type { Ports } from "../l4/contenders.ts";
import { until } from "../programs.ts";
import { portsFrom, type Carrier } from "./contenders.ts";
import { aMember, startNode, type Content, type Member, type OverlayNode } from "./node.ts";
import type { Sites } from "./sites.ts";

const DAY_MS = 86_400_000;

export interface MeshOptions {
  readonly first: number;
  /** Number of gateways; the first is preferred. */
  readonly gateways?: number;
  /** Host at which site A connects to the first gateway, if not the gateway's own. */
  readonly by?: string;
  readonly flags?: readonly string[];
}

/** Overlay programs on both sites and gateways between them. */
export interface Mesh extends Carrier {
  readonly source: OverlayNode;
  readonly destination: OverlayNode;
  readonly gateways: readonly OverlayNode[];
  /** The gateway that most flows go through at this moment. @throws when there are none. */
  carrying(): Promise<OverlayNode>;
  /** Waits until both edges have all their paths. */
  settled(): Promise<void>;
}

/** Starts the overlays, which lead to each of the servers by a connector on site A and a service on site B. */
export async function startMesh(dir: string, sites: Sites, to: Ports, options: MeshOptions): Promise<Mesh> {
  const { first, gateways: count = 1, by, flags = [] } = options;
  const { a, b, gateway, gatewayForB } = sites;
  const ports = portsFrom(first);
  const [source, destination] = [await aMember(first), await aMember(first + 1)];
  const members: Member[] = [];
  for (let number = 0; number < count; number += 1) members.push(await aMember(first + 2 + number));
  const portOf = (number: number): number => first + 8 - number;
  const path = (uid: string, number: number, way: string): MeshPath => {
    const [host = "", port] = way.split(":");
    return { gateway: uid, id: "", host, port: Number(port), isDefault: number === 0 };
  };
  const pathsBy = (way: (number: number) => string): MeshPath[] =>
    members.map(({ peer }, number) => path(peer.uid, number, way(number)));
  const [self, other] = [source.peer.uid, destination.peer.uid];
  const relays = members.map(({ peer }) => peer);
  const begin = async (name: string, netOf: number, member: Member, content: Content): Promise<OverlayNode> => {
    const node = await startNode(join(dir, name), member, { netOf, flags });
    await node.set(content);
    return node;
  };
  const gatewayNodes = await Promise.all(
    members.map((member, number) =>
      begin(`gateway-${number}`, gateway.netOf, member, {
        services: [],
        listeners: [],
        mesh: {
          self: member.peer.uid,
          peers: [source, destination].map(({ peer }) => Object.assign({ mayDial: true as const }, peer)),
          paths: [],
          server: { addresses: [gateway.address, gatewayForB], port: portOf(number) },
          grants: [],
          routes: [],
        },
      }),
    ),
  );
  const b2 = await begin("destination", b.netOf, destination, {
    services: servers(to),
    listeners: [],
    mesh: {
      self: other,
      peers: [source.peer, ...relays],
      paths: pathsBy((number) => `${gatewayForB}:${portOf(number)}`),
      grants: servers(to).map(({ name }) => ({ source: self, service: name, protocol: "tcp" })),
      routes: [],
    },
  });
  const a2 = await begin("source", a.netOf, source, {
    services: [],
    listeners: listeners(ports, other),
    mesh: {
      self,
      peers: [destination.peer, ...relays],
      paths: pathsBy((number) => (number === 0 && by !== undefined ? by : `${gateway.address}:${portOf(number)}`)),
      grants: [],
      routes: [],
    },
  });
  const nodes = [a2, ...gatewayNodes, b2];
  const settled = async (): Promise<void> => {
    for (const edge of [a2, b2]) {
      await until("all paths are up", async () => {
        const { paths } = await edge.state();
        return paths.length === count && paths.every(({ state }) => state === "up");
      });
    }
  };
  await settled();
  return {
    name: "overlay",
    ports,
    pids: nodes.map((node) => node.pid()),
    source: a2,
    destination: b2,
    gateways: gatewayNodes,
    settled,
    async carrying() {
      const { sessions } = await a2.state();
      const [busiest] = sessions.toSorted((one, two) => two.activeFlows - one.activeFlows);
      const node = gatewayNodes[members.findIndex(({ peer }) => peer.uid === busiest?.gateway)];
      if (node === undefined || busiest?.activeFlows === 0) throw new Error("no gateway carries anything");
      return node;
    },
    async end() {
      await Promise.all(nodes.map((node) => node.end()));
    },
  };
}

function servers(to: Ports): OverlayService[] {
  return Object.entries(to).map(([name, port]) => ({
    name,
    protocol: "tcp",
    host: "127.0.0.1",
    port: Number(port),
    connectTimeoutMs: 5000,
    idleTimeoutMs: DAY_MS,
  }));
}

function listeners(ports: Ports, peer: string): OverlayListener[] {
  return Object.entries(ports).map(([service, port]) => ({
    key: `tcp:${String(port)}`,
    connector: service,
    protocol: "tcp",
    addresses: ["127.0.0.1"],
    port: Number(port),
    target: { peer, service },
    maxFlows: 10_000,
    idleTimeoutMs: DAY_MS,
  }));
}
