import { createSocket } from "node:dgram";
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { DoctorReport } from "../../../src/cli/doctor/result.ts";
import { BUNDLE, FLAGS, freePort, registerNode, startAgent, startController } from "../../support/machine/programs.ts";
import { statusWhere } from "../../support/stage.ts";
import { tempDir } from "../../support/temp-dir.ts";

interface Ran {
  readonly code: number;
  readonly stdout: Buffer;
  readonly stderr: string;
}

/** Runs a verb with another file as `/etc/resolv.conf`. */
function run(resolver: string, args: readonly string[]): Promise<Ran> {
  const inside = 'mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec "$@"';
  const command = ["-m", "sh", "-c", inside, resolver, process.execPath, ...FLAGS, BUNDLE, ...args];
  return new Promise((resolve) => {
    const options = { encoding: "buffer", maxBuffer: 64 * 1024 * 1024 } as const;
    execFile("unshare", command, options, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === "number" ? error.code : 0, stdout, stderr: stderr.toString() });
    });
  });
}

/** Starts a name server that knows no name; returns the file that names it. */
async function startNameServer(dir: string): Promise<string> {
  const address = `127.53.${process.pid % 250}.1`;
  const server = createSocket("udp4", (query, { port, address: from }) => {
    const answer = Buffer.from(query);
    answer.writeUInt16BE(0x8183, 2);
    server.send(answer, port, from);
  });
  onTestFinished(() => void server.close());
  await new Promise<void>((resolve) => server.bind(53, address, resolve));
  const path = join(dir, "resolv.conf");
  writeFileSync(path, `nameserver ${address}\n`);
  return path;
}

async function doctor(resolver: string, where: readonly string[]) {
  const { code, stdout } = await run(resolver, ["doctor", "--json", "--timeout", "60", ...where]);
  const { verdict, checks } = DoctorReport.parse(JSON.parse(stdout.toString()));
  const failed = checks.filter(({ status }) => status === "fail");
  return { code, verdict, checks, failed: failed.map(({ family, name, code }) => `${family} ${name}: ${code}`) };
}

/** Returns the names that the system's own tar finds in an archive. */
function listed(path: string): readonly string[] {
  return execFileSync("tar", ["-tzf", path], { encoding: "utf8" }).trim().split("\n");
}

const mount = (...args: string[]): void => void execFileSync("mount", args);

test.skipIf(process.geteuid?.() !== 0)(
  "the doctor names each problem and what to do, and a bundle is always possible",
  async () => {
    const dir = tempDir();
    const disk = join(dir, "node");
    mkdirSync(disk);
    mount("-t", "tmpfs", "-o", "size=1g,mode=700", "holdfast-test", disk);
    onTestFinished(() => void execFileSync("umount", ["-l", disk]));
    const resolver = await startNameServer(dir);
    const controller = await startController(dir, await freePort());
    const agent = await startAgent(disk);
    const uid = await registerNode(controller, agent, "edge");
    await statusWhere(agent, "its documents are applied", ({ session }) => session.state === "online");
    const where = ["--state", agent.stateDir, "--run", agent.runDir];

    const well = await doctor(resolver, where);
    expect(well.failed).toEqual([]);
    expect(well.code).toBe(well.verdict === "ok" ? 0 : 5);
    // The use of the machine's memory and root file system is not tested here.
    const ours = new Set(["settings", "state", "agent", "network", "resolver", "spool"]);
    const wrong = well.checks.filter(({ family, status }) => ours.has(family) && status === "warn");
    expect(wrong).toEqual([]);
    expect(execFileSync("ss", ["-Hltnp"], { encoding: "utf8" })).not.toContain(`pid=${agent.pid},`);

    const silent = join(dir, "silent.conf");
    writeFileSync(silent, "nameserver 127.53.0.254\n");
    mount("-o", "remount,size=8m", disk);
    fill(join(disk, "filling"));
    const full = await doctor(silent, where);
    expect(full.code).toBe(1);
    expect(full.failed).toEqual(
      expect.arrayContaining(["resolver 127.53.0.254: unreachable", "state space: disk-full"]),
    );
    expect(full.checks.find(({ family }) => family === "resolver")?.fix).toContain("port 53");
    expect(full.checks.find(({ code }) => code === "disk-full")?.fix).toContain("free space");
    const fetched = join(dir, "fetched.tar.gz");
    const curl = ["-sSf", "-X", "POST", "-H", `authorization: ${controller.key()}`, "-o", fetched];
    execFileSync("curl", [...curl, `${controller.url}/node/${uid}/bundle`]);
    expect(listed(fetched)).toEqual(expect.arrayContaining(["README", "doctor.json", "documents/node.json"]));
    mount("-o", "remount,size=1g", disk);

    await controller.end();
    await statusWhere(agent, "it has no session", ({ session }) => session.state === "waiting");
    const alone = await doctor(resolver, where);
    const name = `control-plane ${controller.url} tcp`;
    expect(alone.code).toBe(1);
    // The disk may not have been checked again yet.
    expect(alone.failed).toContain(`network ${name}: refused`);
    expect(alone.checks.find((check) => check.name === name)?.fix).toContain("see that it runs");
    const text = (await run(resolver, ["doctor", "--timeout", "60", ...where])).stdout.toString();
    expect(text).toMatch(/\nfailed: \d failed, .*\nin this order, see above: .*network control-plane /);

    const running = join(dir, "running.tar.gz");
    const made = await run(resolver, ["bundle", "--to", running, "--timeout", "60", ...where]);
    expect(made.code).toBe(0);
    expect(listed(running)).toEqual(
      expect.arrayContaining(["README", "doctor.json", "agent/status.json", "agent/plan.json", "agent/log.jsonl"]),
    );

    await agent.end();
    const piped = await run(resolver, ["bundle", "--to", "-", ...where]);
    expect(piped.code).toBe(0);
    expect(piped.stderr).toContain("without agent/status.json, agent/health.json, ");
    const rest = join(dir, "rest.tar.gz");
    writeFileSync(rest, piped.stdout);
    expect(listed(rest)).toEqual(
      expect.arrayContaining(["README", "doctor.json", "documents/node.json", "network/links.txt"]),
    );
    const readme = execFileSync("tar", ["-xzOf", rest, "README"], { encoding: "utf8" });
    expect(readme).toMatch(/\nWhere to begin\n/);
    expect(readme).toMatch(/\nagent\/status\.json\nagent\/health\.json\n(?:\S+\n)* {4}no agent answers/);
    const absent = await doctor(resolver, where);
    expect(absent.code).toBe(1);
    expect(absent.failed).toContain("agent running: agent-absent");
  },
);

/** Writes until nothing more fits. */
function fill(path: string): void {
  for (let size = 1 << 20; size > 0; size >>= 1) {
    try {
      for (;;) writeFileSync(path, Buffer.alloc(size), { flag: "a" });
    } catch {
      // A smaller piece may still fit.
    }
  }
  expect(readFileSync(path).length).toBeGreaterThan(0);
}
