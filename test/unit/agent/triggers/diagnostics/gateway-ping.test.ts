import { expect, test } from "vitest";
import { gatewayPing } from "../../../../../src/agent/triggers/diagnostics/gateway-ping.ts";
import { GatewayPing } from "../../../../../src/protocol/triggers/bodies.ts";
import {
  EDGE_2,
  GATEWAY_1,
  GATEWAY_2,
  refusedAs,
  ScriptedTunnels,
  somePath,
} from "../../../../support/overlay/scripted-tunnels.ts";
import { fastClock, rig, untilAborted } from "../rig.ts";
import { untilHolds } from "../../../../support/until-holds.ts";

const clock = fastClock(100);

function stage(change: (tunnels: ScriptedTunnels) => void = () => undefined) {
  const tunnels = new ScriptedTunnels();
  change(tunnels);
  return { tunnels, ...rig([gatewayPing(tunnels, clock)], { clock }) };
}

const messageOf = (reply: unknown): string => (reply as { body: { output: { message: string } } }).body.output.message;

test("text has a header, the path, one line for each probe in the viewer's form, and a summary", async () => {
  const { tunnels, run } = stage();
  const reply = await run("gateway-ping", { body: { dest: "edge-2", interval: 1 } });
  expect(reply).toMatchObject({ body: { output: { exitCode: "0", truncated: false } } });
  expect(messageOf(reply).split("\n")).toEqual([
    "PING edge-2.example.net through the tunnel, 64 bytes",
    "by gw-1.example.net, default path",
    "64 bytes from edge-2.example.net: seq=0  time=1.25ms",
    "64 bytes from edge-2.example.net: seq=1  time=1.25ms",
    "64 bytes from edge-2.example.net: seq=2  time=1.25ms",
    "64 bytes from edge-2.example.net: seq=3  time=1.25ms",
    "--- edge-2.example.net: 4 sent, 4 answered, 0% lost",
    "rtt min/avg/max = 1.25/1.25/1.25 ms",
    "",
  ]);
  expect(tunnels.requested).toEqual(Array.from({ length: 4 }, () => ({ peer: EDGE_2, bytes: 64, timeoutMs: 5000 })));
});

test("JSON has one object for each probe, a lost one is marked, and the others continue", async () => {
  const { run } = stage((tunnels) => {
    tunnels.echoes = (_, seq) =>
      seq === 1
        ? refusedAs("timeout")
        : seq === 2
          ? refusedAs("not-connected")
          : { rttMs: 2, gateway: GATEWAY_2, path: "b" };
  });
  const reply = await run("gateway-ping", { body: { dest: "edge-2", sendJson: true, size: 1000, interval: 1 } });
  const answer = { peer: "edge-2.example.net", size: 1000, rttMs: 2, path: "b", gateway: "gw-2.example.net" };
  const lines = messageOf(reply).trim().split("\n");
  expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
    { ...answer, seq: 0 },
    { seq: 1, timeout: true, reason: "timeout" },
    { seq: 2, timeout: true, reason: "not-connected" },
    { ...answer, seq: 3 },
  ]);
});

test("text names another path when that answers, and the lack of any", async () => {
  const { run } = stage((tunnels) => {
    tunnels.echoes = (_, seq) =>
      seq === 1 ? refusedAs("not-connected") : { rttMs: 1, gateway: seq === 0 ? GATEWAY_1 : GATEWAY_2, path: "" };
  });
  expect(messageOf(await run("gateway-ping", { body: { dest: "edge-2", count: 3, interval: 1 } }))).toContain(
    "seq=0  time=1.00ms\n" +
      "no answer from edge-2.example.net: seq=1  it is not connected\n" +
      "by gw-2.example.net, default path\n" +
      "64 bytes from edge-2.example.net: seq=2  time=1.00ms\n" +
      "--- edge-2.example.net: 3 sent, 2 answered, 33.3% lost\n",
  );
});

test("uses the named path", async () => {
  const { tunnels, run } = stage(({ state }) => state?.paths.push(somePath(GATEWAY_1, { id: "wan2" })));
  await run("gateway-ping", { body: { dest: "gw-1", gwPath: "wan2", count: 1 } });
  expect(tunnels.requested).toMatchObject([{ peer: GATEWAY_1, path: "wan2" }]);
  expect(await run("gateway-ping", { body: { dest: "gw-1", gwPath: "wan3" } })).toMatchObject({
    error: { code: "not-found", details: { field: "gwPath" } },
  });
});

test("waits five seconds for an answer, or the interval if that is longer", async () => {
  const { tunnels, run } = stage();
  await run("gateway-ping", { body: { dest: "edge-2", interval: 9, count: 1 } });
  expect(tunnels.requested).toMatchObject([{ timeoutMs: 9000 }]);
});

test("an unreachable peer is a failure; no answer to any probe is a result", async () => {
  const away = stage((tunnels) => (tunnels.echoes = () => refusedAs("not-connected")));
  expect(await away.run("gateway-ping", { body: { dest: "edge-2" } })).toMatchObject({
    error: { code: "exec-failed", message: "peer is not connected", details: { peer: "edge-2.example.net" } },
  });
  const silent = stage((tunnels) => (tunnels.echoes = () => refusedAs("timeout")));
  const reply = await silent.run("gateway-ping", { body: { dest: "edge-2", count: 2, interval: 1 } });
  expect(reply).toMatchObject({ body: { output: { exitCode: "1" } } });
  expect(messageOf(reply)).toContain("2 sent, 0 answered, 100% lost");
});

test("refuses an unknown peer and a disabled node", async () => {
  const { tunnels, run } = stage((one) => (one.echoes = () => refusedAs("not-found")));
  expect(await run("gateway-ping", { body: { dest: "edge-2" } })).toMatchObject({ error: { code: "not-found" } });
  expect(await run("gateway-ping", { body: { dest: "nobody" } })).toMatchObject({ error: { code: "not-found" } });
  const off = rig([gatewayPing(tunnels, clock)], { node: { type: "Node", state: "INACTIVE" } });
  expect(await off.run("gateway-ping", { body: { dest: "edge-2" } })).toMatchObject({ error: { code: "inactive" } });
});

test("a session continues until cancelled, and then sums up", async () => {
  const { dispatcher, run, channel } = stage();
  expect(await run("gateway-ping", { body: { dest: "edge-2" }, wait: false })).toEqual({ body: true });
  await untilHolds(() => expect(channel.text).toContain("seq=5 "));
  dispatcher.cancel(channel.parts[0]?.id ?? "");
  await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { error: { code: "cancelled" } } }]));
  expect(channel.text).toMatch(/--- edge-2.example.net: \d+ sent, \d+ answered, 0% lost\n/);
});

test("a cancel does not wait for the answer to a probe", async () => {
  const { tunnels, dispatcher, run, channel } = stage();
  tunnels.echo = async (request, signal) => {
    tunnels.requested.push(request);
    await untilAborted(signal);
    throw signal.reason;
  };
  await run("gateway-ping", {
    body: { dest: "edge-2", interval: 60 },
    wait: false,
    jti: "0197f1a2-0000-7000-8000-0000000000cc",
  });
  await untilHolds(() => expect(tunnels.requested).toHaveLength(1));
  dispatcher.cancel("0197f1a2-0000-7000-8000-0000000000cc");
  await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { error: { code: "cancelled" } } }]));
});

test("a session of slow probes ends after ten minutes, without an error", async () => {
  const quick = fastClock(60_000);
  const tunnels = new ScriptedTunnels();
  const { run, channel } = rig([gatewayPing(tunnels, quick)], {
    clock: { ...quick, after: (ms, run) => clock.after(ms, run) },
  });
  await run("gateway-ping", { body: { dest: "edge-2", interval: 60 }, wait: false });
  await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { body: { exitCode: 0 } } }]));
  expect(tunnels.requested.length).toBeLessThanOrEqual(11);
});

test.each([
  [{}, "dest"],
  [{ dest: "" }, "dest"],
  [{ dest: "-f" }, "dest"],
  [{ dest: "h", interval: 0 }, "interval"],
  [{ dest: "h", interval: 0.5 }, "interval"],
  [{ dest: "h", size: 7 }, "size"],
  [{ dest: "h", size: 65_001 }, "size"],
  [{ dest: "h", count: 601 }, "count"],
  [{ dest: "h", sendJson: "true" }, "sendJson"],
  [{ dest: "h", gwPath: 7 }, "gwPath"],
])("refuses %j for its %s", (body, field) => {
  expect(GatewayPing.safeParse(body).error?.issues[0]?.path).toEqual([field]);
});

test("the documented defaults", () => {
  expect(GatewayPing.parse({ dest: "gw-1" })).toEqual({ dest: "gw-1", interval: 5, size: 64, sendJson: false });
});
