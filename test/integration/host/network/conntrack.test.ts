import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  hostConntrack,
  listArguments,
  removalArguments,
  type FlowFilter,
} from "../../../../src/host/network/conntrack.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostExec } from "../../../../src/host/process/exec.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { fakeTools } from "../../../support/fake-tools.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";

const signal = new AbortController().signal;
const record = (_former: Readonly<Record<string, string>>): Promise<void> => Promise.resolve();
const reader = hostReader("/nowhere");
const line = (port: number, source = "10.0.0.1"): string =>
  `ipv4     2 tcp      6 9 ESTABLISHED src=${source} dst=10.0.0.2 sport=${port} dport=80 src=10.0.0.2 dst=${source} sport=80 dport=${port} mark=0 use=1 id=1`;

test.each<[FlowFilter, string]>([
  [{}, "-L -o extended,id,timestamp"],
  [{ protocol: "tcp", source: "10.0.0.0/8" }, "-L -o extended,id,timestamp -p tcp"],
  [{ protocol: "icmp" }, "-L -o extended,id,timestamp"],
])("listing %j: %s", (filter, args) => {
  expect(listArguments(filter).join(" ")).toBe(args);
});

test.each<[FlowFilter, readonly string[]]>([
  [{}, ["-D -f ipv4", "-D -f ipv6"]],
  [{ protocol: "icmp" }, ["-D -f ipv4 -p icmp", "-D -f ipv6 -p icmpv6"]],
  [{ source: "10.0.0.0/8" }, ["-D -f ipv4 --orig-src 10.0.0.0/8"]],
  [
    { dest: "fd00::1/128", destPort: 53 },
    ["tcp", "udp"].map((p) => `-D -f ipv6 -p ${p} --orig-dst fd00::1/128 --orig-port-dst 53`),
  ],
  [{ source: "10.0.0.1/32", dest: "fd00::1/128" }, []],
  [
    { protocol: "tcp", source: "10.0.0.1/32", sourcePort: 1, dest: "10.0.0.2/32", destPort: 2 },
    ["-D -f ipv4 -p tcp --orig-src 10.0.0.1/32 --orig-dst 10.0.0.2/32 --orig-port-src 1 --orig-port-dst 2"],
  ],
  [{ party: "172.18.0.9" }, ["-D -f ipv4 --orig-src 172.18.0.9", "-D -f ipv4 --reply-src 172.18.0.9"]],
  [
    { party: "172.18.0.9", source: "10.0.0.0/8", protocol: "tcp" },
    ["-D -f ipv4 -p tcp --orig-src 10.0.0.0/8 --reply-src 172.18.0.9"],
  ],
  [
    { party: "172.18.0.9", source: "172.18.0.0/16", destPort: 5, protocol: "udp" },
    [
      "-D -f ipv4 -p udp --orig-src 172.18.0.9 --orig-port-dst 5",
      "-D -f ipv4 -p udp --orig-src 172.18.0.0/16 --orig-port-dst 5 --reply-src 172.18.0.9",
    ],
  ],
])("deleting %j", (filter, lines) => {
  expect(removalArguments(filter).map((args) => args.join(" "))).toEqual(lines);
});

test("filters flows in this process, and ends the tool once there are enough", async () => {
  const flood = `printf '%s\\n' '${line(1)}' '${line(2, "11.0.0.1")}' '${line(3)}' noise '${line(4)}'; sleep 60`;
  const conntrack = hostConntrack({ exec: fakeTools({ conntrack: flood }).exec, reader, record });
  const found = await conntrack.list({ source: "10.0.0.0/8" }, 2, signal);
  expect(found.isTruncated).toBe(true);
  expect(found.flows.map(({ original }) => original.sourcePort)).toEqual([1, 3]);
});

test("the flows of one party are those it opens and those it answers, translated or not", async () => {
  const [web, other, host] = ["172.18.0.9", "10.0.0.1", "192.0.2.1"];
  const tuple = (from: string, to: string): string => `src=${from} dst=${to} sport=1 dport=2`;
  const flowOf = (original: string, reply: string): string =>
    `ipv4     2 tcp      6 9 ESTABLISHED ${original} ${reply} mark=0 use=1 id=1`;
  const lines = [
    flowOf(tuple(web, other), tuple(other, host)),
    flowOf(tuple(other, host), tuple(web, other)),
    flowOf(tuple(other, host), tuple(host, other)),
  ].map((text) => `'${text}'`);
  const conntrack = hostConntrack({
    exec: fakeTools({ conntrack: `printf '%s\\n' ${lines.join(" ")}` }).exec,
    reader,
    record,
  });
  const { flows } = await conntrack.list({ party: web }, 10, signal);
  expect(flows.map(({ original }) => original.source)).toEqual([web, other]);
});

test("a limit that is just reached truncates nothing, and a line without a newline is not a line", async () => {
  const conntrack = hostConntrack({
    exec: fakeTools({ conntrack: `echo '${line(1)}'; printf '%s' '${line(2)}'` }).exec,
    reader,
    record,
  });
  expect(await conntrack.list({}, 1, signal)).toMatchObject({
    flows: [{ original: { sourcePort: 1 } }],
    isTruncated: false,
  });
});

test("reports the tool's error, and the package of a missing one", async () => {
  const denied =
    "conntrack v1.4.7 (conntrack-tools): Operation failed: sorry, you must be root or get CAP_NET_ADMIN capability to do this";
  const conntrack = hostConntrack({
    exec: fakeTools({ conntrack: `echo '${denied}' >&2; exit 1` }).exec,
    reader,
    record,
  });
  const failure = {
    code: "exec-failed",
    message:
      "conntrack exited with status 1: Operation failed: sorry, you must be root or get CAP_NET_ADMIN capability to do this",
  };
  await expect(conntrack.list({}, 1, signal)).rejects.toMatchObject(failure);
  await expect(conntrack.remove({}, signal)).rejects.toMatchObject(failure);
  const bare = hostConntrack({ exec: hostExec(systemClock(), "/nowhere"), reader, record });
  await expect(bare.list({}, 1, signal)).rejects.toMatchObject({
    code: "tool-missing",
    message: "conntrack is not installed: on Debian it is in the package conntrack",
    details: { tool: "conntrack", package: "conntrack" },
  });
});

test("no flow to delete is a result; counts deleted ones over the families", async () => {
  const script = `
case "$*" in
  *ipv6*) echo 'conntrack v1.4.7 (conntrack-tools): 0 flow entries have been deleted.' >&2; exit 1;;
  *) echo 'conntrack v1.4.7 (conntrack-tools): 12 flow entries have been deleted.' >&2;;
esac`;
  const tools = fakeTools({ conntrack: script });
  const conntrack = hostConntrack({ exec: tools.exec, reader, record });
  expect(await conntrack.remove({ destPort: 53 }, signal)).toBe(24);
  expect(tools.calls("conntrack")).toEqual([
    "-D -f ipv4 -p tcp --orig-port-dst 53",
    "-D -f ipv4 -p udp --orig-port-dst 53",
    "-D -f ipv6 -p tcp --orig-port-dst 53",
    "-D -f ipv6 -p udp --orig-port-dst 53",
  ]);
  await expect(
    hostConntrack({
      exec: fakeTools({ conntrack: "echo 'mismatched address family' >&2; exit 2" }).exec,
      reader,
      record,
    }).remove({}, signal),
  ).rejects.toMatchObject({ code: "exec-failed" });
});

test("an abort ends the tool", async () => {
  const abort = new AbortController();
  const conntrack = hostConntrack({ exec: fakeTools({ conntrack: "sleep 60" }).exec, reader, record });
  const listing = conntrack.list({}, 1, abort.signal);
  abort.abort(new Error("enough"));
  await expect(listing).rejects.toThrow("enough");
});

function stage(values: Readonly<Record<string, string>>, keep: typeof record = record) {
  const { root, reader: machine } = machineRoot(
    Object.fromEntries(
      Object.entries(values).map(([name, value]) => [`/proc/sys/net/netfilter/${name}`, `${value}\n`]),
    ),
  );
  const done: unknown[] = [];
  const conntrack = hostConntrack({
    exec: hostExec(systemClock()),
    reader: machine,
    record: async (former) => {
      done.push(former);
      await keep(former);
    },
    write: async (name, value) => {
      done.push([name, value]);
      writeFileSync(join(root, "proc/sys", name.replaceAll(".", "/")), value);
    },
  });
  return { conntrack, done };
}

test("switches counting on if it is off, and stores the previous value before", async () => {
  const { conntrack, done } = stage({ nf_conntrack_acct: "0", nf_conntrack_timestamp: "1" });
  expect(await conntrack.account()).toBe(true);
  expect(await conntrack.account()).toBe(true);
  expect(done).toEqual([{ "net.netfilter.nf_conntrack_acct": "0" }, ["net.netfilter.nf_conntrack_acct", "1"]]);
});

test("does not change what cannot be recorded, and a kernel without these settings counts nothing", async () => {
  const { conntrack, done } = stage({ nf_conntrack_acct: "0", nf_conntrack_timestamp: "0" }, () =>
    Promise.reject(new Error("the disk is full")),
  );
  await expect(conntrack.account()).rejects.toThrow("the disk is full");
  expect(done).toHaveLength(1);
  expect(await stage({}).conntrack.account()).toBe(false);
});
