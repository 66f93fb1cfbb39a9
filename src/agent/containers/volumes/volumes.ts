import { HostError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { Directories } from "../../../host/files/directories.ts";
import type { EncryptedVolumes, EncryptionSupport } from "../../../host/machine/encrypted-volume.ts";
import type { Engine } from "../../../host/engine/engine.ts";
import type { Files } from "../../../host/files/files.ts";
import type { VolumeSpec } from "../../../protocol/sections/exec/config.ts";
import type { VolumeStatus } from "../model/compute.ts";
import { EngineVolumes } from "./engine-volumes.ts";
import {
  contentPath,
  encryptedVolume,
  engineVolumeName,
  isOverlap,
  MOUNTS,
  shapeOf,
  type VolumeShape,
} from "./volume-paths.ts";
import { VolumeQuarantine } from "./volume-quarantine.ts";
import { detailOf, parseDetail, type VolumeRecords } from "./volume-record.ts";
import { serialQueue } from "../../../lib/async/serial-queue.ts";

export interface VolumeKeeperParts {
  /** Uid of the node. */
  readonly owner: string;
  /** Directory of the node's data store, without links in it. */
  readonly dataStore: string;
  readonly engine: Pick<Engine, "listVolumes" | "createVolume" | "removeVolume">;
  readonly records: VolumeRecords;
  readonly encrypted: EncryptedVolumes;
  readonly files: Files;
  readonly directories: Directories;
  readonly clock: Clock;
  /** Asks for the key of an encrypted volume; undefined when nobody gives it now. */
  readonly askKey: (name: string, signal: AbortSignal) => Promise<string | undefined>;
}

/** What containers can mount: by the name in its definition, what the engine calls it and binds. */
export type UsableVolume =
  | { readonly engineName: string; readonly isEncrypted: boolean; readonly directory: string }
  | { readonly missing: string };

interface Found {
  readonly status: VolumeStatus;
  readonly volume: UsableVolume;
}

export interface SettleOptions {
  /** How long what is removed is kept; a day unless told. */
  readonly quarantineMs?: number;
}

const DAY_MS = 86_400_000;
const MIN_IMAGE_BYTES = 64 * 1024 * 1024;
const MAX_IMAGE_BYTES = 1024 ** 4;

/** Volumes of definitions: directories or encrypted files in the data store, volumes of the engine that bind them. */
export class VolumeKeeper {
  readonly #parts: VolumeKeeperParts;
  readonly #quarantine: VolumeQuarantine;
  readonly #published: EngineVolumes;
  /** The name of a volume and what of it can be mounted, as the last `settle` found it. */
  #usable: ReadonlyMap<string, UsableVolume> = new Map();
  /** Whose key nobody gave when it was asked for. */
  readonly #keyless = new Set<string>();
  readonly #inTurn = serialQueue();

  constructor(parts: VolumeKeeperParts) {
    this.#parts = parts;
    this.#quarantine = new VolumeQuarantine(parts);
    this.#published = new EngineVolumes(parts.engine, parts.owner);
  }

  /** When `settle` has something to remove, in Unix milliseconds. */
  get nextDue(): number | undefined {
    return this.#quarantine.nextEnd;
  }

  engineName(name: string): string {
    return engineVolumeName(this.#parts.owner, name);
  }

  /** What a container can mount under that name. An encrypted volume has to be unlocked before the container starts. */
  lookup(name: string): UsableVolume {
    return this.#usable.get(name) ?? { missing: "is not defined" };
  }

  /** Lets the next `settle` ask the engine what it has: after a volume was removed there, or it was away. */
  forget(): void {
    this.#published.forget();
  }

  /**
   * Makes what is wanted, puts away what is neither wanted nor in `referenced`, and removes what was put away long enough ago. Never
   * call it with half a document. What fails is said of its volume; rejects when aborted, or when nothing can be put on record. `usedBy` is left to the caller.
   */
  settle(
    wanted: readonly VolumeSpec[],
    referenced: ReadonlySet<string>,
    signal: AbortSignal,
    options: SettleOptions = {},
  ): Promise<readonly VolumeStatus[]> {
    return this.#inTurn(() => this.#settle(wanted, referenced, signal, options.quarantineMs ?? DAY_MS));
  }

  /**
   * Has the engine know a volume of the last `settle`, by its own directory, as it is before a container starts; true when the engine
   * had lost it, or had another in its place.
   * @throws {HostError} as the engine does, and when it has one of that name that is not ours.
   */
  restore(name: string, signal: AbortSignal): Promise<boolean> {
    return this.#inTurn(async () => {
      const volume = this.#usable.get(name);
      if (volume === undefined || "missing" in volume) return false;
      this.forget();
      await this.#published.list(signal);
      if (!(await this.#published.ensure(volume, signal))) return false;
      this.forget();
      await this.#published.list(signal);
      if (this.#published.has(volume)) return true;
      throw new HostError("volume-foreign", strangers(volume.engineName));
    });
  }

  /**
   * Opens an encrypted volume, making it the first time; of another nothing is to be done.
   * @throws {HostError} `volume-locked` when nobody gives the key, `volume-unsupported`, `not-found`, as `EncryptedVolumes` does.
   */
  async unlock(name: string, signal: AbortSignal): Promise<void> {
    const isLocked = await this.#inTurn(async () => {
      const volume = await this.#encrypted(name);
      if (volume === undefined || this.#parts.encrypted.isOpen(volume)) return false;
      const support = await this.#parts.encrypted.support(signal);
      if (!support.isSupported) throw new HostError("volume-unsupported", `volume ${name}: ${support.reason}`);
      return true;
    });
    if (!isLocked) return;
    // Whoever has the key may take its time, and other volumes must not wait for it.
    const key = await this.#parts.askKey(name, signal);
    signal.throwIfAborted();
    if (key === undefined) {
      this.#keyless.add(name);
      throw new HostError("volume-locked", `volume ${name}: no key`);
    }
    await this.#inTurn(async () => {
      const volume = await this.#encrypted(name);
      const shape = this.#shapeOnRecord(name);
      if (volume === undefined || shape === undefined || this.#parts.encrypted.isOpen(volume)) return;
      await this.#make(shape.parts.slice(0, -1));
      await this.#make([...MOUNTS, name]);
      await this.#parts.encrypted.open(volume, key, signal);
      this.#keyless.delete(name);
    });
  }

  /** Locks an encrypted volume unless something uses it when its turn has come. @throws {HostError} as `EncryptedVolumes` does. */
  lock(name: string, signal: AbortSignal, isUsed: () => boolean = () => false): Promise<void> {
    return this.#inTurn(async () => {
      if (isUsed()) return;
      const volume = await this.#encrypted(name);
      if (volume !== undefined) await this.#parts.encrypted.close(volume, signal);
    });
  }

  async #settle(
    wanted: readonly VolumeSpec[],
    referenced: ReadonlySet<string>,
    signal: AbortSignal,
    quarantineMs: number,
  ): Promise<readonly VolumeStatus[]> {
    const { records } = this.#parts;
    if (wanted.length === 0 && records.volumes.size === 0) {
      this.#usable = new Map();
      return [];
    }
    const support = wanted.some(({ encrypted }) => encrypted) ? await this.#support(signal) : undefined;
    let unreachable = await attempt(signal, () => this.#published.list(signal));
    const found: Found[] = [];
    for (const spec of wanted) found.push(await this.#realize(spec, support, signal));
    await this.#publish(found, unreachable, signal);
    const names = new Set(wanted.map(({ name }) => name));
    const retired: VolumeStatus[] = [];
    const isOver = [...records.volumes.values()].some(
      ({ name, quarantinedAt }) => !names.has(name) && quarantinedAt === undefined && !referenced.has(name),
    );
    // What is removed is judged by what the engine has at that moment.
    if (isOver) unreachable ??= await this.#listAnew(signal);
    for (const { name, quarantinedAt } of records.volumes.values()) {
      if (names.has(name) || quarantinedAt !== undefined) continue;
      const status = await this.#retire(name, referenced.has(name), quarantineMs, unreachable, signal);
      if (status !== undefined) retired.push(status);
    }
    const quarantined = await this.#sweep(names, signal);
    for (const name of this.#keyless) if (!names.has(name)) this.#keyless.delete(name);
    this.#usable = new Map(found.map(({ status, volume }) => [status.name, volume]));
    return [...found.map(({ status }) => status), ...retired, ...quarantined];
  }

  /** Makes what is to be on the disk. */
  async #realize(spec: VolumeSpec, support: EncryptionSupport | undefined, signal: AbortSignal): Promise<Found> {
    const { records, clock, dataStore } = this.#parts;
    const cannot = (state: VolumeStatus["state"], reason: string): Found => ({
      status: statusOf(spec.name, state, spec.encrypted, undefined, reason),
      volume: { missing: reason },
    });
    const asked = shapeOf(spec);
    if ("wrong" in asked) return cannot("failed", asked.wrong);
    const kept = this.#shapeOnRecord(spec.name);
    const shape = kept ?? asked;
    if (shape.encrypted && support?.isSupported === false) return cannot("unsupported", support.reason);
    if (kept === undefined) {
      const other = [...records.volumes.keys()].find((name) => {
        const theirs = name === spec.name ? undefined : this.#shapeOnRecord(name);
        return theirs !== undefined && isOverlap(theirs, shape);
      });
      if (other !== undefined) return cannot("failed", `its place overlaps that of volume ${other}`);
    }
    const failure = await attempt(signal, async () => {
      await this.#parts.files.makeDirectory(dataStore, 0o700);
      if (kept === undefined) {
        const before = records.volumes.get(spec.name);
        const detail = detailOf(shape);
        if (before?.detail === detail) await this.#quarantine.restore(spec.name, shape);
        // On record before it is there: what was made by us must not be left behind unknown.
        records.putVolume({ name: spec.name, detail, createdAt: clock.now(), quarantinedAt: undefined });
      }
      await this.#make(shape.encrypted ? [...MOUNTS, spec.name] : shape.parts);
    });
    if (failure !== undefined) return cannot("failed", failure.message);
    const isChanged = kept !== undefined && detailOf(kept) !== detailOf(asked);
    const note = isChanged
      ? "encrypted and location of a volume cannot be changed: it stays as it was made"
      : undefined;
    const directory = contentPath(dataStore, spec.name, shape);
    const isKeyless = shape.encrypted && this.#keyless.has(spec.name);
    return {
      status: isKeyless
        ? statusOf(spec.name, "missing", true, directory, "no key")
        : statusOf(spec.name, "ready", shape.encrypted, directory, note),
      volume: { engineName: this.engineName(spec.name), isEncrypted: shape.encrypted, directory },
    };
  }

  /** Makes the engine's volumes; a failure is only told, since the engine can make them from what a container mounts as well. */
  async #publish(found: Found[], unreachable: HostError | undefined, signal: AbortSignal): Promise<void> {
    let hasCreated = false;
    for (const [index, { status, volume }] of found.entries()) {
      if ("missing" in volume) continue;
      const failure =
        unreachable ??
        (await attempt(signal, async () => {
          hasCreated = (await this.#published.ensure(volume, signal)) || hasCreated;
        }));
      if (failure === undefined) continue;
      // Another volume of that name has other files than the directory.
      const { message: reason } = failure;
      const isOther = failure.code === "volume-in-engine";
      found[index] = { status: { ...status, state: "failed", reason }, volume: isOther ? { missing: reason } : volume };
    }
    if (!hasCreated) return;
    // The engine takes a volume that has the name already for the one asked for, whoever it belongs to.
    if ((await this.#listAnew(signal)) !== undefined) return;
    for (const [index, { status, volume }] of found.entries()) {
      if ("missing" in volume || status.state !== "ready" || this.#published.has(volume)) continue;
      const reason = strangers(volume.engineName);
      found[index] = { status: { ...status, state: "failed", reason }, volume: { missing: reason } };
    }
  }

  /**
   * Removes the engine's volume first: as long as a container has it, nothing else happens to it. Undefined when it was put away, else
   * how it stands.
   */
  async #retire(
    name: string,
    isReferenced: boolean,
    quarantineMs: number,
    unreachable: Error | undefined,
    signal: AbortSignal,
  ): Promise<VolumeStatus | undefined> {
    const { records, clock, dataStore, encrypted } = this.#parts;
    const record = records.volumes.get(name);
    const shape = this.#shapeOnRecord(name);
    if (record === undefined || shape === undefined) {
      return statusOf(name, "failed", false, undefined, "what is remembered of it cannot be read: it is left alone");
    }
    const path = contentPath(dataStore, name, shape);
    if (isReferenced) return statusOf(name, "ready", shape.encrypted, path, "no longer defined, and still in use");
    const failure = await attempt(signal, async () => {
      if (unreachable !== undefined) throw unreachable;
      await this.#published.remove({ engineName: this.engineName(name), directory: path }, signal);
      const volume = await this.#encrypted(name);
      if (volume !== undefined) await encrypted.close(volume, signal);
      await this.#quarantine.put(name, shape, quarantineMs);
      records.putVolume({ ...record, quarantinedAt: clock.now() });
    });
    if (failure === undefined) return undefined;
    return statusOf(name, "failed", shape.encrypted, path, `cannot be removed: ${failure.message}`);
  }

  async #sweep(wanted: ReadonlySet<string>, signal: AbortSignal): Promise<readonly VolumeStatus[]> {
    const { records } = this.#parts;
    const failure = await attempt(signal, async () => {
      const [error] = await this.#quarantine.sweep(signal);
      if (error !== undefined) throw error;
    });
    const entries = new Set((await this.#quarantine.list()).map(({ name }) => name));
    const statuses: VolumeStatus[] = [];
    for (const { name, quarantinedAt, detail } of records.volumes.values()) {
      if (quarantinedAt === undefined || wanted.has(name)) continue;
      if (entries.has(name)) {
        const encrypted = parseDetail(detail)?.encrypted ?? false;
        statuses.push(statusOf(name, "quarantined", encrypted, undefined, failure?.message));
      } else records.dropVolume(name);
    }
    return statuses;
  }

  async #support(signal: AbortSignal): Promise<EncryptionSupport> {
    try {
      return await this.#parts.encrypted.support(signal);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof HostError)) throw error;
      return { isSupported: false, reason: error.message };
    }
  }

  /** Of what is encrypted and on record; undefined for other volumes. @throws {HostError} `not-found`. */
  async #encrypted(name: string) {
    const shape = this.#shapeOnRecord(name);
    if (shape === undefined) throw new HostError("not-found", `there is no volume ${name}`);
    if (!shape.encrypted) return undefined;
    const { freeBytes } = await this.#parts.files.space(this.#parts.dataStore);
    const sizeBytes = Math.min(Math.max(Math.floor(freeBytes / 2), MIN_IMAGE_BYTES), MAX_IMAGE_BYTES);
    return encryptedVolume(this.#parts, name, shape, sizeBytes);
  }

  /** Of a volume that is there, not of one that was put away. */
  #shapeOnRecord(name: string): VolumeShape | undefined {
    const record = this.#parts.records.volumes.get(name);
    return record === undefined || record.quarantinedAt !== undefined ? undefined : parseDetail(record.detail);
  }

  /** The names of those that are encrypted and on record. */
  get encrypted(): readonly string[] {
    return [...this.#parts.records.volumes.keys()].filter((name) => this.#shapeOnRecord(name)?.encrypted === true);
  }

  #listAnew(signal: AbortSignal): Promise<HostError | undefined> {
    this.forget();
    return attempt(signal, () => this.#published.list(signal));
  }

  #make(parts: readonly string[]): Promise<void> {
    return this.#parts.directories.makeWithin(this.#parts.dataStore, parts, 0o755);
  }
}

const strangers = (engineName: string): string => `the engine has a volume ${engineName} of somebody else`;

/** The error of a machine that refuses; another error is one of the program. */
async function attempt(signal: AbortSignal, work: () => Promise<unknown>): Promise<HostError | undefined> {
  signal.throwIfAborted();
  try {
    await work();
    return undefined;
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof HostError) return error;
    throw error;
  }
}

function statusOf(
  name: string,
  state: VolumeStatus["state"],
  encrypted: boolean,
  path: string | undefined,
  reason: string | undefined,
): VolumeStatus {
  return { name, state, reason, encrypted, path, usedBy: [] };
}
