import { expect, test } from "vitest";
import { lateFilters, planConnectors } from "../../../../../src/agent/sections/connectors/plan.ts";
import { sourceFilter } from "../../../../../src/agent/sections/connectors/source-filter.ts";
import { firewallDigest } from "../../../../../src/host/network/firewall/firewall.ts";
import type { SourceFilterState } from "../../../../../src/host/network/firewall/source-filter.ts";
import { normaliseConnectors } from "../../../../../src/protocol/sections/connectors/connectors.ts";
import type { OverlayListener } from "../../../../../src/protocol/overlay/overlay.ts";
import { networkMachine } from "../../../../support/network/network-machine.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const ID = "6f1f4f0e-54a3-4d5c-9a35-0f6d1b6b4a01";

const listener = (more: Partial<OverlayListener> = {}): OverlayListener => ({
  key: "tcp/any/8080",
  connector: ID,
  protocol: "tcp",
  addresses: ["0.0.0.0"],
  port: 8080,
  target: { service: "web" },
  maxFlows: 10,
  idleTimeoutMs: 900_000,
  ...more,
});

test("the filter has a line for each listener with restricted sources", () => {
  expect(sourceFilter([listener(), listener({ sources: ["10.0.0.0/8", "0.0.0.0/0"] })])).toBeUndefined();
  const text = sourceFilter([
    listener({ sources: ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "192.0.2.7/32", "192.0.2.7/32"] }),
    listener({ protocol: "udp", port: 53, addresses: ["192.0.2.1", "192.0.2.2"], sources: ["198.51.100.0/24"] }),
    listener({ port: 22, addresses: ["192.0.2.1"], sources: [] }),
  ]);
  expect(text?.split("\n").filter((line) => line.includes("dport"))).toEqual([
    "meta nfproto ipv4 tcp dport 8080 ip saddr != { 10.0.0.0/8, 192.0.2.7/32 } drop",
    "ip daddr { 192.0.2.1, 192.0.2.2 } udp dport 53 ip saddr != { 198.51.100.0/24 } drop",
    "ip daddr { 192.0.2.1 } tcp dport 22 drop",
  ]);
});

test("lists only blocks not contained in others, in any order and spelling", () => {
  const named = (sources: readonly string[]): string =>
    /saddr != \{ (.*) \}/.exec(sourceFilter([listener({ sources: [...sources] })]) ?? "")?.[1] ?? "";
  expect(named(["10.1.2.3/32", "10.1.0.0/16", "10.2.0.0/16", "10.0.0.0/8", "9.0.0.0/8"])).toBe("9.0.0.0/8, 10.0.0.0/8");
  expect(named(["10.0.0.0/8", "10.255.255.255/32", "11.0.0.0/32", "11.0.0.1/32"])).toBe(
    "10.0.0.0/8, 11.0.0.0/32, 11.0.0.1/32",
  );
  expect(named(["192.0.2.9/24", "192.0.2.0/24", "198.51.100.7", "198.51.100.7/32"])).toBe("192.0.2.9/24, 198.51.100.7");
});

test("a forbidden source gets no answer, and everything else is as without the filter", async () => {
  const machine = await networkMachine(
    tempDir(),
    {},
    [1, 2]
      .flatMap((at) => [
        `ip netns add h${at}`,
        `ip link add l${at} type veth peer name eth0 netns h${at}`,
        `ip address add 10.${at}.0.1/24 dev l${at}`,
        `ip link set l${at} up`,
        `ip -n h${at} address add 10.${at}.0.9/24 dev eth0`,
        `ip -n h${at} link set eth0 up`,
        `ip -n h${at} route add default via 10.${at}.0.1`,
      ])
      .join("\n"),
  );
  const text = sourceFilter([
    listener({ port: 7001, sources: ["10.1.0.0/24"] }),
    listener({ port: 7002, addresses: ["10.1.0.1"], sources: ["10.1.0.0/24"] }),
  ]);
  machine.sh(`nft -f - <<'EOF'\n${text}EOF`);
  /** Reports whether a port answers: a closed one refuses at once, a filtered one is silent. */
  const answers = (at: number, address: string, port: number): boolean =>
    machine.sh(`ip netns exec h${at} nc -v -z -w 1 ${address} ${port} 2>&1 || true`).includes("refused");
  expect([answers(1, "10.1.0.1", 7001), answers(2, "10.2.0.1", 7001)]).toEqual([true, false]);
  expect([answers(1, "10.1.0.1", 7002), answers(2, "10.1.0.1", 7002), answers(2, "10.2.0.1", 7002)]).toEqual([
    true,
    false,
    true,
  ]);
  expect(answers(2, "10.2.0.1", 7003)).toBe(true);
  expect(machine.sh("nc -v -z -w 1 127.0.0.1 7001 2>&1 || true")).toContain("refused");
});

const nodes = { find: () => "here" as const, nameOf: (uid: string) => uid, isCluster: () => false };
const seen = (filter: SourceFilterState | undefined, listeners: readonly OverlayListener[] = []) => ({
  listeners: new Map(listeners.map((one) => [one.key, one])),
  states: new Map(),
  addresses: new Map<string, readonly string[]>(),
  nodes,
  ...(filter === undefined ? {} : { filter }),
});

function desiredOf(sourceBlock: string | undefined) {
  const item = {
    node: "local",
    service: "web",
    protocol: "tcp",
    port: 8080,
    ...(sourceBlock === undefined ? {} : { sourceBlock }),
  };
  return normaliseConnectors({ version: 2, items: { [ID]: item } }, { nodeType: "Node" }).items;
}

test("loads, replaces and removes the filter as connectors require, and leaves it alone if impossible", () => {
  const filtersOf = (sourceBlock: string | undefined, filter?: SourceFilterState) =>
    planConnectors(desiredOf(sourceBlock), seen(filter)).filter(({ kind }) => kind === "filter");
  const [step] = filtersOf("10.0.0.0/8", {});
  const text = step?.kind === "filter" ? (step.text ?? "") : "";
  expect(text).toContain("tcp dport 8080 ip saddr != { 10.0.0.0/8 } drop");
  expect(filtersOf("10.0.0.0/8", { digest: firewallDigest(text) })).toEqual([]);
  expect(filtersOf("10.0.0.0/9", { digest: firewallDigest(text) })).toHaveLength(1);
  expect(filtersOf(undefined, { digest: firewallDigest(text) })).toEqual([
    { kind: "filter", subject: "source-filter", guarded: false },
  ]);
  expect(filtersOf(undefined, {})).toEqual([]);
  expect([filtersOf("10.0.0.0/8", { unusable: "nft: Operation not permitted" }), filtersOf("10.0.0.0/8")]).toEqual([
    [],
    [],
  ]);
});

test("on a machine without a filter, the connectors with a sourceBlock report it", () => {
  const actual = seen({ unusable: "nft: Operation not permitted" });
  expect(lateFilters(desiredOf("10.0.0.0/8"), actual)).toMatchObject([
    { path: `connectors.items.${ID}.sourceBlock`, code: "not-filtered" },
  ]);
  expect(lateFilters(desiredOf(undefined), actual)).toEqual([]);
  expect(lateFilters(desiredOf("10.0.0.0/8"), seen({}))).toEqual([]);
});
