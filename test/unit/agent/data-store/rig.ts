import { join } from "node:path";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { DataStore, type DataStoreOptions } from "../../../../src/agent/data-store/data-store.ts";
import { TaskStore } from "../../../../src/agent/data-store/task-store.ts";
import { dataStoreMigration } from "../../../../src/agent/data-store/task-table.ts";
import { dataStoreSettings } from "../../../../src/agent/settings.ts";
import { systemClock, type Clock } from "../../../../src/host/clock.ts";
import { openStore } from "../../../../src/host/data-store/open-store.ts";
import { openDatabase } from "../../../../src/host/files/database.ts";
import type { TransferProcess } from "../../../../src/host/process/transfer-process.ts";
import { DataStoreRequest, DataStoreTasks } from "../../../../src/protocol/triggers/data-store.ts";
import type { TransferEvent, TransferJob } from "../../../../src/protocol/triggers/transfer.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** A transfer controlled by the test. */
export interface Puppet {
  readonly job: TransferJob;
  readonly orders: string[];
  tell(event: TransferEvent): void;
  end(how?: string): void;
}

/** The test's settings. */
export interface Given {
  readonly dir?: string;
  readonly clock?: Clock;
  readonly options?: Partial<DataStoreOptions>;
  readonly settings?: Parameters<typeof dataStoreSettings>[0];
}

/** A data store with such transfers; closed with the test. */
export function stage({ dir = tempDir(), clock = systemClock(), options = {}, settings }: Given = {}) {
  const root = join(dir, "data-store");
  const database = openDatabase(join(dir, "state.db"), { migrations: [dataStoreMigration], exclusive: true });
  const puppets: Puppet[] = [];
  const start = (job: TransferJob, onEvent: (event: TransferEvent) => void): TransferProcess => {
    let end: (ended: { readonly how: string; readonly said: string }) => void = () => undefined;
    const ended = new Promise<{ readonly how: string; readonly said: string }>((resolve) => (end = resolve));
    const puppet: Puppet = {
      job,
      orders: [],
      tell: (event) => onEvent(event),
      end: (how = "exit status 0") => end({ how, said: "" }),
    };
    puppets.push(puppet);
    return {
      pid: 1,
      cancel: () => void puppet.orders.push("cancel"),
      publish: () => void puppet.orders.push("publish"),
      leave() {
        puppet.orders.push("leave");
        puppet.end();
      },
      ended,
    };
  };
  const store = openStore(root, { clock });
  const tasks = new TaskStore(database.sql, {
    now: () => clock.now(),
    onRefused(error) {
      throw error;
    },
  });
  const dataStore = new DataStore({
    clock,
    log: pino({ level: "silent" }),
    store,
    tasks,
    start,
    imageInfo: (fd) => Promise.resolve({ bytes: fd > 0 ? 1 : 0 }),
    settings: { ...dataStoreSettings({ reservePercent: 0, ...settings }), proxies: { noProxy: [] } },
    isInUse: () => undefined,
    ...options,
  });
  let isClosed = false;
  const close = async (): Promise<void> => {
    if (isClosed) return;
    isClosed = true;
    await dataStore.close();
    database.sql.close();
  };
  onTestFinished(close);
  const call = (body: unknown, signal = new AbortController().signal): Promise<unknown> =>
    dataStore.handle(DataStoreRequest.parse(body), signal);
  const begin = async (body: unknown): Promise<string> => {
    const before = puppets.length;
    const { id } = (await call(body)) as { readonly id: string };
    await waitFor("its turn has come or has not", async () => {
      const task = (await shown()).find((one) => one.id === id);
      return task?.status !== "Running" || puppets.length > before;
    });
    return id;
  };
  const shown = async () => DataStoreTasks.parse(await call({ action: "TASKS" })).tasks;
  return { dir, root, dataStore, tasks, puppets, call, begin, shown, close };
}

/** A request for a file. */
export const download = (name: string) => ({
  action: "HTTP_DOWNLOAD",
  uri: `http://h.example/${name}`,
  filename: name,
});
