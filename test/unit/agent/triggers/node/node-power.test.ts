import { describe, expect, test, vi } from "vitest";
import { nodeReboot } from "../../../../../src/agent/triggers/node/node-reboot.ts";
import { nodeRestartService } from "../../../../../src/agent/triggers/node/node-restart-service.ts";
import { HostError } from "../../../../../src/errors.ts";
import type { Power } from "../../../../../src/host/process/power.ts";
import { fastClock, rig, untilAborted } from "../rig.ts";
import { untilHolds } from "../../../../support/until-holds.ts";

const clock = fastClock(100);

/** Records all effects on the machine, in order. */
function machine(isManaged = true, refusal?: Error) {
  const done: string[] = [];
  const note = (what: string) => (): Promise<void> => {
    done.push(what);
    return Promise.resolve();
  };
  const act = (what: string) => () => (refusal === undefined ? note(what)() : Promise.reject(refusal));
  const power: Power = { isManaged, restartService: act("restart"), reboot: act("reboot") };
  const cleanStop = { mark: note("mark"), clear: note("clear") };
  return { done, power, cleanStop, clock, announce: note("announce"), isUpgrading: () => Promise.resolve(false) };
}

describe("node-restart-service", () => {
  test("announces, answers in the platform's words, then sets the marker and acts", async () => {
    const host = machine();
    const { run, dispatcher } = rig([nodeRestartService(host)], { clock });
    expect(await run("node-restart-service")).toEqual({ body: { output: { message: "Node service will restart" } } });
    expect(host.done).toEqual(["announce"]);
    await untilHolds(() => expect(host.done).toEqual(["announce", "mark", "restart"]));
    expect(await run("node-restart-service")).toMatchObject({ error: { code: "busy" } });
    await dispatcher.close();
  });

  test("needs a supervisor outside a managed install", async () => {
    const host = machine(false);
    expect(await rig([nodeRestartService(host)], { clock }).run("node-restart-service")).toMatchObject({
      error: { code: "not-supported" },
    });
    const exit = vi.fn<() => void>();
    const { run, dispatcher } = rig([nodeRestartService({ ...host, exit })], { clock });
    expect(await run("node-restart-service")).toHaveProperty("body");
    await untilHolds(() => expect(exit).toHaveBeenCalledOnce());
    expect(host.done).toEqual(["announce", "mark"]);
    await dispatcher.close();
  });

  test("is refused during an upgrade, as is a reboot", async () => {
    const host = { ...machine(), isUpgrading: () => Promise.resolve(true) };
    for (const trigger of [nodeRestartService(host), nodeReboot(host)]) {
      expect(await rig([trigger], { clock }).run(trigger.event)).toMatchObject({ error: { code: "busy" } });
    }
    expect(host.done).toEqual([]);
  });

  test("is not delayed by an announcement that fails or hangs", async () => {
    for (const announce of [
      () => Promise.reject(new Error("no")),
      (signal: AbortSignal) => untilAborted(signal),
      () => new Promise<void>(() => undefined),
    ]) {
      const host = machine();
      const { run, dispatcher } = rig([nodeRestartService({ ...host, announce })], { clock });
      expect(await run("node-restart-service")).toHaveProperty("body");
      await untilHolds(() => expect(host.done).toEqual(["mark", "restart"]));
      await dispatcher.close();
    }
  });

  test("reports a refusal of the machine and removes the marker", async () => {
    const host = machine(true, new HostError("exec-failed", "systemctl restart: no"));
    const { run, channel } = rig([nodeRestartService(host)], { clock });
    await run("node-restart-service");
    await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { error: { code: "exec-failed" } } }]));
    expect(host.done).toEqual(["announce", "mark", "clear"]);
  });
});

describe("node-reboot", () => {
  test("answers in the platform's words and acts five seconds later", async () => {
    const host = machine();
    const { run, dispatcher } = rig([nodeReboot(host)], { clock });
    expect(await run("node-reboot")).toEqual({ body: { output: { message: "Node host will restart" } } });
    const answeredAt = clock.elapsed();
    await untilHolds(() => expect(host.done).toEqual(["mark", "reboot"]));
    expect(clock.elapsed() - answeredAt).toBeGreaterThanOrEqual(5000);
    await dispatcher.close();
  });

  test("can be cancelled or stopped within those seconds", async () => {
    for (const isCancelled of [true, false]) {
      const host = machine();
      const { run, dispatcher, channel } = rig([nodeReboot(host)]);
      const jti = "6e1f7d3c-94c4-4c1c-9c36-8d6a9b7c0009";
      await run("node-reboot", { jti });
      if (isCancelled) {
        dispatcher.cancel(jti);
        await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { error: { code: "cancelled" } } }]));
      } else await dispatcher.close();
      expect(host.done.includes("reboot")).toBe(false);
    }
  });

  test("is refused on agents, outside a managed install, and during a restart of the service", async () => {
    const host = machine(false);
    expect(await rig([nodeReboot(host)]).run("node-reboot")).toMatchObject({ error: { code: "not-supported" } });
    const agent = rig([nodeReboot(machine())], { node: { type: "Agent", state: "ACTIVE" } });
    expect(await agent.run("node-reboot")).toMatchObject({ error: { code: "not-supported" } });
    const { run, dispatcher } = rig([nodeReboot(machine()), nodeRestartService(machine())]);
    await run("node-restart-service");
    expect(await run("node-reboot")).toMatchObject({
      error: { code: "busy", details: { running: "node-restart-service" } },
    });
    await dispatcher.close();
  });
});
