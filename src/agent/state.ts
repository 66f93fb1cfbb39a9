import { z } from "zod";
import { HostError } from "../errors.ts";
import { openDatabase, type Database } from "../host/files/database.ts";
import type { Files } from "../host/files/files.ts";
import type { Migration } from "../host/files/schema.ts";
import { stateFile, valueOf, type StateFile } from "../host/files/state-file.ts";
import { KnownTimeRecord } from "../protocol/local/known-time.ts";
import { ShadowMap } from "../protocol/values/shadow.ts";
import { Text128, UnixSeconds, Version } from "../protocol/values/values.ts";
import { computeColumnsMigration, computeMigration } from "./containers/model/ledger.ts";
import { outputMigration } from "./containers/output/saved-output.ts";
import { dataStoreMigration } from "./data-store/task-table.ts";
import { OpenEvents } from "./telemetry/events.ts";
import { RunRecord } from "./telemetry/run-record.ts";
import { spoolMigration } from "./telemetry/spool.ts";
import { journalMigration, journalYieldMigration } from "./triggers/execution/journal.ts";

const Acknowledged = z.object({ version: Version, facts: ShadowMap });
const ToldUpgrade = z.object({ osUpdatedAt: UnixSeconds });
const Adjusted = z.record(Text128, Text128);

/** The schema of `state.db`, in order; a released one is never edited. */
export const stateMigrations: readonly Migration[] = [
  spoolMigration,
  journalMigration,
  computeMigration,
  outputMigration,
  computeColumnsMigration,
  dataStoreMigration,
  journalYieldMigration,
];

/** The agent's state directory, held by this process alone. */
export interface AgentState {
  readonly database: Database;
  readonly run: StateFile<RunRecord>;
  readonly openEvents: StateFile<z.infer<typeof OpenEvents>>;
  readonly reported: StateFile<z.infer<typeof Acknowledged>>;
  /** The last time that a control plane sent. */
  readonly knownTime: StateFile<KnownTimeRecord>;
  /** The report of an upgrade that is made only once. */
  readonly toldUpgrade: StateFile<z.infer<typeof ToldUpgrade>>;
  /** Saves the original values of kernel settings, by their dotted names, before they are changed. */
  noteAdjusted(former: Readonly<Record<string, string>>): Promise<void>;
  /** Writes to the database and to a file; rejects while the disk refuses either. */
  probe(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the state directory, and creates it if it does not exist.
 * @throws {HostError} `state-locked`, naming the process that holds it.
 */
export async function openState(files: Files, stateDir: string): Promise<AgentState> {
  const pidPath = `${stateDir}/agent.pid`;
  const directories = ["", "/identity", "/desired", "/reported"].map((name) => stateDir + name);
  try {
    for (const path of directories) await files.makeDirectory(path, 0o700);
  } catch (error) {
    // A read-only disk may still hold everything that is needed, which shows when the files are read.
    if (!(error instanceof HostError && error.code === "read-only")) throw error;
  }
  const database = await openExclusively(files, stateDir, pidPath);
  if (database.isPersistent) await settleIn(files, directories, pidPath);
  const at = <T>(name: string, schema: z.ZodType<T>): StateFile<T> =>
    stateFile(files, { path: `${stateDir}/reported/${name}.json`, schema, keepsPrevious: true });
  return {
    database,
    run: at("run", RunRecord),
    openEvents: at("open-events", OpenEvents),
    reported: at("shadow", Acknowledged),
    knownTime: at("known-time", KnownTimeRecord),
    toldUpgrade: at("told-upgrade", ToldUpgrade),
    noteAdjusted: noteOnce(at("adjusted", Adjusted)),
    async probe() {
      const version = Number(database.sql.prepare("PRAGMA user_version").get()?.["user_version"]);
      database.sql.exec(`PRAGMA user_version=${version}`);
      await files.writeAtomic(pidPath, `${process.pid}\n`, 0o600);
    },
    async close() {
      database.sql.close();
      if (database.isPersistent) await files.remove(pidPath).catch(() => undefined);
    },
  };
}

function noteOnce(file: StateFile<z.infer<typeof Adjusted>>): AgentState["noteAdjusted"] {
  let work: Promise<unknown> = Promise.resolve();
  return (former) => {
    const noted = work.then(async () => file.save({ ...former, ...valueOf(await file.load()) }));
    work = noted.catch(() => undefined);
    return noted;
  };
}

/** Writes the pid file and removes what a crash left. A disk that refuses does not prevent the start. */
async function settleIn(files: Files, directories: readonly string[], pidPath: string): Promise<void> {
  try {
    for (const path of directories) await files.sweep(path);
    await files.writeAtomic(pidPath, `${process.pid}\n`, 0o600);
  } catch (error) {
    if (!(error instanceof HostError)) throw error;
  }
}

async function openExclusively(files: Files, stateDir: string, pidPath: string): Promise<Database> {
  try {
    return openDatabase(`${stateDir}/state.db`, {
      migrations: stateMigrations,
      exclusive: true,
      onNewer: "begin-anew",
    });
  } catch (error) {
    if (!(error instanceof HostError && error.code === "state-locked")) throw error;
    const holder = (await files.read(pidPath))?.trim() ?? "";
    const who = holder === "" ? "another process" : `process ${holder}`;
    throw new HostError("state-locked", `${stateDir} is in use by ${who}; each agent needs a --state of its own`, {
      cause: error,
      details: { stateDir, pid: holder },
    });
  }
}
