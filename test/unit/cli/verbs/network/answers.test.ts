import { expect, test } from "vitest";
import { captureVerb } from "../../../../../src/cli/verbs/network/capture.ts";
import { logsVerb } from "../../../../../src/cli/verbs/logs.ts";
import { flowsVerb } from "../../../../../src/cli/verbs/network/flows.ts";
import { natsVerb } from "../../../../../src/cli/verbs/network/nats.ts";
import { routesVerb } from "../../../../../src/cli/verbs/network/routes.ts";
import type { Call, Verb } from "../../../../../src/cli/frame/verb.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import type { TriggerLine } from "../../../../../src/protocol/local/answers.ts";
import { someCall } from "../../../../support/fake-call.ts";
import type { FakeLocalProvider } from "../../../../support/fake-local-provider.ts";
import { startLocalAgent } from "../../../../support/local-agent.ts";

const NOW = Date.UTC(2026, 0, 2, 12, 0, 0);
const clock = { ...systemClock(), now: () => NOW };

/** Runs a verb over the agent's own socket, where a trigger ends with these lines. */
async function run(verb: Verb, changes: Partial<Call>, prepare: (provider: FakeLocalProvider) => void, isJson = false) {
  await using agent = await startLocalAgent();
  prepare(agent.provider);
  const { call, shown } = someCall(agent, { clock, ...changes });
  const exit = await verb.run({ ...call, settings: { ...call.settings, isJson } });
  return { exit, text: shown.join(""), requested: agent.provider.requested };
}

const answering =
  (...lines: readonly TriggerLine[]) =>
  (provider: FakeLocalProvider): void => {
    provider.triggerLines = [...lines];
  };
const result = (body: unknown): TriggerLine => ({ kind: "result", body });

const nat = {
  trackerID: "n-1",
  type: "inside",
  networkName: "",
  insideCIDR: "10.9.0.0/24",
  outsideCIDR: "192.0.2.0/24",
  hits: 2,
  initialHit: NOW / 1000 - 90,
  latestHit: NOW / 1000 - 5,
};
const hitless = { ...nat, trackerID: "n-2", hits: 0, initialHit: null, latestHit: null };

test("nats prints each translation, its direction and its hits", async () => {
  const nats = [
    nat,
    { ...hitless, outsideCIDR: "" },
    { ...hitless, trackerID: "n-3", type: "outside", networkName: "red" },
  ];
  const { exit, text, requested } = await run(natsVerb, {}, answering(result({ nats, total: 5, truncated: true })));
  expect([exit, requested]).toEqual(["ok", [{ event: "nat-hits", body: { action: "GET" } }]]);
  expect(text.split("\n")).toEqual([
    "n-1 10.9.0.0/24 → 192.0.2.0/24: 2 hits, last 5 s ago",
    "n-2 10.9.0.0/24 → the interface's address: 0 hits",
    "n-3 192.0.2.0/24 → 10.9.0.0/24 in red: 0 hits",
    "not all: there are 5",
    "",
  ]);
});

test("nats of one tracker: as JSON, after a reset, and as a failure if unknown", async () => {
  const one = { positionals: ["n-1"] };
  const list = { nats: [nat], total: 1 };
  expect(JSON.parse((await run(natsVerb, one, answering(result(list)), true)).text)).toEqual(list);
  const reset = { ...one, values: { reset: true } };
  const anew = await run(natsVerb, reset, answering(result({ reset: 1 })));
  expect(anew).toMatchObject({ exit: "ok", text: "1 translation counted anew\n" });
  expect(anew.requested).toEqual([{ event: "nat-hits", body: { action: "RESET", trackerID: "n-1" } }]);
  expect(await run(natsVerb, reset, answering(result({ reset: 0 })))).toMatchObject({ exit: "failed" });
  const none = await run(natsVerb, one, answering(result({ nats: [], total: 0 })));
  expect(none).toMatchObject({ exit: "failed", text: "no translation of this tracker id\n" });
});

test("flows prints both ends, the state, the bytes and the translation", async () => {
  const tcp = { sip: "10.9.0.2", dip: "198.51.100.7", p: "tcp", sport: 40_000, dport: 443, state: "ESTABLISHED" };
  const reply = { sip: "198.51.100.7", sport: 443, dip: "192.0.2.1", dport: 40_000 };
  const body = {
    result: {
      icmp: [{ sip: "10.9.0.2", dip: "10.9.0.1", p: "icmp", lid: 7, state: "", def: false }],
      tcp: [{ ...tcp, br: 2048, bw: 100, con: 61, def: false, meta: { reply } }],
      udp: [{ sip: "fd00::1", dip: "fd00::2", p: "udp", sport: 53, dport: 53, state: "", def: false }],
    },
    total: 9,
    truncated: true,
  };
  const { exit, text } = await run(flowsVerb, {}, answering(result(body)));
  expect([exit, text.split("\n")]).toEqual([
    "ok",
    [
      "tcp 10.9.0.2:40000 → 198.51.100.7:443: ESTABLISHED, 100 B sent, 2.0 kB received, 61 s, translated, answers 198.51.100.7:443 → 192.0.2.1:40000",
      "udp [fd00::1]:53 → [fd00::2]:53",
      "icmp 10.9.0.2 → 10.9.0.1: id 7",
      "not all: there are 9 or more",
      "",
    ],
  ]);
  const filter = { values: { protocol: "tcp", dest: "198.51.100.7", dport: "443", delete: true } };
  const deleted = await run(flowsVerb, filter, answering(result({ result: "success", deleted: 2 })));
  expect(deleted.text).toBe("2 flows deleted\n");
  const requested = { action: "delete", protocol: "tcp", dest: "198.51.100.7/32", destPort: 443, confirm: false };
  expect(deleted.requested).toEqual([{ event: "flows", body: requested }]);
});

test("capture prints packets as they arrive, and its notes beside them", async () => {
  const lines: TriggerLine[] = [
    { kind: "progress", seq: 1, channel: "stderr", data: "listening on eth0\n" },
    { kind: "progress", seq: 2, channel: "stdout", data: "IP 10.9.0.1 > 10.9.0.2: ICMP echo request\n" },
    result({ exitCode: 0 }),
  ];
  const call = { positionals: ["eth0", "icmp"], values: { count: "1" } };
  const shown = await run(captureVerb, call, answering(...lines));
  expect(shown).toMatchObject({
    exit: "ok",
    text: "listening on eth0\nIP 10.9.0.1 > 10.9.0.2: ICMP echo request\n",
    requested: [{ event: "tg-tcpdump", body: { iface: "eth0", filter: "icmp", packetCount: 1 } }],
  });
  const { text } = await run(captureVerb, call, answering(...lines), true);
  expect(
    text
      .trim()
      .split("\n")
      .map((line): unknown => JSON.parse(line)),
  ).toEqual([{ note: "listening on eth0" }, { packet: "IP 10.9.0.1 > 10.9.0.2: ICMP echo request" }]);
  expect(await run(captureVerb, call, answering(result({ exitCode: 1 })))).toMatchObject({ exit: "failed" });
});

test("logs --debug prints debug lines as they arrive", async () => {
  const data = "12:00:00.123: level=debug, component=session: dialling\n";
  const lines: TriggerLine[] = [{ kind: "progress", seq: 1, channel: "stdout", data }, result({ exitCode: 0 })];
  const call = { values: { debug: "session" } };
  expect(await run(logsVerb, call, answering(...lines))).toMatchObject({
    exit: "ok",
    text: data,
    requested: [{ event: "node-debug", body: { plugin: "session" } }],
  });
  expect(JSON.parse((await run(logsVerb, call, answering(...lines), true)).text)).toEqual({ debug: data.trim() });
});

test("routes marks ours, main first, and rules after it", async () => {
  const route = { kind: "unicast", metric: 0, protocol: 218, isOurs: true } as const;
  const { exit, text } = await run(routesVerb, {}, (provider) => {
    provider.currentNetwork = {
      ...provider.currentNetwork,
      routes: [
        { ...route, table: 1000, destination: "11.0.0.0/8", via: "10.77.0.2", link: "eth1" },
        { ...route, table: 254, destination: "0.0.0.0/0", via: "192.0.2.1", link: "eth0", isBehind: true },
        { ...route, table: 254, kind: "unreachable", destination: "10.8.0.0/16", protocol: 186, isOurs: false },
      ],
      rules: [{ priority: 5200, to: "11.0.0.0/8", mark: 1, table: 1000, isOurs: true }],
      truncated: { routes: 9000 },
    };
  });
  expect([exit, text.split("\n")]).toEqual([
    "ok",
    [
      "table main",
      "* default via 192.0.2.1 dev eth0 (holdfast) not in force",
      "  unreachable 10.8.0.0/16 (bgp)",
      "table 1000",
      "* 11.0.0.0/8 via 10.77.0.2 dev eth1 (holdfast)",
      "rules",
      "* 5200: from all to 11.0.0.0/8 mark 0x1/0xffffffff table 1000",
      "not all: there are 9000 routes",
      "",
    ],
  ]);
});
