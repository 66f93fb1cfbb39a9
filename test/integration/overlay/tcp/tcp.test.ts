import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../../../support/fake-clock.ts";
import { freePort } from "../../../support/machine/programs.ts";
import {
  aClient,
  aListener,
  aServer,
  aService,
  echo,
  makeSilent,
  planeRig,
  type Client,
} from "../../../support/overlay/overlay-rig.ts";
import { untilStill } from "../../../support/until-still.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** A data plane with one listener to the given server behaviour. */
async function oneListener(onConnection: (socket: Socket) => void, more: Parameters<typeof aListener>[2] = {}) {
  const rig = planeRig();
  const target = await aServer(onConnection);
  const port = await freePort();
  await rig.apply([aListener(port, target, more)]);
  return { ...rig, port, target };
}

describe("a tcp flow", () => {
  it.each(["127.0.0.1", "::1"])("passes bytes in both directions over %s and is recorded", async (host) => {
    const rig = planeRig();
    const target = await aServer(echo, host);
    const port = await freePort();
    await rig.apply([aListener(port, { host, port: target }, { addresses: [host] })]);
    const client = aClient(port, host);
    client.socket.end("hello");
    await waitFor("the echo ends", () => client.fate() === "end");
    expect(client.text()).toBe("hello");
    expect(await rig.nextFlow()).toMatchObject({
      connector: `c${port}`,
      sourceIp: host,
      destIp: host,
      destPort: port,
      backend: { ip: host, port: target },
      sourceBytes: 5,
      destBytes: 5,
    });
    expect(rig.counters()).toMatchObject({
      flows: 1,
      activeFlows: 0,
      bytesIn: 5,
      bytesOut: 5,
      refusals: {},
      errors: {},
    });
  });

  it("has TCP keepalive to both peers, the first after a minute", async () => {
    const { port, target } = await oneListener(echo);
    const client = aClient(port);
    client.socket.write("hello");
    await waitFor("the echo", () => client.text() === "hello");
    for (const socket of [`sport = :${port}`, `dport = :${target}`]) {
      const requested = await waitFor("a timer of its own", () => {
        const shown = execFileSync("ss", ["-tnoH", "state", "established", socket], { encoding: "utf8" });
        return /timer:\(keepalive,([^,]+),0\)/.exec(shown)?.[1];
      });
      expect(requested).toMatch(/^(?:5\dsec|1min|60sec)/);
    }
  });

  it("keeps a half-close of the client: the answer follows the end of the question", async () => {
    const { port } = await oneListener((socket) => {
      let question = "";
      socket.on("data", (chunk: Buffer) => (question += chunk.toString()));
      socket.on("end", () => setImmediate(() => socket.end(`you said ${question}`)));
    });
    const client = aClient(port);
    client.socket.end("much");
    await waitFor("the answer", () => client.fate() === "end");
    expect(client.text()).toBe("you said much");
  });

  it("keeps a half-close of the server: the client continues to send", async () => {
    let received = "";
    const { port } = await oneListener((socket) => {
      socket.end("bye");
      socket.on("data", (chunk: Buffer) => (received += chunk.toString()));
    });
    const client = aClient(port);
    await waitFor("the server's end", () => client.fate() === "end");
    client.socket.write("still ");
    client.socket.end("here");
    await waitFor("it arrives", () => received === "still here");
  });

  it("passes a reset on as a reset, in both directions", async () => {
    const sides: Socket[] = [];
    const rig = await oneListener((socket) => void sides.push(socket.on("error", () => undefined).resume()));
    const first = aClient(rig.port);
    first.socket.write("x");
    (await waitFor("a connection", () => sides[0])).resetAndDestroy();
    await waitFor("the client is reset", () => first.fate() === "ECONNRESET");
    expect(await rig.nextFlow()).toMatchObject({ reason: "reset" });

    const second = aClient(rig.port);
    second.socket.write("x");
    const side = await waitFor("another connection", () => sides[1]);
    let fate: string | undefined;
    side.on("error", (error: NodeJS.ErrnoException) => (fate = error.code));
    second.socket.resetAndDestroy();
    await waitFor("the server is reset", () => fate === "ECONNRESET");
    expect(await rig.nextFlow()).toMatchObject({ reason: "reset" });
    expect(rig.counters().errors).toEqual({ reset: 2 });
  });

  it("carries much data unchanged through a reader that pauses, in both directions at once", async () => {
    const { port } = await oneListener(echo);
    const size = 24 * 1024 * 1024;
    const data = randomBytes(size);
    const client = aClient(port);
    const hash = createHash("sha256");
    client.socket.removeAllListeners("data");
    let received = 0;
    client.socket.on("data", (chunk: Buffer) => {
      hash.update(chunk);
      received += chunk.length;
      if (received % 7 !== 0) return;
      client.socket.pause();
      setTimeout(() => client.socket.resume(), 1);
    });
    const send = async (): Promise<void> => {
      // Sizes of every kind: those that fill a read exactly, others, and single bytes.
      const sizes = [1, 65_536, 8192, 131_072, 777, 300_000, 4096];
      for (let at = 0, i = 0; at < size; i += 1) {
        const piece = data.subarray(at, at + (sizes[i % sizes.length] ?? 1));
        at += piece.length;
        if (!client.socket.write(piece)) await once(client.socket, "drain");
      }
      client.socket.end();
    };
    await send();
    await waitFor("all of it", () => client.fate() === "end");
    expect(received).toBe(size);
    expect(hash.digest("hex")).toBe(createHash("sha256").update(data).digest("hex"));
  });

  it("stops reading for a reader that never reads, however much the sender has", async () => {
    const rig = await oneListener((socket) => socket.pause());
    const client = aClient(rig.port);
    const piece = Buffer.alloc(1024 * 1024);
    let sent = 0;
    const push = (): void => {
      while (!client.socket.destroyed && client.socket.writableLength < 4 * piece.length) {
        client.socket.write(piece);
        sent += piece.length;
      }
    };
    const before = process.memoryUsage().arrayBuffers;
    push();
    client.socket.on("drain", push);
    const moved = await untilStill("nothing moves any more", () => rig.counters().bytesIn);
    const held = process.memoryUsage().arrayBuffers - before - client.socket.writableLength;
    expect(held).toBeLessThan(4 * 1024 * 1024);
    expect(moved).toBeLessThan(64 * 1024 * 1024);
  });

  it("ends an idle flow, and not a busy one", async () => {
    const rig = await oneListener(echo, { idleTimeoutMs: 1500 });
    const idle = aClient(rig.port);
    const busy = aClient(rig.port);
    const beat = setInterval(() => busy.socket.write("."), 200);
    await waitFor("the idle one is cut", () => idle.fate() === "ECONNRESET");
    clearInterval(beat);
    expect(busy.fate()).toBeUndefined();
    expect(await rig.nextFlow()).toMatchObject({ reason: "idle" });
  });
});

describe("an unreachable target", () => {
  it("resets the client when the connection is refused", async () => {
    const rig = planeRig();
    const port = await freePort();
    await rig.apply([aListener(port, await freePort())]);
    const client = aClient(port);
    await waitFor("the reset", () => client.fate() === "ECONNRESET");
    expect(await rig.nextFlow()).toMatchObject({ reason: "connect-refused", sourceBytes: 0, destBytes: 0 });
    expect(rig.counters()).toMatchObject({ flows: 0, refusals: { "connect-refused": 1 }, errors: {} });
  });

  it("gives up a silent host in time, and continues with the next address of its name", async () => {
    const target = await aServer(echo);
    await makeSilent("127.0.0.9", target);
    const rig = planeRig({ askName: () => Promise.resolve({ addresses: ["127.0.0.9", "127.0.0.1"] }) });
    const [alone, both] = [await freePort(), await freePort()];
    const services = [
      aService("alone", target, { host: "127.0.0.9", connectTimeoutMs: 300 }),
      aService("both", target, { host: "both.test", connectTimeoutMs: 1000 }),
    ];
    await rig.apply([aListener(alone, { service: "alone" }), aListener(both, { service: "both" })], services);
    const client = aClient(alone);
    await waitFor("the reset", () => client.fate() === "ECONNRESET");
    expect(await rig.nextFlow()).toMatchObject({ reason: "connect-timeout" });
    const lucky = aClient(both);
    lucky.socket.end("hi");
    await waitFor("the echo", () => lucky.text() === "hi");
    expect(await rig.nextFlow()).toMatchObject({ backend: { ip: "127.0.0.1" } });
  });

  it("tries every address of a name, and reports when there is none", async () => {
    const target = await aServer(echo);
    const answers: Record<string, string[]> = { "all.test": ["127.0.0.9", "127.0.0.1"], "none.test": [] };
    const rig = planeRig({ askName: (name) => Promise.resolve({ addresses: answers[name] ?? [] }) });
    const [port, lost] = [await freePort(), await freePort()];
    const services = [aService("all", target, { host: "all.test" }), aService("none", 1, { host: "none.test" })];
    await rig.apply([aListener(port, { service: "all" }), aListener(lost, { service: "none" })], services);
    const client = aClient(port);
    client.socket.end("hi");
    await waitFor("the echo", () => client.text() === "hi");
    expect(await rig.nextFlow()).toMatchObject({ backend: { ip: "127.0.0.1" }, service: "all" });
    aClient(lost);
    expect(await rig.nextFlow()).toMatchObject({ reason: "resolve-failed" });
  });

  it("connects from the configured source address, and reports when that is missing", async () => {
    const froms: (string | undefined)[] = [];
    const target = await aServer((socket) => {
      froms.push(socket.remoteAddress);
      socket.end();
    });
    const rig = planeRig();
    const [port, wrong] = [await freePort(), await freePort()];
    const services = [
      aService("good", target, { sourceAddress: "127.0.0.7" }),
      aService("bad", target, { sourceAddress: "192.0.2.55" }),
    ];
    await rig.apply([aListener(port, { service: "good" }), aListener(wrong, { service: "bad" })], services);
    aClient(port);
    await waitFor("the connection", () => froms[0] === "127.0.0.7");
    aClient(wrong);
    await waitFor("the refusal", () => rig.counters(`tcp:${wrong}`).refusals.unreachable === 1);
  });

  it.each([
    ["unknown-service", { service: "nobody" }],
    ["protocol-mismatch", { service: "dns" }],
  ] as const)("reports the fault in the state and refuses: %s", async (reason, target) => {
    const rig = planeRig();
    const port = await freePort();
    await rig.apply([aListener(port, target)], [aService("dns", 53, { protocol: "udp" })]);
    expect(rig.plane.listeners()).toMatchObject([{ state: "failed", reason, addresses: ["127.0.0.1"] }]);
    const client = aClient(port);
    await waitFor("the reset", () => client.fate() === "ECONNRESET");
    expect(await rig.nextFlow()).toMatchObject({ reason });
  });

  it("never dials itself: by address, by the unspecified one, or by name", async () => {
    const rig = planeRig({ askName: () => Promise.resolve({ addresses: ["127.0.0.1"] }) });
    const ports = [await freePort(), await freePort(), await freePort()] as const;
    const [direct, any, named] = ports;
    await rig.apply(
      [
        aListener(direct, direct),
        aListener(any, { host: "0.0.0.0", port: direct }),
        aListener(named, { service: "me" }, { addresses: ["0.0.0.0"] }),
      ],
      [aService("me", named, { host: "localhost" })],
    );
    expect(rig.plane.listeners().map(({ reason }) => reason)).toEqual(["loop", "loop", undefined]);
    for (const port of ports) {
      const client = aClient(port);
      await waitFor("the reset", () => client.fate() === "ECONNRESET");
      expect(await rig.nextFlow()).toMatchObject({ listener: `tcp:${port}`, reason: "loop" });
    }
  });
});

describe("limits", () => {
  it("refuse a source before anything else", async () => {
    let dialled = 0;
    const rig = await oneListener(() => (dialled += 1), { sources: ["127.0.0.2/32"] });
    const stranger = aClient(rig.port);
    await waitFor("the reset", () => stranger.fate() === "ECONNRESET");
    expect(await rig.nextFlow()).toMatchObject({
      reason: "source-not-permitted",
      sourceIp: "127.0.0.1",
      destIp: "127.0.0.1",
      destPort: rig.port,
    });
    expect(dialled).toBe(0);
    aClient(rig.port, "127.0.0.1", "127.0.0.2");
    await waitFor("the friend is served", () => dialled === 1);
  });

  it("refuse more flows than allowed, and count down when they end", async () => {
    const rig = await oneListener(echo, { maxFlows: 2 });
    const clients = [aClient(rig.port), aClient(rig.port)];
    await waitFor("two flows", () => rig.counters().activeFlows === 2);
    const third = aClient(rig.port);
    await waitFor("the third is reset", () => third.fate() === "ECONNRESET");
    clients[0]?.socket.end();
    await waitFor("room", () => rig.counters().activeFlows === 1);
    const fourth = aClient(rig.port);
    fourth.socket.write("x");
    await waitFor("the fourth is served", () => fourth.text() === "x");
    expect(rig.counters()).toMatchObject({ flows: 3, refusals: { "too-many-flows": 1 } });
  });

  it("leave descriptors for others", async () => {
    const rig = planeRig({ descriptorLimit: 64 + 2 + 2 });
    const port = await freePort();
    await rig.apply([aListener(port, await aServer(echo))]);
    const first = aClient(port);
    first.socket.write("x");
    await waitFor("one flow", () => first.text() === "x");
    const second = aClient(port);
    await waitFor("the second is reset", () => second.fate() === "ECONNRESET");
    expect(rig.counters().refusals).toEqual({ "out-of-resources": 1 });
  });

  it("report exhausted descriptors for that time, and a while longer", async () => {
    const clock = new FakeClock();
    const rig = planeRig({ clock, descriptorLimit: 64 + 4 + 2 });
    const [full, idle, target] = [await freePort(), await freePort(), await aServer(echo)];
    await rig.apply([aListener(full, target), aListener(idle, target)]);
    const connected = async (): Promise<Client> => {
      const before = rig.plane.activeFlows;
      const client = aClient(full);
      await waitFor("it is taken or not", () => rig.plane.activeFlows > before || client.fate() !== undefined);
      return client;
    };
    const states = (): unknown => rig.plane.listeners().map(({ state, reason }) => reason ?? state);
    const first = await connected();
    expect((await connected()).fate()).toBe("ECONNRESET");
    await clock.advance(1000);
    expect(rig.listeners.filter(({ state }) => state === "failed")).toMatchObject([
      { key: `tcp:${full}`, reason: "out-of-resources", addresses: ["127.0.0.1"] },
    ]);
    await clock.advance(60_000);
    expect(states()).toEqual(["out-of-resources", "listening"]);
    first.socket.resetAndDestroy();
    await waitFor("room again", () => rig.plane.activeFlows === 0);
    const second = await connected();
    expect((await connected()).fate()).toBe("ECONNRESET");
    second.socket.resetAndDestroy();
    await waitFor("room again", () => rig.plane.activeFlows === 0);
    await clock.advance(5000);
    expect(states()).toEqual(["out-of-resources", "listening"]);
    await clock.advance(6000);
    expect(states()).toEqual(["listening", "listening"]);
    expect(rig.listeners.at(-1)).toMatchObject({ key: `tcp:${full}`, state: "listening" });
  });

  it.each(["in", "out"] as const)("hold the rate %s", async (direction) => {
    const size = 1024 * 1024;
    let arrived = 0;
    const rig = await oneListener(
      (socket) => {
        if (direction === "out") socket.end(Buffer.alloc(size));
        socket.on("data", (chunk: Buffer) => (arrived += chunk.length));
        socket.on("end", () => socket.end());
      },
      { bitsPerSecond: 8 * size }, // with a burst of a tenth, all of it takes 0.9 s
    );
    const startedAt = performance.now();
    const client = aClient(rig.port);
    client.socket.end(direction === "in" ? Buffer.alloc(size) : "");
    await waitFor("the end", () => client.fate() === "end");
    const received = client.received.reduce((sum, { length }) => sum + length, 0);
    expect(direction === "in" ? arrived : received).toBe(size);
    // A rate is a promise about time, and this bound is the promise: it fails only when the limit does not hold.
    expect(performance.now() - startedAt).toBeGreaterThan(700);
  });
});
