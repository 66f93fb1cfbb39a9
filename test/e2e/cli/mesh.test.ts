import { describe, expect, it } from "vitest";
import {
  GatewaysReport,
  PeersReport,
  type GatewayView,
  type PathView,
  type PeerView,
} from "../../../src/protocol/local/mesh.ts";
import { LocalError } from "../../../src/protocol/local/answers.ts";
import { overlayUp } from "../../support/fake-local-provider.ts";
import { someDirectories, startLocalAgent } from "../../support/local-agent.ts";
import { runVerb } from "../../support/run-verb.ts";
import { holdfast, startHoldfast } from "../../support/run-holdfast.ts";
import { EDGE_2, GATEWAY_1, GATEWAY_2, someClient } from "../../support/overlay/scripted-tunnels.ts";

const ago = (hours: number): number => Date.now() - hours * 3_600_000 - 500;

const up: PathView = {
  id: "",
  host: "gw-1.example.net",
  port: 8443,
  isDefault: false,
  state: "up",
  since: ago(5),
  carries: true,
  remote: { ip: "198.51.100.1", port: 8443 },
  rttMs: 1.234,
  loss: 0,
  attempts: 1,
  bytesIn: 1500,
  bytesOut: 12_345_678,
};
const down: PathView = {
  id: "wan2",
  host: "2001:db8::1",
  port: 443,
  local: "192.0.2.7",
  isDefault: true,
  state: "down",
  since: ago(12),
  reason: "3 probes \u001b[5munanswered",
  carries: false,
  loss: 0.35,
  attempts: 4,
  bytesIn: 0,
  bytesOut: 0,
};
const gateway = (...paths: PathView[]): GatewayView => ({
  uid: GATEWAY_1,
  name: "gw-1",
  fqdn: "gw-1.example.net",
  type: "public",
  paths,
});
const report = (changes: Partial<GatewaysReport> = {}): GatewaysReport => ({
  schema: 1,
  overlay: overlayUp,
  domain: "example.net",
  dataPlane: "up",
  issues: [],
  gateways: [],
  ...changes,
});

const withoutHead = (stdout: string): string => stdout.split("\n").slice(1).join("\n");

describe("holdfast gateways", () => {
  it("prints the path in use, its quality and since when, and exits 0", async () => {
    await using agent = await startLocalAgent();
    const server = {
      state: "listening" as const,
      refused: { tls: 3, "unknown-key": 1, alpn: 0 },
      relays: { active: 1, total: 9, bytes: 2_000_000 },
      addresses: ["0.0.0.0", "::"],
      port: 8443,
      clients: 2,
      admitted: 5,
    };
    agent.provider.gatewaysNow = report({ gateways: [gateway(up)], server });
    const { code, stdout, stderr } = await holdfast(["gateways", "--run", agent.runDir]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(withoutHead(stdout)).toBe(
      "gw-1.example.net (default path) up for 5 h 198.51.100.1:8443, carries\n" +
        "  rtt 1.23 ms; loss 0%; 1.5 kB in, 12 MB out\n" +
        "own gateway listening 0.0.0.0:8443, [::]:8443\n" +
        "  clients 2 of 5; relays 1 now, 9 in all, 2.0 MB\n" +
        "  rejected: 3 tls, 1 unknown-key\n",
    );
  });

  it("prints why a path is down and exits 5, without terminal control characters", async () => {
    await using agent = await startLocalAgent();
    const issues = [{ path: "gateway.type", code: "E_TYPE", message: "gateway.type: must be public, private or hub" }];
    const pending: PathView = { ...down, id: "wan3", state: "pending", since: undefined, reason: undefined };
    agent.provider.gatewaysNow = report({ dataPlane: "degraded", issues, gateways: [gateway(up, down, pending)] });
    const { code, stdout } = await runVerb(["gateways", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toContain("gateway.type E_TYPE must be public, private or hub\n");
    expect(stdout).toContain(
      "gw-1.example.net (path wan2) down for 12 h [2001:db8::1]:443 from 192.0.2.7\n" +
        "  why: 3 probes unanswered\n" +
        "  loss 35%; 0 B in, 0 B out; tried 4 times\n" +
        "gw-1.example.net (path wan3) pending [2001:db8::1]:443 from 192.0.2.7\n" +
        "  the overlay does not have it yet\n",
    );
  });

  it("reports that there are none, or that the overlay is down", async () => {
    await using agent = await startLocalAgent();
    expect(withoutHead((await runVerb(["gateways", "--run", agent.runDir])).stdout)).toBe(
      "this node has no gateway to dial and is no gateway\n",
    );
    const overlay = { state: "down", since: ago(2), reason: "it ended" } as const;
    agent.provider.gatewaysNow = report({ overlay, dataPlane: "unknown" });
    const { code, stdout } = await runVerb(["gateways", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toMatch(/^overlay down for 2 h: it ended\n/);
  });

  it("exits 5 when the node's own gateway cannot listen", async () => {
    await using agent = await startLocalAgent();
    const relays = { active: 0, total: 0, bytes: 0 };
    const server = {
      state: "failed" as const,
      reason: "address-in-use",
      message: "tcp 8443 is taken",
      refused: {},
      relays,
      addresses: ["0.0.0.0"],
      port: 8443,
      clients: 0,
      admitted: 5,
    };
    agent.provider.gatewaysNow = report({ server });
    const { code, stdout } = await runVerb(["gateways", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toContain("own gateway failed 0.0.0.0:8443\n  why: tcp 8443 is taken\n");
  });

  it("prints the documented JSON, and refuses a malformed answer", async () => {
    await using agent = await startLocalAgent();
    agent.provider.gatewaysNow = report({ dataPlane: "degraded", gateways: [gateway(up, down)] });
    const { code, stdout } = await runVerb(["gateways", "--json", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(GatewaysReport.parse(JSON.parse(stdout))).toEqual(agent.provider.gatewaysNow);
    agent.provider.gatewaysNow = { ...agent.provider.gatewaysNow, schema: 2 as 1 };
    expect((await runVerb(["gateways", "--run", agent.runDir])).stderr).toContain("restart the agent");
  });

  it("watches until Ctrl-C, also while the agent is down", async () => {
    await using agent = await startLocalAgent();
    const running = startHoldfast(["gateways", "--watch", "--json", "--run", agent.runDir]);
    await running.until(/"schema":1[^]*"schema":1/);
    await agent.close();
    await running.until(/agent-unreachable/);
    running.child.kill("SIGINT");
    const { code, stdout } = await running.finished;
    expect(code).toBe(0);
    for (const line of stdout.trim().split("\n")) GatewaysReport.or(LocalError).parse(JSON.parse(line));
  });

  it("exits 3 without an agent", async () => {
    await using dirs = await someDirectories();
    expect((await runVerb(["gateways", "--run", dirs.runDir])).code).toBe(3);
    expect((await runVerb(["peers", "--run", dirs.runDir])).code).toBe(3);
    expect((await runVerb(["ping", "edge-2", "--run", dirs.runDir])).code).toBe(3);
    expect((await runVerb(["speedtest", "--run", dirs.runDir])).code).toBe(3);
  });
});

describe("holdfast peers", () => {
  const who = { type: "Agent" as const, isGateway: false, mayDial: true, sessions: [], grants: [] };
  const session = {
    role: "source" as const,
    gateway: "gw-1",
    path: "",
    since: ago(12),
    activeFlows: 1,
    flows: 4,
    bytesIn: 1500,
    bytesOut: 2500,
  };
  const { peer: _, ...client } = someClient(EDGE_2, {
    since: ago(6),
    sessions: 2,
    rttMs: 20,
    remote: { ip: "203.0.113.7", port: 4 },
  });
  const peers: PeerView[] = [
    {
      ...who,
      uid: EDGE_2,
      name: "edge-2",
      fqdn: "edge-2.example.net",
      state: "connected",
      since: ago(6),
      client,
      sessions: [session],
      grants: [{ service: "web", protocol: "tcp" }],
      moreGrants: 3,
    },
    {
      ...who,
      uid: GATEWAY_1,
      name: "gw-1",
      fqdn: "gw-1.example.net",
      state: "unreachable",
      since: ago(10),
      client: { ...client, state: "down", since: ago(10), sessions: 0, reason: "it closed", remote: undefined },
      sessions: [{ ...session, role: "destination" }],
    },
    { ...who, uid: GATEWAY_2, name: "gw-2", fqdn: "gw-2.example.net", state: "reachable" },
  ];

  it("lists every node, the dialling side, and the sessions with their paths", async () => {
    await using agent = await startLocalAgent();
    agent.provider.peersNow = { schema: 1, overlay: overlayUp, dataPlane: "up", issues: [], peers };
    const { code, stdout } = await runVerb(["peers", "--run", agent.runDir]);
    expect(code).toBe(0);
    expect(withoutHead(stdout)).toBe(
      "edge-2.example.net connected for 6 h\n" +
        "  dials this node: up for 6 h from 203.0.113.7:4, 2 sessions\n" +
        "  rtt 20.0 ms; 0 B in, 0 B out\n" +
        "  session to it via gw-1 (default path) for 12 h: flows 1 now, 4 in all; 1.5 kB in, 2.5 kB out\n" +
        "  may use here: web (tcp) and 3 more\n" +
        "gw-1.example.net unreachable for 10 h\n" +
        "  dials this node: down for 10 h, 0 sessions: it closed\n" +
        "  rtt 20.0 ms; 0 B in, 0 B out\n" +
        "  session from it directly (default path) for 12 h: flows 1 now, 4 in all; 1.5 kB in, 2.5 kB out\n" +
        "gw-2.example.net reachable\n",
    );
    const json = await runVerb(["peers", "--json", "--run", agent.runDir]);
    expect(PeersReport.parse(JSON.parse(json.stdout))).toEqual(JSON.parse(JSON.stringify(agent.provider.peersNow)));
  });

  it("reports that there are none, and exits 5 while the overlay does not answer", async () => {
    await using agent = await startLocalAgent();
    const overlay = { ...overlayUp, reason: "it does not answer" };
    agent.provider.peersNow = { schema: 1, overlay, dataPlane: "unknown", issues: [], peers: [] };
    const { code, stdout } = await runVerb(["peers", "--run", agent.runDir]);
    expect(code).toBe(5);
    expect(stdout).toMatch(/: it does not answer\nthe domain document lists no other node\n$/);
  });
});
