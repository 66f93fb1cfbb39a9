import { HostError } from "../../../src/errors.ts";
import type { VolumeRecord, VolumeRecords } from "../../../src/agent/containers/volumes/volume-record.ts";
import type { EncryptedVolumes } from "../../../src/host/machine/encrypted-volume.ts";
import type { Engine, VolumeBody, VolumeSummary } from "../../../src/host/engine/engine.ts";

/** An engine with volumes only; records its calls, and fails on request. */
export class FakeEngineVolumes implements Pick<Engine, "listVolumes" | "createVolume" | "removeVolume"> {
  readonly volumes = new Map<string, VolumeSummary>();
  readonly calls: string[] = [];
  /** Failures by call, `create`, or by call and name, `remove x`. */
  readonly failures = new Map<string, HostError>();

  listVolumes(labels: readonly string[]): Promise<readonly VolumeSummary[]> {
    return this.#answer("list", "", () =>
      [...this.volumes.values()].filter((volume) =>
        labels.every((label) => Object.entries(volume.labels).some(([key, value]) => `${key}=${value}` === label)),
      ),
    );
  }

  createVolume(body: VolumeBody): Promise<void> {
    return this.#answer("create", body.name, () => {
      if (!this.volumes.has(body.name)) this.volumes.set(body.name, { ...body, mountpoint: "" });
    });
  }

  removeVolume(name: string): Promise<void> {
    return this.#answer("remove", name, () => {
      if (!this.volumes.delete(name))
        throw new HostError("engine-refused", "no such volume", { details: { status: 404 } });
    });
  }

  async #answer<T>(call: string, name: string, work: () => T): Promise<T> {
    this.calls.push(`${call} ${name}`.trim());
    const failure = this.failures.get(call) ?? this.failures.get(`${call} ${name}`);
    if (failure !== undefined) throw failure;
    return work();
  }
}

/** A ledger in memory. */
export class FakeRecords implements VolumeRecords {
  readonly volumes = new Map<string, VolumeRecord>();

  putVolume(row: VolumeRecord): void {
    this.volumes.set(row.name, row);
  }

  dropVolume(name: string): void {
    this.volumes.delete(name);
  }
}

/** A device mapper in memory: volumes are open or locked, with the key of their first opening. */
export function fakeEncryption(reason?: string): EncryptedVolumes & { readonly opened: ReadonlySet<string> } {
  const keys = new Map<string, string>();
  const opened = new Set<string>();
  return {
    opened,
    support: () => Promise.resolve(reason === undefined ? { isSupported: true } : { isSupported: false, reason }),
    isOpen: ({ mapping }) => opened.has(mapping),
    open: ({ mapping }, key) => {
      const known = keys.get(mapping) ?? key;
      keys.set(mapping, known);
      if (known !== key) return Promise.reject(new HostError("wrong-key", "the key does not open the volume"));
      opened.add(mapping);
      return Promise.resolve();
    },
    close: ({ mapping }) => {
      opened.delete(mapping);
      return Promise.resolve();
    },
  };
}
