import { createHash, randomBytes } from "node:crypto";
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { cut } from "../../../scripts/labs/faults.ts";
import type { Lab } from "../../../scripts/labs/lab.ts";
import { startAside } from "../../../scripts/labs/programs.ts";
import { NetworkReport } from "../../../src/cli/netcheck/result.ts";
import { aTftpd, aVsftpd } from "../../support/data-store/file-servers.ts";
import { carrierOf, untilAllUp, untilPath } from "../../support/overlay/mesh-paths.ts";
import { ECHO_PORT, flowsOf, healAfter, meshStage } from "../../support/overlay/mesh-stage.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const SSHD_PORT = 2222;
const SSH_PORT = 7022;
const run = promisify(execFile);
const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
const stage = meshStage(async ({ service, connector }) => {
  await service("b", { name: "echo", protocol: "tcp", host: "127.0.0.1", port: ECHO_PORT });
  await connector("a", { node: "b", service: "echo", port: 7001 });
});

/** Returns the answer of a node's event to a waiting caller. */
async function triggered(lab: Lab, node: string, event: string, body: unknown): Promise<unknown> {
  return lab.call("POST", `/node/{${node}}/trigger/${event}?wait=1`, body);
}

const messageOf = (answer: unknown): string => (answer as { output: { message: string } }).output.message;

test("pings and traces another node through the tunnel, and names the path", async () => {
  const { lab } = stage;
  await untilAllUp(lab, ["a", "b"]);
  const carrier = await carrierOf(lab, "a");
  const pinged = await lab.holdfast("a", "ping", "-c", "2", "b");
  expect(pinged).toMatch(new RegExp(`seq=1 time=[\\d.]+ ms by ${carrier}\\.lab\\.example \\(default path\\)`));
  expect(pinged).toContain("2 sent, 2 answered, 0% lost");
  expect(messageOf(await triggered(lab, "a", "tg-ping", { host: "b", count: 1 }))).toContain(
    `by ${carrier}.lab.example, default path`,
  );
  const hops = messageOf(await triggered(lab, "a", "tg-traceroute", { host: "b.lab.example" })).split("\n");
  expect(hops[1]).toMatch(
    new RegExp(`^ 1 {2}${carrier}\\.lab\\.example \\(default path, [\\d.]+:\\d+\\)( {2}[\\d.]+ ms){3}$`),
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

test("downloads files of FTP and TFTP servers from another site through a gateway", async () => {
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
});

test("ssh and sftp work through a connector to a service on another node", async () => {
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
  const ssh = (line: string, input = ""): string => onA("ssh", ["-p", String(SSH_PORT), "root@127.0.0.1", line], input);
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
});

test("netcheck passes, and names the lost gateway while ping continues through the other", async () => {
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
});
