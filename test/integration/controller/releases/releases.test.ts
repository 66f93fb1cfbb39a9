import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { rangeOf } from "../../../../src/controller/releases/routes.ts";
import { releaseFiles } from "../../../../src/host/releases/release-files.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { runController, temporaryDirectory } from "../../../support/control-plane/running-controller.ts";

const PACKAGE = "holdfast_0.1.20261121-1830_amd64.tar.xz";
const bytes = randomBytes(300_000);

async function served() {
  const dir = join(await temporaryDirectory(), "releases");
  mkdirSync(dir);
  writeFileSync(join(dir, PACKAGE), bytes);
  writeFileSync(join(dir, "manifest.jws"), "a.b.c\n");
  writeFileSync(join(dir, "empty"), "");
  const { url } = await runController({ dataDir: await temporaryDirectory(), releasesDir: dir });
  return {
    dir,
    url: `${url}/releases/`,
    get: (name: string, init?: RequestInit) => fetch(`${url}/releases/${name}`, init),
  };
}

/** Which files below a directory this process has open. */
const openBelow = (dir: string): readonly string[] =>
  readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const path = readlinkSync(`/proc/self/fd/${fd}`);
      return path.startsWith(dir) ? [path] : [];
    } catch {
      return [];
    }
  });

describe("the files of a release", () => {
  test("are sent whole to anybody, and leave no file open", async () => {
    const { dir, get } = await served();
    const answer = await get(PACKAGE);
    expect(answer.status).toBe(200);
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-length": "300000",
      "content-type": "application/octet-stream",
      "accept-ranges": "bytes",
      "cache-control": "public, max-age=86400, no-transform",
      etag: expect.stringMatching(/^"[0-9a-z-]+"$/) as string,
    });
    expect(Buffer.from(await answer.arrayBuffer()).equals(bytes)).toBe(true);
    const manifest = await get("manifest.jws");
    expect([await manifest.text(), manifest.headers.get("cache-control")]).toEqual(["a.b.c\n", "no-cache"]);
    expect(await (await get("empty")).text()).toBe("");
    await expect.poll(() => openBelow(dir)).toEqual([]);
  });

  test("are described by HEAD, and not sent again to who has them", async () => {
    const { dir, get } = await served();
    const head = await get(PACKAGE, { method: "HEAD" });
    const etag = head.headers.get("etag") ?? "";
    expect([head.status, head.headers.get("content-length"), await head.text()]).toEqual([200, "300000", ""]);
    expect((await get(PACKAGE, { headers: { "if-none-match": `"x", ${etag}` } })).status).toBe(304);
    writeFileSync(join(dir, PACKAGE), bytes);
    const again = await get(PACKAGE, { method: "HEAD", headers: { "if-none-match": etag } });
    expect(again.status).toBe(200);
    expect(again.headers.get("etag")).not.toBe(etag);
    await expect.poll(() => openBelow(dir)).toEqual([]);
  });

  test("are sent in parts, unless they have changed since", async () => {
    const { get } = await served();
    const etag = (await get(PACKAGE, { method: "HEAD" })).headers.get("etag") ?? "";
    const part = await get(PACKAGE, { headers: { range: "bytes=299990-", "if-range": etag } });
    expect([part.status, part.headers.get("content-range"), part.headers.get("content-length")]).toEqual([
      206,
      "bytes 299990-299999/300000",
      "10",
    ]);
    expect(Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(299_990))).toBe(true);
    const other = await get(PACKAGE, { headers: { range: "bytes=299990-", "if-range": '"other"' } });
    expect([other.status, (await other.arrayBuffer()).byteLength]).toEqual([200, 300_000]);
    const beyond = await get(PACKAGE, { headers: { range: "bytes=300000-" } });
    expect([beyond.status, beyond.headers.get("content-range")]).toEqual([416, "bytes */300000"]);
  });

  test("are nothing but plain files of the directory", async () => {
    const { dir, url, get } = await served();
    const outside = join(dir, "..", "outside");
    writeFileSync(outside, "secret");
    symlinkSync(outside, join(dir, "link"));
    symlinkSync(PACKAGE, join(dir, "inner-link"));
    symlinkSync("loop", join(dir, "loop"));
    mkdirSync(join(dir, "directory"));
    writeFileSync(join(dir, ".hidden"), "hidden");
    execFileSync("mkfifo", [join(dir, "fifo")]);
    const names = [
      "link",
      "inner-link",
      "loop",
      "directory",
      ".hidden",
      "fifo",
      "none",
      "..%2Foutside",
      "%2e%2e",
      "a%00b",
      "x".repeat(200),
    ];
    for (const name of [...names, "directory/"]) {
      const answer = await get(name);
      expect([name, answer.status], name).toEqual([name, 404]);
      expect(await answer.json()).toHaveProperty("code");
    }
    for (const path of [
      "/releases/../outside",
      "/releases//etc/passwd",
      "/releases/./manifest.jws/../../outside",
      "/releases/",
    ]) {
      expect([path, await rawStatus(url, path)]).toEqual([path, 404]);
    }
    expect((await get("manifest.jws", { method: "POST" })).status).toBe(405);
  });

  test("are not there where none are served", async () => {
    const { url } = await runController({ dataDir: await temporaryDirectory() });
    const answer = await fetch(`${url}/releases/manifest.jws`);
    expect([answer.status, await answer.json()]).toMatchObject([404, { code: "not-found" }]);
  });

  test("need a directory that is one", async () => {
    const dataDir = await temporaryDirectory();
    await expect(runController({ dataDir, releasesDir: join(dataDir, "none") })).rejects.toMatchObject({
      code: "invalid-settings",
      message: expect.stringContaining("--releases") as string,
    });
  });
});

describe("a file that is open", () => {
  const file = async (clock = new FakeClock(), maxOpen?: number) => {
    const dir = await temporaryDirectory();
    const content = randomBytes(200_000);
    writeFileSync(join(dir, "f"), content);
    return { dir, content, clock, files: await releaseFiles(dir, clock, maxOpen) };
  };

  test("is read no faster than it is taken, and is closed when nobody takes more", async () => {
    const { dir, clock, files } = await file();
    const opened = await files.open("f");
    const reader = opened?.stream(0, 199_999).getReader();
    const { value } = (await reader?.read()) ?? {};
    expect(value?.byteLength).toBe(65_536);
    expect(openBelow(dir)).toHaveLength(1);
    await clock.advance(60_000);
    await expect(reader?.read()).rejects.toMatchObject({ code: "timeout" });
    await expect.poll(() => openBelow(dir)).toEqual([]);
  });

  test("is closed when it is cancelled, and makes room for another", async () => {
    const { dir, content, files } = await file(undefined, 1);
    const opened = await files.open("f");
    await expect(files.open("f")).rejects.toMatchObject({ code: "busy" });
    expect(await files.open("none").catch(({ code }: { code: string }) => code)).toBe("busy");
    const stream = opened?.stream(0, 199_999);
    await stream?.cancel();
    expect(openBelow(dir)).toEqual([]);
    const again = await files.open("f");
    const hash = createHash("sha256");
    for await (const chunk of again?.stream(5, 199_999) ?? []) hash.update(chunk);
    expect(hash.digest("hex")).toBe(createHash("sha256").update(content.subarray(5)).digest("hex"));
    expect(openBelow(dir)).toEqual([]);
  });
});

test.each([
  [null, undefined],
  ["bytes=0-", { first: 0, last: 99 }],
  ["bytes=10-19", { first: 10, last: 19 }],
  ["bytes=10-1000", { first: 10, last: 99 }],
  ["bytes=-5", { first: 95, last: 99 }],
  ["bytes=-500", { first: 0, last: 99 }],
  ["bytes=-0", "unsatisfiable"],
  ["bytes=100-", "unsatisfiable"],
  ["bytes=20-10", undefined],
  ["bytes=0-1,5-6", undefined],
  ["bytes=-", undefined],
  ["items=0-1", undefined],
  ["bytes=99999999999999999999-", undefined],
])("the range %s of 100 bytes", (header, range) => {
  expect(rangeOf(header, 100)).toEqual(range);
});

/** The status of a path that is sent as it is written. */
function rawStatus(url: string, path: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    httpRequest({ hostname, port, path, agent: false }, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    })
      .on("error", reject)
      .end();
  });
}
