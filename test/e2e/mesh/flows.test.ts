import { execFile, execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { blockUdp, cut, pause, resume } from "../../../scripts/labs/faults.ts";
import { GATEWAY_PORT } from "../../../scripts/labs/layout.ts";
import type { Lab } from "../../../scripts/labs/lab.ts";
import { startAside } from "../../../scripts/labs/programs.ts";
import { NetworkReport } from "../../../src/cli/netcheck/result.ts";
import { aTftpd, aVsftpd } from "../../support/data-store/file-servers.ts";
import { carrierOf, pathsOf, untilAllUp, untilPath } from "../../support/overlay/mesh-paths.ts";
import {
  aTalker,
  connectorsOf,
  ECHO_PORT,
  eventsOf,
  flowsOf,
  healAfter,
  isServed,
  meshStage,
  startEcho,
  talk,
  type Talker,
  untilOver,
  untilServed,
} from "../../support/overlay/mesh-stage.ts";
import { endUnitsBelow } from "../../support/machine/real-units.ts";
import { isDue } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";
import type { ConnectorView } from "../../../src/protocol/local/overlay.ts";

const SSHD_PORT = 2222;
const SSH_PORT = 7022;
const run = promisify(execFile);
const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
const stage = meshStage();
const large = "0123456789abcdef".repeat(64 * 1024);
const echo = { protocol: "tcp", host: "127.0.0.1", port: ECHO_PORT };

async function connectorOn(port: number): Promise<ConnectorView> {
  const found = (await connectorsOf(stage.lab, "a")).find(({ listen }) => listen?.port === port);
  if (found === undefined) throw new Error(`no connector on ${port}`);
  return found;
}

/** Waits until a connector of A has counted a refusal for this reason. */
async function untilRefused(port: number, reason: string): Promise<void> {
  await waitFor(`refused as ${reason}`, async () => {
    expect(await isServed(stage.lab, "a", port)).toBe(false);
    const { counters } = await connectorOn(port);
    return Object.keys(counters?.refusals ?? {}).includes(reason);
  });
}

// Later tests use its services and its connectors.
test("carries TCP and UDP to another site through a gateway, half-closes intact", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "echo", ...echo });
  await stage.service("b", { name: "echo-udp", ...echo, protocol: "udp" });
  await stage.connector("a", { node: "b", service: "echo", port: 7001 });
  await stage.connector("a", { node: "b", service: "echo-udp", port: 7002, protocol: "udp" });
  const flow = await untilServed(lab, "a", 7001);
  await talk(flow, large);
  flow.end();
  expect(await untilOver(flow)).toBe("end");

  const asker = aTalker(lab, "a", 7002, "127.0.0.1", "ask");
  await waitFor("a datagram comes back", () => {
    asker.send("who?");
    return asker.text().startsWith("who?");
  });
});

test("refuses what the destination does not serve with the reason at the source, and counts it", async () => {
  const { lab } = stage;
  await stage.connector("a", { node: "b", service: "nothing-of-the-kind", port: 7011 });
  await untilRefused(7011, "unknown-service");

  await stage.service("b", { name: "closed", ...echo, port: 9 });
  await stage.connector("a", { node: "b", service: "closed", port: 7012 });
  await waitFor("it is refused", async () => {
    expect(await isServed(lab, "a", 7012)).toBe(false);
    const { refusals = {} } = (await connectorOn(7012)).counters ?? {};
    return Object.keys(refusals).some((reason) => reason === "connect-refused" || reason === "service-down");
  });
});

test("refuses what the destination's document does not grant, whatever the source's document has", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "later", ...echo });
  const agent = lab.pidOf("b", "agent");
  expect(agent).toBeDefined();
  process.kill(agent ?? 0, "SIGSTOP");
  try {
    await stage.connector("a", { node: "b", service: "later", port: 7021 });
    await untilRefused(7021, "not-granted");
  } finally {
    process.kill(agent ?? 0, "SIGCONT");
  }
  await untilServed(lab, "a", 7021);
});

test("a revoked grant ends its flows and no other, even when the source has not received the document", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "kept", ...echo });
  await stage.service("b", { name: "taken", ...echo });
  await stage.connector("a", { node: "b", service: "kept", port: 7031 });
  const id = await stage.connector("a", { node: "b", service: "taken", port: 7032 });
  const kept = await untilServed(lab, "a", 7031);
  const taken = await untilServed(lab, "a", 7032);
  const agent = lab.pidOf("a", "agent");
  process.kill(agent ?? 0, "SIGSTOP");
  try {
    await lab.call("DELETE", `/v2/node/{a}/config/connectors/${id}`);
    await untilOver(taken);
    expect(await isServed(lab, "a", 7032)).toBe(false);
    await talk(kept, "still here");
  } finally {
    process.kill(agent ?? 0, "SIGCONT");
  }
  await talk(kept, "and still");
});

test("a service that leads into a connector of its own node is no loop", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "ring", ...echo, port: 7062 });
  await stage.service("a", { name: "ring-back", ...echo, port: 7061 });
  await stage.connector("b", { node: "a", service: "ring-back", port: 7062 });
  await stage.connector("a", { node: "b", service: "ring", port: 7061 });
  await untilRefused(7061, "loop");
  const { counters } = await connectorOn(7061);
  // None arrived, and none looped.
  expect(counters?.flowsTotal).toBe(0);
  const round = (await connectorsOf(lab, "b")).find(({ listen }) => listen?.port === 7062)?.counters;
  expect([round?.flowsTotal ?? 0, round?.refusals ?? {}]).toEqual([0, {}]);
});

test("an inactive destination serves nobody, and everybody again once it is active", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "switched", ...echo });
  await stage.connector("a", { node: "b", service: "switched", port: 7071 });
  const flow = await untilServed(lab, "a", 7071);
  await lab.call("PUT", "/node/{b}", { state: "INACTIVE" });
  await untilOver(flow);
  expect(await isServed(lab, "a", 7071)).toBe(false);
  await lab.call("PUT", "/node/{b}", { state: "ACTIVE" });
  await untilServed(lab, "a", 7071);
});

test("a removed service ends its flows, and the sources get the reason", async () => {
  const { lab } = stage;
  const id = await stage.service("b", { name: "moving", ...echo });
  await stage.connector("a", { node: "b", service: "moving", port: 7041 });
  const flow = await untilServed(lab, "a", 7041);
  await lab.call("DELETE", `/v2/node/{b}/config/services/${id}`);
  await untilOver(flow);
  await untilRefused(7041, "unknown-service");
});

test("a node with stopped programs loses no flow once they continue", async () => {
  const { lab } = stage;
  await stage.service("b", { name: "slow", ...echo });
  await stage.connector("a", { node: "b", service: "slow", port: 7051 });
  const flow = await untilServed(lab, "a", 7051);
  pause(lab, "a");
  flow.send("late");
  const [file = "", ...args] = lab.network.on("a");
  // Bytes in a receive queue: Recv-Q is the first column (ss(8)).
  const sockets = [...args, "ss", "-tnH", "state", "established", "sport = :7051"];
  await waitFor("it waits for the overlay", () => /^\s*[1-9]/m.test(execFileSync(file, sockets, { encoding: "utf8" })));
  resume(lab, "a");
  await waitFor("what was sent meanwhile", () => flow.text().endsWith("late"));
});

test("both sides have recorded every flow of these, with the reason of a refusal", async () => {
  const { lab } = stage;
  const isIt = (record: Readonly<Record<string, unknown>>): boolean => Number(record["sourceBytes"]) > large.length;
  const atSource = await waitFor("the record at A", async () => (await flowsOf(lab, "a")).find(isIt));
  const atDestination = await waitFor("the record at B", async () => (await flowsOf(lab, "b")).find(isIt));
  const { id } = await connectorOn(7001);
  expect(atSource).toMatchObject({ protocol: "TCP", meta: { connector: id, service: "echo" } });
  expect(atDestination).toMatchObject({ destIP: "127.0.0.1", destPort: ECHO_PORT, meta: { service: "echo" } });
  expect(atSource["sourceBytes"]).toBe(atDestination["sourceBytes"]);
  expect(atSource["destBytes"]).toBe(atDestination["destBytes"]);

  for (const [node, service] of [
    ["a", "nothing-of-the-kind"],
    ["b", "nothing-of-the-kind"],
    ["a", "closed"],
    ["b", "closed"],
  ] as const) {
    // Before its document arrives, the destination refuses what is not granted yet.
    await waitFor(`the refusal of ${service} in a record of ${node}`, async () =>
      (await flowsOf(lab, node)).some(
        ({ meta }) =>
          (meta as { service?: string }).service === service &&
          /unknown-service|connect-refused|service-down/.test(JSON.stringify(meta)),
      ),
    );
  }
});

/** Returns the answer of a node's event to a waiting caller. */
async function triggered(lab: Lab, node: string, event: string, body: unknown): Promise<unknown> {
  return lab.call("POST", `/node/{${node}}/trigger/${event}?wait=1`, body);
}

/** Runs something of A while the same gateway carries before and after, and returns that gateway with the result. */
function whileOneCarries<T>(run: () => Promise<T>): Promise<readonly [string, T]> {
  return waitFor("one gateway carries all the time", async () => {
    const carrier = await carrierOf(stage.lab, "a");
    const result = await run();
    return (await carrierOf(stage.lab, "a")) === carrier && ([carrier, result] as const);
  });
}

const messageOf = (answer: unknown): string => (answer as { output: { message: string } }).output.message;

test("pings and traces another node through the tunnel, and names the path", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const [carrier, pinged] = await whileOneCarries(() => lab.holdfast("a", "ping", "-c", "2", "b"));
  expect(pinged).toMatch(new RegExp(`seq=1 time=[\\d.]+ ms by ${carrier}\\.lab\\.example \\(default path\\)`));
  expect(pinged).toContain("2 sent, 2 answered, 0% lost");
  const [over, answer] = await whileOneCarries(() => triggered(lab, "a", "tg-ping", { host: "b", count: 1 }));
  expect(messageOf(answer)).toContain(`by ${over}.lab.example, default path`);
  const [through, traced] = await whileOneCarries(() =>
    triggered(lab, "a", "tg-traceroute", { host: "b.lab.example" }),
  );
  const hops = messageOf(traced).split("\n");
  expect(hops[1]).toMatch(
    new RegExp(`^ 1 {2}${through}\\.lab\\.example \\(default path, [\\d.]+:\\d+\\)( {2}[\\d.]+ ms){3}$`),
  );
  expect(hops[2]).toMatch(/^ 2 {2}b\.lab\.example( {2}[\d.]+ ms){3}$/);
  // The gateway reaches its clients, and both list each other.
  expect(messageOf(await triggered(lab, carrier, "gateway-ping", { dest: "a", interval: 1, count: 1 }))).toContain(
    "64 bytes from a.lab.example: seq=0  time=",
  );
  expect(messageOf(await triggered(lab, "a", "gateway-perf", { dest: "b", bytes: 3_000_000 }))).toMatch(
    /^Sending 3000000 bytes to b\.lab\.example\n\.\.\.\nby .*\n3000000 bytes in \d+\.\d{3} seconds, rate=[\d.]+ Mbps\n$/,
  );
  const { output } = (await triggered(lab, "a", "gateway-routes", {})) as { output: Record<string, unknown> };
  expect(output).toMatchObject({ available: 2, connected: 2, domains: [{ name: "lab.example" }] });
  const listed = await triggered(lab, carrier, "gateway-routes", {});
  expect(JSON.stringify(listed)).toContain('"name":"a"');
});

test.runIf(isDue("FTP and TFTP through a gateway"))(
  "downloads files of FTP and TFTP servers from another site through a gateway",
  async () => {
    const { lab } = stage;
    const dir = tempDir();
    const at = lab.network.on("b");
    const [files, boot] = [await aVsftpd(dir, at), await aTftpd(dir, at)];
    writeFileSync(join(files.root, "upload/note"), "read me");
    writeFileSync(join(boot.root, "loader"), "boot me");
    const host = "127.0.0.1";
    await stage.service("b", { name: "files", protocol: "ftp", host, port: files.port });
    await stage.service("b", { name: "boot", protocol: "tftp", host, port: boot.port });
    await stage.connector("a", { node: "b", service: "files", port: 7101, protocol: "ftp" });
    await stage.connector("a", { node: "b", service: "boot", port: 7102, protocol: "tftp" });
    const fetch = async (url: string): Promise<string> => {
      const [command, ...args] = [...lab.network.on("a"), "curl", "-sS", "--max-time", "10", "--no-ftp-skip-pasv-ip"];
      const { stdout } = await run(command, [...args, url]);
      return stdout;
    };
    expect(await waitFor("the note", () => fetch("ftp://127.0.0.1:7101/upload/note"))).toBe("read me");
    expect(await waitFor("the loader", () => fetch("tftp://127.0.0.1:7102/loader"))).toBe("boot me");
    const isNote = ({ destBytes }: Readonly<Record<string, unknown>>): boolean => destBytes === "read me".length;
    for (const node of ["a", "b"]) {
      const record = await waitFor(`the record of ${node}`, async () => (await flowsOf(lab, node)).find(isNote));
      expect(record).toMatchObject({ protocol: "TCP", meta: { service: "files" } });
    }
  },
);

test.runIf(isDue("ssh through a gateway"))(
  "ssh and sftp work through a connector to a service on another node",
  async () => {
    const { lab } = stage;
    const dir = join(lab.dir, "ssh");
    mkdirSync(dir, { mode: 0o700 });
    // sshd(8) refuses to start without it.
    mkdirSync("/run/sshd", { recursive: true, mode: 0o755 });
    const at = (name: string): string => join(dir, name);
    for (const key of ["host", "user"]) {
      execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", at(key)]);
    }
    writeFileSync(at("authorized"), readFileSync(at("user.pub")), { mode: 0o600 });
    writeFileSync(at("known"), `[127.0.0.1]:${SSH_PORT} ${readFileSync(at("host.pub"), "utf8")}`);
    const settings = {
      ListenAddress: `127.0.0.1:${SSHD_PORT}`,
      HostKey: at("host"),
      AuthorizedKeysFile: at("authorized"),
      PidFile: at("pid"),
      PermitRootLogin: "prohibit-password",
      StrictModes: "no",
      UsePAM: "no",
      Subsystem: "sftp internal-sftp",
    };
    writeFileSync(
      at("sshd_config"),
      Object.entries(settings)
        .map(([name, value]) => `${name} ${value}\n`)
        .join(""),
    );
    const onB = lab.network.on("b");
    startAside(onB, ["/usr/sbin/sshd", "-D", "-e", "-f", at("sshd_config")], at("log"));
    await waitFor("sshd listens", () =>
      execFileSync(onB[0] ?? "", [...onB.slice(1), "ss", "-ltnH"], { encoding: "utf8" }).includes(`:${SSHD_PORT}`),
    );
    await stage.service("b", { name: "ssh", protocol: "tcp", host: "127.0.0.1", port: SSHD_PORT });
    await stage.connector("a", { node: "b", service: "ssh", port: SSH_PORT });

    const options = Object.entries({
      BatchMode: "yes",
      IdentityFile: at("user"),
      IdentitiesOnly: "yes",
      UserKnownHostsFile: at("known"),
      StrictHostKeyChecking: "yes",
      ConnectTimeout: "30",
    }).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
    const onA = (command: string, args: readonly string[], input = ""): string => {
      const [file = "", ...rest] = lab.network.on("a");
      return execFileSync(file, [...rest, command, "-F", "none", ...options, ...args], {
        input,
        encoding: "utf8",
        timeout: 120_000,
        maxBuffer: 1 << 24,
      });
    };
    const ssh = (line: string, input = ""): string =>
      onA("ssh", ["-p", String(SSH_PORT), "root@127.0.0.1", line], input);
    await waitFor("ssh runs a command there", () => {
      try {
        return ssh("ip netns identify").trim() === onB.at(-1);
      } catch {
        return false;
      }
    });
    // The exit status and both directions, beyond any buffer on the path.
    expect(() => ssh("exit 3")).toThrow(expect.objectContaining({ status: 3 }) as Error);
    const text = randomBytes(3 << 20).toString("base64");
    expect(digest(Buffer.from(ssh("cat", text)))).toBe(digest(Buffer.from(text)));

    const file = randomBytes(8 << 20);
    writeFileSync(at("sent"), file);
    onA(
      "sftp",
      ["-b", "-", "-P", String(SSH_PORT), "root@127.0.0.1"],
      `put ${at("sent")} ${at("there")}\nget ${at("there")} ${at("back")}\n`,
    );
    expect([digest(readFileSync(at("there"))), digest(readFileSync(at("back")))]).toEqual([digest(file), digest(file)]);
  },
);

test.runIf(isDue("netcheck of a lost gateway"))(
  "netcheck passes, and names the lost gateway while ping continues through the other",
  async () => {
    const { lab } = stage;
    healAfter(lab);
    await untilAllUp(lab, ["a", "b"]);
    expect(await lab.holdfast("a", "netcheck")).toMatch(/PASS tls +it has the gateway's key[^]*no check failed\n$/);
    const carrier = await carrierOf(lab, "a");
    cut(lab, carrier);
    const other = carrier === "gw1" ? "gw2" : "gw1";
    await waitFor(`${other} carries`, async () => (await carrierOf(lab, "a")) === other);
    await waitFor("the other gateway answers for b", async () =>
      (await lab.holdfast("a", "ping", "-c", "1", "b").catch(() => "")).includes(`by ${other}.lab.example`),
    );
    await untilPath(lab, "a", carrier, ({ state }) => state !== "up");
    await waitFor("the path is known to be down", async () => {
      const checked = await lab.holdfast("a", "netcheck", "--json").catch(String);
      const { checks } = NetworkReport.parse(JSON.parse(/\{.*\}/.exec(checked)?.[0] ?? "{}"));
      const failures = checks.filter(({ status }) => status === "fail");
      expect(failures.every(({ name }) => name === `${carrier}.lab.example`)).toBe(true);
      return failures.map(({ check }) => check).join() === "tcp,tunnel";
    });
  },
);

test.runIf(isDue("a gateway as a node"))("a gateway is a destination and a source as any other node", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  await startEcho(lab, "gw1");
  await stage.service("gw1", { name: "at-gateway", ...echo });
  await stage.connector("a", { node: "gw1", service: "at-gateway", port: 7091 });
  await stage.connector("gw1", { node: "b", service: "echo", port: 7092 });
  await stage.connector("b", { node: "a", service: "back", port: 7093 });
  await startEcho(lab, "a");
  await stage.service("a", { name: "back", ...echo });
  for (const [node, port] of [
    ["a", 7091],
    ["gw1", 7092],
    ["b", 7093],
  ] as const) {
    const flow = await untilServed(lab, node, port);
    const text = createHash("sha512").update(node).digest("hex").repeat(4000);
    await talk(flow, text);
    flow.end();
    expect(await untilOver(flow)).toBe("end");
  }
});

test("a client that speaks UDP continues through the other gateway without any action", async () => {
  const { lab } = stage;
  healAfter(lab);
  await untilAllUp(lab, ["a", "b"]);
  const asker = aTalker(lab, "a", 7002, "127.0.0.1", "ask");
  const answers = async (text: string): Promise<void> => {
    await waitFor(`an answer to ${text}`, () => {
      asker.send(text);
      return asker.text().endsWith(text);
    });
  };
  await answers("before");
  cut(lab, await carrierOf(lab, "a"));
  const received = asker.text().length;
  await waitFor("answers come again", () => {
    asker.send("after");
    return asker.text().length > received + 25;
  });
});

test("without any UDP between the sites, flows of TCP and UDP continue, and start, over TCP only", async () => {
  const { lab } = stage;
  healAfter(lab);
  await untilAllUp(lab, ["a", "b"]);
  const flow = await untilServed(lab, "a", 7001);
  const asker = aTalker(lab, "a", 7002, "127.0.0.1", "ask");
  const answers = (asker: Talker, text: string): Promise<unknown> =>
    waitFor(`an answer to ${text}`, () => {
      asker.send(text);
      return asker.text().endsWith(text);
    });
  await answers(asker, "before");
  for (const site of ["a", "b"]) blockUdp(lab, site);
  await talk(flow, "in the middle");
  await answers(asker, "in the middle");
  await lab.restart("overlay", "a");
  await untilServed(lab, "a", 7001);
  await answers(aTalker(lab, "a", 7002, "127.0.0.1", "ask"), "from the start");
});

test("many concurrent clients all get what they sent", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  await untilServed(lab, "a", 7001);
  const { counters: before } = await connectorOn(7001);
  const clients = Array.from({ length: 16 }, () => aTalker(lab, "a", 7001));
  const texts = clients.map((_, at) => `${at};`.repeat(50_000));
  await Promise.all(clients.map((client, at) => talk(client, texts[at] ?? "")));
  const { counters } = await connectorOn(7001);
  expect(counters?.errors).toEqual(before?.errors);
  expect(counters?.flowsActive).toBeGreaterThanOrEqual(16);
});

test("a changed gateway section reaches every affected node, without a restart of an overlay", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const nodes = ["a", "b", "gw1", "gw2"];
  const before = nodes.map((node) => lab.pidOf(node, "overlay"));
  const gw1 = (changes: Readonly<Record<string, unknown>>): Promise<unknown> => {
    const host = lab.addressOf("gw1");
    return lab.call("PUT", "/node/{gw1}/config/gateway", {
      enabled: true,
      type: "public",
      host,
      port: 8443,
      ...changes,
    });
  };
  const hasPath = async (node: string, to: string): Promise<boolean> =>
    (await pathsOf(lab, node)).some(({ gateway }) => gateway === to);

  await gw1({ type: "private", clients: [{ name: "a", enabled: true }] });
  await waitFor("B knows of one gateway", async () => !(await hasPath("b", "gw1")));
  expect(await hasPath("a", "gw1")).toBe(true);
  await untilPath(lab, "a", "gw1", ({ state }) => state === "up");

  await gw1({ port: 9443 });
  await untilPath(lab, "a", "gw1", ({ state, port }) => state === "up" && port === 9443);
  await untilPath(lab, "b", "gw1", ({ state, port }) => state === "up" && port === 9443);

  await lab.call("PUT", "/node/{b}/config/gateway", { enabled: false, connectToPublic: false });
  await waitFor("B dials nobody", async () => !(await hasPath("b", "gw1")) && !(await hasPath("b", "gw2")));
  await lab.call("DELETE", "/node/{b}/config/gateway");
  await gw1({});
  await untilAllUp(lab, ["a", "b"]);
  expect(nodes.map((node) => lab.pidOf(node, "overlay"))).toEqual(before);
});

// The last two, since they replace nodes.
test("nodes stop dialling a deleted gateway, and report that it has left the domain", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const carrier = await carrierOf(lab, "a");
  const flow = await untilServed(lab, "a", 7001);
  await lab.call("DELETE", `/node/{${carrier}}`);
  await untilOver(flow);
  await untilServed(lab, "a", 7001);
  await waitFor("its path is removed", async () =>
    (await pathsOf(lab, "a")).every(({ gateway }) => gateway !== carrier),
  );
  await waitFor("the event", async () =>
    (await eventsOf(lab, "a")).some(({ message }) => message === `Gateway ${carrier} removed from the domain`),
  );
  // It is another node when it returns.
  await lab.endAgent(carrier);
  process.kill(lab.pidOf(carrier, "overlay") ?? process.pid, "SIGKILL");
  endUnitsBelow(join(lab.dir, carrier));
  rmSync(join(lab.dir, carrier), { recursive: true });
  await lab.addNode(carrier);
  await waitFor("it is online", async () => (await lab.nodes()).some((node) => node.name === carrier && node.online));
  const host = lab.addressOf(carrier);
  await lab.call("PUT", `/node/{${carrier}}/config/gateway`, {
    enabled: true,
    type: "public",
    host,
    port: GATEWAY_PORT,
  });
  await untilPath(lab, "a", carrier, ({ state }) => state === "up");
});

test("reaches a destination that was registered again under its old name", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  await lab.call("DELETE", "/node/{b}");
  await lab.endAgent("b");
  const overlay = lab.pidOf("b", "overlay");
  if (overlay === undefined) throw new Error("b has no overlay");
  process.kill(overlay, "SIGKILL");
  endUnitsBelow(join(lab.dir, "b"));
  rmSync(join(lab.dir, "b"), { recursive: true });
  await lab.addNode("b");
  await waitFor("it is online", async () => (await lab.nodes()).some((node) => node.name === "b" && node.online));
  await stage.service("b", { name: "echo", ...echo });
  await untilServed(lab, "a", 7001);
});
