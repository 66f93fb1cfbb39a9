import { generateKeyPairSync } from "node:crypto";
import { expect, test } from "vitest";
import type { ControlClient } from "../../../src/host/overlay/control.ts";
import { thumbprint } from "../../../src/protocol/values/keys.ts";
import { OverlayIdentity, type MeshPeer, type OverlayMesh } from "../../../src/protocol/overlay/mesh.ts";
import { GAVE_WAY_STATUS, type OverlayListener, type OverlayService } from "../../../src/protocol/overlay/overlay.ts";
import {
  aClient,
  aListener,
  asAgent,
  aServer,
  aService,
  aTable,
  echo,
  startOverlayProcess,
  type Client,
  type OverlayProcess,
} from "../../support/overlay/overlay-rig.ts";
import { atOnce } from "../../support/at-once.ts";
import { freePort } from "../../support/machine/programs.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

interface Node {
  readonly dir: string;
  readonly identity: OverlayIdentity;
  readonly peer: MeshPeer;
  process: OverlayProcess;
  agent: ControlClient;
}

async function aNode(number: number): Promise<Node> {
  const uid = `00000000-0000-4000-8000-00000000000${number}`;
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const identity = OverlayIdentity.parse({ uid, key: privateKey.export({ format: "jwk" }) });
  const dir = tempDir();
  const process = startOverlayProcess(dir);
  const agent = await asAgent(process);
  await agent.peer.request("identity.set", identity);
  const peer = { uid, fqdn: `n${number}.example.net`, key: await thumbprint(identity.key) };
  return { dir, identity, peer, process, agent };
}

async function give(
  { agent, peer }: Node,
  mesh: Partial<OverlayMesh>,
  listeners: OverlayListener[] = [],
  services: OverlayService[] = [],
): Promise<void> {
  const all = { self: peer.uid, peers: [], paths: [], grants: [], routes: [], ...mesh };
  await agent.peer.request("table.set", { table: { ...aTable(listeners, services), format: 2, mesh: all } });
}

/** An edge with a connector, a gateway, and an edge with a service. */
async function threeNodes(): Promise<{ source: Node; gateway: Node; dest: Node; port: number }> {
  const [source, gateway, dest] = await Promise.all([aNode(1), aNode(2), aNode(3)]);
  const [port, gatewayPort, target] = [await freePort(), await freePort(), await aServer(echo)];
  const peers = [source, gateway, dest].map(({ peer }) => Object.assign({ mayDial: true as const }, peer));
  const paths = [{ gateway: gateway.peer.uid, id: "", host: "127.0.0.1", port: gatewayPort, isDefault: true }];
  await give(gateway, { peers, server: { addresses: ["127.0.0.1"], port: gatewayPort } });
  const grants = [{ source: source.peer.uid, service: "web", protocol: "tcp" as const }];
  await give(dest, { peers, paths, grants }, [], [aService("web", target)]);
  await give(source, { peers, paths }, [aListener(port, { peer: dest.peer.uid, service: "web" })]);
  for (const node of [source, dest]) await up(node);
  return { source, gateway, dest, port };
}

function up({ agent }: Node): Promise<boolean> {
  return waitFor("the path is up", async () => (await agent.peer.request("mesh.get", {})).paths[0]?.state === "up");
}

async function says(client: Client, text: string): Promise<void> {
  const before = client.text().length;
  client.socket.write(text);
  await waitFor("the echo", () => client.text().length >= before + text.length || client.fate() !== undefined);
  expect([client.text().slice(before), client.fate()]).toEqual([text, undefined]);
}

async function succeed(node: Node): Promise<void> {
  const before = node.process;
  node.process = startOverlayProcess(node.dir, ["--successor"]);
  await waitFor("it has taken over", () => node.process.output().includes("took over from the predecessor"));
  expect(before.output()).toContain("draining");
  node.agent = await asAgent(node.process);
}

async function cutsNothing(which: "source" | "gateway" | "dest"): Promise<void> {
  const nodes = await threeNodes();
  const flow = aClient(nodes.port);
  await says(flow, "before");
  const predecessor = nodes[which].process;
  const over = new AbortController();
  const others: Client[] = [];
  const knocking = (async () => {
    while (!over.signal.aborted) {
      const client = aClient(nodes.port);
      others.push(client);
      await says(client, "knock");
    }
  })();
  knocking.catch(() => undefined);
  await succeed(nodes[which]);
  await says(flow, "meanwhile");
  over.abort();
  await knocking;
  for (const other of others) await says(other, "and still");
  const later = aClient(nodes.port);
  await says(later, "after");
  await says(flow, "to the end");
  for (const { socket } of [flow, later, ...others]) socket.destroy();
  expect(await predecessor.ended).toBe(GAVE_WAY_STATUS);
  await says(aClient(nodes.port), "by the successor alone");
}

test("a successor of an overlay with sessions to other nodes cuts no flow, and refuses none", async () => {
  await atOnce(sampleOf(["source", "gateway", "dest"] as const, 1, "successors"), String, cutsNothing);
}, 600_000);
