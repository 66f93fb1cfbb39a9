import { createServer } from "node:net";
import { describe, expect, it } from "vitest";
import { freePort } from "../../support/machine/programs.ts";
import { aClient, aListener, aServer, aService, echo, planeRig } from "../../support/overlay/overlay-rig.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A client with a working flow. */
async function talking(port: number, from?: string) {
  const client = aClient(port, "127.0.0.1", from);
  client.socket.write("a");
  await waitFor("the flow works", () => client.text() === "a");
  return {
    ...client,
    /** Reports whether it still works. */
    async continues(): Promise<boolean> {
      const before = client.text().length;
      client.socket.write("b");
      await waitFor("an answer or an end", () => client.text().length > before || client.fate() !== undefined);
      return client.fate() === undefined;
    },
  };
}

describe("a new table", () => {
  it("keeps what stays, whatever else changes", async () => {
    const rig = planeRig();
    const target = await aServer(echo);
    const [stays, goes, comes] = [await freePort(), await freePort(), await freePort()];
    await rig.apply([aListener(stays, target), aListener(goes, target)]);
    const [kept, dropped] = [await talking(stays), await talking(goes)];
    await rig.apply([aListener(stays, target, { bitsPerSecond: 1e9, maxFlows: 5 }), aListener(comes, target)]);
    expect(await kept.continues()).toBe(true);
    await waitFor("the removed one's flow is reset", () => dropped.fate() === "ECONNRESET");
    await talking(comes);
    const late = aClient(goes);
    await waitFor("nobody listens there", () => late.fate() === "ECONNREFUSED");
    expect(rig.counters(`tcp:${stays}`)).toMatchObject({ flows: 1, activeFlows: 1 });
  });

  it("drops the flows of sources that are no longer allowed, and only those", async () => {
    const rig = planeRig();
    const target = await aServer(echo);
    const port = await freePort();
    await rig.apply([aListener(port, target)]);
    const [one, two] = [await talking(port, "127.0.0.1"), await talking(port, "127.0.0.2")];
    await rig.apply([aListener(port, target, { sources: ["127.0.0.2"] })]);
    await waitFor("the first is reset", () => one.fate() === "ECONNRESET");
    expect(await two.continues()).toBe(true);
    expect(rig.counters().errors).toEqual({ "source-not-permitted": 1 });
  });

  it("keeps flows when addresses are added or removed, and drops them when the target changes", async () => {
    const rig = planeRig();
    const [target, other] = [await aServer(echo), await aServer(echo)];
    const port = await freePort();
    await rig.apply([aListener(port, target, { addresses: ["127.0.0.1", "127.0.0.3"] })]);
    const client = await talking(port);
    await rig.apply([aListener(port, target, { key: "tcp:lo:2", addresses: ["127.0.0.3", "127.0.0.4"] })]);
    expect(await client.continues()).toBe(true);
    expect(rig.plane.listeners()).toMatchObject([{ key: "tcp:lo:2", addresses: ["127.0.0.3", "127.0.0.4"] }]);
    await rig.apply([aListener(port, other, { key: "tcp:lo:2", addresses: ["127.0.0.3", "127.0.0.4"] })]);
    await waitFor("the flow is reset", () => client.fate() === "ECONNRESET");
    expect(await rig.nextFlow()).toMatchObject({ reason: "removed" });
  });

  it("ends the flows of a service that is removed or leads elsewhere", async () => {
    const rig = planeRig();
    const [target, other] = [await aServer(echo), await aServer(echo)];
    const port = await freePort();
    const listener = aListener(port, { service: "s" });
    await rig.apply([listener], [aService("s", target)]);
    const first = await talking(port);
    await rig.apply([listener], [aService("s", target, { connectTimeoutMs: 77 })]);
    expect(await first.continues()).toBe(true);
    await rig.apply([listener], [aService("s", other)]);
    await waitFor("the first is reset", () => first.fate() === "ECONNRESET");
    const second = await talking(port);
    await rig.apply([listener], []);
    await waitFor("the second is reset", () => second.fate() === "ECONNRESET");
    expect(rig.plane.listeners()).toMatchObject([{ state: "failed", reason: "unknown-service" }]);
  });

  it("holds a thousand listeners, and loading it again costs almost nothing", async () => {
    const rig = planeRig();
    const ports = Array.from({ length: 1000 }, (_, i) => 20_000 + i);
    const listeners = ports.map((port) => aListener(port, 9, { addresses: ["127.0.7.7"] }));
    await rig.apply(listeners);
    expect(rig.plane.listeners().filter(({ state }) => state === "listening")).toHaveLength(1000);
    await rig.apply(structuredClone(listeners));
    expect(rig.plane.bound()).toHaveLength(1000);
    await rig.apply([]);
    expect(rig.plane.bound()).toHaveLength(0);
  });
});

it("reports once that the overlay is in use, with the first flow", async () => {
  let reported = 0;
  const rig = planeRig({ onFirstFlow: () => (reported += 1) });
  const port = await freePort();
  await rig.apply([aListener(port, await aServer(echo))]);
  expect(reported).toBe(0);
  await talking(port);
  await talking(port);
  expect(reported).toBe(1);
});

describe("a listener that cannot be bound", () => {
  it("reports the port in use, even one with SO_REUSEPORT, and binds it when free", async () => {
    const rig = planeRig();
    const port = await freePort();
    const holder = createServer();
    await new Promise<void>((resolve) => holder.listen({ host: "127.0.0.1", port, reusePort: true }, resolve));
    await rig.apply([aListener(port, await aServer(echo))]);
    expect(rig.plane.listeners()).toMatchObject([{ state: "failed", reason: "address-in-use", addresses: [] }]);
    await new Promise((resolve) => holder.close(resolve));
    await rig.plane.retryNow();
    expect(rig.plane.listeners()).toMatchObject([{ state: "listening" }]);
    await talking(port);
    expect(rig.listeners.map(({ state }) => state)).toEqual(["failed", "listening"]);
  });

  it("is retried by itself", async () => {
    const rig = planeRig();
    const port = await freePort();
    const holder = createServer();
    await new Promise<void>((resolve) => holder.listen({ host: "127.0.0.1", port }, resolve));
    await rig.apply([aListener(port, await aServer(echo))]);
    await new Promise((resolve) => holder.close(resolve));
    await waitFor("it listens", () => rig.plane.listeners()[0]?.state === "listening");
  });

  it("reports the missing address and serves the others", async () => {
    const rig = planeRig();
    const port = await freePort();
    await rig.apply([aListener(port, await aServer(echo), { addresses: ["127.0.0.1", "192.0.2.123"] })]);
    expect(rig.plane.listeners()).toMatchObject([
      {
        state: "failed",
        reason: "address-absent",
        addresses: ["127.0.0.1"],
        message: expect.stringContaining("192.0.2.123") as string,
      },
    ]);
    await talking(port);
  });

  it("gives one port to one of two listeners, and to the other once that one is removed", async () => {
    const rig = planeRig();
    const target = await aServer(echo);
    const port = await freePort();
    const [first, second] = [
      aListener(port, target, { key: "1" }),
      aListener(port, target, { key: "2", connector: "x" }),
    ];
    await rig.apply([first, second]);
    expect(rig.plane.listeners()).toMatchObject([
      { state: "listening" },
      { state: "failed", reason: "address-in-use" },
    ]);
    await rig.apply([second]);
    expect(rig.plane.listeners()).toMatchObject([{ key: "2", state: "listening" }]);
    expect(rig.plane.bound()).toHaveLength(1);
    await talking(port);
  });
});

describe("health checks", () => {
  it("withdraw a dead service and offer it again", async () => {
    const port = await freePort();
    const listenerPort = await freePort();
    const rig = planeRig();
    const check = { intervalMs: 100, failures: 2, successes: 2 };
    const backend = createServer((socket) => socket.on("error", () => undefined).pipe(socket));
    const start = (): Promise<void> =>
      new Promise((resolve) => backend.listen({ host: "127.0.0.1", port }, () => resolve()));
    await start();
    await rig.apply([aListener(listenerPort, { service: "s" })], [aService("s", port, { healthCheck: check })]);
    await waitFor("up", () => rig.plane.services()[0]?.state === "up");
    const running = await talking(listenerPort);
    backend.close();
    await waitFor("down", () => rig.plane.services()[0]?.state === "down");
    expect(await running.continues()).toBe(true);
    const refused = aClient(listenerPort);
    await waitFor("the reset", () => refused.fate() === "ECONNRESET");
    expect(rig.counters().refusals).toEqual({ "service-down": 1 });
    running.socket.destroy();
    await start();
    await waitFor("up again", () => rig.plane.services()[0]?.state === "up");
    await talking(listenerPort);
    expect(rig.services.map(({ state }) => state)).toEqual(["up", "down", "up"]);
    backend.close();
  });
});
