import { valueOf, type StateFile } from "../../host/files/state-file.ts";
import { commitFiles } from "../../checkpoint/commit-files.ts";
import { damageOf, type Damage } from "../../host/files/damage.ts";
import type { Files } from "../../host/files/files.ts";
import { networkLedgerFile } from "../../host/network/state/ledger.ts";
import { networkRecordFile } from "../../host/network/state/record.ts";
import type { IdentityFiles, Registration } from "../identity/identity.ts";
import type { KnownTimeRecord } from "../../protocol/local/known-time.ts";
import type { AgentState } from "../state.ts";

/** The state of the last run, apart from the documents. */
export interface LastGood {
  readonly registration: Registration | undefined;
  /** The last time that a control plane sent. */
  readonly knownTime: KnownTimeRecord | undefined;
  readonly damage: readonly Damage[];
  /** Damage in files that another part reads, and reports, later. */
  readonly foreseen: readonly Damage[];
}

/** Reads every file below `identity/` and `reported/`, and inspects the others, so that damage is known before the first report. */
export async function readLastGood(
  files: Files,
  stateDir: string,
  state: AgentState,
  identity: IdentityFiles,
): Promise<LastGood> {
  const damage: Damage[] = [];
  const note = async <T>(name: string, file: StateFile<T>): Promise<T | undefined> => {
    const loaded = await file.load();
    const found = damageOf(`${name}.json`, loaded);
    if (found !== undefined) damage.push(found);
    return valueOf(loaded);
  };
  /** Reads a file and writes a damaged one again, unless the disk refuses; `anew` replaces a lost value. */
  const rebuild = async <T>(name: string, file: StateFile<T>, anew?: T): Promise<T | undefined> => {
    const value = (await note(name, file)) ?? anew;
    const isDamaged = damage.some((found) => found.file === `${name}.json`);
    if (value !== undefined && isDamaged) await file.save(value).catch(() => undefined);
    return value;
  };
  const registration = await rebuild("identity/registration", identity.registration);
  await rebuild("identity/keys", identity.keys);
  // The session counter skips ahead after a recovery, so it is not rebuilt here.
  await note("identity/counter", identity.counter);
  await note("identity/addresses", identity.addresses);
  await rebuild("reported/run", state.run);
  await rebuild("reported/open-events", state.openEvents, []);
  await rebuild("reported/shadow", state.reported);
  const knownTime = await rebuild("reported/known-time", state.knownTime);
  const { isNew, damagedCopy, newerCopy, isLogDamaged } = state.database;
  const isDatabaseLost = damagedCopy !== undefined || (isNew && registration !== undefined);
  if (newerCopy !== undefined) damage.push({ file: "state.db", isRecovered: true, isNewer: true });
  else if (isDatabaseLost) damage.push({ file: "state.db", isRecovered: false });
  else if (isLogDamaged) damage.push({ file: "state.db-wal", isRecovered: false });
  return { registration, knownTime, damage, foreseen: await foresee(files, stateDir) };
}

/** Inspects files that are read after the start is reported. */
async function foresee(files: Files, stateDir: string): Promise<readonly Damage[]> {
  const { confirmed, withheld, guardResult } = commitFiles(files, `${stateDir}/desired`);
  const damage = [
    damageOf("desired/confirmed.json", await confirmed.inspect()),
    damageOf("desired/withheld.json", await withheld.inspect()),
    damageOf("desired/checkpoint-result.json", await guardResult.inspect()),
    damageOf("network.json", await networkLedgerFile(files, stateDir).inspect()),
    damageOf("network-record.json", await networkRecordFile(files, stateDir).inspect()),
  ];
  return damage.filter((found) => found !== undefined);
}
