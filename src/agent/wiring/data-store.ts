import { join } from "node:path";
import type { Logger } from "pino";
import { InputError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { Files } from "../../host/files/files.ts";
import type { ProxySettings } from "../../lib/net/proxy.ts";
import type { DataStoreRequest } from "../../protocol/triggers/data-store.ts";
import type { DataStore } from "../data-store/data-store.ts";
import type { TextFile } from "../data-store/text-file.ts";
import { hasOpenTasks } from "../data-store/task-table.ts";
import { unfinished } from "../data-store/unfinished.ts";
import type { DataStoreSettings } from "../settings.ts";
import type { AgentState } from "../state.ts";

export interface OpenDataStoreOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly files: Pick<Files, "read" | "writeAtomic" | "remove">;
  readonly settings: {
    readonly stateDir: string;
    /** The unit of a managed install. */
    readonly unit?: string | undefined;
    readonly proxies: ProxySettings;
    readonly dataStore: DataStoreSettings;
  };
  readonly state: Pick<AgentState, "database">;
  /** Returns why the file at these names may not be removed or replaced. */
  readonly isInUse: (parts: readonly string[]) => string | undefined;
  readonly onRefused: (error: unknown) => void;
  /** Reports whether this kind of node has a data store. */
  readonly isThere: () => boolean;
}

/** The data store of this node. */
export interface OpenedDataStore {
  handle(request: DataStoreRequest, signal: AbortSignal): Promise<unknown>;
  /** Begins a file from memory, as `DataStore.create`. @throws {InputError} `not-supported` without a data store */
  create(path: string, signal: AbortSignal): Promise<TextFile>;
  /** Resumes the transfers of the last agent and removes its unfinished files. Loads nothing if there are none. Never rejects. */
  resume(): Promise<void>;
  close(): Promise<void>;
}

/** Opens the data store. No code is loaded, no directory made and no timer set before the first request or unfinished transfer. */
export function openDataStore(options: OpenDataStoreOptions): OpenedDataStore {
  const { clock, settings, state, isInUse, onRefused } = options;
  const { sql } = state.database;
  const log = options.log.child({ component: "data-store" });
  const closing = new AbortController();
  const noted = unfinished(options.files, join(settings.stateDir, "data-store.unfinished"), (error) =>
    log.debug({ err: toError(error) }, "unfinished files of the data store were not noted"),
  );
  let opened: Promise<DataStore> | undefined;

  async function load(): Promise<DataStore> {
    const [{ DataStore }, { TaskStore }, { openStore }, { hostImageInfo }, { hostTransfers }] = await Promise.all([
      import("../data-store/data-store.ts"),
      import("../data-store/task-store.ts"),
      import("../../host/data-store/open-store.ts"),
      import("../../host/data-store/image-info.ts"),
      import("../../host/process/transfer-process.ts"),
    ]);
    closing.signal.throwIfAborted();
    const store = openStore(join(settings.stateDir, "data-store"), { isInUse, clock, countEveryMs: 0 });
    const dataStore = new DataStore({
      clock,
      log,
      store,
      tasks: new TaskStore(sql, {
        now: () => clock.now(),
        onRefused(error) {
          log.warn({ err: toError(error) }, "a task was not written");
          onRefused(error);
        },
      }),
      start: hostTransfers({ clock, caFile: settings.dataStore.caFile }),
      imageInfo: hostImageInfo({ isManaged: settings.unit !== undefined }),
      settings: { ...settings.dataStore, proxies: settings.proxies },
      isInUse,
      onSwept: () => noted.swept(),
    });
    dataStore.reopen();
    return dataStore;
  }

  const open = (): Promise<DataStore> => {
    opened ??= load().catch((error: unknown) => {
      opened = undefined;
      throw error;
    });
    return opened;
  };

  const running = (): Promise<DataStore> => {
    if (closing.signal.aborted) throw new InputError("busy", "the node is stopping");
    return open();
  };

  return {
    handle: async (request, signal) => (await running()).handle(request, signal),
    async create(path, signal) {
      if (!options.isThere()) throw new InputError("not-supported", "an agent has no data store to write a file into");
      const dataStore = await running();
      return noted.hold(() => dataStore.create(path, signal));
    },
    async resume() {
      if (!hasOpenTasks(sql) && !(await noted.isLeft())) return;
      await open().catch((error: unknown) =>
        log.warn({ err: toError(error) }, "unfinished transfers are not resumed, or files not removed"),
      );
    },
    async close() {
      closing.abort(new InputError("cancelled", "the agent is stopping"));
      await (await opened?.catch(() => undefined))?.close();
    },
  };
}
