import { pino } from "pino";
import { expect, test } from "vitest";
import { flows, flowsAnswer, rowOf, type CarriedFlows } from "../../../../../src/agent/triggers/diagnostics/flows.ts";
import { parseFlow, type TrackedFlow } from "../../../../../src/host/network/conntrack-line.ts";
import type { Conntrack, FlowFilter } from "../../../../../src/host/network/conntrack.ts";
import type { OverlayFlow, OverlayFlowFilter } from "../../../../../src/protocol/overlay/overlay.ts";
import { Flows } from "../../../../../src/protocol/triggers/bodies.ts";
import { uidOf } from "../../../../support/overlay/mesh.ts";
import { rig } from "../rig.ts";

const TCP =
  "ipv4     2 tcp      6 59 SYN_RECV src=10.77.0.1 dst=10.77.0.2 sport=37126 dport=8080 packets=3 bytes=167 src=10.77.0.2 dst=10.77.0.1 sport=8080 dport=37126 packets=2 bytes=112 mark=0 delta-time=2 use=1 id=2522129265";
const PING =
  "ipv6     10 icmpv6   58 29 src=::1 dst=::1 type=128 code=0 id=4071 src=::1 dst=::1 type=129 code=0 id=4071 mark=0 use=1 id=2942275421";
const TRANSLATED =
  "ipv4     2 udp      17 28 src=10.0.0.1 dst=8.8.8.8 sport=5000 dport=53 src=8.8.8.8 dst=192.0.2.1 sport=53 dport=1024 mark=0 use=1 id=5";
const OTHER =
  "ipv4     2 gre      47 29 src=10.0.0.1 dst=10.0.0.2 srckey=0x0 dstkey=0x0 src=10.0.0.2 dst=10.0.0.1 srckey=0x0 dstkey=0x0 mark=0 use=1 id=7";

const NONE = { flows: [], total: 0 };
const flow = (line: string): TrackedFlow => {
  const parsed = parseFlow(line);
  if (parsed === undefined) throw new Error("no flow");
  return parsed;
};

class ScriptedConntrack implements Conntrack {
  readonly calls: unknown[][] = [];
  found: readonly TrackedFlow[] = [];
  refusal: Error | undefined;
  list(filter: FlowFilter, limit: number) {
    this.calls.push(["list", filter, limit]);
    return Promise.resolve({ flows: this.found, isTruncated: false });
  }
  remove(filter: FlowFilter) {
    this.calls.push(["remove", filter]);
    return Promise.resolve(3);
  }
  account() {
    return this.refusal === undefined ? Promise.resolve(true) : Promise.reject(this.refusal);
  }
}

/** The overlay's flows; the overlay checks the filter. */
class ScriptedOverlay implements CarriedFlows {
  readonly calls: unknown[] = [];
  live: readonly OverlayFlow[] = [];
  flows(filter: OverlayFlowFilter) {
    this.calls.push(["list", filter]);
    return Promise.resolve({ flows: [...this.live], total: this.live.length });
  }
  cutFlows(filter: OverlayFlowFilter) {
    this.calls.push(["cut", filter]);
    return Promise.resolve({ flows: [...this.live], total: this.live.length });
  }
}

const NOW = 1_700_000_000_000;
const CARRIED: OverlayFlow = {
  id: "5f2e",
  listener: "tcp 10.77.0.2 8080",
  connector: "web",
  peer: uidOf(4),
  service: "intranet",
  protocol: "tcp",
  sourceIp: "10.77.0.1",
  sourcePort: 37_126,
  destIp: "10.77.0.2",
  destPort: 8080,
  sourceBytes: 10,
  destBytes: 2000,
  startedAt: NOW - 65_000,
  endedAt: NOW,
};

function stage(found: readonly TrackedFlow[] = [], live: readonly OverlayFlow[] = []) {
  const overlay = new ScriptedOverlay();
  overlay.live = live;
  const conntrack = new ScriptedConntrack();
  conntrack.found = found;
  const web = { id: "3F2B", name: "web", address: "172.18.0.9" };
  const { run } = rig([
    flows({ conntrack, carried: overlay, clock: { now: () => NOW }, log: pino({ level: "silent" }) }, () => [
      web,
      { ...web, name: "off", id: "2", address: undefined },
    ]),
  ]);
  return { conntrack, overlay, ask: (body: unknown) => run("flows", { body }) };
}

test("lists flows by protocol, in the platform's words", async () => {
  const { ask, conntrack } = stage([TCP, PING, TRANSLATED, OTHER].map(flow));
  expect(await ask({ name: "flows" })).toEqual({
    body: {
      result: {
        icmp: [{ sip: "::1", dip: "::1", p: "icmp", lid: 4071, nid: 4071, state: "ESTABLISHED", def: false }],
        tcp: [
          {
            sip: "10.77.0.1",
            dip: "10.77.0.2",
            p: "tcp",
            sport: 37_126,
            dport: 8080,
            state: "SYN_RECEIVED",
            br: 112,
            bw: 167,
            con: 2,
            def: false,
          },
        ],
        udp: [
          {
            sip: "10.0.0.1",
            dip: "8.8.8.8",
            p: "udp",
            sport: 5000,
            dport: 53,
            state: "ESTABLISHED",
            def: false,
            meta: { reply: { sip: "8.8.8.8", dip: "192.0.2.1", sport: 53, dport: 1024 } },
          },
        ],
      },
      total: 3,
    },
  });
  expect(conntrack.calls).toEqual([["list", {}, 50_000]]);
  expect(rowOf(flow(OTHER))).toBeUndefined();
});

test("a flow through a connector is one flow, with its bytes and its target", async () => {
  const { ask, overlay } = stage([flow(TCP)], [CARRIED, { ...CARRIED, id: "6a", sourcePort: 4 }]);
  const row = {
    sip: "10.77.0.1",
    dip: "10.77.0.2",
    p: "tcp",
    sport: 37_126,
    dport: 8080,
    state: "SYN_RECEIVED",
    br: 2000,
    bw: 10,
    con: 65,
    def: false,
    meta: { flow: "5f2e", connector: "web", service: "intranet", peer: uidOf(4) },
  };
  expect(await ask({ protocol: "tcp", dest: "10.77.0.2" })).toEqual({
    body: {
      result: {
        icmp: [],
        tcp: [row, { ...row, sport: 4, state: "ESTABLISHED", meta: { ...row.meta, flow: "6a" } }],
        udp: [],
      },
      total: 2,
    },
  });
  expect(overlay.calls).toEqual([["list", { protocol: "tcp", dest: "10.77.0.2/32" }]]);
});

test("deleting cuts flows through connectors, and counts each once", async () => {
  const { ask, overlay, conntrack } = stage([flow(TCP)], [CARRIED, { ...CARRIED, sourcePort: 4 }]);
  // The kernel deletes three, one of them a connector's.
  expect(await ask({ action: "delete", destPort: 8080 })).toEqual({ body: { result: "success", deleted: 4 } });
  expect(overlay.calls).toEqual([["cut", { destPort: 8080 }]]);
  expect(await ask({ action: "delete", protocol: "icmp" })).toEqual({ body: { result: "success", deleted: 3 } });
  expect(overlay.calls).toHaveLength(1);
  expect(conntrack.calls.at(-1)).toEqual(["remove", { protocol: "icmp" }]);
});

test("0 and the empty text are no filter; blocks have one spelling", async () => {
  const { ask, conntrack } = stage();
  const screen = { protocol: "any", source: "", dest: "", sourcePort: 0, destPort: 0, containerId: "", networkId: 0 };
  await ask(screen);
  await ask({ protocol: "tcp", source: "10.1.2.3/8", dest: "192.0.2.1", sourcePort: 1, destPort: 65_535 });
  expect(conntrack.calls).toEqual([
    ["list", {}, 50_000],
    ["list", { protocol: "tcp", source: "10.0.0.0/8", dest: "192.0.2.1/32", sourcePort: 1, destPort: 65_535 }, 50_000],
  ]);
});

test("deleting needs a filter, or a confirmation", async () => {
  const { ask, conntrack } = stage();
  expect(await ask({ action: "delete" })).toMatchObject({
    error: { code: "invalid-body", details: { field: "confirm" } },
  });
  expect(await ask({ action: "delete", protocol: "any", source: "" })).toHaveProperty("error");
  expect(conntrack.calls).toEqual([]);
  expect(await ask({ action: "delete", protocol: "udp", destPort: 53 })).toEqual({
    body: { result: "success", deleted: 3 },
  });
  expect(await ask({ action: "delete", confirm: true })).toEqual({ body: { result: "success", deleted: 3 } });
  expect(conntrack.calls.filter(([call]) => call === "remove")).toEqual([
    ["remove", { protocol: "udp", destPort: 53 }],
    ["remove", {}],
  ]);
});

test("lists flows also when they cannot be counted", async () => {
  const { ask, conntrack } = stage([flow(PING)]);
  conntrack.refusal = new Error("read-only");
  expect(await ask({})).toMatchObject({ body: { total: 1 } });
});

test("names an unknown container and virtual network", async () => {
  const { ask, conntrack } = stage();
  for (const containerId of ["db", "off", "172.18.0.9"]) {
    expect(await ask({ containerId })).toMatchObject({
      error: { code: "not-found", details: { field: "containerId" } },
    });
  }
  for (const networkId of [7, "7", "corp"]) {
    expect(await ask({ networkId })).toMatchObject({ error: { code: "not-found", details: { field: "networkId" } } });
  }
  expect(conntrack.calls).toEqual([]);
});

test("the flows of a container, by its id or its name, are those of its address", async () => {
  const { ask, conntrack } = stage();
  await ask({ containerId: "web" });
  await ask({ containerId: "3f2b", action: "delete", destPort: 443 });
  expect(conntrack.calls).toEqual([
    ["list", { party: "172.18.0.9" }, 50_000],
    ["list", { party: "172.18.0.9", destPort: 443 }, 50_000],
    ["remove", { party: "172.18.0.9", destPort: 443 }],
  ]);
});

test("limits the list to one message, with the total number", () => {
  const one = flow(TCP);
  const bytes = JSON.stringify(rowOf(one)).length + 1;
  expect(flowsAnswer({ flows: [one, one, one], isTruncated: false }, NONE, NOW, 2 * bytes + 1)).toMatchObject({
    result: { tcp: [{}, {}] },
    total: 3,
    truncated: true,
  });
  expect(flowsAnswer({ flows: [one], isTruncated: true }, NONE, NOW)).toMatchObject({ total: 1, truncated: true });
  const many = flowsAnswer({ flows: Array.from({ length: 50_000 }, () => one), isTruncated: false }, NONE, NOW);
  expect(many).toMatchObject({ total: 50_000, truncated: true });
  expect(JSON.stringify(many).length).toBeLessThan(1024 * 1024 - 1024);
});

test.each([
  [{ action: "list" }, "action"],
  [{ protocol: "gre" }, "protocol"],
  [{ protocol: "icmp", destPort: 80 }, "protocol"],
  [{ source: "host" }, "source"],
  [{ source: "10.0.0.0/33" }, "source"],
  [{ source: "10.0.0.1; id" }, "source"],
  [{ source: "-D" }, "source"],
  [{ dest: "fe80::1%eth0" }, "dest"],
  [{ dest: 7 }, "dest"],
  [{ dest: "1".repeat(50) }, "dest"],
  [{ sourcePort: -1 }, "sourcePort"],
  [{ sourcePort: 1.5 }, "sourcePort"],
  [{ destPort: 65_536 }, "destPort"],
  [{ destPort: "80" }, "destPort"],
  [{ containerId: 7 }, "containerId"],
  [{ containerId: "c".repeat(129) }, "containerId"],
  [{ networkId: -1 }, "networkId"],
  [{ networkId: {} }, "networkId"],
  [{ confirm: "yes" }, "confirm"],
])("refuses %j for its %s", async (body, field) => {
  expect(Flows.safeParse(body).error?.issues[0]?.path).toEqual([field]);
  expect(await stage().ask(body)).toMatchObject({ error: { code: "invalid-body", details: { field } } });
});
