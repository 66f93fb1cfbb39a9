import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { debianArchitecture } from "../../../src/host/machine/os-release.ts";
import { fetchRelease } from "../../../src/upgrade/fetch.ts";
import { openFetching } from "../../../src/upgrade/open-fetching.ts";
import { rawTar, type RawEntry } from "../../support/data-store/raw-tar.ts";
import { claimsOf, rawJws, releaseKey, unpackedSizeOf } from "../../support/upgrades/release.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const BUNDLE = fileURLToPath(new URL("../../../dist/holdfast.mjs", import.meta.url));
const FLAGS = ["--disable-sigusr1", "--disable-warning=ExperimentalWarning"];
const VERSION = "0.9.20990101-0000";
const BUILD = "20260101-000000.0123456789ab";
/** A bundle that passes its test at once. */
const QUICK = "console.log('PASS all');\n";

/** A bundle that passes its test once a file does not exist. */
const heldBy = (path: string): string => `import { existsSync } from "node:fs";
const check = () => (existsSync(${JSON.stringify(path)}) ? setTimeout(check, 20) : console.log("PASS all"));
check();
`;

interface Line {
  readonly step?: string;
  readonly fetched?: unknown;
  readonly isTaken?: boolean;
  readonly error?: { readonly code: string; readonly message: string };
}

interface Run {
  readonly child: ChildProcess;
  readonly lines: Line[];
  readonly code: Promise<number | null>;
}

interface Rig {
  readonly dir: string;
  readonly versions: string;
  readonly requested: string[];
  /** Number of bytes of the package before the server stops; undefined for all of it. */
  pausesAfter: number | undefined;
  /** Starts the built program. */
  fetch(args?: readonly string[], within?: readonly string[]): Run;
  /** Fetches as the program does, in this process; returns the steps. */
  fetchHere(): Promise<readonly string[]>;
}

/** A release with this bundle and this runtime, and a server that has it. */
async function rig(bundle: Buffer | string = readFileSync(BUNDLE), more: readonly RawEntry[] = []): Promise<Rig> {
  const dir = tempDir();
  const key = await releaseKey();
  const entries = [
    { path: "./node", data: `#!/bin/sh\nexec ${process.execPath} "$@"\n`, mode: 0o755 },
    { path: "./holdfast.mjs", data: bundle },
    { path: "./version", data: `${VERSION}\n` },
    ...more,
  ];
  const archive = rawTar(entries);
  const claims = claimsOf(archive, "holdfast.tar", unpackedSizeOf(entries), VERSION);
  const now = Math.floor(Date.now() / 1000);
  const files = { [debianArchitecture(process.arch)]: claims.files["amd64"] };
  const manifest = rawJws(key, JSON.stringify({ ...claims, build: BUILD, iat: now, exp: now + 3600, files }));
  writeFileSync(join(dir, "keys.json"), JSON.stringify({ keys: [key.publicKey] }));
  const requested: string[] = [];
  const server = createServer((request, response) => {
    const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    requested.push(`${request.url ?? ""}${start > 0 ? ` from ${start}` : ""}`);
    response.on("error", () => undefined);
    if (request.url === "/manifest.jws") return void response.end(manifest);
    const range = `bytes ${start}-${archive.length - 1}/${archive.length}`;
    response.writeHead(start > 0 ? 206 : 200, {
      etag: '"one"',
      "content-length": archive.length - start,
      ...(start > 0 ? { "content-range": range } : {}),
    });
    if (own.pausesAfter === undefined) return void response.end(archive.subarray(start));
    return void response.write(archive.subarray(start, own.pausesAfter));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const versions = join(dir, "versions");
  mkdirSync(versions);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/manifest.jws`;
  const own: Rig = {
    dir,
    versions,
    requested,
    pausesAfter: undefined,
    fetch(args = [url], within = []) {
      const where = ["--versions", versions, "--package", join(dir, "lib"), "--keys", join(dir, "keys.json")];
      const state = ["--state", join(dir, "state"), "--config", join(dir, "agent.json")];
      const options = [...where, ...state, ...args, ...(args.includes(url) ? [] : [url])];
      const [file = "", ...rest] = [...within, process.execPath, ...FLAGS, BUNDLE, "upgrade-fetch", ...options];
      const child = spawn(file, rest, { stdio: ["ignore", "pipe", "inherit"] });
      onTestFinished(() => void child.kill("SIGKILL"));
      const lines: Line[] = [];
      let text = "";
      child.stdout.setEncoding("utf8").on("data", (piece: string) => {
        const parts = `${text}${piece}`.split("\n");
        text = parts.pop() ?? "";
        lines.push(...parts.map((line) => JSON.parse(line) as Line));
      });
      const code = new Promise<number | null>((resolve) => child.once("close", resolve));
      return { child, lines, code };
    },
    async fetchHere() {
      const steps: string[] = [];
      const where = { packagePath: join(dir, "lib"), versionsPath: versions, keyPaths: [join(dir, "keys.json")] };
      const settings = { stateDir: join(dir, "state"), configFile: join(dir, "agent.json"), targets: undefined };
      const { signal } = new AbortController();
      const deps = openFetching({ ...where, ...settings }, (step) => void steps.push(step), signal);
      await deps.versions.staging();
      const lock = deps.versions.lock();
      try {
        const request = { from: url, by: "operator" as const, isForced: false };
        const fetched = await fetchRelease(request, { ...deps, onRetry: () => undefined }, signal);
        expect(fetched).toEqual({ version: VERSION, build: BUILD });
        return steps;
      } finally {
        lock.release();
      }
    },
  };
  return own;
}

const matching = (pattern: RegExp): unknown => expect.stringMatching(pattern);
const READY = `part/${VERSION}.ready`;
const placed = ({ versions }: Rig): readonly string[] =>
  readdirSync(versions).filter((name) => name !== "part" && !name.startsWith("lock"));

function expectStaged(own: Rig): void {
  expect(readdirSync(join(own.versions, READY)).filter((name) => name !== "licences")).toEqual([
    "holdfast.mjs",
    "node",
    "version",
  ]);
  expect(placed(own)).toEqual([]);
}

test("a version is fetched, unpacked, and tests itself; nothing is switched", async () => {
  const own = await rig();
  const check = own.fetch(["--check"]);
  expect(await check.code).toBe(0);
  expect(check.lines).toEqual([{ version: VERSION, build: BUILD, isTaken: true }]);
  const run = own.fetch();
  expect({ code: await run.code, last: run.lines.at(-1) }).toEqual({
    code: 0,
    last: { fetched: { version: VERSION, build: BUILD } },
  });
  expectStaged(own);
  const steps = ["fetching", "verifying", "fetching", "unpacking", "testing", undefined];
  expect(run.lines.map(({ step }) => step)).toEqual(steps);
});

test("a staged version is tested again, and not fetched, also after a kill", async () => {
  const held = join(tempDir(), "held");
  const own = await rig(heldBy(held));
  await own.fetchHere();
  expectStaged(own);
  own.requested.length = 0;
  writeFileSync(held, "");
  const killed = own.fetch();
  await waitFor("testing begins", () => killed.lines.some(({ step }) => step === "testing"));
  killed.child.kill("SIGKILL");
  await killed.code;
  rmSync(held);
  expect(await own.fetchHere()).toEqual(["fetching", "verifying", "testing"]);
  expectStaged(own);
  expect(own.requested).toEqual(["/manifest.jws", "/manifest.jws"]);
});

test("a version staged from another archive is fetched again", async () => {
  const own = await rig(QUICK);
  await own.fetchHere();
  expectStaged(own);
  writeFileSync(join(own.versions, "part", `${VERSION}.sha256`), "0".repeat(64));
  expect(await own.fetchHere()).toContain("unpacking");
  expectStaged(own);
});

const FILES = 200;
const filesOf = (bytes: number): readonly RawEntry[] =>
  Array.from({ length: FILES }, (_, number) => ({ path: `./licences/${number}`, data: randomBytes(bytes) }));

/** Expects that the version with those files is staged after another fetch. */
async function fetchAll(own: Rig): Promise<void> {
  await own.fetchHere();
  expectStaged(own);
  expect(readdirSync(join(own.versions, READY, "licences"))).toHaveLength(FILES);
}

test("killed while bytes arrive, it continues after them", async () => {
  const own = await rig(QUICK, filesOf(10_000));
  own.pausesAfter = 1_500_000;
  const first = own.fetch();
  const part = join(own.versions, "part");
  const size = (): number =>
    existsSync(part)
      ? readdirSync(part)
          .filter((name) => name.endsWith(".tar.tar"))
          .reduce((sum, name) => sum + readFileSync(join(part, name)).length, 0)
      : 0;
  await waitFor("what was sent is on disk", () => size() === 1_500_000);
  first.child.kill("SIGKILL");
  await first.code;
  own.pausesAfter = undefined;
  await fetchAll(own);
  expect(own.requested.filter((path) => path.startsWith("/holdfast.tar"))).toEqual([
    "/holdfast.tar",
    "/holdfast.tar from 1500000",
  ]);
});

const kills = [
  ["fetching", 1],
  ["verifying", 1],
  ["fetching", 2],
  ["unpacking", 1],
  ["testing", 1],
] as const;

test.each(sampleOf(kills, 3, "killed when a step begins"))(
  "killed when %s begins (%i), it is done by the next",
  async (step, times) => {
    const held = join(tempDir(), "held");
    writeFileSync(held, "");
    const own = await rig(heldBy(held), filesOf(1000));
    const first = own.fetch();
    await waitFor(`${step} begins`, () => first.lines.filter((line) => line.step === step).length >= times);
    first.child.kill("SIGKILL");
    await first.code;
    expect(placed(own)).toEqual([]);
    rmSync(held);
    await fetchAll(own);
  },
);

test("killed while it unpacks, it leaves nothing that looks like a version", async () => {
  const own = await rig(QUICK, filesOf(100_000));
  const first = own.fetch();
  const begun = join(own.versions, "part", `${VERSION}.unpacked`, "licences");
  await waitFor("it has begun to unpack", () => existsSync(begun));
  first.child.kill("SIGKILL");
  await first.code;
  expect(existsSync(join(own.versions, READY))).toBe(false);
  await fetchAll(own);
  // All of it had arrived before.
  expect(own.requested.filter((path) => path.startsWith("/holdfast.tar"))).toEqual(["/holdfast.tar"]);
});

test("two at once: the second is refused", async () => {
  const own = await rig(QUICK);
  own.pausesAfter = 1000;
  const first = own.fetch();
  await waitFor("the package is asked for", () => own.requested.includes("/holdfast.tar"));
  await expect(own.fetchHere()).rejects.toMatchObject({ code: "busy", message: "another upgrade is in progress" });
  first.child.kill("SIGTERM");
  expect(await first.code).toBe(1);
  expect(first.lines.at(-1)?.error?.code).toBe("cancelled");
  own.pausesAfter = undefined;
  await own.fetchHere();
  expectStaged(own);
});

test.skipIf(process.getuid?.() !== 0)("reports a too small disk with numbers, before a byte is requested", async () => {
  const own = await rig();
  const mount = `mount -t tmpfs -o size=16m tmpfs ${own.versions} && exec "$@"`;
  const run = own.fetch(undefined, ["unshare", "--mount", "sh", "-c", mount, "sh"]);
  expect(await run.code).toBe(1);
  expect(run.lines.at(-1)?.error).toMatchObject({
    code: "disk-too-small",
    message: matching(/has \d+ bytes free, and \d+ are needed for the package of \d+ bytes, \d+ bytes unpacked/),
  });
  expect(own.requested).toEqual(["/manifest.jws"]);
});

test.each([
  ["does not start", "throw new Error('broken');\n", /start: exit status 1: Error: broken/],
  ["tests nothing", "export {};\n", /start: exit status 0/],
  ["fails a check", "console.log('FAIL ffi: no library'); process.exitCode = 1;\n", /ffi: no library/],
])("a version that %s is abandoned, and not retried", async (_name, bundle, message) => {
  const own = await rig(bundle);
  await expect(own.fetchHere()).rejects.toMatchObject({ code: "self-test-failed", message: matching(message) });
  expect(placed(own)).toEqual([`${VERSION}.failed`]);
  await expect(own.fetchHere()).rejects.toMatchObject({ code: "failed-before" });
});
