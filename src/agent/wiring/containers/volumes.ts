import { join } from "node:path";
import type { Logger } from "pino";
import { HostError, InputError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { hostDirectories } from "../../../host/files/directories.ts";
import { encryptedVolumes } from "../../../host/machine/encrypted-volume.ts";
import type { Engine } from "../../../host/engine/engine.ts";
import type { Exec } from "../../../host/process/exec.ts";
import type { Files } from "../../../host/files/files.ts";
import { privilegedExec } from "../../../host/process/privileged-exec.ts";
import type { Reader } from "../../../host/reader.ts";
import type { ContainerSpec, VolumeSpec } from "../../../protocol/sections/exec/config.ts";
import type { VolumeStatus } from "../../containers/model/compute.ts";
import type { Ledger } from "../../containers/model/ledger.ts";
import { contentPath, engineVolumeName, shapeOf } from "../../containers/volumes/volume-paths.ts";
import { parseDetail } from "../../containers/volumes/volume-record.ts";
import { VolumeManager } from "../../containers/volumes/volumes.ts";
import type { VolumeLookup } from "../../sections/exec/compile-mounts.ts";
import type { VolumesSeen } from "../../sections/exec/actual.ts";
import type { AgentSettings } from "../../settings.ts";

export interface OpenVolumesOptions {
  readonly log: Logger;
  readonly clock: Clock;
  readonly exec: Exec;
  readonly files: Files;
  readonly reader: Reader;
  readonly settings: Pick<AgentSettings, "stateDir" | "unit">;
  readonly ledger: Ledger;
  /** Uid of the node. */
  readonly owner: () => string;
  /** Requests the key of an encrypted volume; rejects if there is no session. */
  readonly volumeKey: (volume: string, signal: AbortSignal) => Promise<string> | undefined;
  /** Opens the engine; called once there is a volume. */
  readonly engine: () => Engine;
}

/** The volumes of this node's containers. */
export interface OpenedVolumes {
  /** Returns the lookup of what a definition mounts, from memory. */
  lookup(defined: readonly VolumeSpec[]): (name: string) => VolumeLookup;
  seen(): VolumesSeen;
  statuses(): readonly VolumeStatus[];
  settle(defined: readonly VolumeSpec[], used: ReadonlySet<string>, signal: AbortSignal): Promise<void>;
  /**
   * Prepares the volumes of a definition, or returns what it has to wait for.
   * @throws {HostError} `volume-locked` without a key, unless the definition waits for connectivity.
   */
  obstacle(spec: ContainerSpec): Promise<string | undefined>;
  /** Locks encrypted volumes that nothing uses; called whenever a container has ended. */
  release(isUsed: (name: string) => boolean): void;
  close(): void;
}

const UNLOCK_MS = 200_000;

/** Opens the volumes; nothing is read or made before a definition has one. */
export function openVolumes(options: OpenVolumesOptions): OpenedVolumes {
  const { log, clock, exec, files, reader, settings, ledger, owner, engine, volumeKey } = options;
  let manager: VolumeManager | undefined;
  let last: readonly VolumeStatus[] | undefined;
  const opened = (): VolumeManager => {
    const directories = hostDirectories();
    manager ??= new VolumeManager({
      owner: owner(),
      dataStore,
      engine: engine(),
      records: ledger,
      encrypted: encryptedVolumes({
        exec,
        privileged: privilegedExec(exec, settings.unit !== undefined),
        reader,
        directories,
      }),
      files,
      directories,
      clock,
      askKey: async (name, signal) => {
        try {
          return await volumeKey(name, signal);
        } catch (error) {
          signal.throwIfAborted();
          log.info({ volume: name, err: toError(error) }, "no key of the volume was given");
          return undefined;
        }
      },
    });
    return manager;
  };
  const dataStore = join(settings.stateDir, "data-store");
  /** Returns the directory of a volume, if it can have one. */
  const directoryOf = (volume: VolumeSpec): string | undefined => {
    const row = ledger.volumes.get(volume.name);
    const kept = row === undefined || row.quarantinedAt !== undefined ? undefined : parseDetail(row.detail);
    const shape = kept ?? shapeOf(volume);
    return "wrong" in shape ? undefined : contentPath(dataStore, volume.name, shape);
  };
  /** Locked since the agent started, and not opened after that. */
  const locked = new Set<string>();
  const closing = new AbortController();
  const isDue = (): boolean => manager?.nextDue !== undefined && manager.nextDue <= clock.now();
  const troubles = () =>
    (last ?? []).flatMap(({ name, state, reason }) =>
      state === "ready" || state === "quarantined" ? [] : [{ name, reason: reason ?? state }],
    );
  return {
    lookup: (defined) => {
      const byName = new Map(defined.map((volume) => [volume.name, volume]));
      // Only a start finds out whether there is a key now.
      const wrong = new Map(troubles().flatMap(({ name, reason }) => (isKeyless(last, name) ? [] : [[name, reason]])));
      return (name) => {
        const volume = byName.get(name);
        if (volume === undefined) return { missing: "is not defined" };
        const reason = wrong.get(name);
        if (reason !== undefined) return { missing: reason };
        const directory = directoryOf(volume);
        if (directory === undefined) return { missing: "cannot be kept: its name or location is not valid" };
        return { engineName: engineVolumeName(owner(), name), isEncrypted: volume.encrypted, directory };
      };
    },
    seen: () => ({
      kept: new Set([...ledger.volumes.values()].flatMap((row) => (row.quarantinedAt === undefined ? [row.name] : []))),
      isSettled:
        last !== undefined &&
        !isDue() &&
        troubles().every(({ name }) => isHopeless(last, name) || isKeyless(last, name)),
      troubles: troubles(),
    }),
    statuses: () => last ?? [],
    async settle(defined, used, signal) {
      last = await opened().settle(defined, used, signal);
    },
    async obstacle({ mounts, requireConnectivity }) {
      const names = mounts.flatMap(({ kind, source }) => (kind === "volume" ? [source] : []));
      const signal = AbortSignal.timeout(UNLOCK_MS);
      for (const name of names) {
        const volume = opened().lookup(name);
        if ("missing" in volume) return `volume ${name}: ${volume.missing}`;
        try {
          if (await opened().restore(name, signal)) {
            const reason = `the engine had lost it; it was made again for ${volume.directory}`;
            log.warn(
              { volume: name, directory: volume.directory },
              "the engine had lost the volume: it was made again",
            );
            last = last === undefined ? undefined : noted(last, name, reason);
          }
          if (!volume.isEncrypted) continue;
          locked.delete(name);
          await opened().unlock(name, signal);
        } catch (error) {
          if (!(error instanceof HostError)) throw error;
          if (error.code === "volume-locked" && !requireConnectivity) throw error;
          return error.message;
        }
      }
      return undefined;
    },
    release(isUsed) {
      if (ledger.volumes.size === 0) return;
      for (const name of opened().encrypted) {
        if (locked.has(name) || isUsed(name)) continue;
        locked.add(name);
        opened()
          .lock(name, closing.signal, () => isUsed(name))
          .catch((error: unknown) => {
            locked.delete(name);
            log.warn({ volume: name, err: toError(error) }, "the volume was not locked");
          });
      }
    },
    close: () => closing.abort(new InputError("cancelled", "the agent is stopping")),
  };
}

function noted(statuses: readonly VolumeStatus[], name: string, reason: string): readonly VolumeStatus[] {
  const at = statuses.findIndex((status) => status.name === name);
  const status = statuses[at];
  return status === undefined ? statuses : statuses.with(at, { ...status, reason });
}

/** Reports whether only its key is missing. */
function isKeyless(statuses: readonly VolumeStatus[] | undefined, name: string): boolean {
  return statuses?.find((status) => status.name === name)?.state === "missing";
}

/** Reports whether it is unsupported, so that another try does not help. */
function isHopeless(statuses: readonly VolumeStatus[] | undefined, name: string): boolean {
  return statuses?.find((status) => status.name === name)?.state === "unsupported";
}
