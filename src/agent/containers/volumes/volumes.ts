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

export interface VolumeManagerOptions {
  /** Uid of the node. */
  readonly owner: string;
  /** Resolved directory of the node's data store. */
  readonly dataStore: string;
  readonly engine: Pick<Engine, "listVolumes" | "createVolume" | "removeVolume">;
  readonly records: VolumeRecords;
  readonly encrypted: EncryptedVolumes;
  readonly files: Files;
  readonly directories: Directories;
  readonly clock: Clock;
  /** Requests the key of an encrypted volume; undefined if it is not available now. */
  readonly askKey: (name: string, signal: AbortSignal) => Promise<string | undefined>;
}

/** Mountable volumes by name of the definition: engine name and directory. */
export type UsableVolume =
  | { readonly engineName: string; readonly isEncrypted: boolean; readonly directory: string }
  | { readonly missing: string };

interface Found {
  readonly status: VolumeStatus;
  readonly volume: UsableVolume;
}

export interface SettleOptions {
  /** Retention of removed volumes; default one day. */
  readonly quarantineMs?: number;
}

const DAY_MS = 86_400_000;
const MIN_IMAGE_BYTES = 64 * 1024 * 1024;
const MAX_IMAGE_BYTES = 1024 ** 4;

/** Volumes of definitions: directories or encrypted files in the data store, bound by volumes of the engine. */
export class VolumeManager {
  readonly #parts: VolumeManagerOptions;
  readonly #quarantine: VolumeQuarantine;
  readonly #published: EngineVolumes;
  /** Mountable volumes by name, as of the last `settle`. */
  #usable: ReadonlyMap<string, UsableVolume> = new Map();
  /** Volumes whose key was not available. */
  readonly #keyless = new Set<string>();
  readonly #serially = serialQueue();

  constructor(parts: VolumeManagerOptions) {
    this.#parts = parts;
    this.#quarantine = new VolumeQuarantine(parts);
    this.#published = new EngineVolumes(parts.engine, parts.owner);
  }

  /** Time at which `settle` has something to remove, in Unix milliseconds. */
  get nextDue(): number | undefined {
    return this.#quarantine.nextEnd;
  }

  engineName(name: string): string {
    return engineVolumeName(this.#parts.owner, name);
  }

  /** Returns the mount of a name. An encrypted volume must be unlocked before the container starts. */
  lookup(name: string): UsableVolume {
    return this.#usable.get(name) ?? { missing: "is not defined" };
  }

  /** Makes the next `settle` query the engine, after a volume was removed there or the engine was away. */
  forget(): void {
    this.#published.forget();
  }

  /**
   * Creates desired volumes, quarantines those that are neither desired nor in `referenced`, and removes expired ones. Never call it with
   * a partial document. Failures are reported per volume; rejects if aborted or if nothing can be recorded. The caller sets `usedBy`.
   */
  settle(
    wanted: readonly VolumeSpec[],
    referenced: ReadonlySet<string>,
    signal: AbortSignal,
    options: SettleOptions = {},
  ): Promise<readonly VolumeStatus[]> {
    return this.#serially(() => this.#settle(wanted, referenced, signal, options.quarantineMs ?? DAY_MS));
  }

  /**
   * Ensures before a container starts that the engine has a volume of the last `settle` with its directory; returns true if the engine had
   * lost it or had another one.
   * @throws {HostError} as the engine does, and when it has one of that name that is not ours.
   */
  restore(name: string, signal: AbortSignal): Promise<boolean> {
    return this.#serially(async () => {
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
   * Unlocks an encrypted volume and creates it at first use; does nothing for other volumes.
   * @throws {HostError} `volume-locked` when nobody gives the key, `volume-unsupported`, `not-found`, as `EncryptedVolumes` does.
   */
  async unlock(name: string, signal: AbortSignal): Promise<void> {
    const isLocked = await this.#serially(async () => {
      const volume = await this.#encrypted(name);
      if (volume === undefined || this.#parts.encrypted.isOpen(volume)) return false;
      const support = await this.#parts.encrypted.support(signal);
      if (!support.isSupported) throw new HostError("volume-unsupported", `volume ${name}: ${support.reason}`);
      return true;
    });
    if (!isLocked) return;
    // Fetching the key may take long; other volumes must not wait.
    const key = await this.#parts.askKey(name, signal);
    signal.throwIfAborted();
    if (key === undefined) {
      this.#keyless.add(name);
      throw new HostError("volume-locked", `volume ${name}: no key`);
    }
    await this.#serially(async () => {
      const volume = await this.#encrypted(name);
      const shape = this.#shapeOnRecord(name);
      if (volume === undefined || shape === undefined || this.#parts.encrypted.isOpen(volume)) return;
      await this.#make(shape.parts.slice(0, -1));
      await this.#make([...MOUNTS, name]);
      await this.#parts.encrypted.open(volume, key, signal);
      this.#keyless.delete(name);
    });
  }

  /** Locks an encrypted volume unless it is in use by then. @throws {HostError} as `EncryptedVolumes` does. */
  lock(name: string, signal: AbortSignal, isUsed: () => boolean = () => false): Promise<void> {
    return this.#serially(async () => {
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
    // Removal is decided by the engine's current state.
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

  /** Creates the volume on disk. */
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
        // Recorded before creation, so that our volume is never left behind unknown.
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

  /** Creates the engine's volumes. A failure is only reported, since the engine can also create them from a container's mounts. */
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
      // Another volume of that name has different files.
      const { message: reason } = failure;
      const isOther = failure.code === "volume-in-engine";
      found[index] = { status: { ...status, state: "failed", reason }, volume: isOther ? { missing: reason } : volume };
    }
    if (!hasCreated) return;
    // The engine accepts an existing volume of that name, regardless of its owner.
    if ((await this.#listAnew(signal)) !== undefined) return;
    for (const [index, { status, volume }] of found.entries()) {
      if ("missing" in volume || status.state !== "ready" || this.#published.has(volume)) continue;
      const reason = strangers(volume.engineName);
      found[index] = { status: { ...status, state: "failed", reason }, volume: { missing: reason } };
    }
  }

  /**
   * Removes the engine's volume first; while a container uses it, nothing else happens. Returns undefined if quarantined, else its state.
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

  /** Returns the record of an encrypted volume; undefined for other volumes. @throws {HostError} `not-found`. */
  async #encrypted(name: string) {
    const shape = this.#shapeOnRecord(name);
    if (shape === undefined) throw new HostError("not-found", `there is no volume ${name}`);
    if (!shape.encrypted) return undefined;
    const { freeBytes } = await this.#parts.files.space(this.#parts.dataStore);
    const sizeBytes = Math.min(Math.max(Math.floor(freeBytes / 2), MIN_IMAGE_BYTES), MAX_IMAGE_BYTES);
    return encryptedVolume(this.#parts, name, shape, sizeBytes);
  }

  /** Returns the record of an existing volume, not of a quarantined one. */
  #shapeOnRecord(name: string): VolumeShape | undefined {
    const record = this.#parts.records.volumes.get(name);
    return record === undefined || record.quarantinedAt !== undefined ? undefined : parseDetail(record.detail);
  }

  /** Names of recorded encrypted volumes. */
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

/** Returns the error if it is the machine's; rethrows program errors. */
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
