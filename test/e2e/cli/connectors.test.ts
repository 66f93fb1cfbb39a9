import { describe, expect, it } from "vitest";
import { LocalError } from "../../../src/protocol/local/answers.ts";
import { ConnectorsReport, ServicesReport, type ConnectorView } from "../../../src/protocol/local/overlay.ts";
import { overlayUp, someStatus } from "../../support/fake-local-provider.ts";
import { someDirectories, startLocalAgent } from "../../support/local-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast, startHoldfast } from "../../support/run-holdfast.ts";

const web: ConnectorView = {
  id: "c1",
  description: "the \u001b[5mweb",
  state: "listening",
  protocol: "tcp",
  listen: { transport: "tcp", port: 8080, nic: "eth0", bound: ["192.0.2.1"] },
  destination: { node: "local", service: "web" },
  limits: { bitsPerSecond: 2_500_000, maxFlows: 9 },
  counters: {
    flowsActive: 1,
    flowsTotal: 4,
    bytesIn: 1500,
    bytesOut: 12_345_678,
    datagramsDropped: 0,
    refusals: { "source-not-permitted": 2, "too-many-flows": 1 },
    errors: { reset: 1 },
  },
};
const taken: ConnectorView = {
  id: "c2",
  state: "failed",
  reason: { code: "address-in-use", message: "tcp 80 is taken by another program" },
  protocol: "tcp",
  listen: { transport: "tcp", port: 80, bound: [] },
  destination: { node: "local", host: "127.0.0.1", port: 81 },
};

const report = (connectors: ConnectorView[], changes: Partial<ConnectorsReport> = {}): ConnectorsReport => ({
  schema: 1,
  overlay: overlayUp,
  issues: [],
  connectors,
  ...changes,
});

describe("holdfast connectors", () => {
  it("lists each with its counters and exits 0, without terminal control characters", async () => {
    await using agent = await startLocalAgent();
    agent.provider.connectorsNow = report([web, { id: "c3", state: "off" }]);
    const { code, stdout, stderr } = await holdfast(["connectors", "--run", agent.runDir]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const [overlay, ...lines] = stdout.split("\n");
    expect(overlay).toMatch(/^overlay up for \d+ d, process 4711$/);
    expect(lines.join("\n")).toBe(
      "c1 listening tcp eth0:8080 (192.0.2.1) → local/web (the web)\n" +
        "  flows 1 now, 4 in all; 1.5 kB in, 12 MB out\n" +
        "  refused: 2 source-not-permitted, 1 too-many-flows\n" +
        "  errors: 1 reset\n" +
        "  limit 2.5 Mbit/s each way\n" +
        "  at most 9 connections at a time\n" +
        "c3 off\n",
    );
  });

  it("exits 5 with the reason when one does not listen", async () => {
    await using agent = await startLocalAgent();
    agent.provider.connectorsNow = report([taken]);
    const { code, stdout } = await runVerb(["connectors", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toContain(
      "c2 failed tcp any:80 → local/127.0.0.1:81\n  address-in-use tcp 80 is taken by another program\n",
    );
  });

  it("lists who may connect, and exits 5 when the document is not fully applied", async () => {
    await using agent = await startLocalAgent();
    const sources = ["10.0.0.0/8", ...Array.from({ length: 17 }, (_, at) => `192.0.2.${at}/32`)];
    const { counters: _, ...idle } = web;
    agent.provider.connectorsNow = report([{ ...idle, limits: { maxFlows: 10_000, sources } }]);
    const filtered = await runVerb(["connectors", "--run", agent.runDir]);
    expect(filtered.code).toBe(0);
    expect(filtered.stdout.replaceAll(/\n +/g, " ")).toMatch(
      /\(the web\) only from 10\.0\.0\.0\/8, 192\.0\.2\.0\/32, .*192\.0\.2\.14\/32 and 2 more\n$/,
    );
    const one = { ...web.counters, datagramsDropped: 1 } as ConnectorView["counters"];
    agent.provider.connectorsNow = report([{ ...web, counters: one, limits: { maxFlows: 1 } }]);
    const { stdout } = await runVerb(["connectors", "--run", agent.runDir]);
    expect(stdout).toMatch(/; 1 datagram dropped\n[^]* at most 1 connection at a time\n/);
    const ignored = [{ code: "E_UNSUPPORTED_ON_AGENT", message: "sourceBlock: ignored" }];
    agent.provider.connectorsNow = report([{ ...idle, ignored, limits: { maxFlows: 10_000 } }]);
    const open = await runVerb(["connectors", "--run", agent.runDir]);
    expect(open.code).toBe(5);
    expect(open.stdout).toMatch(/\(the web\)\n {2}E_UNSUPPORTED_ON_AGENT sourceBlock: ignored\n$/);
  });

  it("reports that the overlay is down, or the mistake in the section", async () => {
    await using agent = await startLocalAgent();
    const overlay = { state: "down", since: Date.now() - 120_500, reason: "it ended at its start" } as const;
    agent.provider.connectorsNow = report([], { overlay });
    const down = await runVerb(["connectors", "--run", agent.runDir]);
    expect(down.code).toBe(5);
    expect(down.stdout).toBe(
      "overlay down for 2 min: it ended at its start\nthe applied configuration has no connector\n",
    );
    const issues = [{ path: "connectors", code: "E_ENUM", message: "connectors: must be an object" }];
    agent.provider.connectorsNow = report([], { issues, overlay: { state: "off", since: 0 } });
    const wrong = await runVerb(["connectors", "--run", agent.runDir]);
    expect(wrong.code).toBe(5);
    expect(wrong.stdout).toContain("connectors E_ENUM must be an object\n");
  });

  it("prints the documented JSON, exactly the agent's answer", async () => {
    await using agent = await startLocalAgent();
    agent.provider.connectorsNow = report([web, taken]);
    const { code, stdout } = await runVerb(["connectors", "--json", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(ConnectorsReport.parse(JSON.parse(stdout))).toEqual(agent.provider.connectorsNow);
  });

  it("accepts an unknown reason of a newer agent, and refuses a malformed answer", async () => {
    await using agent = await startLocalAgent();
    const counters = { ...web.counters, errors: { "struck-by-lightning": 1 } } as ConnectorView["counters"];
    agent.provider.connectorsNow = report([{ ...web, counters }]);
    expect((await runVerb(["connectors", "--run", agent.runDir])).stdout).toContain("1 struck-by-lightning");
    agent.provider.connectorsNow = { ...report([]), schema: 2 as 1 };
    const { code, stderr } = await runVerb(["connectors", "--run", agent.runDir]);
    expect(code).toBe(1);
    expect(stderr).toContain("restart the agent if it was upgraded");
  });

  it("watches until Ctrl-C, also while the agent is down", async () => {
    await using agent = await startLocalAgent();
    const running = startHoldfast(["connectors", "--watch", "--json", "--run", agent.runDir]);
    await running.until(/"schema":1[^]*"schema":1/);
    await agent.close();
    await running.until(/agent-unreachable/);
    running.child.kill("SIGINT");
    const { code, stdout } = await running.finished;
    expect(code).toBe(0);
    for (const line of stdout.trim().split("\n")) ConnectorsReport.or(LocalError).parse(JSON.parse(line));
  });

  it("exits 3 without an agent", async () => {
    await using dirs = await someDirectories();
    expect((await runVerb(["connectors", "--run", dirs.runDir])).code).toBe(3);
    expect((await runVerb(["services", "--run", dirs.runDir])).code).toBe(3);
  });
});

describe("holdfast services", () => {
  it("lists target, health and users, and exits 5 when one is unreachable", async () => {
    await using agent = await startLocalAgent();
    const target = { transport: "tcp", host: "127.0.0.1", port: 8080 } as const;
    const good = {
      id: "s1",
      name: "web",
      state: "offered",
      protocol: "tcp",
      target,
      connectors: ["6f0d2c1e-0a55-4d5c", "c2", "c3"],
    } as const;
    const services: ServicesReport["services"] = [
      {
        ...good,
        connectors: [...good.connectors],
        usedBy: [
          { id: "6f0d2c1e-0a55-4d5c", transport: "tcp", port: 8443, nic: "eth1" },
          { id: "c2", transport: "tcp", port: 80, description: "for all" },
        ],
        health: { state: "up", since: Date.now() - 3_600_500 },
      },
      { id: "s2", name: "old", state: "off", protocol: "tcp", target, connectors: [] },
    ];
    agent.provider.servicesNow = { schema: 1, overlay: overlayUp, issues: [], services };
    const well = await runVerb(["services", "--run", agent.runDir]);
    expect(well.code).toBe(0);
    expect(well.stdout.split("\n").slice(1).join("\n")).toBe(
      "web offered tcp 127.0.0.1:8080\n  health up for 60 min\n  used by tcp eth1:8443 (6f0d2c1e), tcp any:80 (for all) and 1 more\n" +
        "old off tcp 127.0.0.1:8080\n  no connector of this node leads to it\n",
    );
    services.push({
      id: "s3",
      state: "rejected",
      reason: { code: "E_NAME_FORMAT", message: "name: bad" },
      connectors: [],
    });
    const ill = await runVerb(["services", "--json", "--run", agent.runDir]);
    expect(ill.code).toBe(5);
    expect(ServicesReport.parse(JSON.parse(ill.stdout))).toEqual(agent.provider.servicesNow);
    expect((await runVerb(["services", "--run", agent.runDir])).stdout).toContain(
      "s3 rejected\n  E_NAME_FORMAT name: bad",
    );
  });
});

describe("holdfast status", () => {
  it("prints the overlay, and exits 5 while it is down", async () => {
    await using agent = await startLocalAgent();
    expect((await runVerb(["status", "--run", agent.runDir])).stdout).toMatch(/^overlay +up for \d+ d, process 4711$/m);
    const overlay = { state: "down", since: Date.now(), reason: "no luck" } as const;
    agent.provider.currentStatus = someStatus({ engines: { network: "netlink", overlay } });
    const { code, stdout } = await runVerb(["status", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toMatch(/^overlay +down (just now|for \d+ s): no luck$/m);
    agent.provider.currentStatus = someStatus({
      engines: { network: "netlink" },
      process: { rssBytes: 62_000_000, cpuSeconds: 1.5, children: 1 },
    });
    expect((await runVerb(["status", "--run", agent.runDir])).stdout).toContain(", 1 child, network by netlink");
    expect((await runVerb(["status", "--run", agent.runDir])).stdout).not.toMatch(/^overlay/m);
  });
});
