import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { DataStoreTasks, type DataStoreTask } from "../../../src/protocol/triggers/data-store.ts";
import { bundled } from "../../support/bundled.ts";
import { inLanes } from "../../support/network/lanes.ts";
import { sampleOf } from "../../support/sample.ts";
import { describePoint, pointsOf, recordCalls, runKilled, type Launch } from "../../support/kills/strace.ts";
import { tempDir } from "../../support/temp-dir.ts";

const LIMIT_MS = 900_000;
const LANES = 3;
const DRIVER = bundled(join(import.meta.dirname, "../../support/data-store/download-driver.ts"));
const OLD = "what was there before";
const NEW = Buffer.from(Uint8Array.from({ length: 700_000 }, (_, at) => at * 31 + (at >> 8)));
const HALF = NEW.length / 2;
const FILE = "made/here/a.img";

interface Downloading extends Launch {
  readonly name: string;
}

/** A server whose files stop half-way until their rest is requested, except released ones. */
async function startHaltingFiles() {
  const held = new Map<string, ServerResponse>();
  const fetches: string[] = [];
  const released = new Set<string>();
  const server = createServer((request, response) => {
    const [, name = "", what] = (request.url ?? "").split("/");
    if (what === "rest") {
      held.get(name)?.end(NEW.subarray(HALF));
      response.end();
      return;
    }
    fetches.push(name);
    const from = Number(/^bytes=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? -1);
    response.writeHead(from < 0 ? 200 : 206, {
      etag: '"v1"',
      "content-length": NEW.length - Math.max(0, from),
      ...(from < 0 ? {} : { "content-range": `bytes ${from}-${NEW.length - 1}/${NEW.length}` }),
    });
    if (from >= 0 || released.has(name)) return void response.end(NEW.subarray(Math.max(0, from)));
    held.set(name, response);
    response.write(NEW.subarray(0, HALF));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    fetches,
    release: (name: string) => void released.add(name),
  };
}

/** Returns all files of the data store, with their paths. */
function filesOf(stateDir: string): readonly string[] {
  const root = join(stateDir, "data-store");
  const entries = readdirSync(root, { recursive: true, withFileTypes: true });
  return entries
    .filter((one) => one.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(root.length + 1));
}

const contentOf = (stateDir: string): Buffer => readFileSync(join(stateDir, "data-store", FILE));

/** Starts again on the remains, until no task is running. */
async function goOn(stateDir: string): Promise<readonly DataStoreTask[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [DRIVER, JSON.stringify({ stateDir })]);
  return DataStoreTasks.parse(JSON.parse(stdout)).tasks;
}

test(
  "a download that is killed anywhere leaves the old file or the complete new one, and is completed by the next agent",
  async () => {
    const files = await startHaltingFiles();
    let made = 0;
    const prepare = (isReplacing: boolean): Downloading => {
      made += 1;
      const name = `f${made}`;
      const stateDir = join(tempDir(), "state");
      mkdirSync(join(stateDir, "data-store"), { recursive: true });
      if (isReplacing) {
        mkdirSync(join(stateDir, "data-store/made/here"), { recursive: true });
        writeFileSync(join(stateDir, "data-store", FILE), OLD);
      }
      return { name, stateDir, args: [DRIVER, JSON.stringify({ stateDir, url: `${files.url}/${name}` })] };
    };
    for (const isReplacing of [true, false]) {
      const whole = prepare(isReplacing);
      const points = pointsOf(await recordCalls(whole), whole);
      expect(await goOn(whole.stateDir)).toMatchObject([{ status: "Completed" }]);
      expect(filesOf(whole.stateDir)).toEqual([FILE]);
      expect(contentOf(whole.stateDir).equals(NEW)).toBe(true);
      const names = points.map(({ name, target }) => `${name} ${target}`);
      expect(names).toContain("rename STORE/.part");
      expect(names).toContain("fdatasync STATE/data-store/made/here/.part");
      expect(names.filter((name) => name.startsWith("pwrite64 STATE/state.db")).length).toBeGreaterThan(2);
      const sample = sampleOf(points, isReplacing ? 3 : 1, `data store, replacing ${isReplacing}`);
      console.log(`${sample.length} of ${points.length} points`);
      await inLanes(sample, LANES, async (point) => {
        const killed = await runKilled(() => prepare(isReplacing), point);
        try {
          await check(killed, isReplacing);
        } catch (error) {
          throw new Error(`killed at ${describePoint(point)}`, { cause: error });
        }
      });
    }

    async function check({ stateDir, name }: Downloading, isReplacing: boolean): Promise<void> {
      const isThere = existsSync(join(stateDir, "data-store", FILE));
      const isNew = isThere && contentOf(stateDir).equals(NEW);
      if (!isNew) expect(isThere ? contentOf(stateDir).toString() : undefined).toBe(isReplacing ? OLD : undefined);
      files.release(name);
      const tasks = await goOn(stateDir);
      const fetched = files.fetches.filter((one) => one === name).length;
      // Before it is recorded nothing depends on it.
      if (tasks.length === 0) expect([isNew, fetched]).toEqual([false, 0]);
      else {
        expect(tasks.map(({ status, details }) => [status, details])).toEqual([
          ["Completed", expect.stringMatching(/^700\.0 kB · [0-9a-f]{64}$/)],
        ]);
        expect(contentOf(stateDir).equals(NEW)).toBe(true);
        if (isNew) expect(fetched).toBe(1);
      }
      expect(filesOf(stateDir)).toEqual(tasks.length > 0 || isReplacing ? [FILE] : []);
    }
  },
  LIMIT_MS,
);
