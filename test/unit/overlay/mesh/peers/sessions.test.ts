import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { describe, expect, it } from "vitest";
import { MAX_SESSIONS } from "../../../../../src/overlay/mesh/transport/session-pool.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { aClient, aListener, aServer, aService, echo, type Client } from "../../../../support/overlay/overlay-rig.ts";
import { meshIdentity } from "../../../../support/overlay/mesh-identity.ts";
import { grant, peerRig, remoteService, streamPair } from "../../../../support/overlay/peer-rig.ts";
import { freePort } from "../../../../support/machine/programs.ts";
import { waitFor } from "../../../../support/wait-for.ts";

async function says(client: Client, text: string): Promise<void> {
  const before = client.text().length;
  client.socket.write(text);
  await waitFor(`an echo of ${text}`, () => client.text().slice(before) === text);
}

const fateOf = (client: Client): Promise<string> => waitFor("the client hears of its end", () => client.fate());

describe("a peer session", () => {
  it("is made once for concurrent flows, and shared by later ones", async () => {
    const { rig, source, destination, port } = await remoteService(echo);
    const clients = Array.from({ length: 50 }, () => aClient(port));
    await Promise.all(clients.map((client, i) => says(client, `number ${i}`)));
    await says(aClient(port), "later");
    expect(rig.splices).toHaveLength(1);
    expect(source.flows.states()).toMatchObject([
      { peer: destination.uid, role: "source", activeFlows: 51, flows: 51 },
    ]);
    expect(destination.flows.states()).toMatchObject([
      { peer: source.uid, role: "destination", activeFlows: 51, flows: 51 },
    ]);
    for (const { bytesIn, bytesOut } of [...source.flows.states(), ...destination.flows.states()]) {
      expect(bytesIn).toBeGreaterThan(400);
      expect(bytesOut).toBeGreaterThan(400);
    }
  });

  it("gets a second one when its streams are in use, and no flow fails", async () => {
    const { rig, source, port } = await remoteService(echo);
    const clients = Array.from({ length: 300 }, () => aClient(port));
    await Promise.all(clients.map((client, i) => says(client, `number ${i}`)));
    expect(rig.splices).toHaveLength(2);
    expect(source.counters()).toMatchObject({ activeFlows: 300, refusals: {}, errors: {} });
  });

  it("is refused when the destination has another key than expected", async () => {
    const { source, destination, port } = await remoteService(echo);
    const other = await meshIdentity(destination.uid);
    source.meet([{ ...destination.peer, key: other.key }]);
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    expect(source.counters().refusals).toEqual({ "peer-unproven": 1 });
    expect(await source.nextFlow()).toMatchObject({ peer: destination.uid, reason: "peer-unproven", service: "web" });
    await waitFor("nothing is left of it", () => destination.flows.states().length === 0);
  });

  it("is refused when the destination does not know the source", async () => {
    const { source, destination, port } = await remoteService(echo);
    const other = await meshIdentity(source.uid);
    destination.meet([{ ...source.peer, key: other.key }], [grant(source, "web")]);
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    expect(source.counters()).toMatchObject({ flows: 0, activeFlows: 0 });
    expect(source.counters().refusals).toEqual({ "tunnel-lost": 1 });
    expect(destination.flows.states()).toEqual([]);
  });

  it("is refused when the gateway answers in the destination's place", async () => {
    const { rig, source, port } = await remoteService(echo);
    const forged = await meshIdentity("10000000-0000-4000-8000-000000000009");
    rig.splice = (from) => {
      new TLSSocket(from, {
        isServer: true,
        secureContext: forged.context,
        requestCert: true,
        rejectUnauthorized: false,
        ALPNProtocols: ["holdfast-peer"],
      }).on("error", () => undefined);
    };
    expect(await fateOf(aClient(port))).toBe("ECONNRESET");
    expect(source.counters().refusals).toEqual({ "peer-unproven": 1 });
  });

  it("ends its flows when the gateway changes their data, and delivers no changed byte", async () => {
    const { rig, source, port } = await remoteService(echo);
    let isHonest = true;
    rig.splice = (from, to) => {
      const pass = (one: Duplex, other: Duplex): void =>
        void one
          .on("data", (chunk: Buffer) => {
            if (!isHonest) chunk[chunk.length - 1] = (chunk.at(-1) ?? 0) ^ 1;
            other.write(chunk);
          })
          .on("close", () => other.destroy());
      pass(from, to);
      pass(to, from);
    };
    const client = aClient(port);
    await says(client, "honest");
    isHonest = false;
    client.socket.write("tampered with");
    expect(await fateOf(client)).toBe("ECONNRESET");
    expect(client.text()).toBe("honest");
    expect(source.counters().errors).toEqual({ "tunnel-lost": 1 });
  });

  it("ends its flows at once when cut, reports the duration, and the next flow makes another", async () => {
    const { rig, source, destination, port } = await remoteService(echo);
    const clients = [aClient(port), aClient(port), aClient(port)];
    for (const client of clients) await says(client, "hello");
    rig.splices[0]?.[0].destroy();
    for (const client of clients) expect(await fateOf(client)).toBe("ECONNRESET");
    expect(source.counters().errors).toEqual({ "tunnel-lost": 3 });
    for (const node of [source, destination]) {
      for (let i = 0; i < 3; i += 1) expect(await node.nextFlow()).toMatchObject({ reason: "tunnel-lost" });
      await waitFor("the session has ended", () => node.flows.states().length === 0);
    }
    await says(await lastingClient(port), "again");
    expect(source.events).toMatchObject([
      { kind: "session-lost", peer: destination.uid },
      { kind: "session-back", peer: destination.uid },
    ]);
    expect(source.events[1]?.durationMs).toBeGreaterThan(0);
  });

  it("is made again for a flow without an answer when it was cut", async () => {
    const { rig, destination, source, port } = await remoteService(echo);
    await says(aClient(port), "hello");
    const clients = Array.from({ length: 10 }, () => aClient(port));
    await waitFor("they are accepted", () => source.counters().activeFlows === 11);
    rig.splices[0]?.[1].destroy();
    await Promise.all(
      clients.map(async (client) => {
        client.socket.write("x");
        await waitFor("an echo or a reset", () => client.text() === "x" || client.fate() !== undefined);
      }),
    );
    // Those answered in time are cut; none hangs.
    await waitFor(
      "nothing hangs",
      () => source.plane.activeFlows === clients.filter((one) => one.text() === "x").length,
    );
    expect(destination.flows.states().length).toBeLessThanOrEqual(1);
  });

  it("reports the reason of its failure to every waiting flow, without a retry by each", async () => {
    const { rig, source, port } = await remoteService(echo);
    for (const reason of ["no-path", "peer-absent", "relay-refused"] as const) {
      rig.refusal = reason;
      await waitFor("it is tried again", async () => {
        expect(await fateOf(aClient(port))).toBe("ECONNRESET");
        return (source.counters().refusals[reason] ?? 0) > 0;
      });
    }
    let requested = 0;
    Object.defineProperty(rig, "refusal", {
      get: () => {
        requested += 1;
        return "no-path";
      },
    });
    const clients = Array.from({ length: 200 }, () => aClient(port));
    await Promise.all(clients.map(fateOf));
    expect(requested).toBeLessThan(20);
    expect(source.counters().activeFlows).toBe(0);
    expect(source.plane.listeners()).toMatchObject([{ state: "failed", reason: "relay-refused" }]);
  });

  it("survives a restart of the destination: the flow ends, the next one works", async () => {
    const rig = peerRig();
    const [source, first] = await Promise.all([rig.node(1), rig.node(2)]);
    const target = await aServer(echo);
    const port = await freePort();
    await source.apply([aListener(port, { peer: first.uid, service: "web" })]);
    source.meet([first.peer]);
    await first.apply([], [aService("web", target)]);
    first.meet([source.peer], [grant(source, "web")]);
    const client = aClient(port);
    await says(client, "hello");
    first.flows.close();
    expect(await fateOf(client)).toBe("ECONNRESET");
    const second = await rig.node(2, { identity: first.identity });
    await second.apply([], [aService("web", target)]);
    second.meet([source.peer], [grant(source, "web")]);
    await says(await lastingClient(port), "again");
  });

  it("accepts no new flow while the destination drains; those use a session to its successor", async () => {
    const { rig, source, destination, port, target } = await remoteService(echo);
    const old = aClient(port);
    await says(old, "old");
    const successor = await rig.node(2, { identity: destination.identity });
    await successor.apply([], [aService("web", target)]);
    successor.meet([source.peer], [grant(source, "web")]);
    destination.flows.drain();
    await waitFor("a flow goes to the successor", async () => {
      await says(aClient(port), "new");
      return successor.flows.states().length === 1;
    });
    await says(old, "still there");
    expect(source.counters().errors).toEqual({});
  });

  it("is not opened while too many retired ones carry flows, and is after their end", async () => {
    const { rig, source, destination, port, target } = await remoteService(echo);
    const flows: Client[] = [];
    const answered = async (): Promise<boolean> => {
      const client = aClient(port);
      flows.push(client);
      client.socket.write("hello");
      await waitFor("an echo or a reset", () => client.text() === "hello" || client.fate() !== undefined);
      return client.fate() === undefined;
    };
    expect(await answered()).toBe(true);
    destination.flows.drain();
    for (let sessions = 1; sessions < MAX_SESSIONS; sessions += 1) {
      const successor = await rig.node(2, { identity: destination.identity });
      await successor.apply([], [aService("web", target)]);
      successor.meet([source.peer], [grant(source, "web")]);
      await waitFor("a flow goes to the successor", async () => {
        expect(await answered()).toBe(true);
        return successor.flows.states().length === 1;
      });
      successor.flows.drain();
    }
    const last = await rig.node(2, { identity: destination.identity });
    await last.apply([], [aService("web", target)]);
    last.meet([source.peer], [grant(source, "web")]);
    await waitFor("a flow is refused", async () => !(await answered()));
    expect(source.counters()).toMatchObject({ refusals: { "too-many-flows": 1 }, errors: {} });
    expect(rig.splices).toHaveLength(MAX_SESSIONS);
    for (const { socket } of flows) socket.end();
    await waitFor("a flow goes to the last one", async () => (await answered()) && last.flows.states().length === 1);
  });

  it("is closed a minute after its last flow, and not before", async () => {
    const clock = new FakeClock();
    const rig = peerRig();
    const [source, destination] = await Promise.all([rig.node(1, { clock }), rig.node(2)]);
    const target = await aServer(echo);
    const port = await freePort();
    await destination.apply([], [aService("web", target)]);
    await source.apply([aListener(port, { peer: destination.uid, service: "web" })]);
    source.meet([destination.peer]);
    destination.meet([source.peer], [grant(source, "web")]);
    const client = aClient(port);
    await says(client, "hello");
    for (let i = 0; i < 13; i += 1) {
      const before = source.flows.states()[0]?.bytesIn ?? 0;
      await clock.advance(10_000);
      await waitFor("it is asked, and answers", () => (source.flows.states()[0]?.bytesIn ?? 0) > before);
    }
    await says(client, "long ago");
    client.socket.end();
    await fateOf(client);
    await waitFor("the flow is over", () => destination.flows.states()[0]?.activeFlows === 0);
    await waitFor("at the source too", () => source.flows.states()[0]?.activeFlows === 0);
    await clock.advance(59_000);
    expect(source.flows.states()).toHaveLength(1);
    await clock.advance(2000);
    expect(source.flows.states()).toEqual([]);
    await waitFor("the destination hears of it", () => destination.flows.states().length === 0);
    expect(source.events).toEqual([]);
  });

  it("is ended when the gateway passes nothing on, though nothing was closed", async () => {
    const clock = new FakeClock();
    const rig = peerRig();
    const [source, destination] = await Promise.all([rig.node(1, { clock }), rig.node(2)]);
    const target = await aServer(echo);
    const port = await freePort();
    await destination.apply([], [aService("web", target)]);
    await source.apply([aListener(port, { peer: destination.uid, service: "web" })]);
    source.meet([destination.peer]);
    destination.meet([source.peer], [grant(source, "web")]);
    const client = aClient(port);
    await says(client, "hello");
    // Answered echoes keep it.
    for (let i = 0; i < 8; i += 1) {
      const before = source.flows.states()[0]?.bytesIn ?? 0;
      await clock.advance(10_000);
      await waitFor("an answer", () => (source.flows.states()[0]?.bytesIn ?? 0) > before);
    }
    const [from, to] = rig.splices[0] ?? [];
    from?.unpipe();
    to?.unpipe();
    from?.pause();
    to?.pause();
    client.socket.write("into nothing");
    await clock.advance(30_000);
    expect(await fateOf(client)).toBe("ECONNRESET");
    await clock.advance(2000);
    expect(await source.nextFlow()).toMatchObject({ reason: "tunnel-lost" });
    await waitFor("it is reported", () => source.events.length > 0);
    expect(source.events).toMatchObject([{ kind: "session-lost", cause: "the other node stopped answering" }]);
  });

  it("releases a stream that is not authenticated in time", async () => {
    const clock = new FakeClock();
    const rig = peerRig();
    const node = await rig.node(1, { clock });
    const [near, far] = await streamPair();
    node.flows.inbound.tunnel(far, { gateway: node.uid, path: "" });
    await clock.advance(9000);
    expect(far.destroyed).toBe(false);
    await clock.advance(2000);
    await waitFor("it is closed", () => near.readableEnded || near.destroyed || far.destroyed);
  });

  it("limits unauthenticated streams", async () => {
    const rig = peerRig();
    const node = await rig.node(1);
    const pairs = await Promise.all(Array.from({ length: 260 }, () => streamPair()));
    for (const [, far] of pairs) node.flows.inbound.tunnel(far, { gateway: node.uid, path: "" });
    expect(pairs.filter(([, far]) => far.destroyed)).toHaveLength(4);
  });
});

/** A client whose flow was not refused: right after a loss the source waits for a moment. */
function lastingClient(port: number): Promise<Client> {
  return waitFor("a flow gets through", async () => {
    const client = aClient(port);
    client.socket.write("?");
    await waitFor("an answer or an end", () => client.text() === "?" || client.fate() !== undefined);
    return client.fate() === undefined && client;
  });
}
