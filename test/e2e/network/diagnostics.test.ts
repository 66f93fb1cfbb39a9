import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { natCounters } from "../../../src/host/network/firewall/nat-counters.ts";
import { fileEnd } from "../../support/file-end.ts";
import { fakeTools } from "../../support/fake-tools.ts";
import { plugNeighbour } from "../../support/network/network-neighbour.ts";
import { privateNetwork } from "../../support/network/private-stage.ts";
import { freePort, registerNode, startAgent, startController } from "../../support/machine/programs.ts";
import { startHoldfast } from "../../support/run-holdfast.ts";
import { runVerb } from "../../support/run-verb.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const onFinished = fileEnd();
let stage: Awaited<ReturnType<typeof startStage>>;

// Later tests rely on an untouched connection tracker, and none on the routes and tables of those before.
beforeAll(async () => {
  stage = await startStage();
});

/** A node in a network namespace with a neighbour on `wan0`, and its control plane; needs root. */
async function startStage() {
  const dir = tempDir(onFinished);
  const port = await freePort();
  const controller = await startController(dir, port, [], { onFinished });
  const network = await privateNetwork(dir, port, "root", onFinished);
  const neighbour = await plugNeighbour(network, onFinished);
  const config = join(dir, "agent.json");
  // With any fullness of the machine's disk.
  writeFileSync(config, JSON.stringify({ dataStore: { reservePercent: 0 } }));
  const agent = await startAgent(join(dir, "node"), { within: network.within, more: ["--config", config], onFinished });
  const uid = await registerNode(controller, agent, "edge");
  const run = (event: string, body: object) => controller.call("POST", `/node/${uid}/trigger/${event}?wait=1`, body);
  const cli = (...args: readonly string[]) => runVerb([...args, "--run", agent.runDir]);
  const json = async (...args: readonly string[]): Promise<unknown> =>
    JSON.parse((await cli(...args, "--json")).stdout);
  return { ...neighbour, dir, agent, network, controller, uid, run, cli, json };
}

const text = ({ body }: { readonly body: unknown }): string =>
  (body as { readonly output: { readonly message: string } }).output.message;

test("lists who has an address, and the packets on the wire", async () => {
  const { run, here, cli, json, agent } = stage;
  const answered = await run("tg-arping", { iface: "wan0", host: "10.77.0.2" });
  expect(answered).toMatchObject({ status: 200, body: { output: { exitCode: "0" } } });
  expect(text(answered)).toContain("(10.77.0.2): index=4");
  const silent = await run("tg-arping", { iface: "wan0", host: "10.77.0.9" });
  expect(silent).toMatchObject({ status: 200, body: { output: { exitCode: "1" } } });
  expect(text(silent)).toContain("Timeout");
  expect(await run("tg-arping", { iface: "eth77", host: "10.77.0.2" })).toMatchObject({
    status: 404,
    body: { code: "not-found" },
  });
  expect(await run("tg-arping", { iface: "wan0", host: "::1" })).toMatchObject({
    status: 422,
  });

  const capturing = run("tg-tcpdump", { iface: "wan0", filter: "icmp", packetCount: 2 });
  const pings = setInterval(() => here("ping -c 1 -W 1 10.77.0.2 || true"), 200);
  const captured = await capturing;
  clearInterval(pings);
  expect(captured).toMatchObject({ status: 200, body: { output: { exitCode: "0", truncated: false } } });
  expect(text(captured)).toContain("IP 10.77.0.1 > 10.77.0.2: ICMP echo request");
  expect(text(captured)).toContain("2 packets captured");
  expect(await run("tg-tcpdump", { iface: "wan0", filter: "tcp prt 80" })).toMatchObject({
    status: 422,
    body: [expect.stringMatching(/^filter: /)],
  });

  // From the node's command line; Ctrl-C ends the tool with the session.
  const capture = startHoldfast(["capture", "wan0", "icmp or arp", "--run", agent.runDir]);
  await capture.until(/listening on wan0/);
  here("ping -c 1 -W 1 10.77.0.2");
  await capture.until(/ICMP echo reply/);
  capture.child.kill("SIGINT");
  expect((await capture.finished).code).toBe(0);
  await expect.poll(() => here(`pgrep -P ${agent.pid} tcpdump || true`)).toBe("");

  // The lines are in the data store once it has ended, by their count or by Ctrl-C.
  const saved = join(agent.stateDir, "data-store", "captures");
  const more = setInterval(() => here("ping -c 1 -W 1 10.77.0.2 || true"), 200);
  const kept = await cli("capture", "-c", "2", "wan0", "icmp", "--to", "/captures/two.txt");
  clearInterval(more);
  expect(kept).toMatchObject({ code: 0, stdout: readFileSync(join(saved, "two.txt"), "utf8") });
  expect(kept.stdout).toContain("IP 10.77.0.1 > 10.77.0.2: ICMP echo request");
  expect(kept.stderr).toMatch(/\/captures\/two\.txt: \d+ bytes written to the data store\n$/);
  const until = startHoldfast(["capture", "wan0", "icmp", "--to", "captures/ended.txt", "--run", agent.runDir]);
  await until.until(/listening on wan0/);
  here("ping -c 1 -W 1 10.77.0.2");
  await until.until(/ICMP echo reply/);
  expect(readdirSync(saved)).not.toContain("ended.txt");
  until.child.kill("SIGINT");
  await expect.poll(() => readdirSync(saved).sort()).toEqual(["ended.txt", "two.txt"]);
  expect(readFileSync(join(saved, "ended.txt"), "utf8")).toContain("ICMP echo reply");
  // Whole packets are stored only with the permission by name, which an administrator lacks.
  expect(await run("tg-capture", { action: "start", iface: "wan0" })).toMatchObject({ status: 403 });
  const debug = startHoldfast(["logs", "--debug", "triggers", "--run", agent.runDir]);
  expect(await json("captures", "start", "wan0", "icmp", "-m", "1")).toMatchObject({
    state: "RUNNING",
    capture: { iface: "wan0", filter: "icmp", maxMegabytes: 1, user: "local" },
  });
  // The kernel hands packets over in blocks, and tcpdump writes them in blocks.
  await waitFor("packets", async () => {
    here("ping -c 10 -i 0.01 -W 1 -p 5ec4e7 10.77.0.2");
    const { capture } = (await json("captures")) as { capture: { packets: number } };
    return capture.packets > 9;
  });
  expect((await cli("captures", "start", "wan0")).code).toBe(1);
  const stopped = await cli("captures", "stop");
  expect(stopped.stdout).toMatch(/^stopped \(wan0, icmp; started by local\), [1-9]\d+ packets, .*: it was stopped\n/);
  const name = readdirSync(saved).find((one) => /^capture-.*\.pcap0$/.test(one)) ?? "";
  expect(readFileSync(join(saved, name)).toString("hex")).toContain("5ec4e75ec4e7");
  expect(here(`tcpdump -n -r '${join(saved, name)}' 2>/dev/null`)).toContain("ICMP echo reply");
  expect(here(`pgrep -P ${agent.pid} tcpdump || true`)).toBe("");
  // The log's lines were printed as they arrived.
  await debug.until(/component=triggers, .*event=tg-capture, .*: trigger ended/);
  debug.child.kill("SIGINT");
  expect((await debug.finished).code).toBe(0);

  expect(await cli("capture", "-c", "1", "wan0", "--to", "../x")).toMatchObject({ code: 1, stdout: "" });
  expect(await cli("capture", "wan0", "nonsense (")).toMatchObject({ code: 1, stdout: "" });
  expect(await cli("capture", "-c", "0", "wan0")).toMatchObject({ code: 2 });
  expect(await cli("capture", "--", "-w")).toMatchObject({ code: 2 });
});

test("lists, counts and deletes flows that the kernel tracks", async () => {
  const { run, here, start, cli, json } = stage;
  here(
    "nft 'add table inet other; add chain inet other a { type filter hook output priority 0; }; add rule inet other a ct state new accept'",
  );
  expect(await json("flows", "-d", "10.77.0.0/24")).toEqual({ result: { icmp: [], tcp: [], udp: [] }, total: 0 });
  expect(here("cat /proc/sys/net/netfilter/nf_conntrack_acct").trim()).toBe("1");
  start("there", "nc", "-l", "-k", "-p", "8080", "-s", "10.77.0.2");
  start(
    "here",
    "bash",
    "--norc",
    "-c",
    "until exec 3<>/dev/tcp/10.77.0.2/8080; do sleep 0.1; done 2>/dev/null; echo hello >&3; sleep 600",
  );
  const shown = { p: "tcp", sip: "10.77.0.1", dip: "10.77.0.2", dport: 8080, state: "ESTABLISHED", def: false };
  await expect
    .poll(async () => ((await run("flows", { protocol: "tcp", destPort: 8080 })).body as { total: number }).total)
    .toBe(1);
  expect(await run("flows", { dest: "10.77.0.0/24" })).toMatchObject({
    status: 200,
    body: { result: { tcp: [{ ...shown, br: expect.any(Number) as number, con: expect.any(Number) as number }] } },
  });
  expect(await json("flows", "-s", "10.77.0.0/25", "--dport", "8080")).toMatchObject({
    result: { tcp: [shown] },
    total: 1,
  });
  expect((await cli("flows", "-p", "tcp", "-d", "10.77.0.2")).stdout).toMatch(
    /^tcp 10\.77\.0\.1:\d+ → 10\.77\.0\.2:8080: ESTABLISHED, /,
  );
  expect(await run("flows", { action: "delete" })).toMatchObject({
    status: 422,
    body: [expect.stringMatching(/^confirm: /)],
  });
  expect(await run("flows", { action: "delete", destPort: 9 })).toEqual({
    status: 200,
    body: { result: "success", deleted: 0 },
  });
  expect(await cli("flows", "-p", "tcp", "--dport", "8080", "--delete")).toMatchObject({
    code: 0,
    stdout: "1 flow deleted\n",
  });
  expect(here("conntrack -L -p tcp 2>/dev/null | grep -c 'dport=8080' || true").trim()).toBe("0");
  expect(await cli("flows", "--delete")).toMatchObject({ code: 2 });
  expect(await cli("flows", "--delete", "--all")).toMatchObject({ code: 0 });
  for (const wrong of [
    ["--dport", "0"],
    ["--sport", "x"],
    ["-p", "gre"],
    ["-s", "host"],
    ["-d", "10.0.0.0/33"],
    ["--all"],
  ]) {
    expect(await cli("flows", ...wrong)).toMatchObject({ code: 2 });
  }
  here("nft delete table inet other");
});

test("lists our routes, and the path to an address", async () => {
  const { here, cli, json } = stage;
  here(
    "ip route add 10.9.0.0/16 via 10.77.0.2 proto 218 metric 50; ip route add unreachable 10.8.0.0/16; ip route add 11.0.0.0/8 via 10.77.0.2 table 1000",
  );
  here("ip rule add priority 5200 to 11.0.0.0/8 table 1000 protocol 218");
  const { stdout } = await cli("routes");
  expect(stdout).toContain("table main\n");
  expect(stdout).toContain("* 10.9.0.0/16 via 10.77.0.2 dev wan0 metric 50 (holdfast)\n");
  expect(stdout).toContain("  unreachable 10.8.0.0/16");
  expect(stdout).toContain("* 5200: from all to 11.0.0.0/8 table 1000\n");
  expect(await json("routes", "--ours")).toMatchObject({
    routes: [{ destination: "10.9.0.0/16", via: "10.77.0.2", isOurs: true }],
    rules: [{ priority: 5200, isOurs: true }],
    truncated: {},
  });
  expect(await json("routes", "--table", "1000")).toMatchObject({
    routes: [{ destination: "11.0.0.0/8", table: 1000 }],
  });
  expect(await json("routes", "10.9.1.1")).toMatchObject({
    via: "10.77.0.2",
    matched: { destination: "10.9.0.0/16", isOurs: true },
  });
  expect((await cli("routes", "11.1.1.1")).stdout).toContain("by 11.0.0.0/8 of table 1000");
  expect(await cli("routes", "10.8.0.1")).toMatchObject({
    code: 1,
    stdout: "10.8.0.1: a route says that it is unreachable\n",
  });
  expect(await cli("routes", "192.0.2.1")).toMatchObject({ code: 1, stdout: "192.0.2.1: no route leads there\n" });
  expect(await cli("routes", "127.0.0.1")).toMatchObject({ code: 0, stdout: "127.0.0.1 is this machine's own\n" });
  for (const wrong of [["::1"], ["host"], ["--table", "main"], ["10.0.0.1", "10.0.0.2"]]) {
    expect(await cli("routes", ...wrong)).toMatchObject({ code: 2 });
  }
});

test("lists hits of translations, as counted by the kernel", async () => {
  const { here, cli, run, network } = stage;
  expect(await cli("nats")).toMatchObject({ code: 0, stdout: "the applied configuration has no translation\n" });
  expect(await cli("nats", "n-1")).toMatchObject({ code: 1 });
  expect(await run("nat-hits", {})).toMatchObject({ status: 422, body: [expect.stringMatching(/^action: /)] });
  expect(await run("nat-hits", { action: "RESET_ALL" })).toEqual({ status: 200, body: { reset: 0 } });
  here(`nft -f - <<'X'
table inet holdfast {
 map d0 { type ipv4_addr : interval ipv4_addr; flags interval; counter; elements = { 10.1.0.0/24 comment "n-1" : 10.77.0.0/24, 10.2.0.7 comment "n-2" : 10.77.0.2/32 } }
 chain out { type nat hook output priority -100
  dnat ip prefix to ip daddr map @d0
 }
 chain post { type nat hook postrouting priority 100
  ip daddr 10.77.0.0/24 counter masquerade comment "n-3"
 }
}
X`);
  here("ip route add 10.0.0.0/8 via 10.77.0.2; for i in 1 2 3; do ping -c 2 -i 0.2 -W 1 10.1.0.2 >/dev/null; done");
  const tools = fakeTools({ nft: `exec ${network.within.join(" ")} /usr/sbin/nft "$@"` });
  const hits = await natCounters(tools.exec)(new AbortController().signal);
  // Six packets of three flows.
  expect(Object.fromEntries(hits)).toEqual({ "n-1": 3, "n-2": 0, "n-3": 3 });
});
