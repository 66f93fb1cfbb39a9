import { createServer } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { netcheckVerb } from "../../../src/cli/verbs/network/netcheck.ts";
import { NetworkReport } from "../../../src/cli/netcheck/result.ts";
import { readTargets } from "../../../src/agent/offline/offline.ts";
import type { NetworkTargets } from "../../../src/protocol/overlay/network-targets.ts";
import { someCall } from "../../support/fake-call.ts";
import { overlayUp, someStatus } from "../../support/fake-local-provider.ts";
import { someDirectories, startLocalAgent } from "../../support/local-agent.ts";
import { httpAnswer, startRawAgent } from "../../support/control-plane/raw-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast } from "../../support/run-holdfast.ts";
import { GATEWAY_1 } from "../../support/overlay/scripted-tunnels.ts";
import { startGateway } from "../../unit/cli/netcheck/rig.ts";

async function startControlPlane(): Promise<string> {
  const server = createServer((_, response) => response.writeHead(404).end());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
}

async function someTargets(): Promise<NetworkTargets> {
  const url = await startControlPlane();
  const { port, key } = await startGateway();
  const path = { gateway: GATEWAY_1, id: "", host: "127.0.0.1", port, isDefault: true, name: "gw-1.example.net", key };
  const controlPlane = { url, session: `${url.replace("http", "ws")}/agent/v1/session`, pins: [] };
  return { schema: 1, controlPlane, paths: [path] };
}

const up = {
  id: "",
  host: "127.0.0.1",
  port: 1,
  isDefault: true,
  state: "up" as const,
  since: Date.now() - 7_200_500,
  carries: true,
  loss: 0,
  attempts: 1,
  bytesIn: 0,
  bytesOut: 0,
};
const gateway = { uid: GATEWAY_1, name: "gw-1", fqdn: "gw-1.example.net", type: "public" as const };

describe("holdfast netcheck", () => {
  it("passes if all is well, and lists its checks", async () => {
    await using agent = await startLocalAgent();
    agent.provider.targetsNow = await someTargets();
    const base = { schema: 1, overlay: overlayUp, dataPlane: "up", issues: [] } as const;
    agent.provider.gatewaysNow = { ...base, issues: [], gateways: [{ ...gateway, paths: [up] }] };
    const { code, stdout, stderr } = await holdfast(["netcheck", "--run", agent.runDir]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^this node\n {2}PASS agent +it has a session with its control plane, for \d+ s\n/);
    expect(stdout).toMatch(/\ncontrol plane http:\/\/127\.0\.0\.1:\d+\n {2}PASS dns +127\.0\.0\.1 is an address\n/);
    expect(stdout).toMatch(/\ngateway gw-1\.example\.net \(default path\)\n/);
    expect(stdout).toMatch(/ {2}PASS tls +it has the gateway's key\n {2}SKIP udp /);
    expect(stdout).toMatch(/ {2}PASS tunnel +up for 2 h, carries\nno check failed\n$/);
  });

  it("exits 5 with what to do if a check fails", async () => {
    await using agent = await startLocalAgent();
    const targets = await someTargets();
    const [path] = targets.paths;
    agent.provider.targetsNow = { ...targets, paths: path === undefined ? [] : [{ ...path, key: "k".repeat(43) }] };
    const down = { ...up, state: "down" as const, reason: "another \u001b[5mkey", carries: false };
    const base = { schema: 1, overlay: overlayUp, dataPlane: "down", issues: [] } as const;
    agent.provider.gatewaysNow = { ...base, issues: [], gateways: [{ ...gateway, paths: [down] }] };
    const reason = { code: "connect-failed", message: "nobody answers" };
    agent.provider.currentStatus = someStatus({
      session: { state: "waiting", since: Date.now() - 7_200_500, attempt: 3, reason },
    });
    const { code, stdout } = await runVerb(["netcheck", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toMatch(/FAIL agent +it has no session \(waiting for 2 h\): nobody answers\n +fix: /);
    expect(stdout).toMatch(/FAIL tls +it has another key than the gateway's\n +fix: exempt 127\.0\.0\.1:\d+ from TLS/);
    expect(stdout).toMatch(/FAIL tunnel +down for 2 h: another key\n +fix: .*\n3 of \d+ checks failed\n$/);
    const json = await runVerb(["netcheck", "--json", "--run", agent.runDir]);
    expect(json.code).toBe(5);
    const report = NetworkReport.parse(JSON.parse(json.stdout));
    expect(report.verdict).toBe("fail");
    expect(report.checks.find(({ check }) => check === "tunnel")).toMatchObject({
      target: "gateway",
      name: "gw-1.example.net",
      path: "",
      status: "fail",
    });
  });

  it("checks without an agent what that left", async () => {
    await using dirs = await someDirectories();
    const targets = await someTargets();
    const { call, shown } = someCall(dirs, {
      offline: { readTargets: () => Promise.resolve(() => Promise.resolve(targets)) },
    });
    expect(await netcheckVerb.run(call)).toBe("ok");
    const text = shown.join("");
    expect(text.replaceAll(/\s+/g, " ")).toContain(`SKIP agent none runs: this is what it left in ${dirs.stateDir}`);
    expect(text).toMatch(/PASS tls +it has the gateway's key\n/);
    expect(text).toMatch(/SKIP tunnel +no agent runs\n/);
  });

  it("exits 4 if the node is not registered, with and without an agent", async () => {
    await using agent = await startLocalAgent();
    agent.provider.currentStatus = someStatus({ node: null, session: { state: "unregistered", since: 1, attempt: 0 } });
    const online = await runVerb(["netcheck", "--run", agent.runDir]);
    expect(online.code).toBe(4);
    expect(online.stdout).toContain("this node is not registered: 'holdfast register' does it");
    await using dirs = await someDirectories();
    expect(await readTargets(dirs.stateDir)).toMatchObject({ schema: 1, paths: [] });
    const off = await holdfast(["netcheck", "--json", "--run", dirs.runDir, "--state", dirs.stateDir]);
    expect(off.code).toBe(4);
    expect(NetworkReport.parse(JSON.parse(off.stdout)).checks.map(({ status }) => status)).toEqual(["skip", "skip"]);
  });

  it("reports an agent that hangs or sends garbage as such", async () => {
    await using hung = await startRawAgent(() => undefined);
    expect((await runVerb(["netcheck", "--timeout", "0.3", "--run", hung.runDir])).code).toBe(6);
    await using odd = await startRawAgent((socket) => void socket.end(httpAnswer('{"schema":2}')));
    expect((await runVerb(["netcheck", "--run", odd.runDir])).stderr).toContain("restart the agent");
  });
});
