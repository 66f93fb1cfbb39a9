import { once } from "node:events";
import { createServer, type Server } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { MAX_SESSIONS } from "../../../../../src/overlay/mesh/sessions/clients.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import {
  closed,
  connectTo,
  dialHop,
  echo,
  gatewayRig,
  inbound,
  outbound,
  textOf,
  type GatewayRig,
} from "../../../../support/overlay/mesh-rig.ts";
import { meshIdentity } from "../../../../support/overlay/mesh-identity.ts";
import { freePort } from "../../../../support/machine/programs.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const [a, b, c] = await Promise.all([meshIdentity(), meshIdentity(), meshIdentity()]);
const HOST = "127.0.0.1";

async function taken(port: number): Promise<Server> {
  const server = createServer().listen(port, HOST);
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return server;
}

const isClosed = (rig: GatewayRig, port: number): Promise<boolean> =>
  dialHop(port, c, "h2").then(
    () => false,
    () => rig.server.state().refused["unknown-key"] === undefined,
  );

describe("a gateway", () => {
  it("carries a stream from one node to another, in both directions, and counts it", async () => {
    const rig = await gatewayRig([a, b]);
    const seen: Record<string, unknown>[] = [];
    await inbound(rig, b, (stream, headers) => {
      seen.push(headers);
      echo(stream);
    });
    const session = await outbound(rig.port, a);
    const { stream, answer } = await connectTo(session, b.uid);
    expect(answer[":status"]).toBe(200);
    stream.end("there and back");
    expect(await textOf(stream)).toBe("there and back");
    expect(seen).toMatchObject([
      { ":authority": `${b.uid}:443`, "holdfast-hops": "1", "holdfast-source": a.uid, ":method": "CONNECT" },
    ]);
    await waitFor("the splice is over", () => rig.server.activeRelays === 0);
    expect(rig.server.state()).toMatchObject({ state: "listening", relays: { active: 0, total: 1, bytes: 28 } });
    expect(rig.streams()).toBe(1);
  });

  it("accepts what is for this node itself", async () => {
    const rig = await gatewayRig([a]);
    const session = await outbound(rig.port, a);
    const self = rig.identity.uid;
    const tunnel = await connectTo(session, self);
    expect(tunnel.answer[":status"]).toBe(200);
    expect(rig.tunnels).toHaveLength(1);
    const flow = session.request(
      { ":method": "CONNECT", ":authority": `${self}:443`, "holdfast-service": "web" },
      { endStream: false },
    );
    const echoed = session.request({ ":method": "POST", ":path": "/echo" });
    for (const stream of [flow, echoed]) stream.on("error", () => undefined);
    await waitFor("both arrive", () => rig.requests.length === 2);
    expect(rig.requests.map(({ peer, headers }) => [peer, headers["holdfast-service"] ?? headers[":path"]])).toEqual([
      [a.uid, "web"],
      [a.uid, "/echo"],
    ]);
  });

  it("opens streams to its clients for itself", async () => {
    const rig = await gatewayRig([a]);
    const { signal } = new AbortController();
    expect(rig.server.direct(a.uid, { signal })).toBeUndefined();
    await inbound(rig, a);
    const direct = await waitFor("it is there", () => rig.server.direct(a.uid, { signal }));
    expect(direct.pathId).toEqual({ gateway: rig.identity.uid, path: "" });
    const { stream } = await connectTo(direct.session, a.uid);
    stream.end("hello");
    expect(await textOf(stream)).toBe("hello");
    expect(rig.server.direct(a.uid, { signal, path: "other" })).toBeUndefined();
  });

  it("uses a static route over another gateway that dials it, and then its own paths", async () => {
    const requested: unknown[] = [];
    const rig = await gatewayRig([a, b], {
      onward: (peer, { hops, except }) => {
        requested.push([peer, hops, except]);
        return Promise.reject(Object.assign(new Error("no"), { code: "no-path" }));
      },
    });
    const server = { addresses: [HOST], port: rig.port };
    await rig.apply([a, b], { server, routes: [{ to: c.uid, via: b.uid, metric: 1 }] });
    const session = await outbound(rig.port, a);
    const before = await connectTo(session, c.uid);
    expect(before.answer).not.toMatchObject({ ":status": 200 });
    expect(requested).toEqual([[c.uid, 1, a.uid]]);
    await inbound(rig, b);
    const { stream, answer } = await connectTo(session, c.uid);
    expect(answer[":status"]).toBe(200);
    stream.end("by b");
    expect(await textOf(stream)).toBe("by b");
    expect(rig.server.serves(b.uid)).toBe(true);
    const own = await rig.server.splice(c.uid, { signal: new AbortController().signal, via: b.uid });
    own.stream.end("own");
    expect(await textOf(own.stream)).toBe("own");
  });

  it("refuses with a reason: an offline node, an invalid request, and a stream that it may not relay", async () => {
    const rig = await gatewayRig([a, b]);
    const session = await outbound(rig.port, a);
    const absent = await connectTo(session, b.uid);
    expect(absent.answer).toMatchObject({ ":status": 502, "holdfast-reason": "peer-absent" });
    const flow = await connectTo(session, b.uid, { "holdfast-service": "web" });
    expect(flow.answer).toMatchObject({ ":status": 403, "holdfast-reason": "relay-refused" });
    const nonsense = await connectTo(session, "no-uid");
    expect(nonsense.answer).toMatchObject({ ":status": 500, "holdfast-reason": "other" });
    await rig.apply([a, b], { server: { addresses: [HOST], port: rig.port, relays: [] } });
    const forbidden = await connectTo(session, b.uid);
    expect(forbidden.answer).toMatchObject({ ":status": 403, "holdfast-reason": "relay-refused" });
  });

  it("carries a pair in one direction: requests of its source to its destination, with the answers", async () => {
    const rig = await gatewayRig([a, b, c]);
    for (const node of [a, b, c]) await inbound(rig, node);
    const server = { addresses: [HOST], port: rig.port, relays: [{ source: a.uid, dest: b.uid }] };
    const [fromA, fromB] = [await outbound(rig.port, a), await outbound(rig.port, b)];
    const before = await connectTo(fromB, a.uid);
    expect(before.answer[":status"]).toBe(200);
    await rig.apply([a, b, c], { server });
    await once(before.stream, "close");
    const { stream, answer } = await connectTo(fromA, b.uid);
    expect(answer[":status"]).toBe(200);
    stream.end("there and back");
    expect(await textOf(stream)).toBe("there and back");
    for (const [session, dest] of [
      [fromB, a.uid],
      [fromA, c.uid],
    ] as const) {
      const refused = await connectTo(session, dest);
      expect(refused.answer).toMatchObject({ ":status": 403, "holdfast-reason": "relay-refused" });
    }
  });

  it("limits the number of streams", async () => {
    const rig = await gatewayRig([a, b], { limits: { maxRelays: 1 } });
    await inbound(rig, b);
    const session = await outbound(rig.port, a);
    await connectTo(session, b.uid);
    const { answer } = await connectTo(session, b.uid);
    expect(answer).toMatchObject({ ":status": 503, "holdfast-reason": "too-many-flows" });
  });

  it("ends what a new document forbids, and nothing else", async () => {
    const rig = await gatewayRig([a, b, c]);
    await inbound(rig, b);
    await inbound(rig, c);
    const session = await outbound(rig.port, a);
    const [toB, toC] = [await connectTo(session, b.uid), await connectTo(session, c.uid)];
    const relays = [{ source: a.uid, dest: c.uid }];
    await rig.apply([a, b, c], { server: { addresses: [HOST], port: rig.port, relays } });
    await once(toB.stream, "close");
    toC.stream.end("allowed");
    expect(await textOf(toC.stream)).toBe("allowed");
  });
});

describe("the nodes that dial a gateway", () => {
  it("lose their sessions and streams at once when the document no longer allows them to dial", async () => {
    const rig = await gatewayRig([a, b]);
    await inbound(rig, b);
    const session = await outbound(rig.port, a);
    const { stream } = await connectTo(session, b.uid);
    await rig.apply([a, c]);
    await once(stream, "close");
    expect(stream.rstCode).not.toBe(0);
    expect(session.destroyed).toBe(false);
    expect(rig.server.clients()).toMatchObject([
      { peer: b.uid, state: "down", sessions: 0, reason: "it may no longer dial this gateway" },
      { peer: a.uid, state: "up", sessions: 1 },
    ]);
    expect(rig.events).toMatchObject([{ kind: "client-lost", peer: b.uid }]);
  });

  it("lose them too when their key changes", async () => {
    const rig = await gatewayRig([a]);
    const session = await outbound(rig.port, a);
    await rig.apply([{ ...b, uid: a.uid }]);
    await closed(session);
    await outbound(rig.port, b);
    expect(rig.server.clients()).toMatchObject([{ peer: a.uid, state: "up" }]);
  });

  it("are reported lost with their last session and back with the duration", async () => {
    const rig = await gatewayRig([a]);
    const first = await inbound(rig, a);
    const second = await inbound(rig, a);
    await waitFor("both", () => rig.server.clients()[0]?.sessions === 2);
    first.destroy();
    await waitFor("one is left", () => rig.server.clients()[0]?.sessions === 1);
    expect(rig.events).toEqual([]);
    second.destroy();
    await waitFor("it is lost", () => rig.events.length === 1);
    await inbound(rig, a);
    await waitFor("it is back", () => rig.events.length === 2);
    expect(rig.events).toMatchObject([
      { kind: "client-lost", peer: a.uid, cause: expect.stringContaining("closed") as string },
      { kind: "client-back", peer: a.uid, durationMs: expect.any(Number) as number },
    ]);
    const state = await waitFor("it is measured", () => rig.server.clients().find(({ rttMs }) => rttMs !== undefined));
    expect(state).toMatchObject({ state: "up", sessions: 1, remote: { ip: HOST } });
    expect(state.bytesIn).toBeGreaterThan(0);
  });

  it("are remembered for a day", async () => {
    const clock = new FakeClock();
    const rig = await gatewayRig([a], { clock });
    const session = await outbound(rig.port, a);
    session.destroy();
    await waitFor("it is lost", () => rig.server.clients()[0]?.state === "down");
    await clock.advance(24 * 3_600_000);
    expect(rig.server.clients()).toHaveLength(1);
    await clock.advance(1);
    expect(rig.server.clients()).toEqual([]);
  });

  it("are reached by another session when the newest is silent", async () => {
    const rig = await gatewayRig([a, b]);
    await inbound(rig, b);
    const mute = await inbound(rig, b, () => undefined);
    await waitFor("both", () => rig.server.clients()[0]?.sessions === 2);
    const session = await outbound(rig.port, a);
    mute.destroy();
    const { answer } = await connectTo(session, b.uid);
    expect(answer[":status"]).toBe(200);
  });

  it("have a limited number of sessions, and a newer one ends the oldest", async () => {
    const rig = await gatewayRig([a]);
    const first = await outbound(rig.port, a);
    for (let more = 0; more < MAX_SESSIONS; more += 1) await outbound(rig.port, a);
    await waitFor("the first is ended", () => first.destroyed);
    expect(rig.server.clients()).toMatchObject([{ sessions: MAX_SESSIONS }]);
  });
});

describe("the listener of a gateway", () => {
  it("moves to another port: first the new one, the old one for two minutes more", async () => {
    const clock = new FakeClock();
    const rig = await gatewayRig([a], { clock });
    const session = await outbound(rig.port, a);
    const port = await freePort();
    await rig.apply([a], { server: { addresses: [HOST], port } });
    await outbound(port, a);
    await outbound(rig.port, a);
    expect(session.destroyed).toBe(false);
    await clock.advance(120_000);
    expect(await isClosed(rig, rig.port)).toBe(true);
    expect(await isClosed(rig, port)).toBe(false);
  });

  it("adds another address of the same port", async () => {
    const clock = new FakeClock();
    const rig = await gatewayRig([a], { clock });
    await rig.apply([a], { server: { addresses: ["0.0.0.0"], port: rig.port } });
    expect(rig.server.state()).toMatchObject({ state: "listening" });
    await clock.advance(120_000);
    await outbound(rig.port, a);
  });

  it("reports that a port is in use, and binds it when free", async () => {
    const clock = new FakeClock();
    const rig = await gatewayRig([a], { clock });
    const port = await freePort();
    const stranger = await taken(port);
    await rig.apply([a], { server: { addresses: [HOST], port } });
    expect(rig.server.state()).toMatchObject({ state: "failed", reason: "address-in-use" });
    // The former listener stays as long as there is no other.
    await clock.advance(121_000);
    await outbound(rig.port, a);
    stranger.close();
    await once(stranger, "close");
    await clock.advance(5_000);
    await waitFor("it listens", () => rig.server.state().state === "listening");
    await outbound(port, a);
  });

  it("is off without a server in the document, and disconnects every node", async () => {
    const rig = await gatewayRig([a]);
    const session = await outbound(rig.port, a);
    await rig.apply([a], { server: undefined });
    await closed(session);
    expect(rig.server.state()).toMatchObject({ state: "off" });
    await taken(rig.port);
  });

  it("is shared with a predecessor, which then redirects every node", async () => {
    const before = await gatewayRig([a]);
    const session = await outbound(before.port, a);
    const after = await gatewayRig([a], { isBeside: (_protocol, _address, port) => port === before.port });
    await after.apply([a], { server: { addresses: [HOST], port: before.port } });
    expect(after.server.state().state).toBe("listening");
    await before.server.drain();
    await closed(session);
    await outbound(before.port, a);
    expect(after.server.clients()).toMatchObject([{ peer: a.uid, state: "up" }]);
    expect(before.events).toEqual([]);
  });

  it("is closed by a drain, while running streams continue", async () => {
    const rig = await gatewayRig([a, b]);
    const node = await inbound(rig, b);
    const session = await outbound(rig.port, a);
    const { stream } = await connectTo(session, b.uid);
    const reported = Promise.all([once(node, "goaway"), once(session, "goaway")]);
    await rig.server.drain();
    await reported;
    await taken(rig.port);
    expect(rig.server.activeRelays).toBe(1);
    stream.end("still carried");
    expect(await textOf(stream)).toBe("still carried");
    await waitFor("nothing is left", () => rig.server.activeRelays === 0 && session.destroyed && node.destroyed);
    expect(rig.events).toEqual([]);
  });
});
