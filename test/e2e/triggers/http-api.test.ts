import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import type { ZodType } from "zod";
import { triggerSchemas } from "../../../src/protocol/triggers/schemas.ts";
import { hastened } from "../../support/fake-time.ts";
import { fileEnd } from "../../support/file-end.ts";
import {
  freePort,
  holdfast,
  registerNode,
  startAgent,
  startController,
  type AgentProgram,
  type ControllerProgram,
} from "../../support/machine/programs.ts";
import { UNDER_UNITS } from "../../support/machine/real-units.ts";
import { runVerb } from "../../support/run-verb.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** One node for both tests; the second one stops it. */
let controller: ControllerProgram;
let agent: AgentProgram;
let uid: string;
const onFinished = fileEnd();

beforeAll(async () => {
  const dir = tempDir(onFinished);
  controller = await startController(dir, await freePort(), [], { onFinished });
  // Measurements take 10 s of the node's clock.
  agent = await startAgent(join(dir, "node"), { within: hastened(4), onFinished });
  uid = await registerNode(controller, agent, "edge");
});

test("events from the node's own command line", async () => {
  const local = (...args: readonly string[]) => ["trigger", ...args, "--run", agent.runDir];
  const { code, stdout } = await holdfast(local("tg-ping", '{"host":"127.0.0.1","count":1}'));
  expect({ code, answered: stdout.includes("1 received") }).toEqual({ code: 0, answered: true });
  expect((await runVerb(local("no-such-event"))).code).toBe(1);
});

test("trigger events through the HTTP API: waited for, streamed, refused", async () => {
  const run = async (event: string, body: unknown, query = "?wait=1") => {
    const answer = await controller.call("POST", `/node/${uid}/trigger/${event}${query}`, body);
    // As the published reference promises.
    if (answer.status === 200 && query === "?wait=1") {
      const schema = (triggerSchemas as Readonly<Record<string, { readonly result: ZodType }>>)[event]?.result;
      expect(schema?.safeParse(answer.body).error, event).toBeUndefined();
    }
    return answer;
  };

  const streamed = await fetch(`${controller.url}/node/${uid}/trigger/tg-ping?stream=1`, {
    method: "POST",
    headers: { authorization: controller.key(), "content-type": "application/json" },
    body: JSON.stringify({ host: "127.0.0.1", count: 2 }),
  });
  expect(streamed.headers.get("content-type")).toContain("application/x-ndjson");
  const lines = (await streamed.text())
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { seq?: number; kind?: string; data?: string; result?: unknown });
  expect(lines.length).toBeGreaterThan(2);
  expect(lines.at(-1)).toMatchObject({ result: { exitCode: 0, truncated: false } });
  expect(lines.map(({ data }) => data ?? "").join("")).toContain("2 received");
  expect(lines.slice(0, -1).map(({ seq }) => seq)).toEqual(lines.slice(0, -1).map((_, index) => index));

  const diagnoses = ["status", "network-status", "errors"];
  for (const event of [
    ...diagnoses,
    "why",
    "config-show",
    "gateway-routes",
    "container-status",
    "tg-mtr",
    "tg-traceroute",
  ]) {
    const body = event === "tg-mtr" ? { hostname: "127.0.0.1" } : event.startsWith("tg-") ? { host: "127.0.0.1" } : {};
    expect(await run(event, body), event).toMatchObject({ status: 200 });
  }
  expect(await run("outbound-connection-check", { remoteAddress: "127.0.0.1:1" })).toMatchObject({
    status: 200,
    body: { success: false },
  });
  expect(await run("repo-connectivity", {})).toMatchObject({
    status: 200,
    body: { repositories: [{ success: true }] },
  });
  expect(await run("status", { verbose: true })).toMatchObject({ status: 422 });
  expect(await run("datastore-manager", { action: "LIST" })).toMatchObject({ status: 200 });
  expect(await run("tg-ping", { host: "127.0.0.1" }, "")).toEqual({ status: 200, body: true });
  expect(await run("tg-nc", { host: "127.0.0.1", port: 1 })).toMatchObject({
    status: 200,
    body: { output: { exitCode: "1" } },
  });
  expect(await run("no-such-event", {})).toMatchObject({
    status: 422,
    body: [expect.stringContaining("no-such-event")],
  });
  expect(await run("tg-ping", { host: "-f" })).toMatchObject({
    status: 422,
    body: [expect.stringMatching(/^host: /)],
  });
  const service = { name: "web", protocol: "tcp", host: "127.0.0.1", port: 9 };
  const config = { services: { version: 2, items: { s: service } } };
  const idle = { total: 0 };
  const steps = [{ kind: "offer", detail: "web at tcp 127.0.0.1:9" }];
  const planned = { sections: [idle, idle, { section: "services", steps }, idle, idle] };
  for (const body of [config, { config }, { uid, name: "edge", cluster: "c.example", config }]) {
    expect(await run("plan", body)).toMatchObject({ status: 200, body: planned });
  }
  for (const body of [undefined, {}, { config: {} }]) {
    expect(await run("plan", body)).toMatchObject({ status: 200, body: { sections: [idle, idle, idle, idle, idle] } });
  }
  for (const [event, body, field] of [
    ["plan", { document: config }, "document"],
    ["plan", { config, document: config }, "document"],
    ["plan", { config: { servicez: {} } }, "config.servicez"],
    ["plan", { uid }, "body"],
    ["why", { section: "core" }, "section"],
    ["config-show", { sections: ["core"] }, "sections"],
    ["rollback", { version: 1 }, "version"],
  ] as const) {
    expect(await run(event, body)).toMatchObject({
      status: 422,
      body: [expect.stringMatching(`^${field}: `)],
    });
  }

  // An installed node restarts its machine, which here is that of the tests.
  if (!UNDER_UNITS) {
    expect(await run("node-reboot", {})).toMatchObject({
      status: 422,
      body: [expect.stringContaining("this is not a managed install")],
    });
  }
  expect(await run("speed-test", { action: "download" })).toMatchObject({ status: 200 });

  await controller.call("PUT", `/node/${uid}`, { state: "INACTIVE" });
  await expect.poll(async () => (await run("speed-test", {})).body).toEqual([expect.stringContaining("INACTIVE")]);
  expect(await run("tg-nc", { host: "127.0.0.1", port: 1 })).toMatchObject({ status: 200 });

  await agent.end();
  await expect.poll(async () => (await run("tg-ping", { host: "127.0.0.1" })).status).toBe(503);
  expect(await run("tg-ping", { host: "127.0.0.1" }, "")).toMatchObject({ status: 503, body: { code: "offline" } });
});
