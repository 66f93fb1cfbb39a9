import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ControlClient } from "../../../src/host/overlay/control.ts";
import type { MeshEvent, MeshPath, MeshState, OverlayIdentity, RttBucket } from "../../../src/protocol/overlay/mesh.ts";
import { GAVE_WAY_STATUS, type OverlayTable } from "../../../src/protocol/overlay/overlay.ts";
import { overlayIdentity } from "../../support/overlay/mesh-identity.ts";
import { asAgent, aTable, startOverlayProcess } from "../../support/overlay/overlay-rig.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { testGateway, type TestGateway } from "../../support/overlay/test-gateway.ts";
import { waitFor } from "../../support/wait-for.ts";

const SELF = "00000000-0000-4000-8000-000000000001";
const GATEWAY = "00000000-0000-4000-8000-00000000000a";

function anIdentity(): OverlayIdentity {
  return overlayIdentity(SELF);
}

function tableTo(gateway: TestGateway, paths: MeshPath[] = [aPath(gateway)]): OverlayTable {
  const peers = [{ uid: GATEWAY, fqdn: "gateway.example.net", key: gateway.key }];
  return { ...aTable([]), format: 2, mesh: { self: SELF, peers, paths, grants: [], routes: [] } };
}

function aPath(gateway: TestGateway, id = ""): MeshPath {
  return { gateway: GATEWAY, id, host: "127.0.0.1", port: gateway.port, isDefault: id === "" };
}

async function upTo({ peer }: ControlClient, count: number): Promise<MeshState> {
  return waitFor(`${count} paths are up`, async () => {
    const state = await peer.request("mesh.get", {});
    return state.paths.filter((path) => path.state === "up").length === count ? state : undefined;
  });
}

describe("the overlay process and other nodes", () => {
  it("dials its gateways, reports the state, and does so again without an agent after kill -9", async () => {
    const dir = tempDir();
    const gateway = await testGateway();
    const first = startOverlayProcess(dir);
    const changes: unknown[] = [];
    const agent = await asAgent(first, { "mesh.changed": (change) => void changes.push(change) });
    const nothing = { paths: [], clients: [], sessions: [] };
    expect(await agent.peer.request("mesh.get", {})).toMatchObject(nothing);
    await agent.peer.request("table.set", { table: tableTo(gateway) });
    const [waiting] = (await agent.peer.request("mesh.get", {})).paths;
    expect(waiting?.state).not.toBe("up");
    await agent.peer.request("identity.set", anIdentity());
    const { paths } = await upTo(agent, 1);
    expect(paths).toMatchObject([{ gateway: GATEWAY, id: "", carries: true, remote: { port: gateway.port } }]);
    await waitFor("it was reported", () => changes.length > 0);
    expect(statSync(join(first.stateDir, "identity.json")).mode & 0o777).toBe(0o600);
    agent.close();
    first.child.kill("SIGKILL");
    await first.ended;
    await waitFor("its session has ended", () => gateway.inbound.length === 0);

    startOverlayProcess(dir);
    await waitFor("it is back by itself", () => gateway.inbound.length === 1);
  });

  it("keeps events for a later agent", async () => {
    const dir = tempDir();
    const gateway = await testGateway();
    const before = startOverlayProcess(dir);
    const first = await asAgent(before);
    await first.peer.request("identity.set", anIdentity());
    await first.peer.request("table.set", { table: tableTo(gateway) });
    await upTo(first, 1);
    before.child.kill("SIGKILL");
    await waitFor("its session has ended", () => gateway.inbound.length === 0);
    const pings = gateway.pings();
    const overlay = startOverlayProcess(dir);
    const session = await waitFor("it dials without an agent", () => gateway.inbound[0]);
    // The fourth is sent when three were answered.
    await waitFor("it is up", () => gateway.pings() > pings + 3);
    session?.destroy();
    await waitFor("it is back", () => gateway.inbound.length === 1 && gateway.inbound[0] !== session);
    const events: MeshEvent[] = [];
    const second = await asAgent(overlay, { "mesh.events": (reported) => void events.push(...reported.events) });
    await upTo(second, 1);
    await waitFor("the events", () => events.some(({ kind }) => kind === "path-back"));
    expect(events.map(({ kind }) => kind)).toEqual(["path-lost", "path-back"]);
    expect(events[1]?.durationMs).toBeGreaterThan(0);
    await second.peer.request("mesh.wake", {});
  });

  it("ends all sessions with a table without a mesh, and reports the measurements", async () => {
    const overlay = startOverlayProcess(tempDir());
    const gateway = await testGateway();
    const buckets: RttBucket[] = [];
    const { peer } = await asAgent(overlay, { "rtt.closed": (closed) => void buckets.push(...closed.buckets) });
    await peer.request("identity.set", anIdentity());
    await peer.request("table.set", { table: tableTo(gateway, [aPath(gateway), aPath(gateway, "wan2")]) });
    await waitFor("both are up", async () =>
      (await peer.request("mesh.get", {})).paths.every(({ state }) => state === "up"),
    );
    await peer.request("table.set", { table: aTable([]) });
    await waitFor("all sessions end", () => gateway.inbound.length === 0);
    expect((await peer.request("mesh.get", {})).paths).toEqual([]);
    await waitFor("what was measured", () => buckets.length === 2);
    expect(buckets.map(({ path }) => path).sort()).toEqual(["", "wan2"]);
  });

  it("dials its gateways with a new key as another node", async () => {
    const overlay = startOverlayProcess(tempDir());
    const gateway = await testGateway();
    const agent = await asAgent(overlay);
    const identity = anIdentity();
    await agent.peer.request("identity.set", identity);
    await agent.peer.request("table.set", { table: tableTo(gateway) });
    await upTo(agent, 1);
    const [session] = gateway.inbound;
    await agent.peer.request("identity.set", identity);
    expect(session?.destroyed).toBe(false);
    await agent.peer.request("identity.set", anIdentity());
    await waitFor("another session", () => gateway.inbound.length === 1 && gateway.inbound[0] !== session);
    const [broken, other] = [anIdentity(), anIdentity()];
    const halves = { uid: SELF, key: { ...broken.key, x: other.key.x, y: other.key.y } };
    await expect(agent.peer.request("identity.set", halves)).rejects.toMatchObject({ code: "invalid-body" });
    await upTo(agent, 1);
  });

  it("sets a damaged key aside and reports it", async () => {
    const dir = tempDir();
    const gateway = await testGateway();
    const first = startOverlayProcess(dir);
    const agent = await asAgent(first);
    await agent.peer.request("identity.set", anIdentity());
    await agent.peer.request("table.set", { table: tableTo(gateway) });
    await upTo(agent, 1);
    first.child.kill("SIGKILL");
    await first.ended;
    const file = join(first.stateDir, "identity.json");
    writeFileSync(file, readFileSync(file, "utf8").replace('"uid"', '"uix"'));
    const faults: unknown[] = [];
    const second = await asAgent(startOverlayProcess(dir), { fault: (fault) => void faults.push(fault) });
    await second.peer.request("table.get", {});
    await waitFor("the fault is reported", () => faults.length > 0);
    expect(faults).toMatchObject([{ code: "damaged-file", file: "identity.json" }]);
    expect(statSync(`${file}.damaged`).size).toBeGreaterThan(0);
    await second.peer.request("identity.set", anIdentity());
    await upTo(second, 1);
  });

  it("a successor is connected to the gateways before its predecessor disconnects", async () => {
    const dir = tempDir();
    const gateway = await testGateway();
    const first = startOverlayProcess(dir);
    const agent = await asAgent(first);
    await agent.peer.request("identity.set", anIdentity());
    await agent.peer.request("table.set", { table: tableTo(gateway) });
    await upTo(agent, 1);
    const [before] = gateway.inbound;
    let during = 0;
    before?.once("goaway", () => (during = gateway.inbound.length));
    const second = startOverlayProcess(dir, ["--successor"]);
    await waitFor("the predecessor has gone", () => before?.destroyed === true);
    expect(during).toBe(2);
    expect(await first.ended).toBe(GAVE_WAY_STATUS);
    expect(gateway.inbound).toHaveLength(1);
    const next = await asAgent(second);
    await upTo(next, 1);
  });

  it("refuses to measure an unknown target", async () => {
    const overlay = startOverlayProcess(tempDir());
    const { peer } = await asAgent(overlay);
    const echo = { peer: GATEWAY, bytes: 64, timeoutMs: 500 };
    await expect(peer.request("echo", echo)).rejects.toMatchObject({ code: "not-found" });
    await peer.request("perf.cancel", { id: "none" });
  });
});
