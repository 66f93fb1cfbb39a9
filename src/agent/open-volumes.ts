import { join } from "node:path";
import { HostError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import { hostDirectories } from "../host/directories.ts";
import { encryptedVolumes } from "../host/encrypted-volume.ts";
import type { Engine } from "../host/engine/engine.ts";
import type { Exec } from "../host/exec.ts";
import type { Files } from "../host/files.ts";
import type { Reader } from "../host/reader.ts";
import type { ContainerSpec, VolumeSpec } from "../protocol/sections/exec-config.ts";
import type { VolumeStatus } from "./compute/compute.ts";
import type { Ledger } from "./compute/ledger.ts";
import { engineVolumeName } from "./compute/volume-paths.ts";
import { VolumeKeeper } from "./compute/volumes.ts";
import type { VolumeLookup } from "./sections/exec/compile-mounts.ts";
import type { VolumesSeen } from "./sections/exec/plan.ts";
import type { AgentSettings } from "./settings.ts";

export interface OpenVolumesOptions {
  readonly clock: Clock;
  readonly exec: Exec;
  readonly files: Files;
  readonly reader: Reader;
  readonly settings: Pick<AgentSettings, "stateDir">;
  readonly ledger: Ledger;
  /** Uid of the node. */
  readonly owner: () => string;
  /** Opens the engine; called when there is a volume, and not before. */
  readonly engine: () => Engine;
}

/** The volumes of this node's containers. */
export interface OpenedVolumes {
  /** What a definition mounts under a name, as far as it is known before it is needed. */
  lookup(defined: readonly VolumeSpec[]): (name: string) => VolumeLookup;
  seen(): VolumesSeen;
  statuses(): readonly VolumeStatus[];
  settle(defined: readonly VolumeSpec[], used: ReadonlySet<string>, signal: AbortSignal): Promise<void>;
  /** Has the volumes of a definition ready, or says why they are not. */
  obstacle(spec: ContainerSpec): Promise<string | undefined>;
}

const UNLOCK_MS = 200_000;

/** Builds it; nothing is read or made until a definition has a volume. */
export function openVolumes(options: OpenVolumesOptions): OpenedVolumes {
  const { clock, exec, files, reader, settings, ledger, owner, engine } = options;
  let keeper: VolumeKeeper | undefined;
  let last: readonly VolumeStatus[] | undefined;
  const opened = (): VolumeKeeper => {
    const directories = hostDirectories();
    keeper ??= new VolumeKeeper({
      owner: owner(),
      dataStore: join(settings.stateDir, "data-store"),
      engine: engine(),
      records: ledger,
      encrypted: encryptedVolumes({ exec, reader, directories }),
      files,
      directories,
      clock,
      askKey: () => Promise.resolve(undefined),
    });
    return keeper;
  };
  const isDue = (): boolean => keeper?.nextDue !== undefined && keeper.nextDue <= clock.now();
  const troubles = () =>
    (last ?? []).flatMap(({ name, state, reason }) =>
      state === "ready" || state === "quarantined" ? [] : [{ name, reason: reason ?? state }],
    );
  return {
    lookup: (defined) => {
      const byName = new Map(defined.map((volume) => [volume.name, volume]));
      const wrong = new Map(troubles().map(({ name, reason }) => [name, reason]));
      return (name) => {
        const volume = byName.get(name);
        if (volume === undefined) return { missing: "is not defined" };
        const reason = wrong.get(name);
        if (reason !== undefined) return { missing: reason };
        return { engineName: engineVolumeName(owner(), name), isEncrypted: volume.encrypted };
      };
    },
    seen: () => ({
      kept: new Set([...ledger.volumes.values()].flatMap((row) => (row.quarantinedAt === undefined ? [row.name] : []))),
      isSettled: last !== undefined && !isDue() && troubles().every(({ name }) => isHopeless(last, name)),
      troubles: troubles(),
    }),
    statuses: () => last ?? [],
    async settle(defined, used, signal) {
      last = await opened().settle(defined, used, signal);
    },
    async obstacle({ mounts }) {
      const names = mounts.flatMap(({ kind, source }) => (kind === "volume" ? [source] : []));
      const signal = AbortSignal.timeout(UNLOCK_MS);
      for (const name of names) {
        const volume = opened().lookup(name);
        if ("missing" in volume) return `volume ${name}: ${volume.missing}`;
        try {
          if (volume.isEncrypted) await opened().unlock(name, signal);
        } catch (error) {
          if (error instanceof HostError) return error.message;
          throw error;
        }
      }
      return undefined;
    },
  };
}

/** Whether looking again does not help. */
function isHopeless(statuses: readonly VolumeStatus[] | undefined, name: string): boolean {
  return statuses?.find((status) => status.name === name)?.state === "unsupported";
}
