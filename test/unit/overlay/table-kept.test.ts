import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { HostError } from "../../../src/errors.ts";
import { hostFiles, type Files } from "../../../src/host/files/files.ts";
import { connectControl } from "../../../src/host/overlay/control.ts";
import { startOverlay, type Overlay } from "../../../src/overlay/overlay.ts";
import { deferred } from "../../support/deferred.ts";
import { aListener, aTable } from "../../support/overlay/overlay-rig.ts";
import { freePort } from "../../support/machine/programs.ts";
import { clockWith } from "../../support/control-plane/running-controller.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

async function overlayOf(dir: string, files: Files): Promise<Overlay> {
  const overlay = await startOverlay({
    stateDir: join(dir, "state"),
    runDir: join(dir, "run"),
    isSuccessor: false,
    endsWithState: true,
    clock: clockWith(10_000, 5),
    files,
    log: pino({ level: "silent" }),
    askName: () => Promise.reject(new Error("no names here")),
    localAddresses: () => [],
    descriptorLimit: 1000,
    onMesh: () => undefined,
    onFirstFlow: () => undefined,
    makeRoom: () => undefined,
  });
  onTestFinished(() => overlay.close());
  return overlay;
}

test("calls on the table are answered once the last one is loaded, and a newer one replaces it", async () => {
  const dir = tempDir();
  const files = hostFiles();
  const path = join(dir, "run/overlay.sock");
  const [last, newer] = [aTable([aListener(await freePort(), 9)]), aTable([])];
  const before = await overlayOf(dir, files);
  const agent = await connectControl(path, {});
  await agent.peer.request("table.set", { table: last });
  agent.close();
  before.close();

  const reading = deferred<void>();
  const slow: Files = { ...files, read: (file) => reading.promise.then(() => files.read(file)) };
  const starting = overlayOf(dir, slow);
  const next = await waitFor("it takes calls", () => connectControl(path, {}));
  onTestFinished(() => next.close());
  const answered: string[] = [];
  const got = next.peer.request("table.get", {}).finally(() => answered.push("get"));
  const set = next.peer.request("table.set", { table: newer }).finally(() => answered.push("set"));
  // Calls on anything else are answered meanwhile.
  await next.peer.request("counters.get", {});
  expect(answered).toEqual([]);
  reading.resolve();
  expect(await got).toMatchObject({ table: last, listeners: [{ state: "listening" }] });
  expect(await set).toMatchObject({ version: newer.version });
  await starting;
  expect(await next.peer.request("table.get", {})).toMatchObject({ table: newer, listeners: [] });
});

test("a table that a full disk refused is stored once there is room, unless replaced by a newer one", async () => {
  const dir = tempDir();
  const files = hostFiles();
  let isFull = true;
  let refusals = 0;
  const failing: Files = {
    ...files,
    writeAtomic(path, text, mode) {
      if (!isFull) return files.writeAtomic(path, text, mode);
      refusals += 1;
      return Promise.reject(new HostError("disk-full", `cannot write ${path}`));
    },
  };
  await overlayOf(dir, failing);
  const faults: string[] = [];
  const agent = await connectControl(join(dir, "run/overlay.sock"), {
    fault: ({ code, file }) => void faults.push(`${code}: ${file}`),
    "fault.mended": ({ file }) => void faults.push(`mended: ${file}`),
  });
  onTestFinished(() => agent.close());
  const [first, second] = [aTable([]), aTable([])];
  await agent.peer.request("table.set", { table: first });
  await agent.peer.request("table.set", { table: second });
  await waitFor("it is tried again and again", () => refusals > 6);
  expect(faults).toEqual(["table-not-kept: table.json"]);
  expect(await files.read(join(dir, "state/table.json"))).toBeUndefined();
  isFull = false;
  const kept = await waitFor("it is kept", () => files.read(join(dir, "state/table.json")));
  expect(JSON.parse(kept)).toMatchObject({ body: { version: second.version } });
  await waitFor("it is said", () => faults[1] === "mended: table.json");
  const after = refusals;
  await agent.peer.request("table.set", { table: aTable([]) });
  expect(refusals).toBe(after);
});
