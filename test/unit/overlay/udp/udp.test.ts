import { createSocket } from "node:dgram";
import { describe, expect, it, onTestFinished } from "vitest";
import { FakeClock } from "../../../support/fake-clock.ts";
import { aListener, aService, planeRig } from "../../../support/overlay/overlay-rig.ts";
import { aPeer, echoDatagram as echo, freeUdpPort } from "../../../support/overlay/udp-peer.ts";
import { waitFor } from "../../../support/wait-for.ts";

async function oneListener(target: number, more: Parameters<typeof aListener>[2] = {}) {
  const rig = planeRig();
  const port = await freeUdpPort();
  await rig.apply([aListener(port, target, { protocol: "udp", idleTimeoutMs: 60_000, ...more })]);
  return { ...rig, port };
}

describe("udp", () => {
  it.each(["127.0.0.1", "::1"])("keeps datagrams whole and clients apart over %s", async (host) => {
    const backend = await aPeer(echo, host);
    const rig = planeRig();
    const port = await freeUdpPort();
    await rig.apply([aListener(port, { host, port: backend.port }, { protocol: "udp", addresses: [host] })]);
    const [one, two] = [await aPeer(undefined, host), await aPeer(undefined, host)];
    for (const text of ["a", "bb", ""]) one.socket.send(text, port, host);
    two.socket.send("from two", port, host);
    await waitFor("the echoes", () => one.received.length === 3 && two.received.length === 1);
    expect(one.received.toSorted()).toEqual(["", "a", "bb"]);
    expect(two.received).toEqual(["from two"]);
    expect(rig.counters()).toMatchObject({ flows: 2, activeFlows: 2, bytesIn: 11, bytesOut: 11, datagramsDropped: 0 });
  });

  it("ends an idle session in order, and opens another", async () => {
    const backend = await aPeer(echo);
    const rig = await oneListener(backend.port, { idleTimeoutMs: 1000 });
    const client = await aPeer();
    client.socket.send("x", rig.port);
    expect(await rig.nextFlow()).toMatchObject({
      protocol: "udp",
      sourcePort: client.port,
      sourceBytes: 1,
      destBytes: 1,
    });
    expect(rig.ended[0]).not.toHaveProperty("reason");
    client.socket.send("y", rig.port);
    await waitFor("the echo", () => client.received.includes("y"));
  });

  it("sends a client at most one packet for each of its datagrams until it proves its address", async () => {
    const backend = await aPeer((_, from, socket) => {
      for (let i = 0; i < 10; i += 1) socket.send(Buffer.alloc(500), from.port, from.address);
    });
    const rig = await oneListener(backend.port);
    const client = await aPeer();
    for (let sent = 1; sent <= 5; sent += 1) {
      client.socket.send("x", rig.port);
      await waitFor("the rest is dropped", () => rig.counters().datagramsDropped === 7 * sent);
      await waitFor("the replies that are passed", () => client.received.length >= 3 * sent);
      expect(client.received).toHaveLength(3 * sent);
    }
    const other = await aPeer();
    other.socket.send("x", rig.port);
    await waitFor("another port of the same prefix", () => rig.counters().datagramsDropped === 42);
    await waitFor("its replies", () => other.received.length >= 3);
    expect(other.received).toHaveLength(3);
  });

  it("delivers an answer of one packet to a short question, and three times a long one", async () => {
    const backend = await aPeer((datagram, from, socket) => {
      const bytes = datagram.length < 100 ? 1472 : 3 * datagram.length;
      socket.send(Buffer.alloc(bytes), from.port, from.address);
    });
    const rig = await oneListener(backend.port);
    const client = await aPeer();
    client.socket.send(Buffer.alloc(30), rig.port);
    client.socket.send(Buffer.alloc(4000), rig.port);
    await waitFor("both answers", () => client.received.length === 2);
    expect(client.received.map((text) => text.length).toSorted((a, b) => a - b)).toEqual([1472, 12_000]);
    expect(rig.counters().datagramsDropped).toBe(0);
  });

  it("sends the listed sources of a connector everything from the service", async () => {
    const backend = await aPeer((_, from, socket) => {
      for (let i = 0; i < 10; i += 1) socket.send(Buffer.alloc(1400), from.port, from.address);
    });
    const rig = await oneListener(backend.port, { sources: ["127.0.0.0/8"] });
    const client = await aPeer();
    client.socket.send("x", rig.port);
    await waitFor("all of it", () => client.received.length === 10);
  });

  it("serves fresh ports beyond its limit: an answered session is replaced once idle for a while", async () => {
    const clock = new FakeClock();
    const backend = await aPeer(echo);
    const rig = planeRig({ clock });
    const port = await freeUdpPort();
    await rig.apply([aListener(port, backend.port, { protocol: "udp", maxFlows: 3, idleTimeoutMs: 60_000 })]);
    const clients = await Promise.all(Array.from({ length: 8 }, () => aPeer()));
    const ask = async (from: number, to: number): Promise<void> => {
      for (const client of clients.slice(from, to)) {
        client.socket.send("x", port);
        await waitFor("its echo", () => client.received.length > 0);
      }
    };
    await ask(0, 3);
    clients[3]?.socket.send("x", port);
    await waitFor("a refusal", () => rig.counters().refusals["too-many-flows"] === 1);
    await clock.advance(1000);
    clients[0]?.socket.send("again", port);
    await waitFor("the first goes on", () => clients[0]?.received.length === 2);
    await clock.advance(1000);
    await ask(3, 5);
    // Of the first three the longest idle one ended, and the first stays.
    expect(rig.counters()).toMatchObject({ activeFlows: 3, flows: 5 });
    clients[0]?.socket.send("still", port);
    await waitFor("the first goes on", () => clients[0]?.received.length === 3);
    expect(rig.counters().flows).toBe(5);
  });

  it("serves more than 1,024 clients if its limit is higher", async () => {
    const backend = await aPeer(echo);
    const rig = await oneListener(backend.port, { maxFlows: 3000, sources: ["127.0.0.0/8"] });
    const clients = await Promise.all(Array.from({ length: 1200 }, (_, i) => aPeer(undefined, `127.0.${i % 8}.1`)));
    await waitFor("all are served", () => {
      const waiting = clients.filter(({ received }) => received.length === 0);
      for (const { socket } of waiting.slice(0, 50)) socket.send("x", rig.port, "127.0.0.1");
      return waiting.length === 0;
    });
    expect(rig.counters()).toMatchObject({ flows: 1200, activeFlows: 1200 });
  });

  it("refuses sources and too many clients, without cost to present ones", async () => {
    const backend = await aPeer(echo);
    const rig = await oneListener(backend.port, { sources: ["127.0.0.1"], maxFlows: 100 });
    const stranger = createSocket("udp4");
    await new Promise<void>((resolve) => stranger.bind(0, "127.0.0.2", resolve));
    onTestFinished(() => void stranger.close());
    stranger.send("x", rig.port, "127.0.0.1");
    await waitFor("a refusal", () => rig.counters().refusals["source-not-permitted"] === 1);
    const clients = await Promise.all(Array.from({ length: 130 }, () => aPeer()));
    for (const { socket } of clients) socket.send("x", rig.port);
    await waitFor("it holds its limit", () => rig.counters().activeFlows === 100);
    await waitFor("others are taken when those are idle", () => {
      for (const { socket, received } of clients) if (received.length === 0) socket.send("again", rig.port);
      return clients.every(({ received }) => received.length > 0);
    });
  });

  it("drops rather than delays datagrams that wait for a name or exceed the rate", async () => {
    const backend = await aPeer();
    let answer: (addresses: string[]) => void = () => undefined;
    const name = new Promise<string[]>((resolve) => (answer = resolve));
    const rig = planeRig({ askName: async () => ({ addresses: await name }) });
    const port = await freeUdpPort();
    await rig.apply(
      [aListener(port, { service: "slow" }, { protocol: "udp" })],
      [aService("slow", backend.port, { protocol: "udp", host: "slow.test" })],
    );
    const client = await aPeer();
    for (let i = 0; i < 80; i += 1) client.socket.send(`n${i}`, port);
    await waitFor("the queue is full", () => rig.counters().datagramsDropped === 16);
    answer(["127.0.0.1"]);
    await waitFor("what waited arrives in order", () => backend.received.length === 64);
    expect(backend.received).toEqual(Array.from({ length: 64 }, (_, i) => `n${i}`));

    const slow = await oneListener(backend.port, { bitsPerSecond: 8 });
    for (let i = 0; i < 70; i += 1) client.socket.send(Buffer.alloc(1024), slow.port);
    await waitFor("the burst is used up", () => slow.counters().datagramsDropped >= 6);
  });

  it("never dials itself, and reports a closed port", async () => {
    const rig = planeRig();
    const [port, other, closed] = [await freeUdpPort(), await freeUdpPort(), await freeUdpPort()];
    await rig.apply([
      aListener(port, port, { key: "loop", protocol: "udp" }),
      aListener(other, closed, { key: "closed", protocol: "udp" }),
    ]);
    expect(rig.plane.listeners()).toMatchObject([{ reason: "loop" }, { state: "listening" }]);
    const client = await aPeer();
    client.socket.send("x", port);
    await waitFor("refused", () => rig.counters("loop").refusals.loop === 1);
    client.socket.send("x", other);
    await waitFor("the error", () => rig.counters("closed").errors["connect-refused"] === 1);
  });

  it("reports a port in use, and binds it when free", async () => {
    const holder = createSocket("udp4");
    await new Promise<void>((resolve) => holder.bind(0, "127.0.0.1", resolve));
    const { port } = holder.address();
    const backend = await aPeer(echo);
    const rig = planeRig();
    await rig.apply([aListener(port, backend.port, { protocol: "udp" })]);
    expect(rig.plane.listeners()).toMatchObject([{ state: "failed", reason: "address-in-use" }]);
    await new Promise<void>((resolve) => holder.close(resolve));
    await rig.plane.retryNow();
    expect(rig.plane.listeners()).toMatchObject([{ state: "listening" }]);
  });

  it("drops the sessions of sources that are no longer allowed, and closes with its entry", async () => {
    const backend = await aPeer(echo);
    const rig = await oneListener(backend.port);
    const client = await aPeer();
    client.socket.send("x", rig.port);
    await waitFor("the echo", () => client.received.length === 1);
    await rig.apply([
      aListener(rig.port, backend.port, { protocol: "udp", idleTimeoutMs: 60_000, sources: ["10.0.0.0/8"] }),
    ]);
    expect(await rig.nextFlow()).toMatchObject({ reason: "source-not-permitted" });
    await rig.apply([]);
    expect(rig.plane.bound()).toEqual([]);
  });
});
