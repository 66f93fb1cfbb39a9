import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { debugLine, LOG_COMPONENTS, nodeDebug } from "../../../../../src/agent/triggers/node/node-debug.ts";
import { rootLogger } from "../../../../../src/host/log.ts";
import { NodeDebug } from "../../../../../src/protocol/triggers/bodies.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { waitFor } from "../../../../support/wait-for.ts";
import { rig } from "../rig.ts";

function stage() {
  const clock = new FakeClock();
  const written: string[] = [];
  const { log, memory } = rootLogger({
    level: "info",
    destination: { write: (line) => void written.push(line) },
    clock,
  });
  let taps = 0;
  const counted = {
    tap: (listener: (text: string) => void) => {
      const stop = memory.tap(listener);
      taps += 1;
      return () => {
        taps -= 1;
        stop();
      };
    },
  };
  const made = rig([nodeDebug(counted, clock)], { clock, node: { type: "Agent", state: "INACTIVE" } });
  const watch = async (body: object) => {
    expect(await made.run("node-debug", { body, wait: false, deadlineMs: 3_600_000 })).toEqual({ body: true });
    await waitFor("a tap", () => taps > 0);
  };
  return { ...made, clock, log, written, watch, taps: () => taps };
}

test("shows lines below the level too, while it runs, and writes no more than before", async () => {
  const { log, written, watch, channel, dispatcher, taps } = stage();
  await watch({});
  log.child({ component: "session" }).debug({ attempt: 2, token: "hunter2" }, "dialling");
  log.warn({ err: new Error("no way") }, "not reached");
  await waitFor("the line", () => channel.text.includes("not reached"));
  const [first = "", second = ""] = channel.text.split("\n");
  expect(first).toMatch(
    /^\d\d:\d\d:\d\d\.\d{3}: level=debug, component=session, attempt=2, token=\[removed\]: dialling$/,
  );
  expect(second).toMatch(/level=warn, component=agent, err=\{"type":"Error","message":"no way".*: not reached$/);
  expect(written).toHaveLength(1);
  await dispatcher.close();
  expect(taps()).toBe(0);
});

test("shows one component, or the work of a section, and refuses an unknown name", async () => {
  const { log, watch, channel, run, dispatcher } = stage();
  await watch({ plugin: "network" });
  log.child({ component: "session" }).warn("other");
  log.child({ component: "reconcile" }).debug({ section: "network" }, "step");
  await waitFor("the line", () => channel.text.includes("step"));
  expect(channel.text).not.toContain("other");
  expect(await run("node-debug", { body: { plugin: "bgpd" } })).toMatchObject({
    error: {
      code: "not-found",
      message: expect.stringMatching(/no plugin bgpd: the plugins are agent, any, .*network/) as string,
      details: { field: "plugin" },
    },
  });
  await dispatcher.close();
});

test("limits lines to 200 a second and counts the others", async () => {
  const { log, watch, channel, clock, dispatcher } = stage();
  await watch({});
  for (let i = 0; i < 300; i += 1) log.debug({ i }, "busy");
  await clock.advance(1000);
  log.debug("next");
  await waitFor("the line", () => channel.text.includes("next"));
  expect(channel.text.match(/busy/g)).toHaveLength(200);
  expect(channel.text).toContain("100 lines dropped: more than 200 in a second");
  await dispatcher.close();
});

test("ends after 15 minutes without a line, and answers a waiting caller after 10 s", async () => {
  const { log, watch, channel, clock, run, taps } = stage();
  await watch({});
  await clock.advance(899_000);
  log.debug("still there");
  await waitFor("the line", () => channel.text.includes("still there"));
  await clock.advance(899_000);
  expect(taps()).toBe(1);
  await clock.advance(1000);
  await waitFor("the end", () => channel.results.length === 1);
  expect(channel.results).toMatchObject([{ reply: { body: { exitCode: 0 } } }]);
  const waiting = run("node-debug", { body: {} });
  await waitFor("a tap", () => taps() === 1);
  log.debug("seen");
  await clock.advance(10_000);
  expect(await waiting).toMatchObject({
    body: { output: { message: expect.stringMatching(/: seen\n$/) as string, exitCode: "0" } },
  });
});

test.each<[object, boolean]>([
  [{}, true],
  [{ plugin: "gateway" }, true],
  [{ plugin: "overlay", local: "*", peer: "gw-1", service: "*" }, true],
  [{ plugin: "session" }, false],
  [{ peer: "gw-2" }, false],
  [{ local: "edge" }, false],
])("filters a line of a flow by %j: %s", (body, isShown) => {
  const line = JSON.stringify({
    level: "debug",
    time: "2026-01-01T12:00:00.123Z",
    component: "overlay",
    peer: "gw-1",
    service: "web",
    msg: "flow ended",
  });
  const shown = debugLine(line, NodeDebug.parse(body));
  expect(shown).toBe(
    isShown ? "12:00:00.123: level=debug, component=overlay, peer=gw-1, service=web: flow ended\n" : undefined,
  );
});

test("accepts every component of the agent's log", () => {
  const named = globSync("src/agent/**/*.ts").flatMap((path) =>
    [...readFileSync(path, "utf8").matchAll(/child\(\{ component: "([^"]+)" \}\)/g)].map(([, name = ""]) => name),
  );
  expect([...new Set(["agent", ...named])].sort()).toEqual([...LOG_COMPONENTS].sort());
});
