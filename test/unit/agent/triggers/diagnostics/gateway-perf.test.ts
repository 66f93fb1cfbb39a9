import { expect, test } from "vitest";
import { gatewayPerf, resultLine } from "../../../../../src/agent/triggers/diagnostics/gateway-perf.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { GatewayPerf } from "../../../../../src/protocol/triggers/bodies.ts";
import { EDGE_2, GATEWAY_1, refusedAs, ScriptedTunnels } from "../../../../support/overlay/scripted-tunnels.ts";
import { rig, untilAborted } from "../rig.ts";
import { untilHolds } from "../../../../support/until-holds.ts";

const clock = systemClock();
const way = { gateway: GATEWAY_1, path: "" };

test("prints dots for megabytes, ! for losses, and the rate at the end", async () => {
  const tunnels = new ScriptedTunnels();
  tunnels.uploads = (_, onProgress) => {
    onProgress({ bytes: 999_999, lost: 0 });
    onProgress({ bytes: 2_100_000, lost: 0 });
    onProgress({ bytes: 3_000_000, lost: 2 });
    onProgress({ bytes: 3_000_000, lost: 2 });
    return Promise.resolve({ bytes: 10_485_760, ms: 3931, ...way });
  };
  const reply = await rig([gatewayPerf(tunnels, clock)]).run("gateway-perf", {
    body: { dest: "edge-2", bytes: 10_485_760, messageSize: 1000, windowSize: 2000 },
  });
  expect(reply).toEqual({
    body: {
      output: {
        message:
          "Sending 10485760 bytes to edge-2.example.net\n" +
          "..!!........\n" +
          "by gw-1.example.net, default path\n" +
          "10485760 bytes in 3.931 seconds, rate=21.34 Mbps\n",
        exitCode: "0",
        truncated: false,
      },
    },
  });
  expect(tunnels.requested).toEqual([{ peer: EDGE_2, bytes: 10_485_760, messageBytes: 1000, windowBytes: 2000 }]);
});

test("a rate is decimal, and none for no time", () => {
  expect(resultLine({ bytes: 1_000_000, ms: 1000 })).toBe("1000000 bytes in 1.000 seconds, rate=8.00 Mbps\n");
  expect(resultLine({ bytes: 1, ms: 0 })).toBe("1 bytes in 0.000 seconds, rate=0.00 Mbps\n");
});

test("a disconnected peer is named, and one that stops answering times out", async () => {
  const tunnels = new ScriptedTunnels();
  const away = rig([gatewayPerf(tunnels, clock)]);
  expect(await away.run("gateway-perf", { body: { dest: "edge-2" } })).toMatchObject({
    error: { code: "exec-failed", message: "peer is not connected" },
  });
  tunnels.uploads = (_, onProgress) => {
    onProgress({ bytes: 1_000_000, lost: 0 });
    return Promise.reject(refusedAs("timeout"));
  };
  const leaving = rig([gatewayPerf(tunnels, clock)]);
  expect(await leaving.run("gateway-perf", { body: { dest: "edge-2" } })).toMatchObject({
    error: { code: "timeout", details: { output: { message: expect.stringMatching(/\n\.\n$/) as string } } },
  });
});

test("runs one at a time, and a cancel reaches the upload", async () => {
  const tunnels = new ScriptedTunnels();
  const ended: unknown[] = [];
  tunnels.uploads = async (_, _onProgress, signal) => {
    await untilAborted(signal);
    ended.push(signal.reason);
    throw signal.reason;
  };
  const { dispatcher, run, channel } = rig([gatewayPerf(tunnels, clock)]);
  const jti = "0197f1a2-0000-7000-8000-0000000000cc";
  await run("gateway-perf", { body: { dest: "edge-2" }, wait: false, jti });
  await untilHolds(() => expect(tunnels.requested).toHaveLength(1));
  expect(await run("gateway-perf", { body: { dest: "gw-1" } })).toMatchObject({ error: { code: "busy" } });
  dispatcher.cancel(jti);
  await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { error: { code: "cancelled" } } }]));
  expect(ended).toHaveLength(1);
});

test("ends one that takes too long", async () => {
  const tunnels = new ScriptedTunnels();
  tunnels.uploads = async (_, _onProgress, signal) => {
    await untilAborted(signal);
    throw signal.reason;
  };
  const { run, channel } = rig([gatewayPerf(tunnels, clock, 20)]);
  await run("gateway-perf", { body: { dest: "edge-2" }, wait: false });
  await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { error: { code: "timeout" } } }]));
});

test.each([
  [{}, "dest"],
  [{ dest: "h", bytes: 0 }, "bytes"],
  [{ dest: "h", bytes: 1_000_000_001 }, "bytes"],
  [{ dest: "h", bytes: "1" }, "bytes"],
  [{ dest: "h", messageSize: 0 }, "messageSize"],
  [{ dest: "h", messageSize: 1_048_577 }, "messageSize"],
  [{ dest: "h", windowSize: 1023 }, "windowSize"],
])("refuses %j for its %s", (body, field) => {
  expect(GatewayPerf.safeParse(body).error?.issues[0]?.path).toEqual([field]);
});

test("the documented defaults", () => {
  expect(GatewayPerf.parse({ dest: "gw-1" })).toEqual({
    dest: "gw-1",
    bytes: 10_000_000,
    messageSize: 50_000,
    windowSize: 1_000_000,
  });
});
