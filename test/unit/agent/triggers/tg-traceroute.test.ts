import { expect, test } from "vitest";
import { TgTraceroute, tgTraceroute } from "../../../../src/agent/triggers/tg-traceroute.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostExec } from "../../../../src/host/exec.ts";
import { hostFiles } from "../../../../src/host/files.ts";
import { rig } from "./rig.ts";

const trigger = tgTraceroute(hostExec(systemClock()), hostFiles());

test.each<[string | undefined, readonly string[]]>([
  [undefined, ["-n"]],
  ["", []],
  ["  -n   -T -p 443 ", ["-n", "-T", "-p", "443"]],
  [
    "-4 -I -m 64 -q 10 -w 1 -f 1 -N 16 -z 0 -s 192.0.2.7 -F",
    "-4 -I -m 64 -q 10 -w 1 -f 1 -N 16 -z 0 -s 192.0.2.7 -F".split(" "),
  ],
])("the filter %j gives %j", (filter, flags) => {
  expect(TgTraceroute.parse({ host: "h", ...(filter === undefined ? {} : { filter }) }).filter).toEqual(flags);
});

test.each([
  "-i eth0",
  "-g 10.0.0.1",
  "--help",
  "-V",
  "--",
  "-",
  "-n;id",
  "-n\t-I",
  "-n\n-I",
  "$(id)",
  "-p",
  "-p 0",
  "-p 65536",
  "-p -1",
  "-p 80x",
  "-m 65",
  "-m 0",
  "-q 11",
  "-w 11",
  "-w 1.5",
  "-f 0",
  "-p443",
  "-s lo",
  "-s fe80::1%lo",
  "-s",
  "-p 1 -p 2",
  "-n -n",
  "10.0.0.1",
  "-z 1001",
  "-N 0",
  "ünïcode",
  "-n ".repeat(100),
  "x".repeat(4096),
])("the filter %j is refused", (filter) => {
  const parsed = TgTraceroute.safeParse({ host: "h", filter });
  expect(parsed.error?.issues[0]?.path).toEqual(["filter"]);
});

test("traces with the real tool, out of a link that exists", async () => {
  const { run } = rig([trigger]);
  const reply = await run("tg-traceroute", { body: { host: "127.0.0.1", iface: "lo" } });
  expect(reply).toMatchObject({ body: { output: { exitCode: "0" } } });
  expect(JSON.stringify(reply)).toContain("traceroute to 127.0.0.1 (127.0.0.1), 30 hops max");
});

test("names a link that does not exist, and one that could be none", async () => {
  const { run } = rig([trigger]);
  expect(await run("tg-traceroute", { body: { host: "127.0.0.1", iface: "nope0" } })).toMatchObject({
    error: { code: "not-found", details: { field: "iface" } },
  });
  for (const iface of ["..", "../lo", "a b", "-n", "x".repeat(16), ""]) {
    const reply = await run("tg-traceroute", { body: { host: "127.0.0.1", iface } });
    expect(reply).toMatchObject({ error: { code: "invalid-body" } });
  }
});
