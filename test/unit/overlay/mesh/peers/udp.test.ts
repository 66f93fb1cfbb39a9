import { once } from "node:events";
import { connect as connectHttp2, performServerHandshake, type ServerHttp2Stream } from "node:http2";
import { describe, expect, it } from "vitest";
import { DatagramPipe, type DatagramPipeOptions } from "../../../../../src/overlay/flow/datagram-pipe.ts";
import { MeshLimiters } from "../../../../../src/overlay/mesh/transport/rate-limits.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { aListener, aService } from "../../../../support/overlay/overlay-rig.ts";
import { grant, peerRig, socketPair } from "../../../../support/overlay/peer-rig.ts";
import { aPeer, echoDatagram, freeUdpPort, type Peer } from "../../../../support/overlay/udp-peer.ts";
import { waitFor } from "../../../../support/wait-for.ts";

/** A UDP connector on one node that leads to a service of another. */
async function remoteUdp(backend: Peer, more: Parameters<typeof aListener>[2] = {}) {
  const rig = peerRig();
  const [source, destination] = await Promise.all([rig.node(1), rig.node(2)]);
  const port = await freeUdpPort();
  await destination.apply([], [aService("dns", backend.port, { protocol: "udp", idleTimeoutMs: 60_000 })]);
  const target = { peer: destination.uid, service: "dns" };
  await source.apply([aListener(port, target, { protocol: "udp", idleTimeoutMs: 60_000, ...more })]);
  source.meet([destination.peer]);
  destination.meet([source.peer], [grant(source, "dns", "udp")]);
  return { rig, source, destination, port };
}

describe("udp to another node", () => {
  it("keeps datagrams whole and clients apart, also large and empty ones", async () => {
    const backend = await aPeer(echoDatagram);
    const { rig, source, destination, port } = await remoteUdp(backend);
    const [one, two] = [await aPeer(), await aPeer()];
    const large = "x".repeat(9000);
    for (const text of ["a", "bb", "", large]) one.socket.send(text, port, "127.0.0.1");
    two.socket.send("from two", port, "127.0.0.1");
    await waitFor("the echoes", () => one.received.length === 4 && two.received.length === 1);
    expect(one.received.toSorted()).toEqual(["", "a", "bb", large]);
    expect(two.received).toEqual(["from two"]);
    expect(rig.splices).toHaveLength(1);
    expect(source.counters()).toMatchObject({ flows: 2, activeFlows: 2, bytesIn: 9011, bytesOut: 9011 });
    expect(destination.plane.activeFlows).toBe(2);
  });

  it("is recorded at both ends", async () => {
    const backend = await aPeer(echoDatagram);
    const { source, destination, port } = await remoteUdp(backend);
    const client = await aPeer();
    client.socket.send("hello", port, "127.0.0.1");
    await waitFor("the echo", () => client.received.length === 1);
    destination.meet([source.peer]);
    const moved = { service: "dns", protocol: "udp", sourceBytes: 5, destBytes: 5, reason: "not-granted" };
    const common = { ...moved, connector: `c${port}`, sourceIp: "127.0.0.1", sourcePort: client.port };
    const near = await source.nextFlow();
    expect(near).toMatchObject({ ...common, peer: destination.uid, destIp: "127.0.0.1", destPort: port });
    expect(await destination.nextFlow()).toMatchObject({
      ...common,
      id: near.id,
      peer: source.uid,
      destIp: "127.0.0.1",
      destPort: backend.port,
    });
  });

  it("is refused with its reason, silently to the client", async () => {
    const backend = await aPeer(echoDatagram);
    const { source, destination, port } = await remoteUdp(backend);
    const ask = async (): Promise<unknown> => {
      const client = await aPeer();
      client.socket.send("hello", port, "127.0.0.1");
      const { reason } = await source.nextFlow();
      expect(client.received).toEqual([]);
      return reason;
    };
    destination.meet([source.peer], [grant(source, "dns", "tcp")]);
    expect(await ask()).toBe("not-granted");
    destination.meet([source.peer], [grant(source, "dns", "udp")]);
    await destination.apply([], [aService("dns", backend.port)]);
    expect(await ask()).toBe("protocol-mismatch");
    await destination.apply([], []);
    expect(await ask()).toBe("unknown-service");
    const closed = await freeUdpPort();
    await destination.apply([], [aService("dns", closed, { protocol: "udp" })]);
    expect(await ask()).toBe("connect-refused");
    expect(source.counters()).toMatchObject({ flows: 1, activeFlows: 0 });
  });

  it("ends with its tunnel, and the next datagram makes another", async () => {
    const backend = await aPeer(echoDatagram);
    const { rig, source, port } = await remoteUdp(backend);
    const client = await aPeer();
    client.socket.send("one", port, "127.0.0.1");
    await waitFor("the echo", () => client.received.length === 1);
    rig.splices[0]?.[0].destroy();
    expect(await source.nextFlow()).toMatchObject({ reason: "tunnel-lost" });
    await waitFor("another echo", () => {
      client.socket.send("two", port, "127.0.0.1");
      return client.received.includes("two");
    });
  });

  it("ends idle sessions, at both ends", async () => {
    const backend = await aPeer(echoDatagram);
    const { source, destination, port } = await remoteUdp(backend, { idleTimeoutMs: 1000 });
    const client = await aPeer();
    client.socket.send("one", port, "127.0.0.1");
    await waitFor("the echo", () => client.received.length === 1);
    expect((await source.nextFlow()).reason).toBeUndefined();
    expect((await destination.nextFlow()).reason).toBeUndefined();
    expect(source.counters()).toMatchObject({ activeFlows: 0, errors: {}, refusals: {} });
  });

  it("sends a client at most one packet for each of its datagrams until it proves its address", async () => {
    const backend = await aPeer((_, from, socket) => {
      for (let i = 0; i < 10; i += 1) socket.send("y".repeat(500), from.port, from.address);
    });
    const { source, port } = await remoteUdp(backend);
    const client = await aPeer();
    for (let sent = 1; sent <= 3; sent += 1) {
      client.socket.send("x", port, "127.0.0.1");
      await waitFor("the rest is dropped", () => source.counters().datagramsDropped === 7 * sent);
      expect(client.received).toHaveLength(3 * sent);
    }
  });

  it("serves fresh ports one after another without loss", async () => {
    const backend = await aPeer(echoDatagram);
    const { source, destination, port } = await remoteUdp(backend);
    const clients = await Promise.all(Array.from({ length: 300 }, () => aPeer()));
    for (const [i, { socket }] of clients.entries()) {
      socket.send("new", port, "127.0.0.1");
      // At most as many at once as the kernel buffers for the listener.
      if (i % 50 === 49) await waitFor("all were taken", () => source.counters().activeFlows === i + 1);
    }
    await waitFor("every answer", () => clients.every(({ received }) => received.length === 1));
    expect(source.counters()).toMatchObject({ flows: 300, refusals: {}, datagramsDropped: 0 });
    expect(destination.plane.activeFlows).toBe(300);
  });
});

const pipeOf = (options: DatagramPipeOptions): DatagramPipe => new DatagramPipe(options);

describe("datagrams over a stream", () => {
  /** Both ends of a stream; `pause` stops reads of the far one. */
  async function pair() {
    const [near, far] = await socketPair();
    const server = performServerHandshake(far, {});
    const client = connectHttp2("http://x", { createConnection: () => near });
    const stream = client.request({ ":method": "CONNECT", ":authority": "x:443" }, { endStream: false });
    const [served] = (await once(server, "stream")) as [ServerHttp2Stream];
    served.on("error", () => undefined).respond({ ":status": 200 });
    await once(stream, "response");
    return { stream, served };
  }

  it("drop and count what is too much or too old rather than delay it", async () => {
    const clock = new FakeClock();
    const { stream, served } = await pair();
    served.pause();
    let dropped = 0;
    const ended: number[] = [];
    const pipe = new DatagramPipe({
      stream,
      clock,
      tunnels: new MeshLimiters(clock),
      onDatagram: () => undefined,
      onDrop: () => (dropped += 1),
      onEnd: (code) => ended.push(code),
    });
    // Until the window of the stream and everything behind it is full.
    await waitFor("nothing more fits", () => {
      for (let sent = 0; sent < 50; sent += 1) pipe.send(Buffer.alloc(1000, "old"));
      return dropped > 0;
    });
    const before = dropped;
    for (let i = 0; i < 1000; i += 1) expect(pipe.send(Buffer.alloc(1000))).toBe(false);
    expect(dropped).toBe(before + 1000);
    // Data that waited that long is dropped for new data.
    await clock.advance(600);
    expect(pipe.send(Buffer.from("new"))).toBe(true);
    expect(dropped).toBeGreaterThan(before + 1000);
    const received: string[] = [];
    const reader = new DatagramPipe({
      stream: served,
      clock,
      tunnels: new MeshLimiters(clock),
      onDatagram: (datagram) => received.push(datagram.toString()),
      onDrop: () => undefined,
      onEnd: () => undefined,
    });
    served.resume();
    await waitFor("the new one arrives", () => received.includes("new"));
    reader.close();
    await waitFor("the end arrives", () => ended.length === 1);
    expect(ended).toEqual([0]);
  });

  it.each([
    ["a capsule that is too long", "00ffffffffffffffff"],
    ["a datagram without a context", "0000"],
  ])("end for %s, and the session continues", async (_, hex) => {
    const { stream, served } = await pair();
    const received: Buffer[] = [];
    const ended: number[] = [];
    pipeOf({
      stream: served,
      clock: new FakeClock(),
      tunnels: new MeshLimiters(new FakeClock()),
      onDatagram: (datagram) => received.push(datagram),
      onDrop: () => undefined,
      onEnd: (code) => ended.push(code),
    });
    stream.on("error", () => undefined).write(Buffer.from(hex, "hex"));
    await waitFor("it has ended", () => ended.length === 1);
    await waitFor("the sender hears of it", () => stream.closed);
    expect(ended).toEqual([1]);
    expect(stream.rstCode).toBe(1);
    expect(received).toEqual([]);
    expect(stream.session?.destroyed ?? false).toBe(false);
  });

  it("end when cut within a capsule", async () => {
    const { stream, served } = await pair();
    const ended: number[] = [];
    pipeOf({
      stream: served,
      clock: new FakeClock(),
      tunnels: new MeshLimiters(new FakeClock()),
      onDatagram: () => undefined,
      onDrop: () => undefined,
      onEnd: (code) => ended.push(code),
    });
    stream.on("error", () => undefined).end(Buffer.from("000500", "hex"));
    await waitFor("it has ended", () => ended.length === 1);
    expect(ended).toEqual([1]);
  });
});
