import { execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  closeSync,
  existsSync,
  openSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { fileEnd } from "../../support/file-end.ts";
import { freePort, registerNode, startAgent, startController } from "../../support/machine/programs.ts";
import { untilAttached } from "../../support/kills/strace.ts";
import { UNDER_UNITS } from "../../support/machine/real-units.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";

const MIB = 1024 * 1024;

async function aNode() {
  if (!existsSync("/usr/bin/qemu-img")) throw new Error("qemu-img is missing: apt-get install qemu-utils");
  const dir = tempDir(onFinished);
  // Files that an image refers to would be readable by all.
  chmodSync(dir, 0o755);
  const controller = await startController(dir, await freePort(), [], { onFinished });
  const agent = await startAgent(join(dir, "node"), { onFinished });
  const uid = await registerNode(controller, agent, "edge");
  const call = (method: string, path: string, body?: unknown) =>
    controller.call(method, `/v2/node/${uid}/${path}`, body);
  await call("POST", "data-store/mkdir", { filename: "images/made" });
  const enter = (name: string) => {
    const image = { id: randomUUID(), displayName: name, location: `images/made/${name}`, os: "linux" };
    return call("POST", "kvm/image", image);
  };
  return { dir, agent, enter, images: join(agent.stateDir, "data-store/images/made") };
}

/** One node for all tests; their images have different names. */
let node: Awaited<ReturnType<typeof aNode>>;
const onFinished = fileEnd();

beforeAll(async () => {
  node = await aNode();
});

function make(format: string, path: string, ...options: readonly string[]): void {
  execFileSync("/usr/bin/qemu-img", ["create", "-q", "-f", format, ...options, path, "64M"], { stdio: "pipe" });
}

/** Overwrites bytes of a file. */
function patch(path: string, at: number, bytes: Uint8Array): void {
  const content = readFileSync(path);
  content.set(bytes, at);
  writeFileSync(path, content);
}

/**
 * Returns every name that a process and its children tried to open during the work, and those of units that systemd started for an agent.
 */
async function openedDuring(pid: number, dir: string, work: () => Promise<void>): Promise<string> {
  const traced = UNDER_UNITS ? [pid, 1] : [pid];
  const file = join(dir, "opened");
  const calls = ["-f", "-s", "512", "-o", file, "-e", "trace=execve,open,openat,openat2", "-e", "signal=none"];
  const these = traced.flatMap((one) => ["-p", String(one)]);
  const tracer = spawn("strace", [...calls, ...these], { stdio: ["ignore", "ignore", "pipe"] });
  const ended = once(tracer, "close");
  await untilAttached(tracer, traced.length);
  await work();
  tracer.kill("SIGTERM");
  await ended;
  return readFileSync(file, "utf8");
}

/** Returns the lines of a trace of a program, without those of its process before it. */
function openedBy(program: string, trace: string): readonly string[] {
  const running = new Map<string, boolean>();
  return trace.split("\n").filter((line) => {
    const [, pid = "", started] = /^(\d+) +(?:execve\("([^"]*)")?/.exec(line) ?? [];
    if (started !== undefined) running.set(pid, started === program);
    return running.get(pid) === true;
  });
}

test("reports format and virtual size of an image as qemu-img reads them, and leaves its file unchanged", async () => {
  const { enter, images } = node;
  const raw = join(images, "disk.raw");
  closeSync(openSync(raw, "wx", 0o600));
  truncateSync(raw, 3 * MIB);
  const { body: reported } = await enter("disk.raw");
  expect(reported).toMatchObject({ present: true, bytes: 3 * MIB, format: "raw", virtualBytes: 3 * MIB });
  const formats = [
    ["qcow2", "qcow2"],
    ["qcow2", "qcow2", "-o", "compat=0.10"],
    ["vmdk", "vmdk"],
    ["vmdk", "vmdk", "-o", "subformat=streamOptimized"],
    ["vdi", "vdi"],
    ["vhdx", "vhdx"],
  ] as const;
  for (const [at, [format, name, ...options]] of sampleOf(formats, 3, "formats of images").entries()) {
    const path = join(images, `${at}.${name}`);
    make(format, path, ...options);
    chmodSync(path, 0o600);
    const { mode, uid, gid, size } = statSync(path);
    const { status, body } = await enter(`${at}.${name}`);
    expect([status, body]).toMatchObject([200, { present: true, bytes: size, format, virtualBytes: 64 * MIB }]);
    expect(statSync(path)).toMatchObject({ mode, uid, gid, size });
  }
});

test("neither opens nor reports what an image refers to", async () => {
  const { dir, agent, enter, images } = node;
  // Readable by all, as /etc/passwd is, and nothing else opens it.
  const canary = join(dir, "canary");
  writeFileSync(canary, Buffer.alloc(64 * MIB), { mode: 0o644 });
  const path = (name: string): string => join(images, name);
  for (const [at, backing] of [canary, "/etc/passwd"].entries()) {
    make("qcow2", path(`backing-${at}`), "-u", "-b", backing, "-F", "raw");
    make("qed", path(`qed-${at}`), "-u", "-b", backing, "-F", "raw");
  }
  // The tool makes the data file; the final one has the same name.
  make("qcow2", path("data"), "-o", `data_file=${canary},data_file_raw=on`);
  const descriptor = `# Disk DescriptorFile
version=1
CID=fffffffe
parentCID=ffffffff
createType="monolithicFlat"

RW 131072 FLAT "${canary}" 0

ddb.adapterType = "ide"
`;
  writeFileSync(path("descriptor"), descriptor);
  // A descriptor wrapped in a sparse disk without a capacity of its own.
  const wrapped = Buffer.alloc(4096);
  wrapped.write("KDMV\x01\0\0\0\x03");
  wrapped.writeBigUInt64LE(1n, 28);
  wrapped.writeBigUInt64LE(1n, 36);
  wrapped.write(descriptor, 512);
  writeFileSync(path("wrapped"), wrapped);
  // The tool may read an unknown format as a descriptor.
  writeFileSync(path("other"), descriptor.replace("# Disk DescriptorFile", "# something else"));

  const answers = new Map<string, unknown>();
  const names = ["backing-0", "backing-1", "qed-0", "qed-1", "data", "descriptor", "wrapped", "other"];
  const opened = await openedDuring(agent.pid, dir, async () => {
    for (const name of names) answers.set(name, (await enter(name)).body);
  });
  expect(opened).toContain("/usr/bin/qemu-img");
  expect(opened).not.toContain(canary);
  const byTool = openedBy("/usr/bin/qemu-img", opened);
  expect(byTool.some((line) => line.includes("/proc/self/fd/0"))).toBe(true);
  expect(byTool.filter((line) => line.includes("passwd"))).toEqual([]);
  for (const at of [0, 1]) {
    expect(answers.get(`backing-${at}`)).toMatchObject({ format: "qcow2", virtualBytes: 64 * MIB });
    expect(answers.get(`qed-${at}`)).toMatchObject({ format: "qed", virtualBytes: 64 * MIB });
  }
  for (const name of ["data", "descriptor", "wrapped"]) {
    expect(answers.get(name)).toMatchObject({ present: true, bytes: statSync(path(name)).size });
    expect(answers.get(name)).not.toHaveProperty("format");
    expect(answers.get(name)).not.toHaveProperty("virtualBytes");
  }
  expect(answers.get("other")).toMatchObject({ format: "raw", virtualBytes: 512 });
  expect(JSON.stringify([...answers.values()])).not.toMatch(/canary|passwd/);
});

test("reports only the size of an image that is damaged or claims too much", async () => {
  const { enter, images, agent } = node;
  const damaged: readonly (readonly [name: string, at: number, bytes: Uint8Array])[] = [
    // The table of the first level: 2^32 - 1 entries.
    ["tables", 36, Buffer.alloc(4, 0xff)],
    // Snapshots: 65,535 of them, at an offset far outside.
    ["snapshots", 60, Buffer.from([0, 0, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0])],
    // Clusters of 2^255 bytes.
    ["clusters", 20, Buffer.from([0, 0, 0, 0xff])],
    // An unknown feature.
    ["features", 72, Buffer.from([0x80])],
    ["backing", 8, Buffer.from([0, 0, 0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff])],
  ];
  for (const [name, at, bytes] of sampleOf(damaged, 3, "damaged images")) {
    const path = join(images, name);
    make("qcow2", path);
    patch(path, at, bytes);
    const { status, body } = await enter(name);
    expect([name, status, body]).toMatchObject([name, 200, { present: true, bytes: statSync(path).size }]);
    expect([name, body]).not.toHaveProperty("1.format");
  }
  make("qcow2", join(images, "good"));
  expect(await enter("good")).toMatchObject({ status: 200, body: { format: "qcow2" } });
  expect(agent.process.exitCode).toBeNull();
});
