import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { dataStoreMigration } from "../../../../src/agent/data-store/task-table.ts";
import { openDataStore, type OpenedDataStore } from "../../../../src/agent/wiring/data-store.ts";
import { dataStoreSettings } from "../../../../src/agent/settings.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { openDatabase } from "../../../../src/host/files/database.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

const { signal } = new AbortController();

/** The data store of an agent; another one of the same directory follows a crash. */
function opened(stateDir: string, name: string): OpenedDataStore {
  const database = openDatabase(join(stateDir, `${name}.db`), { migrations: [dataStoreMigration], exclusive: true });
  const dataStore = openDataStore({
    clock: systemClock(),
    log: pino({ level: "silent" }),
    files: hostFiles(),
    settings: { stateDir, proxies: { noProxy: [] }, dataStore: dataStoreSettings({ reservePercent: 0 }) },
    state: { database },
    isInUse: () => undefined,
    onRefused: () => undefined,
    isThere: () => true,
  });
  onTestFinished(async () => {
    await dataStore.close();
    database.sql.close();
  });
  return dataStore;
}

test("the next start of the agent deletes the hidden parts of an interrupted capture", async () => {
  const stateDir = tempDir();
  const captures = join(stateDir, "data-store/captures");
  const killed = opened(stateDir, "killed");
  const whole = await killed.create("captures/a.pcap0", signal);
  whole.append("packets");
  await whole.publish();
  const cut = await killed.create("captures/a.pcap1", signal);
  cut.append("packets");
  expect(readdirSync(captures)).toHaveLength(2);

  const next = opened(stateDir, "next");
  await next.resume();
  await waitFor("they are removed", () => readdirSync(captures).length === 1);
  expect(readdirSync(captures)).toEqual(["a.pcap0"]);
  await waitFor("nothing is noted any more", () => !existsSync(join(stateDir, "data-store.unfinished")));
});

test("an agent without unfinished work opens no data store at its start", async () => {
  const stateDir = tempDir();
  const first = opened(stateDir, "first");
  const [whole, given] = [await first.create("a", signal), await first.create("b", signal)];
  await expect(first.create("../c", signal)).rejects.toMatchObject({ code: "invalid-body" });
  await whole.publish();
  given.discard();
  given.discard();
  await waitFor("nothing is noted any more", () => !existsSync(join(stateDir, "data-store.unfinished")));

  const idle = tempDir();
  await opened(idle, "next").resume();
  expect(existsSync(join(idle, "data-store"))).toBe(false);
});
