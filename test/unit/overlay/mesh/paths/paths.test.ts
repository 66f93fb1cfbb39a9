import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import { describe, expect, it, onTestFinished } from "vitest";
import { nameCache, type AskName } from "../../../../../src/overlay/dial/name-cache.ts";
import { dialHop } from "../../../../../src/overlay/mesh/paths/dial-hop.ts";
import { Paths } from "../../../../../src/overlay/mesh/paths/paths.ts";
import type {
  MeshEvent,
  MeshPath,
  OverlayMesh,
  PathState,
  RttBucket,
} from "../../../../../src/protocol/overlay/mesh.ts";
import { testCertificate } from "../../../../support/certificates.ts";
import { advanceUntil } from "../../../../support/advance-until.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { FaultProxy } from "../../../../support/network/fault-proxy.ts";
import { freePort } from "../../../../support/machine/programs.ts";
import { testGateway, testIdentity, type TestGateway } from "../../../../support/overlay/test-gateway.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const SELF = "00000000-0000-4000-8000-000000000001";
const PEER = "00000000-0000-4000-8000-000000000009";
const G1 = "00000000-0000-4000-8000-00000000000a";
const G2 = "00000000-0000-4000-8000-00000000000b";
const LIMIT_MS = 120_000;

interface Rig {
  readonly paths: Paths;
  readonly clock: FakeClock;
  readonly events: MeshEvent[];
  readonly buckets: RttBucket[];
  readonly streams: { stream: ServerHttp2Stream; headers: IncomingHttpHeaders }[];
  /** Waits for a condition while time passes much faster. */
  readonly until: <T>(what: string, probe: () => T) => Promise<Exclude<T, undefined | false>>;
  /** Returns the path of this gateway and id. */
  readonly state: (gateway: string, id?: string) => PathState | undefined;
  readonly splice: (path?: string) => Promise<{ stream: Duplex; pathId: { gateway: string; path: string } }>;
}

async function rig(askName: AskName = () => Promise.reject(new Error("no names here"))): Promise<Rig> {
  const clock = new FakeClock();
  const own = await testCertificate({ hosts: [] });
  const names = nameCache(clock, askName);
  const identity = testIdentity(SELF, own);
  const events: MeshEvent[] = [];
  const buckets: RttBucket[] = [];
  const streams: Rig["streams"] = [];
  const paths = new Paths({
    clock,
    random: () => 0.5,
    dial: (target, protocol, signal) => dialHop({ clock, names, identity: () => identity }, target, protocol, signal),
    onStream: (stream, headers) => void streams.push({ stream, headers }),
    onChanged: () => undefined,
    onEvent: (event) => void events.push(event),
    onBuckets: (closed) => void buckets.push(...closed),
  });
  onTestFinished(() => paths.close());
  return {
    paths,
    clock,
    events,
    buckets,
    streams,
    until: (what, probe) => advanceUntil(what, clock, probe, 100),
    state: (gateway, id = "") => paths.states().find((one) => one.gateway === gateway && one.id === id),
    splice: (path) =>
      paths.splice(PEER, { signal: AbortSignal.timeout(LIMIT_MS), ...(path === undefined ? {} : { path }) }),
  };
}

function pathTo(gateway: string, port: number, more: Partial<MeshPath> = {}): MeshPath {
  return { gateway, id: "", host: "127.0.0.1", port, isDefault: true, ...more };
}

function mesh(paths: MeshPath[], keys: Readonly<Record<string, string>>, more: Partial<OverlayMesh> = {}): OverlayMesh {
  const peers = Object.entries(keys).map(([uid, key]) => ({ uid, fqdn: `n${uid.slice(-1)}.example.net`, key }));
  return { self: SELF, peers, paths, grants: [], routes: [], ...more };
}

const isUp = (state: PathState | undefined): boolean => state?.state === "up";

async function echoes(stream: Duplex, text: string): Promise<void> {
  let got = "";
  stream.on("data", (chunk: Buffer) => (got += chunk.toString()));
  stream.write(text);
  await waitFor("the echo", () => got === text);
  stream.removeAllListeners("data");
}

/** Both ends are in this process: the other reads sent data in one of the next turns of the loop, and answers at once. */
async function answered(): Promise<void> {
  for (let turn = 0; turn < 16; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Two gateways, both up; the first one carries. */
async function twoGateways(): Promise<Rig & { one: TestGateway; two: TestGateway; proxy: FaultProxy }> {
  const [one, two, r] = await Promise.all([testGateway(), testGateway(), rig()]);
  const proxy = await FaultProxy.start(await freePort(), one.port);
  r.paths.apply(
    mesh([pathTo(G1, proxy.port), pathTo(G2, two.port, { isDefault: false })], { [G1]: one.key, [G2]: two.key }),
  );
  await r.until("both are up", () => isUp(r.state(G1)) && isUp(r.state(G2)));
  await r.until("the default one carries", () => r.state(G1)?.carries === true);
  r.events.length = 0;
  return { ...r, one, two, proxy };
}

describe("paths to gateways", () => {
  it("are kept by one inbound session; an outbound one is dialled on demand", async () => {
    const { paths, until, state, splice } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    expect(state(G1)).toMatchObject({ state: "connecting", carries: false });
    await until("it is up", () => isUp(state(G1)));
    expect(state(G1)).toMatchObject({ carries: true, remote: { ip: "127.0.0.1", port: gateway.port }, loss: 0 });
    expect(gateway.inbound).toHaveLength(1);
    expect(gateway.outbound).toHaveLength(0);
    const { stream, pathId } = await splice();
    expect(pathId).toEqual({ gateway: G1, path: "" });
    expect(gateway.outbound).toHaveLength(1);
    await echoes(stream, "hello");
    const others = await Promise.all([splice(), splice(), splice()]);
    expect(gateway.outbound).toHaveLength(1);
    for (const one of [stream, ...others.map(({ stream: other }) => other)]) one.destroy();
    await until("the outward session is closed for want of use", () => gateway.outbound.length === 0);
    expect(gateway.inbound).toHaveLength(1);
    expect(isUp(state(G1))).toBe(true);
  });

  it("request the peer from the gateway by its uid, and pass its refusal on", async () => {
    const { paths, until, state, splice } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    const seen: IncomingHttpHeaders[] = [];
    gateway.onConnect = (stream, headers) => {
      seen.push(headers);
      stream.respond({ ":status": 403, "holdfast-reason": "relay-refused" }, { endStream: true });
    };
    await expect(splice()).rejects.toMatchObject({ code: "relay-refused" });
    expect(seen).toMatchObject([{ ":method": "CONNECT", ":authority": `${PEER}:443` }]);
    gateway.onConnect = (stream) =>
      stream.respond({ ":status": 502, "holdfast-reason": "nonsense" }, { endStream: true });
    await expect(splice()).rejects.toMatchObject({ code: "peer-absent" });
    gateway.onConnect = (stream) => stream.close();
    await expect(splice()).rejects.toMatchObject({ code: "tunnel-lost" });
  });

  it("accept the streams that the gateway opens", async () => {
    const { paths, until, state, streams } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    await gateway.open({ ":authority": `${SELF}:443` });
    const { headers } = await until("a stream", () => streams[0]);
    expect(headers[":authority"]).toBe(`${SELF}:443`);
  });

  it("make every peer unreachable while none is up", async () => {
    const { paths, splice, until, state } = await rig();
    await expect(splice()).rejects.toMatchObject({ code: "no-path" });
    expect(paths.direct(G1, { signal: AbortSignal.timeout(1000) })).toBeUndefined();
    const port = await freePort();
    paths.apply(mesh([pathTo(G1, port)], { [G1]: "A".repeat(43) }));
    await until("it is down", () => state(G1)?.state === "down");
    expect(state(G1)?.reason).toContain("ECONNREFUSED");
    await expect(splice()).rejects.toMatchObject({ code: "no-path" });
    await expect(paths.direct(G1, { signal: AbortSignal.timeout(1000) })).rejects.toMatchObject({ code: "no-path" });
  });

  it("a request during the first dial waits for its result only", async () => {
    const { paths, until, state, splice } = await rig();
    const gateway = await testGateway();
    const proxy = await FaultProxy.start(await freePort(), gateway.port);
    await proxy.set({ kind: "hang" });
    paths.apply(mesh([pathTo(G1, proxy.port)], { [G1]: gateway.key }));
    const requested = splice();
    const given = paths.splice(PEER, { signal: AbortSignal.abort(new Error("given up")) });
    await expect(given).rejects.toThrow("given up");
    requested.catch(() => undefined);
    await until("the path is down", () => state(G1)?.state === "down");
    await expect(requested).rejects.toMatchObject({ code: "no-path" });
    paths.apply(undefined);
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    expect((await splice()).pathId.gateway).toBe(G1);
    paths.apply(mesh([pathTo(G2, proxy.port)], { [G2]: gateway.key }));
    const removed = splice();
    paths.apply(undefined);
    await expect(removed).rejects.toMatchObject({ code: "no-path" });
  });

  it("a gateway with the wrong key is refused at every attempt", async () => {
    const { paths, until, state } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: "A".repeat(43) }));
    await until("it is tried again and again", () => (state(G1)?.attempts ?? 0) > 4);
    expect(state(G1)).toMatchObject({
      state: "down",
      reason: "the host that answered proved another key than the gateway's",
    });
    await until("nothing is left", () => gateway.inbound.length === 0);
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("the key was corrected", () => isUp(state(G1)));
  });

  it("a gateway without a known key is not dialled", async () => {
    const { paths, until, state } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], {}));
    await until("it says so", () => state(G1)?.reason === "the key of the gateway is not known");
    expect(gateway.connections).toBe(0);
  });

  it("a missing local address keeps a path down, and an existing one is used", async () => {
    const { paths, until, state } = await rig();
    const gateway = await testGateway();
    const ids = { [G1]: gateway.key };
    paths.apply(
      mesh(
        [
          pathTo(G1, gateway.port, { id: "a", local: "192.0.2.7" }),
          pathTo(G1, gateway.port, { id: "b", local: "127.0.0.77" }),
        ],
        ids,
      ),
    );
    await until("one is up", () => isUp(state(G1, "b")));
    await until("the other is down", () => state(G1, "a")?.state === "down");
    expect(state(G1, "a")?.reason).toBe("the address 192.0.2.7 is not on this machine");
    expect(gateway.inbound[0]?.socket.remoteAddress).toBe("127.0.0.77");
  });

  it("a gateway that accepts and stays silent is given up and retried", async () => {
    const gateway = await testGateway();
    const proxy = await FaultProxy.start(await freePort(), gateway.port);
    await proxy.set({ kind: "hang" });
    const { paths, until, state } = await rig();
    paths.apply(mesh([pathTo(G1, proxy.port)], { [G1]: gateway.key }));
    await until("it gives up", () => state(G1)?.state === "down");
    expect(state(G1)?.reason).toBe("no answer from 127.0.0.1 in 10 s");
    await proxy.set({ kind: "pass" });
    await until("it is up", () => isUp(state(G1)));
  });

  it("probes detect a half-open tunnel, and its flows end as lost", async () => {
    const { paths, until, state, splice, events, clock } = await rig();
    const gateway = await testGateway();
    const proxy = await FaultProxy.start(await freePort(), gateway.port);
    paths.apply(mesh([pathTo(G1, proxy.port)], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    const { stream } = await splice();
    await echoes(stream, "x");
    let fate: unknown;
    stream.on("error", (error) => (fate = error));
    await proxy.set({ kind: "black-hole", from: "controller" });
    const cutAt = clock.elapsed();
    await until("the stream ends", () => fate);
    expect(fate).toMatchObject({ code: "tunnel-lost" });
    await until("the path is down", () => state(G1)?.state === "down");
    // The idle inward session is detected as soon as the one that carries.
    expect(clock.elapsed() - cutAt).toBeLessThan(3000);
    expect(events.at(-1)).toMatchObject({
      kind: "path-lost",
      gateway: G1,
      cause: "three probes were not answered and no bytes arrived",
    });
    await proxy.set({ kind: "refuse" });
    await proxy.set({ kind: "pass" });
    await until("it is back", () => isUp(state(G1)));
    const back = events.at(-1);
    expect(back).toMatchObject({ kind: "path-back", gateway: G1, path: "" });
    expect(back?.durationMs).toBeGreaterThan(1500);
  });

  it("when one is lost the other carries on, and the duration is reported", async () => {
    const { one, two, proxy, until, state, splice, events } = await twoGateways();
    const { stream } = await splice();
    let fate: unknown;
    stream.on("error", (error) => (fate = error));
    await proxy.set({ kind: "refuse" });
    await until("the other carries", () => state(G2)?.carries === true);
    expect(fate).toMatchObject({ code: "tunnel-lost" });
    expect(state(G1)).toMatchObject({ state: "down", carries: false });
    expect((await splice()).pathId).toEqual({ gateway: G2, path: "" });
    expect(two.inbound).toHaveLength(1);
    expect(events.map(({ kind }) => kind)).toEqual(["path-lost", "moved"]);
    expect(events[1]).toMatchObject({ gateway: G2, path: "", from: { gateway: G1, path: "" } });
    expect(events[1]?.durationMs).toBeLessThan(1000);
    await proxy.set({ kind: "pass" });
    await until("it is back", () => isUp(state(G1)));
    expect(state(G1)?.carries).toBe(false);
    await until("and carries again after a while", () => state(G1)?.carries === true);
    expect(events.slice(2).map(({ kind }) => kind)).toEqual(["path-back", "moved"]);
    expect(one.inbound).toHaveLength(1);
  });

  it("a peer that one gateway does not have is requested from the other", async () => {
    const { one, two, splice } = await twoGateways();
    let requested = 0;
    one.onConnect = (stream) => {
      requested += 1;
      stream.respond({ ":status": 502, "holdfast-reason": "peer-absent" }, { endStream: true });
    };
    expect((await splice()).pathId.gateway).toBe(G2);
    two.onConnect = one.onConnect;
    await expect(splice()).rejects.toMatchObject({ code: "peer-absent" });
    expect(requested).toBe(3);
  });

  it("a static route selects the gateway that is tried first", async () => {
    const { paths, one, two, proxy, splice, until, state } = await twoGateways();
    const wanted = [pathTo(G1, proxy.port), pathTo(G2, two.port, { isDefault: false })];
    const routes = [
      { to: PEER, via: G1, metric: 20 },
      { to: PEER, via: G2, metric: 10 },
    ];
    paths.apply(mesh(wanted, { [G1]: one.key, [G2]: two.key }, { routes }));
    expect(state(G1)?.carries).toBe(true);
    expect((await splice()).pathId.gateway).toBe(G2);
    await two.stop();
    await until("the second is down", () => state(G2)?.state === "down");
    expect((await splice()).pathId.gateway).toBe(G1);
  });

  it("reconnects to a restarted gateway within moments", async () => {
    const { paths, until, state, clock } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    await gateway.stop();
    await until("it is down", () => state(G1)?.state === "down");
    const again = await testGateway({ port: gateway.port, certificate: gateway.certificate });
    const startedAt = clock.elapsed();
    await until("it is up again", () => isUp(state(G1)));
    expect(clock.elapsed() - startedAt).toBeLessThan(3000);
    expect(again.inbound).toHaveLength(1);
  });

  it("dials one that flaps with exponential backoff", async () => {
    const gateway = await testGateway();
    const { paths, until, state, events, clock } = await rig();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    for (let lost = 1; lost <= 9; lost += 1) {
      await until("it is up", () => isUp(state(G1)));
      gateway.inbound.at(-1)?.destroy();
      await until("it is lost", () => events.filter(({ kind }) => kind === "path-lost").length === lost);
    }
    const before = state(G1)?.attempts;
    await clock.advance(500);
    expect(state(G1)?.attempts).toBe(before);
    await until("it is up", () => isUp(state(G1)));
  });

  it("a gateway that sends GOAWAY is dialled again while the old session serves its streams", async () => {
    const { paths, until, state, streams, events, clock } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    const stream = await gateway.open({ ":authority": `${SELF}:443` });
    const { stream: inner } = await until("a stream", () => streams[0]);
    inner.respond({ ":status": 200 });
    inner.pipe(inner);
    gateway.inbound[0]?.close();
    await until("there is another session", () => gateway.inbound.length === 2);
    await until("attempts are told", () => state(G1)?.attempts === 2);
    for (let seconds = 0; seconds < 30; seconds += 1) {
      await clock.advance(1000);
      await answered();
    }
    await echoes(stream, "still here");
    expect(isUp(state(G1))).toBe(true);
    expect(events).toEqual([]);
    stream.destroy();
    await until("the old one is gone", () => gateway.inbound.length === 1);
    expect(events).toEqual([]);
  });

  it("a removed one ends at once with its streams, and others keep their sessions", async () => {
    const { paths, one, two, proxy, splice, until, state, events } = await twoGateways();
    const { stream } = await splice();
    let fate: unknown;
    stream.on("error", (error) => (fate = error));
    const [kept] = two.inbound;
    paths.apply(mesh([pathTo(G2, two.port, { isDefault: false })], { [G2]: two.key }));
    await until("its flow ends", () => fate);
    await until("its sessions end", () => one.inbound.length === 0 && one.outbound.length === 0);
    expect(state(G1)).toBeUndefined();
    expect(two.inbound).toEqual([kept]);
    expect(state(G2)?.carries).toBe(true);
    expect(events.map(({ kind }) => kind)).toEqual(["gateway-removed", "moved"]);
    const { connections } = proxy;
    paths.apply(undefined);
    await until("everything ends", () => two.inbound.length === 0);
    expect(paths.states()).toEqual([]);
    expect(events).toHaveLength(2);
    expect(proxy.connections).toBe(connections);
  });

  it("a changed address is dialled before the old session is closed", async () => {
    const { paths, until, state, splice, events, clock } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    const { stream } = await splice();
    const fate: { error?: unknown } = {};
    stream.on("error", (error) => (fate.error = error));
    const moved = await testGateway({ certificate: gateway.certificate });
    paths.apply(mesh([pathTo(G1, moved.port)], { [G1]: gateway.key }));
    expect(isUp(state(G1))).toBe(true);
    await until("it is at the new place", () => state(G1)?.remote?.port === moved.port);
    await until("the old session is closed", () => gateway.inbound.length === 0);
    await echoes(stream, "kept");
    expect((await splice()).pathId.gateway).toBe(G1);
    expect(moved.outbound).toHaveLength(1);
    const movedAt = clock.elapsed();
    while (fate.error === undefined) {
      await clock.advance(1000);
      await answered();
    }
    expect(clock.elapsed() - movedAt).toBeGreaterThan(590_000);
    expect(fate.error).toMatchObject({ code: "tunnel-lost", message: "retired for 10 min" });
    expect(events).toEqual([]);
  });

  it("a changed address that nothing serves leaves the old session in use", async () => {
    const { paths, until, state } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    paths.apply(mesh([pathTo(G1, await freePort())], { [G1]: gateway.key }));
    await until("the new place was tried", () => (state(G1)?.attempts ?? 0) > 2);
    expect(state(G1)).toMatchObject({ state: "up", remote: { port: gateway.port } });
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("it is dialled at the old place", () => gateway.connections === 2);
  });

  it("a name that changes its address is resolved again", async () => {
    const port = await freePort();
    const gateway = await testGateway({ host: "127.0.0.31", port });
    let address = "127.0.0.31";
    const { paths, until, state } = await rig(() => Promise.resolve({ addresses: [address], ttlSeconds: 300 }));
    paths.apply(mesh([pathTo(G1, port, { host: "gateway.example.net" })], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    await gateway.stop();
    const elsewhere = await testGateway({ host: "127.0.0.32", port, certificate: gateway.certificate });
    address = "127.0.0.32";
    await until("it is found there", () => state(G1)?.remote?.ip === "127.0.0.32");
    expect(elsewhere.inbound).toHaveLength(1);
  });

  it("tries every address of a name, past one with another key", async () => {
    const port = await freePort();
    await testGateway({ host: "127.0.0.41", port });
    const gateway = await testGateway({ host: "127.0.0.42", port });
    const { paths, until, state } = await rig(() => Promise.resolve({ addresses: ["127.0.0.41", "127.0.0.42"] }));
    paths.apply(mesh([pathTo(G1, port, { host: "gateway.example.net" })], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    expect(state(G1)?.remote?.ip).toBe("127.0.0.42");
  });

  it("a wake-up redials waiting paths, and ends sessions whose local address was removed", async () => {
    const { paths, until, state, events } = await rig();
    const port = await freePort();
    const own = await testCertificate({ hosts: [] });
    paths.apply(mesh([pathTo(G1, port, { local: "127.0.0.88" })], { [G1]: testIdentity(G1, own).key }));
    await until("it waits for long", () => (state(G1)?.attempts ?? 0) > 5);
    const gateway = await testGateway({ port, certificate: own });
    await waitFor("it is up although no time passes", () => {
      paths.wake(() => true);
      return isUp(state(G1));
    });
    paths.wake((address) => address !== "127.0.0.88");
    await waitFor("it is lost", () => events.at(-1)?.kind === "path-lost");
    expect(events.at(-1)?.cause).toBe("the address 127.0.0.88 was removed from this machine");
    await waitFor("the gateway is told", () => gateway.inbound.length === 0);
  });

  it("one that comes up has the others dialled, which may be back with it", async () => {
    const { paths, until, state } = await rig();
    const ports = [await freePort(), await freePort()] as const;
    const certificates = [await testCertificate({ hosts: [] }), await testCertificate({ hosts: [] })] as const;
    const keys = { [G1]: testIdentity(G1, certificates[0]).key, [G2]: testIdentity(G2, certificates[1]).key };
    paths.apply(mesh([pathTo(G1, ports[0])], keys));
    await until("one waits for long", () => (state(G1)?.attempts ?? 0) > 5);
    paths.apply(mesh([pathTo(G1, ports[0]), pathTo(G2, ports[1])], keys));
    await until("the other has been tried", () => (state(G2)?.attempts ?? 0) > 3);
    await testGateway({ port: ports[0], certificate: certificates[0] });
    await testGateway({ port: ports[1], certificate: certificates[1] });
    await until("the other is up", () => isUp(state(G2)));
    await waitFor("and so is the one, although no time passes", () => isUp(state(G1)));
  });

  it("report round trips for each minute, and the rest when a path is removed", async () => {
    const { paths, until, state, buckets } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port, { id: "wan" })], { [G1]: gateway.key }));
    await until("two minutes are over", () => buckets.length === 2);
    expect(buckets[1]).toMatchObject({ gateway: G1, path: "wan", time: (buckets[0]?.time ?? 0) + 60_000 });
    expect(buckets[1]?.numRtt).toBeGreaterThanOrEqual(11);
    expect(buckets[1]?.answered).toBe(buckets[1]?.numRtt);
    expect(state(G1, "wan")?.rttMs).toBeDefined();
    paths.apply(undefined);
    expect(buckets).toHaveLength(3);
  });

  it("reach a gateway itself by the requested path", async () => {
    const { paths, until, state } = await rig();
    const gateway = await testGateway();
    const both = [pathTo(G1, gateway.port), pathTo(G1, gateway.port, { id: "b", isDefault: false })];
    paths.apply(mesh(both, { [G1]: gateway.key }));
    await until("both are up", () => isUp(state(G1)) && isUp(state(G1, "b")));
    const signal = AbortSignal.timeout(LIMIT_MS);
    const first = await paths.direct(G1, { signal });
    expect(first?.pathId).toEqual({ gateway: G1, path: "" });
    expect((await paths.direct(G1, { signal, path: "b" }))?.pathId).toEqual({ gateway: G1, path: "b" });
    await expect(paths.direct(G1, { signal, path: "c" })).rejects.toMatchObject({ code: "no-path" });
    const stream = first?.session.request({ ":method": "POST", ":path": "/echo" });
    stream?.on("error", () => undefined).write("x");
    await until("a minute passes", () => gateway.outbound.length === 1);
    expect(stream?.destroyed).toBe(false);
  });

  it("dial more outbound sessions under load, also for many concurrent flows", async () => {
    const { paths, until, state, splice } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    for (let i = 0; i < 201; i += 1) await splice();
    await waitFor("there are two", () => gateway.outbound.length === 2);
    await Promise.all(Array.from({ length: 700 }, () => splice()));
    expect(gateway.outbound.length).toBeGreaterThanOrEqual(4);
  });

  it("draining accepts nothing new and keeps running streams", async () => {
    const { paths, clock, until, state, splice } = await rig();
    const gateway = await testGateway();
    paths.apply(mesh([pathTo(G1, gateway.port)], { [G1]: gateway.key }));
    await until("it is up", () => isUp(state(G1)));
    const { stream } = await splice();
    paths.drain();
    await until("the inward session is closed", () => gateway.inbound.length === 0);
    await echoes(stream, "still here");
    // No data for a minute, and the session that will fail cannot be probed.
    for (let i = 0; i < 120; i += 1) {
      await clock.advance(500);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await echoes(stream, "and after a while");
    stream.destroy();
    await until("the outward one too", () => gateway.outbound.length === 0);
    expect(gateway.connections).toBe(2);
  });
});
