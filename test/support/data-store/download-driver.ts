// Runs a download as the agent and its transfer do, in one process that a tracer can kill; or resumes an interrupted one.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { pino } from "pino";
import { z } from "zod";
import { DataStore } from "../../../src/agent/data-store/data-store.ts";
import { TaskStore } from "../../../src/agent/data-store/task-store.ts";
import { dataStoreMigration } from "../../../src/agent/data-store/task-table.ts";
import { isOver } from "../../../src/agent/data-store/tasks.ts";
import { dataStoreSettings } from "../../../src/agent/settings.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { openStore } from "../../../src/host/data-store/open-store.ts";
import { openDatabase } from "../../../src/host/files/database.ts";
import type { StartTransfer } from "../../../src/host/process/transfer-process.ts";
import { TransferEvent } from "../../../src/protocol/triggers/transfer.ts";
import { transfer } from "../../../src/transfer/main.ts";
import { waitForTracer } from "../wait-for-tracer.ts";
import { waitFor } from "../wait-for.ts";

const Work = z.object({ stateDir: z.string(), url: z.string().optional() });
const { stateDir, url } = Work.parse(JSON.parse(process.argv[2] ?? ""));

/** Runs the transfer's program in this process, so that one kill ends both. */
const start: StartTransfer = (job, onEvent) => {
  const input = new PassThrough();
  const say = (value: unknown): void => void input.write(`${JSON.stringify(value)}\n`);
  say(job);
  const hear = async (line: string): Promise<void> => {
    const event = TransferEvent.parse(JSON.parse(line));
    onEvent(event);
    // The server holds the rest back until the transfer is resumable.
    if (event.is === "resumable" && url !== undefined) await fetch(`${url}/rest`);
  };
  const status = transfer(input, (line) => void hear(line));
  return {
    pid: 0,
    cancel: () => say({ is: "cancel" }),
    publish: () => say({ is: "publish" }),
    leave: () => void input.end(),
    ended: status.then((code) => ({ how: `exit status ${code}`, said: "" })),
  };
};

const clock = systemClock();
mkdirSync(stateDir, { recursive: true });
const { sql } = openDatabase(join(stateDir, "state.db"), { migrations: [dataStoreMigration], exclusive: true });
const tasks = new TaskStore(sql, {
  now: () => clock.now(),
  onRefused(error) {
    throw error;
  },
});
const dataStore = new DataStore({
  clock,
  log: pino({ level: "silent" }),
  store: openStore(join(stateDir, "data-store"), { clock }),
  tasks,
  start,
  imageInfo: () => Promise.resolve({ bytes: 0 }),
  settings: {
    ...dataStoreSettings({ reservePercent: 0, allowAddresses: ["127.0.0.0/8"] }),
    proxies: { noProxy: [] },
  },
  isInUse: () => undefined,
});
dataStore.reopen();
if (url !== undefined) {
  await waitForTracer();
  const { signal } = new AbortController();
  const request = { action: "HTTP_DOWNLOAD", uri: `${url}/a`, filename: "a.img", location: "/made/here" } as const;
  await dataStore.handle({ ...request, algo: "SHA-256" }, signal);
}
await waitFor("everything is over", () => tasks.all().every(isOver));
const { signal } = new AbortController();
console.log(JSON.stringify(await dataStore.handle({ action: "TASKS" }, signal)));
await dataStore.close();
sql.close();
