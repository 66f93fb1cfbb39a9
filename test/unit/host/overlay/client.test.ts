import { chmodSync, mkdirSync, rmSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { HostError } from "../../../../src/errors.ts";
import { systemClock, type Clock } from "../../../../src/host/clock.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import type { Overlay } from "../../../../src/host/overlay/client.ts";
import { connectControl } from "../../../../src/host/overlay/control.ts";
import { OVERLAY_FORMAT, type OverlayListener } from "../../../../src/protocol/overlay/overlay.ts";
import { aClient, aListener, aServer, aService, aTable, echo } from "../../../support/overlay/overlay-rig.ts";
import { COUNTERS, friendly, NO_TABLE, ownerRig, scriptedOverlay } from "../../../support/network/owner-rig.ts";
import { freePort } from "../../../support/machine/programs.ts";
import { someTurns } from "../../../support/until-still.ts";
import { waitFor } from "../../../support/wait-for.ts";

const forever = new AbortController().signal;

function listen(owner: Overlay, ...listeners: readonly OverlayListener[]): Promise<void> {
  return owner.change({ listeners: { put: listeners, drop: [] } }, forever);
}

async function listenersOf(owner: Overlay): Promise<readonly string[]> {
  return [...(await owner.observe(forever)).listeners.keys()].toSorted();
}

async function failure(work: Promise<unknown>): Promise<HostError> {
  const error = await work.then(
    () => new Error("it did not fail"),
    (error: unknown) => error,
  );
  expect(error).toBeInstanceOf(HostError);
  return error as HostError;
}

/** A clock whose timers ring on request. */
function heldClock() {
  const real = systemClock();
  let aheadMs = 0;
  const timers: { readonly ms: number; readonly run: () => void }[] = [];
  const clock: Clock = {
    ...real,
    now: () => real.now(),
    sinceBoot: () => real.sinceBoot(),
    sleep: (ms, signal) => real.sleep(ms, signal),
    elapsed: () => real.elapsed() + aheadMs,
    after(ms, run) {
      const timer = { ms, run };
      timers.push(timer);
      return () => void timers.splice(timers.indexOf(timer), timers.includes(timer) ? 1 : 0);
    },
  };
  return {
    clock,
    timers,
    advance: (ms: number): void => {
      aheadMs += ms;
    },
  };
}

describe("the overlay started by it", () => {
  test("is started for the first thing to serve, not before", async () => {
    const rig = ownerRig();
    expect(await rig.owner.observe(forever)).toMatchObject({ listeners: new Map(), services: new Map() });
    expect([rig.running.length, rig.owner.status().state]).toEqual([0, "off"]);
    const port = await freePort();
    await listen(rig.owner, aListener(port, await aServer(echo)));
    expect(rig.owner.status()).toMatchObject({ state: "up", pid: process.pid });
    const client = aClient(port);
    client.socket.write("hello");
    await waitFor("the echo", () => client.text() === "hello");
    expect((await rig.owner.observe(forever)).states.get(`tcp:${port}`)).toMatchObject({ state: "listening" });
    expect(rig.changes).toEqual([]);
  });

  test("continues without it, and is found again by the next", async () => {
    const rig = ownerRig();
    const port = await freePort();
    await listen(rig.owner, aListener(port, await aServer(echo)));
    rig.owner.close();
    const client = aClient(port);
    client.socket.write("alone");
    await waitFor("the echo", () => client.text() === "alone");
    const next = rig.another();
    expect(await listenersOf(next)).toEqual([`tcp:${port}`]);
    expect(rig.running.length).toBe(1);
    expect(rig.changes).toEqual([]);
  });

  test("is started again when it exited and left a table", async () => {
    const { clock, timers, advance } = heldClock();
    const rig = ownerRig({ clock });
    const port = await freePort();
    await listen(rig.owner, aListener(port, await aServer(echo)));
    rig.running[0]?.close();
    await waitFor("it is missed", () => rig.owner.status().state === "down");
    // It disappeared soon after it appeared, so it is not checked at once.
    expect(rig.changes).toEqual([]);
    timers.find(({ ms }) => ms > 0 && ms <= 1000)?.run();
    expect(rig.changes).toEqual(["overlay ended"]);
    await expect.poll(() => listenersOf(rig.owner)).toEqual([`tcp:${port}`]);
    expect(rig.running.length).toBe(2);
    advance(2000);
    rig.running[1]?.close();
    await waitFor("it is missed at once", () => rig.changes.length === 2);
  });

  test("has nothing of an earlier one when its table is lost", async () => {
    const rig = ownerRig();
    const [one, two, target] = [await freePort(), await freePort(), await aServer(echo)];
    await listen(rig.owner, aListener(one, target), aListener(two, target));
    rig.running[0]?.close();
    await rig.running[0]?.ended;
    rmSync(rig.stateDir, { recursive: true });
    await waitFor("nothing is left", async () => (await listenersOf(rig.owner)).length === 0);
    await listen(rig.owner, aListener(two, target));
    expect(await listenersOf(rig.owner)).toEqual([`tcp:${two}`]);
  });

  test("is not started repeatedly when it fails", async () => {
    const { clock, advance } = heldClock();
    let starts = 0;
    const start = (): { pid: number; ended: Promise<string> } => {
      starts += 1;
      return { pid: 1, ended: Promise.resolve("exit status 70") };
    };
    const { owner } = ownerRig({ clock, start });
    const attempt = (): Promise<HostError> => failure(listen(owner, aListener(1, 2)));
    for (const _ of [1, 2]) {
      expect(await attempt()).toMatchObject({
        code: "overlay-failed",
        message: "the overlay exited at its start: exit status 70",
      });
    }
    expect((await attempt()).message).toContain("exited 2 times soon after its start");
    expect(starts).toBe(2);
    expect(owner.status().state).toBe("down");
    expect(owner.status().reason).toContain("2 times");
    const startedAfter: number[] = [];
    for (let halfSeconds = 0, last = 0; halfSeconds < 500; halfSeconds += 1) {
      const before = starts;
      advance(500);
      await attempt();
      if (starts === before) continue;
      startedAfter.push((halfSeconds - last) / 2);
      last = halfSeconds;
    }
    expect(startedAfter.slice(1, 8)).toEqual([1, 2, 4, 8, 16, 32, 60]);
  });

  test("that drains is followed by another at once, and its last flow is still recorded", async () => {
    const rig = ownerRig();
    const port = await freePort();
    await listen(rig.owner, aListener(port, await aServer(echo)));
    const flow = aClient(port);
    flow.socket.write("one");
    await waitFor("the echo", () => flow.text() === "one");
    void rig.running[0]?.drain(60_000);
    await waitFor("it is reported", () => rig.changes.includes("overlay drains"));
    expect(await listenersOf(rig.owner)).toEqual([`tcp:${port}`]);
    expect([rig.running.length, rig.owner.status().state]).toEqual([2, "up"]);
    const other = aClient(port);
    flow.socket.write("+two");
    other.socket.end("other");
    await waitFor("both are served", () => flow.text() === "one+two" && other.text() === "other");
    flow.socket.end();
    await rig.running[0]?.ended;
    await waitFor("both are recorded", () => rig.flows.length === 2);
    expect(rig.flows.map(({ sourceBytes }) => sourceBytes).toSorted((a, b) => a - b)).toEqual([5, 7]);
    expect(rig.owner.status().state).toBe("up");
  });

  test("that hands over to a successor is not followed by one of ours", async () => {
    const rig = ownerRig();
    const overlay = await scriptedOverlay(rig.runDir);
    await rig.owner.observe(forever);
    overlay.notify("draining", { hasSuccessor: true });
    await waitFor("it is reported", () => rig.owner.status().state === "down");
    await overlay.end();
    const observed = listen(rig.owner, aListener(await freePort(), 9));
    await someTurns(100);
    expect(rig.running.length).toBe(0);
    await rig.succeed();
    await observed;
    expect([rig.running.length, rig.owner.status().state]).toEqual([1, "up"]);
  });

  test("is notified of a successor that takes over", async () => {
    const { clock, advance, timers } = heldClock();
    const rig = ownerRig({ clock });
    const port = await freePort();
    await listen(rig.owner, aListener(port, await aServer(echo)));
    advance(2000);
    const succeeded = rig.succeed();
    await waitFor("it is reported", () => rig.changes.includes("overlay drains"));
    expect(await listenersOf(rig.owner)).toEqual([`tcp:${port}`]);
    await succeeded;
    expect([rig.running.length, timers.length]).toEqual([2, 0]);
  });

  test("that hands over to a successor that never comes is followed by one of ours all the same", async () => {
    const { clock, advance } = heldClock();
    const rig = ownerRig({ clock });
    const overlay = await scriptedOverlay(rig.runDir);
    await rig.owner.observe(forever);
    overlay.notify("draining", { hasSuccessor: true });
    await waitFor("it is reported", () => rig.owner.status().state === "down");
    await overlay.end();
    advance(5000);
    await listen(rig.owner, aListener(await freePort(), 9));
    expect([rig.running.length, rig.owner.status().state]).toEqual([1, "up"]);
  });

  test("that always reports draining is retried with pauses, and not kept indefinitely", async () => {
    const { clock, timers } = heldClock();
    const rig = ownerRig({ clock });
    const overlay = await scriptedOverlay(rig.runDir);
    for (let round = 1; round <= 12; round += 1) {
      await rig.owner.observe(forever);
      overlay.notify("draining", {});
      await waitFor("it is reported", () => timers.length === round);
    }
    expect(rig.changes).toEqual([]);
    await waitFor("only some are kept", () => overlay.open() <= 9);
  });

  test("that cannot be started is reported", async () => {
    const start = (): never => {
      throw new HostError("overlay-failed", "cannot start the overlay: EAGAIN");
    };
    expect(await failure(listen(ownerRig({ start }).owner, aListener(1, 2)))).toMatchObject({
      code: "overlay-failed",
      message: "cannot start the overlay: EAGAIN",
    });
  });
});

describe("the table", () => {
  test("is changed entry by entry, by concurrent callers", async () => {
    const { owner } = ownerRig();
    const target = await aServer(echo);
    const ports = await Promise.all(Array.from({ length: 8 }, freePort));
    await Promise.all([
      ...ports.map((port) => listen(owner, aListener(port, { service: "web" }))),
      owner.change({ services: { put: [aService("web", target)], drop: [] } }, forever),
    ]);
    expect(await listenersOf(owner)).toEqual(ports.map((port) => `tcp:${port}`).toSorted());
    await owner.change({ listeners: { put: [], drop: [`tcp:${ports[0]}`, "unknown"] } }, forever);
    const { listeners, services } = await owner.observe(forever);
    expect([listeners.size, [...services.keys()]]).toEqual([7, ["web"]]);
  });

  test("set by another process is read, and then changed", async () => {
    const rig = ownerRig();
    const [mine, theirs, target] = [await freePort(), await freePort(), await aServer(echo)];
    await listen(rig.owner, aListener(mine, target));
    const stranger = await connectControl(`${rig.runDir}/overlay.sock`, {});
    await stranger.peer.request("table.set", { table: aTable([aListener(theirs, target)]) });
    stranger.close();
    await waitFor("it is missed", () => rig.owner.status().state === "down");
    expect(await listenersOf(rig.owner)).toEqual([`tcp:${theirs}`]);
    await listen(rig.owner, aListener(mine, target));
    expect(await listenersOf(rig.owner)).toEqual([`tcp:${mine}`, `tcp:${theirs}`].toSorted());
  });

  test("counts another listener's event during a change as news, and its own not", async () => {
    const rig = ownerRig();
    const overlay = await scriptedOverlay(rig.runDir);
    const state = (key: string): unknown => ({ key, connector: "c", state: "failed", reason: "loop", addresses: [] });
    let reported: readonly string[] = ["tcp:1", "tcp:2"];
    overlay.answer = (method) => {
      if (method === "table.set") overlay.notify("listeners.changed", { listeners: reported.map(state) });
      return friendly(method);
    };
    await listen(rig.owner, aListener(1, 9), aListener(2, 9));
    expect(rig.changes).toEqual([]);
    reported = ["tcp:2", "tcp:3"];
    await listen(rig.owner, aListener(2, 10));
    expect(rig.changes).toEqual(["listeners"]);
    overlay.notify("services.changed", { services: [{ name: "web", state: "down", since: 1 }] });
    await waitFor("it is reported", () => rig.changes.at(-1) === "services");
    overlay.notify("services.changed", { services: [{ name: "web", state: "down", since: 2 }] });
    overlay.notify("fault", { message: "disk full" });
    await waitFor("the fault", () => rig.faults.length === 1);
    expect(rig.changes).toEqual(["listeners", "services"]);
    expect(rig.health).toEqual(["web down", "web down"]);
    overlay.answer = () => ({ result: { ...NO_TABLE, services: [{ name: "web", state: "up", since: 3 }] } });
    await rig.owner.observe(forever);
    expect(rig.health.at(-1)).toBe("web up");
  });
});

describe("under a service manager", () => {
  test("the overlay is not started, and reported when missing", async () => {
    const { owner, running } = ownerRig({ isManaged: true });
    expect((await owner.observe(forever)).listeners.size).toBe(0);
    expect(owner.status().state).toBe("off");
    expect(await failure(listen(owner, aListener(1, 2)))).toMatchObject({ code: "overlay-absent" });
    expect([owner.status().state, running.length]).toEqual(["down", 0]);
  });

  test("a state directory that only the overlay may read means that there is one", async () => {
    const list = (): Promise<never> => Promise.reject(new HostError("access-denied", "cannot list"));
    const { owner } = ownerRig({ isManaged: true, files: { ...hostFiles(), list } });
    expect(await failure(owner.observe(forever))).toMatchObject({ code: "overlay-absent" });
  });
});

describe("a faulty overlay", () => {
  test("with a table of another version gets ours", async () => {
    const rig = ownerRig();
    const overlay = await scriptedOverlay(rig.runDir);
    const newer = { format: OVERLAY_FORMAT + 1, version: 7, somethingElse: [] };
    overlay.answer = (method) =>
      method === "table.get" ? { result: { ...NO_TABLE, version: 7, hash: "77", table: newer } } : friendly(method);
    expect(await listenersOf(rig.owner)).toEqual([]);
    await listen(rig.owner, aListener(1, 2));
    expect(overlay.calls.at(-1)).toMatchObject({
      method: "table.set",
      params: { table: { listeners: [{ key: "tcp:1" }] } },
    });
  });

  test("that refuses the table reports why, and is asked for its own before the next", async () => {
    const rig = ownerRig();
    const overlay = await scriptedOverlay(rig.runDir);
    overlay.answer = (method) =>
      method === "table.set"
        ? { error: { code: -32_602, message: "this overlay is older than the table", data: { code: "invalid-body" } } }
        : friendly(method);
    const error = await failure(listen(rig.owner, aListener(1, 2)));
    expect(error).toMatchObject({
      code: "overlay-refused",
      message: "the overlay refuses: this overlay is older than the table",
    });
    overlay.answer = friendly;
    overlay.calls.length = 0;
    await listen(rig.owner, aListener(1, 2));
    expect(overlay.calls.map(({ method }) => method)).toEqual(["table.get", "table.set"]);
  });

  test.each([
    ["counters of another version", "counters.get", { result: {} }],
    ["an answer to the table of another version", "table.set", { result: {} }],
    ["what is no JSON", "table.get", { raw: "nonsense\n" }],
    ["a JSON that is dangerous", "table.get", { raw: '{"jsonrpc":"2.0","id":2,"result":{"__proto__":{}}}\n' }],
    ["an end instead of an answer", "counters.get", "close"],
    ["an end instead of a table", "table.get", "close"],
    ["an end in the middle of a change", "table.set", "close"],
  ] as const)("that answers with %s fails by name, and is used again once it is well", async (_, bad, answer) => {
    const rig = ownerRig();
    const overlay = await scriptedOverlay(rig.runDir);
    overlay.answer = (method) => (method === bad ? answer : friendly(method));
    expect(await failure(listen(rig.owner, aListener(1, 2)))).toMatchObject({ code: "overlay-failed" });
    overlay.answer = friendly;
    await waitFor("it is taken", () =>
      listen(rig.owner, aListener(1, 2)).then(
        () => true,
        () => false,
      ),
    );
    expect(rig.owner.status()).toMatchObject({ state: "up", pid: COUNTERS.pid });
  });

  test.each(["counters.get", "table.get", "table.set"])(
    "that hangs at %s is connected again the next time",
    async (hanging) => {
      const rig = ownerRig();
      const overlay = await scriptedOverlay(rig.runDir);
      overlay.answer = (method) => (method === hanging ? "hang" : friendly(method));
      const patience = new AbortController();
      const work = rig.owner.change({ listeners: { put: [aListener(1, 2)], drop: [] } }, patience.signal);
      await waitFor("it hangs", () => overlay.calls.at(-1)?.method === hanging);
      patience.abort(new HostError("timeout", "it took too long"));
      expect(await failure(work)).toMatchObject({ code: "timeout" });
      overlay.answer = friendly;
      await listen(rig.owner, aListener(1, 2));
      expect(overlay.connections()).toBe(2);
    },
  );

  test("that ends every connection is connected with pauses", async () => {
    const { clock, timers } = heldClock();
    const rig = ownerRig({ clock });
    const overlay = await scriptedOverlay(rig.runDir);
    overlay.answer = (method) => (method === "table.get" ? "close" : friendly(method));
    expect(await failure(rig.owner.observe(forever))).toMatchObject({ code: "overlay-failed" });
    expect(rig.changes).toEqual([]);
    expect(timers.length).toBe(1);
    rig.owner.close();
    expect(timers.length).toBe(0);
  });

  test("with a file in the place of the socket is reported", async () => {
    const rig = ownerRig();
    mkdirSync(`${rig.runDir}/overlay.sock`, { recursive: true });
    chmodSync(rig.runDir, 0o750);
    expect(await failure(rig.owner.observe(forever))).toMatchObject({ code: "not-a-socket" });
  });
});
