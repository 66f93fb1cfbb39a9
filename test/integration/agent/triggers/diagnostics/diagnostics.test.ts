import { chmod, mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import {
  gatewayLatency,
  gatewayMtr,
  gatewayTraceroute,
} from "../../../../../src/agent/triggers/diagnostics/gateway-trace.ts";
import { dnsHealth, repoConnectivity } from "../../../../../src/agent/triggers/node/health-checks.ts";
import { networkStatus } from "../../../../../src/agent/triggers/node/network-status.ts";
import { nodeErrors, nodeStatus, parseServices } from "../../../../../src/agent/triggers/node/node-status.ts";
import { outboundConnectionCheck } from "../../../../../src/agent/triggers/diagnostics/outbound-connection-check.ts";
import type { Trigger, TriggerReply } from "../../../../../src/agent/triggers/execution/trigger.ts";
import type { HealthResults } from "../../../../../src/agent/telemetry/conditions/health-checks.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { hostExec, SEARCH_PATH } from "../../../../../src/host/process/exec.ts";
import { hostReader } from "../../../../../src/host/reader.ts";
import type { Health, LogLine, Status } from "../../../../../src/protocol/local/answers.ts";
import { triggerSchemas } from "../../../../../src/protocol/triggers/schemas.ts";
import { GATEWAY_1, ScriptedTunnels, someNodes } from "../../../../support/overlay/scripted-tunnels.ts";
import { tempDir } from "../../../../support/temp-dir.ts";
import { rig } from "../../../../unit/agent/triggers/rig.ts";

const clock = systemClock();
const exec = hostExec(clock);
const STATUS: Status = {
  schema: 1,
  version: "1",
  build: "b",
  pid: 7,
  startedAt: 1000,
  uptimeSeconds: 1,
  state: { stateDir: "/s", runDir: "/r" },
  node: null,
  session: { state: "unregistered", since: 0, attempt: 0 },
  nodeState: "ACTIVE",
  tags: {},
  documents: {},
  sections: {},
  telemetry: {},
  engines: { network: "poll" },
  process: { rssBytes: 1, cpuSeconds: 1, children: 0 },
  faults: [{ code: "damaged-file", message: "state.db is damaged", since: 2000 }],
};

const HEALTH: Health = { schema: 1, verdict: "degraded", items: [] };

/** Runs an event of a node that is INACTIVE, unless `isActive` says otherwise; checks results against their schema. */
async function ask(trigger: Trigger, body: object = {}, isActive = false): Promise<TriggerReply> {
  const state = isActive ? "ACTIVE" : "INACTIVE";
  const reply = await rig([trigger], { node: { type: "Agent", state } }).run(trigger.event, { body });
  const schema = Object.entries(triggerSchemas).find(([event]) => event === trigger.event)?.[1].result;
  if ("body" in reply) expect(schema?.safeParse(reply.body).error).toBeUndefined();
  return reply;
}

test("status has the machine, and the agent's own report", async () => {
  const options = { exec, reader: hostReader(), status: () => STATUS, health: () => HEALTH };
  const reply = await ask(nodeStatus({ ...options, isManaged: false }));
  expect(reply).toMatchObject({ body: { services: {}, status: { pid: 7 }, health: { verdict: "degraded" } } });
  const { memory, disk, uptimeSeconds } = triggerSchemas.status.result.parse("body" in reply ? reply.body : undefined);
  expect(memory.totalBytes).toBeGreaterThan(memory.availableBytes);
  expect(disk.totalBytes).toBeGreaterThan(0);
  expect(uptimeSeconds).toBeGreaterThan(0);
});

test("reads the states of units block by block", () => {
  const text = "Id=holdfast-agent.service\nActiveState=active\n\nActiveState=failed\nId=b.service\n\nId=broken\n";
  expect(parseServices(text)).toEqual({ "holdfast-agent.service": "active", "b.service": "failed" });
});

describe("errors", () => {
  const line = (level: LogLine["level"], time: number): LogLine => ({
    time,
    level,
    component: "session",
    message: "it failed",
    fields: { err: { message: "no route", stack: "secret" } },
  });
  const trigger = nodeErrors({
    status: () => STATUS,
    logs: async function* logs() {
      yield* [line("warn", 1), line("error", 1500), line("fatal", 90_000)];
    },
  });

  test("are the faults and logged errors, in order and without a stack", async () => {
    expect(await ask(trigger)).toEqual({
      body: {
        errors: [
          { time: 1500, component: "session", message: "it failed: no route", startup: true },
          { time: 2000, component: "agent", code: "damaged-file", message: "state.db is damaged", startup: true },
          { time: 90_000, component: "session", message: "it failed: no route", startup: false },
        ],
      },
    });
  });

  test("of the start only", async () => {
    const reply = await ask(trigger, { startupOnly: true });
    expect(triggerSchemas.errors.result.parse("body" in reply ? reply.body : undefined).errors).toHaveLength(2);
  });

  test("are two hundred at most, the newest", async () => {
    const many = nodeErrors({
      status: () => STATUS,
      logs: async function* logs() {
        for (let time = 0; time < 1000; time += 1) yield line("error", 100_000 + time);
      },
    });
    const reply = await ask(many);
    const { errors } = triggerSchemas.errors.result.parse("body" in reply ? reply.body : undefined);
    expect([errors.length, errors.at(-1)?.time]).toEqual([200, 100_999]);
  });
});

test("network-status has every link with its addresses and counters", async () => {
  const reply = await ask(networkStatus(hostReader()));
  const { interfaces } = triggerSchemas["network-status"].result.parse("body" in reply ? reply.body : undefined);
  const lo = interfaces.find(({ name }) => name === "lo");
  expect(lo).toMatchObject({ addresses: expect.arrayContaining(["127.0.0.1/8"]) as unknown, rx: { errors: 0 } });
});

describe("health checks on demand", () => {
  function checks(results: Partial<HealthResults>) {
    const requested: string[] = [];
    const health = {
      results: () => ({ dns: undefined, repository: undefined, isSshLocal: undefined, ...results }),
      checkDns: () => Promise.resolve(void requested.push("dns")),
      checkRepository: () => Promise.resolve(void requested.push("repository")),
    };
    return { health: () => health, requested };
  }

  test("dns-health checks again, with the verdict of each server", async () => {
    const servers = [
      { server: "192.0.2.1", answer: "unreachable" },
      { server: "192.0.2.2", answer: "ok" },
    ] as const;
    const { health, requested } = checks({ dns: { isHealthy: true, servers } });
    expect(await ask(dnsHealth(health, () => "cp.example"))).toEqual({
      body: {
        success: true,
        name: "cp.example",
        servers: [
          { ip: "192.0.2.1", success: false, reason: "unreachable" },
          { ip: "192.0.2.2", success: true },
        ],
      },
    });
    expect(requested).toEqual(["dns"]);
    const none = checks({ dns: { isHealthy: false, servers: [] } });
    expect(await ask(dnsHealth(none.health, () => "cp.example"))).toMatchObject({
      body: { success: false, reason: "misconfigured" },
    });
  });

  test("repo-connectivity checks again, with the reason of a failure, without a password of the URL", async () => {
    const { health, requested } = checks({ repository: "name-not-resolved" });
    expect(await ask(repoConnectivity(health, () => "https://u:secret@repo.example/pool"))).toEqual({
      body: { repositories: [{ url: "https://repo.example/pool", success: false, reason: "name-not-resolved" }] },
    });
    expect(requested).toEqual(["repository"]);
  });

  test("of a missing object are refused by name", async () => {
    const { health } = checks({});
    const refused = { error: { code: "not-configured" } };
    expect(
      await ask(
        dnsHealth(
          () => undefined,
          () => undefined,
        ),
      ),
    ).toMatchObject(refused);
    expect(await ask(dnsHealth(health, () => "127.0.0.1"))).toMatchObject(refused);
    expect(await ask(repoConnectivity(health, () => undefined))).toMatchObject(refused);
  });
});

describe("outbound-connection-check", () => {
  const trigger = outboundConnectionCheck(clock);

  test("distinguishes an open port from a closed one, and both are answers", async () => {
    const server = createServer((socket) => socket.destroy()).listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const remoteAddress = `127.0.0.1:${port}`;
    expect(await ask(trigger, { remoteAddress })).toMatchObject({ body: { success: true, remoteAddress } });
    server.close();
    await once(server, "close");
    expect(await ask(trigger, { remoteAddress })).toMatchObject({
      body: { success: false, error: expect.stringContaining("Connection refused") as unknown },
    });
  });

  test.each(["h", "h:0", "h:65536", "::1:80", "-f:80", "a b:1", "[h]:80", ":80", "h:80:90"])(
    "%s is refused",
    async (remoteAddress) => {
      expect(await ask(trigger, { remoteAddress })).toMatchObject({ error: { code: "invalid-body" } });
    },
  );
});

describe("the path to a gateway", () => {
  /** The tools as scripts that print their arguments or a report. */
  async function tools(script: string) {
    const directory = join(tempDir(), "bin");
    await mkdir(directory);
    for (const name of ["mtr", "traceroute"]) {
      await writeFile(join(directory, name), `#!/bin/sh\n${script}\n`);
      await chmod(join(directory, name), 0o755);
    }
    return hostExec(clock, `${directory}:${SEARCH_PATH}`);
  }
  const tunnels = new ScriptedTunnels();
  tunnels.known = someNodes;

  test("is traced to its port, by traceroute and by mtr", async () => {
    const echo = await tools(String.raw`printf '%s\n' "$*"`);
    expect(await ask(gatewayTraceroute(echo, tunnels), { dest: "gw-1" }, true)).toMatchObject({
      body: { output: { message: "-n -T -p 8443 -- 198.51.100.1\n", exitCode: "0" } },
    });
    expect(await ask(gatewayMtr(echo, tunnels), { dest: "gw-2.example.net" }, true)).toMatchObject({
      body: { output: { message: "-n -T -P 443 -j -c 10 -- gw-2.example.net\n" } },
    });
  });

  test("is traced on the named path, from its local address", async () => {
    const echo = await tools(String.raw`printf '%s\n' "$*"`);
    const paths = new ScriptedTunnels();
    const path = { gateway: GATEWAY_1, host: "203.0.113.9", port: 9443, isDefault: false } as const;
    paths.table = [
      { ...path, id: "lte", local: "10.64.0.2" },
      { ...path, id: "", host: "203.0.113.1", port: 443 },
    ];
    const run = (trigger: Trigger, gwPath: string) => ask(trigger, { dest: "gw-1", gwPath }, true);
    expect(await run(gatewayTraceroute(echo, paths), "lte")).toMatchObject({
      body: { output: { message: "-n -T -p 9443 -s 10.64.0.2 -- 203.0.113.9\n" } },
    });
    expect(await run(gatewayMtr(echo, paths), "lte")).toMatchObject({
      body: { output: { message: "-n -T -P 9443 -a 10.64.0.2 -j -c 10 -- 203.0.113.9\n" } },
    });
    expect(await run(gatewayTraceroute(echo, paths), "")).toMatchObject({
      body: { output: { message: "-n -T -p 443 -- 203.0.113.1\n" } },
    });
    expect(await run(gatewayTraceroute(echo, tunnels), "")).toMatchObject({
      body: { output: { message: "-n -T -p 8443 -- 198.51.100.1\n" } },
    });
    expect(await run(gatewayMtr(echo, paths), "dsl")).toMatchObject({
      error: { code: "not-found", details: { field: "gwPath" } },
    });
  });

  test("is measured hop by hop", async () => {
    const hub = { count: 1, host: "192.0.2.1", "Loss%": 0, Snt: 3, Avg: 4.2, Best: 4, Wrst: 5 };
    const exec = await tools(`echo '${JSON.stringify({ report: { hubs: [hub] } })}'`);
    expect(await ask(gatewayLatency(exec, tunnels), { gateway: "gw-1" }, true)).toEqual({
      body: {
        gateway: "gw-1.example.net",
        hops: [{ hop: 1, ip: "192.0.2.1", latencyMs: 4.2, minMs: 4, maxMs: 5, answers: 3 }],
      },
    });
    const broken = await tools("echo no; echo mtr: broken >&2; exit 1");
    expect(await ask(gatewayLatency(broken, tunnels), { gateway: "gw-1" }, true)).toMatchObject({
      error: { code: "exec-failed", message: expect.stringContaining("mtr: broken") as unknown },
    });
  });

  test("is refused for other nodes, and while the node is INACTIVE", async () => {
    const trigger = gatewayTraceroute(exec, tunnels);
    expect(await ask(trigger, { dest: "edge-2" }, true)).toMatchObject({ error: { code: "not-configured" } });
    expect(await ask(trigger, { dest: "gw-9" }, true)).toMatchObject({ error: { code: "not-found" } });
    expect(await ask(trigger, { dest: "gw-1" })).toMatchObject({ error: { code: "inactive" } });
  });
});
