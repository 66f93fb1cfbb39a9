import { expect, test } from "vitest";
import { TgTraceroute, tgTraceroute } from "../../../../../src/agent/triggers/diagnostics/tg-traceroute.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { hostExec } from "../../../../../src/host/process/exec.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import {
  EDGE_1,
  EDGE_2,
  GATEWAY_1,
  GATEWAY_2,
  refusedAs,
  ScriptedTunnels,
  someMesh,
  somePath,
} from "../../../../support/overlay/scripted-tunnels.ts";
import { rig } from "../../../../unit/agent/triggers/rig.ts";

const tunnels = new ScriptedTunnels();
const trigger = tgTraceroute(hostExec(systemClock()), hostFiles(), tunnels);

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
])("refuses the filter %j", (filter) => {
  const parsed = TgTraceroute.safeParse({ host: "h", filter });
  expect(parsed.error?.issues[0]?.path).toEqual(["filter"]);
});

test("traces with the real tool, out of an existing link", async () => {
  const { run } = rig([trigger]);
  const reply = await run("tg-traceroute", { body: { host: "127.0.0.1", iface: "lo" } });
  expect(reply).toMatchObject({ body: { output: { exitCode: "0" } } });
  expect(JSON.stringify(reply)).toContain("traceroute to 127.0.0.1 (127.0.0.1), 30 hops max");
});

test("names an unknown link, and an invalid one", async () => {
  const { run } = rig([trigger]);
  expect(await run("tg-traceroute", { body: { host: "127.0.0.1", iface: "nope0" } })).toMatchObject({
    error: { code: "not-found", details: { field: "iface" } },
  });
  for (const iface of ["..", "../lo", "a b", "-n", "x".repeat(16), ""]) {
    const reply = await run("tg-traceroute", { body: { host: "127.0.0.1", iface } });
    expect(reply).toMatchObject({ error: { code: "invalid-body" } });
  }
});

test("traces a peer through the tunnel: the gateway with its path, then the node", async () => {
  const scripted = new ScriptedTunnels();
  scripted.state = someMesh({ paths: [somePath(GATEWAY_1, { id: "wan2" }), somePath(GATEWAY_2, { carries: true })] });
  scripted.echoes = ({ peer }) => ({ rttMs: peer === EDGE_2 ? 2.5 : 1, gateway: GATEWAY_1, path: "wan2" });
  const reply = await traced(scripted, { host: "edge-2", filter: "-q 2 -n" });
  expect(reply).toEqual([
    "traceroute to edge-2.example.net through the tunnel, 64 byte packets",
    " 1  gw-1.example.net (path wan2, 198.51.100.1:8443)  1.000 ms  1.000 ms",
    " 2  edge-2.example.net  2.500 ms  2.500 ms",
    "",
  ]);
  expect(scripted.requested).toMatchObject([
    { peer: EDGE_2 },
    { peer: EDGE_2 },
    { peer: GATEWAY_1, path: "wan2" },
    { peer: GATEWAY_1, path: "wan2" },
  ]);
});

test("reports a name taken for a host if a node may be meant", async () => {
  const { run } = rig([tgTraceroute(hostExec(systemClock(), "/nowhere"), hostFiles(), new ScriptedTunnels())]);
  const message = "edge-9 is not a known node: used as a host name\n";
  const reported = { error: { code: "tool-missing", details: { output: { message } } } };
  expect(await run("tg-traceroute", { body: { host: "edge-9" } })).toMatchObject(reported);
});

test("a gateway is one hop, and so is a node behind this node's own gateway", async () => {
  const scripted = new ScriptedTunnels();
  expect((await traced(scripted, { host: "gw-1" })).slice(1)).toEqual([
    " 1  gw-1.example.net (default path, 198.51.100.1:8443)  1.250 ms  1.250 ms  1.250 ms",
    "",
  ]);
  scripted.echoes = () => ({ rttMs: 1, gateway: EDGE_1, path: "" });
  expect((await traced(scripted, { host: "edge-2", filter: "-q 1" })).slice(1)).toEqual([
    " 1  edge-2.example.net  1.000 ms",
    "",
  ]);
});

test("shows the gateway in use if the node does not answer", async () => {
  const scripted = new ScriptedTunnels();
  scripted.echoes = ({ peer }) =>
    peer === GATEWAY_1 ? { rttMs: 1, gateway: GATEWAY_1, path: "" } : refusedAs("not-connected");
  expect((await traced(scripted, { host: "edge-2" })).slice(1)).toEqual([
    " 1  gw-1.example.net (default path, 198.51.100.1:8443)  1.000 ms  1.000 ms  1.000 ms",
    " 2  edge-2.example.net  *  *  *",
    "",
  ]);
  scripted.state = undefined;
  scripted.echoes = (_, seq) => (seq % 2 === 0 ? { rttMs: 1, gateway: EDGE_2, path: "" } : refusedAs("timeout"));
  expect((await traced(scripted, { host: "edge-2" }))[1]).toContain("ms");
});

async function traced(scripted: ScriptedTunnels, body: unknown): Promise<readonly string[]> {
  const { run } = rig([tgTraceroute(hostExec(systemClock(), "/nowhere"), hostFiles(), scripted)]);
  const reply = await run("tg-traceroute", { body });
  expect(reply).toMatchObject({ body: { output: { exitCode: "0" } } });
  return (reply as { body: { output: { message: string } } }).body.output.message.split("\n");
}
