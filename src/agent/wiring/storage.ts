import type { DatabaseSync } from "node:sqlite";
import { toError } from "../../errors.ts";
import type { OnDamage } from "../../host/files/damage.ts";
import { recycleLog } from "../../host/files/database.ts";
import type { Files } from "../../host/files/files.ts";
import { diskReserve, filesWithReserve } from "../../host/files/reserve.ts";
import { readLastGood, type LastGood } from "../applying/last-good.ts";
import { FaultList } from "../faults/fault.ts";
import { StorageWatch } from "../faults/storage.ts";
import { identityFiles, type IdentityFiles } from "../identity/identity.ts";
import { keepSettings, type AgentSettings } from "../settings.ts";
import { DesiredDocuments } from "../shadow/desired.ts";
import { openState, type AgentState } from "../state.ts";
import type { AgentOptions } from "./options.ts";
import type { AgentSignals } from "./signals.ts";

export interface OpenStorageOptions extends Pick<AgentOptions, "clock" | "files" | "log" | "found"> {
  readonly settings: Pick<AgentSettings, "stateDir" | "problems" | "fileText">;
  readonly signals: Pick<AgentSignals, "isWritable">;
}

/** Everything that the state directory holds. */
export interface OpenedStorage {
  /** The files, with refused writes and repaired damage noted. */
  readonly files: Files;
  readonly faults: FaultList;
  readonly storage: StorageWatch;
  readonly state: AgentState;
  readonly sql: DatabaseSync;
  /** False while everything is kept in memory, because the state directory cannot be written. */
  readonly isPersistent: boolean;
  readonly identity: IdentityFiles;
  readonly documents: DesiredDocuments;
  readonly lastGood: LastGood;
  readonly onFault: (code: string, message: string) => void;
  readonly onDamage: OnDamage;
  /** Notes a write that the disk refused. */
  readonly onRefused: (error: unknown) => void;
  readonly notSaved: (error: unknown) => void;
  /** Frees room for a write of the trigger journal on a full disk. */
  readonly makeRoom: () => boolean;
}

/** More than one write of the journal takes. */
const JOURNAL_ROOM_BYTES = 32 * 1024;

/** Opens the state directory and reads what the last run left in it. */
export async function openStorage(options: OpenStorageOptions, stack: AsyncDisposableStack): Promise<OpenedStorage> {
  const { settings, clock, log, signals, found = [] } = options;
  const { stateDir } = settings;
  const notSaved = (error: unknown): void => log.warn({ err: toError(error) }, "not saved");
  const faults = new FaultList(clock, (code, message) => log.error({ code }, message));
  const onFault = (code: string, message: string): void => faults.add(code, message);
  const storage = new StorageWatch({
    clock,
    onRefused(error) {
      log.error({ code: "storage-unavailable", err: error }, "the disk refuses writes");
      signals.isWritable.set(false);
    },
    onAccepted() {
      log.info("the disk accepts writes again");
      signals.isWritable.set(true);
    },
  });
  const onRefused = (error: unknown): void => storage.refused(error);
  // The node's identity and its documents can be written even when the disk is full.
  const reserve = diskReserve(stateDir);
  const reserved = ["identity", "desired"].map((name) => `${stateDir}/${name}`);
  const files = faults.watched(storage.watched(filesWithReserve(options.files, reserve, reserved, onRefused)));
  for (const { code, message } of [...(settings.problems ?? []), ...found]) onFault(code, message);
  const state = await openState(files, stateDir);
  stack.defer(() => state.close());
  stack.defer(() => storage.close());
  const { sql, isPersistent } = state.database;
  storage.begin(async () => {
    if (isPersistent) reserve.refill();
    await state.probe();
  });
  if (settings.fileText !== undefined) await keepSettings(files, stateDir, settings.fileText).catch(notSaved);
  if (isPersistent) fillReserve(reserve, onRefused);
  else onFault("storage-unavailable", `${stateDir} cannot be written; working in memory`);
  const identity = identityFiles(files, stateDir);
  const documents = await DesiredDocuments.load(files, stateDir);
  const lastGood = await readLastGood(files, stateDir, state, identity);
  // A damaged database has been replaced by a new one at this point.
  if (isPersistent) faults.mended(`${stateDir}/state.db`);
  faults.addDamage(stateDir, [...documents.damage, ...lastGood.damage]);
  faults.foresee(stateDir, lastGood.foreseen);
  signals.isWritable.changed((isWritable) => {
    if (isWritable) void documents.keep();
  });
  return {
    files,
    faults,
    storage,
    state,
    sql,
    isPersistent,
    identity,
    documents,
    lastGood,
    onFault,
    onDamage: faults.damageBelow(stateDir),
    onRefused,
    notSaved,
    makeRoom() {
      reserve.release(JOURNAL_ROOM_BYTES);
      recycleLog(sql);
      return true;
    },
  };
}

function fillReserve(reserve: ReturnType<typeof diskReserve>, onRefused: (error: unknown) => void): void {
  try {
    reserve.refill();
  } catch (error) {
    onRefused(error);
  }
}
