import * as fc from "fast-check";
import { pino } from "pino";
import { expect, test } from "vitest";
import { z } from "zod";
import { gatewayPerf } from "../../../../../src/agent/triggers/diagnostics/gateway-perf.ts";
import { gatewayPing } from "../../../../../src/agent/triggers/diagnostics/gateway-ping.ts";
import { gatewayRoutes } from "../../../../../src/agent/triggers/diagnostics/gateway-routes.ts";
import { nodeReboot } from "../../../../../src/agent/triggers/node/node-reboot.ts";
import { nodeRestartService } from "../../../../../src/agent/triggers/node/node-restart-service.ts";
import { speedTest } from "../../../../../src/agent/triggers/diagnostics/speed-test.ts";
import { tgMtr } from "../../../../../src/agent/triggers/diagnostics/tg-mtr.ts";
import { tgNc } from "../../../../../src/agent/triggers/diagnostics/tg-nc.ts";
import { tgPing } from "../../../../../src/agent/triggers/diagnostics/tg-ping.ts";
import { tgTraceroute } from "../../../../../src/agent/triggers/diagnostics/tg-traceroute.ts";
import type { TriggerReply } from "../../../../../src/agent/triggers/execution/trigger.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import type { Exec } from "../../../../../src/host/process/exec.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { errorCodes } from "../../../../../src/protocol/values/error-codes.ts";
import { Host } from "../../../../../src/protocol/values/values.ts";
import { runs } from "../../../../support/sample.ts";
import { ScriptedTunnels } from "../../../../support/overlay/scripted-tunnels.ts";
import { claims, NOW, oneShot, rig, stream } from "../rig.ts";
import { anyText } from "../../../../support/any-text.ts";

function checkForm(reply: TriggerReply): void {
  JSON.stringify(reply);
  expect(Object.keys(reply)).toHaveLength(1);
  if ("body" in reply) return;
  expect(Object.keys(errorCodes)).toContain(reply.error.code);
  expect(reply.error.message.length).toBeGreaterThan(0);
  expect(JSON.stringify(reply).length).toBeLessThan(20_000);
}

test("any body gets exactly one reply of a known form", async () => {
  const schema = z.object({ host: z.string().max(10), n: z.int().optional() });
  const events = ["closed", "stream", "thrower", "missing"] as const;
  const { dispatcher, channel } = rig([
    oneShot("closed", () => Promise.resolve({}), { request: z.strictObject({}) }),
    stream("stream", () => Promise.resolve({ exitCode: 0 }), { request: schema }),
    oneShot("thrower", () => Promise.reject(new Error("x"))),
  ]);
  const body = fc.oneof(
    fc.jsonValue({ maxDepth: 4 }),
    fc.record({ host: fc.anything(), name: fc.jsonValue() }),
    fc.anything({ withBigInt: true }),
  );
  const property = fc.asyncProperty(fc.constantFrom(...events), body, fc.boolean(), async (event, body, wait) => {
    const reply = await dispatcher.run(claims(event, { body, wait }), channel, NOW);
    checkForm(reply);
    if ("body" in reply && !wait) expect(reply.body).toBe(true);
  });
  await fc.assert(property, { numRuns: runs(300) });
  await dispatcher.close();
});

const INJECTIONS = [
  "-f",
  "--",
  "-",
  "a b",
  "a\nb",
  "$(id)",
  "`id`",
  ";id",
  "a\0b",
  "x".repeat(4096),
  "bücher.example",
  "‮",
  "../..",
  "%s",
];
const TEXTS = ["127.0.0.1", "::1", "node.example.net", "lo", "-n", "-n -T -p 443", "-i lo", "-p", "both", "upload"];

test("hostile bodies reach a tool only as one host after the options", async () => {
  const started: (readonly string[])[] = [];
  const exec: Exec = {
    run: (file, args) => {
      started.push([file, ...args]);
      return Promise.resolve({ exitCode: 0, signal: undefined, stdout: "", stderr: "", truncated: false });
    },
    spawn: (file, args) => {
      started.push([file, ...args]);
      return { output: (async function* () {})(), exitCode: Promise.resolve(0), kill: () => undefined };
    },
  };
  const clock = systemClock();
  const tunnels = new ScriptedTunnels();
  const done = (): Promise<void> => Promise.resolve();
  const host = {
    clock,
    power: { isManaged: false, restartService: done, reboot: done },
    cleanStop: { mark: done, clear: done },
    announce: done,
    isUpgrading: () => Promise.resolve(false),
  };
  const triggers = [
    tgPing(exec, hostFiles(), tunnels, clock),
    tgTraceroute(exec, hostFiles(), tunnels),
    tgMtr(exec, hostFiles()),
    gatewayRoutes(tunnels, clock, pino({ level: "silent" })),
    gatewayPing(tunnels, clock),
    gatewayPerf(tunnels, clock),
    tgNc(exec),
    speedTest({ clock, target: () => undefined }),
    nodeReboot(host),
    nodeRestartService(host),
  ];
  const { dispatcher, channel } = rig(triggers);
  const text = fc.oneof(fc.constantFrom(...INJECTIONS), fc.constantFrom(...TEXTS), anyText());
  const value = fc.oneof({ weight: 3, arbitrary: text }, fc.integer({ min: -1, max: 70_000 }), fc.jsonValue());
  const fields = {
    host: value,
    source: value,
    count: value,
    filter: value,
    iface: value,
    port: value,
    name: value,
    action: value,
    hostname: value,
    options: value,
    cols: value,
    dest: value,
    gwPath: value,
    size: value,
    bytes: value,
    sendJson: value,
  };
  const tame = {
    ...fields,
    host: fc.constantFrom("127.0.0.1", "node.example.net"),
    port: fc.constant(22),
    hostname: fc.constant("192.0.2.1"),
  };
  const body = fc.oneof(
    fc.record(fields, { requiredKeys: [] }),
    fc.record(tame, { requiredKeys: ["host", "hostname", "port"] }),
  );
  const property = fc.asyncProperty(fc.constantFrom(...triggers), body, async ({ event }, body) => {
    started.length = 0;
    checkForm(await dispatcher.run(claims(event, { body }), channel, NOW));
    for (const [, ...args] of started) {
      const at = args.indexOf("--");
      expect(args.lastIndexOf("--")).toBe(at);
      expect(Host.safeParse(args[at + 1]).success).toBe(true);
      expect(args.slice(at + 2).every((last) => /^\d+$/.test(last))).toBe(true);
      expect(args.slice(0, at).every((option) => /^(?:-[A-Za-z0-9]|[A-Za-z0-9_.@:-]+)$/.test(option))).toBe(true);
    }
  });
  await fc.assert(property, { numRuns: runs(1000) });
  await dispatcher.close();
});
