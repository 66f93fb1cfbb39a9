import { InputError } from "../../errors.ts";
import type { NodeLabel } from "../events/records.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import { Violations } from "../http/problem.ts";
import type { Transact } from "../store/transact.ts";
import type { MachineVolume } from "./records.ts";
import type { MachineVolumeStore } from "./volume-store.ts";

/** Stores of an open transaction that changes volumes. */
export interface MachineVolumeParts extends EventParts {
  readonly machineVolumes: MachineVolumeStore;
  readonly nodes: { label(uid: string): Promise<NodeLabel | undefined> };
}

export interface MachineVolumesDeps {
  readonly store: Transact<MachineVolumeParts> & { readonly machineVolumes: MachineVolumeStore };
  readonly events: Pick<EventLog, "change">;
}

const MAX_VOLUMES = 256;

/** Records of virtual machines' volumes. Changes are recorded; they reject with `InputError`. */
export class MachineVolumes {
  readonly #deps: MachineVolumesDeps;

  constructor(deps: MachineVolumesDeps) {
    this.#deps = deps;
  }

  ofNode(node: string): Promise<readonly MachineVolume[]> {
    return this.#deps.store.machineVolumes.ofNode(node);
  }

  /** @throws {InputError} `not-found` */
  get(node: string, name: string): Promise<MachineVolume> {
    return found(this.#deps.store.machineVolumes, node, name);
  }

  /** @throws {Violations} if the name is taken, or at the limit of 256 per node; {InputError} `not-found` without the node */
  add(node: string, volume: MachineVolume, user: string): Promise<void> {
    const { name } = volume;
    return this.#change(node, user, `Machine volume ${name} added`, async (volumes) => {
      if ((await volumes.get(node, name)) !== undefined)
        throw new Violations([`name: there is a volume ${name} already`]);
      if ((await volumes.ofNode(node)).length >= MAX_VOLUMES)
        throw new Violations([`body: cannot add a volume: the limit of ${MAX_VOLUMES} per node is reached`]);
      await volumes.put(node, volume);
    });
  }

  /** @throws {InputError} `not-found` */
  replace(node: string, volume: MachineVolume, user: string): Promise<void> {
    return this.#change(node, user, `Machine volume ${volume.name} changed`, async (volumes) => {
      await found(volumes, node, volume.name);
      await volumes.put(node, volume);
    });
  }

  /** @throws {InputError} `not-found` */
  remove(node: string, name: string, user: string): Promise<void> {
    return this.#change(node, user, `Machine volume ${name} removed`, async (volumes) => {
      await found(volumes, node, name);
      await volumes.remove(node, name);
    });
  }

  #change(
    uid: string,
    user: string,
    message: string,
    work: (volumes: MachineVolumeStore) => Promise<void>,
  ): Promise<void> {
    const { store, events } = this.#deps;
    return store.transact(async (tx) => {
      const node = await tx.nodes.label(uid);
      if (node === undefined) throw new InputError("not-found", `there is no node ${uid}`);
      await work(tx.machineVolumes);
      await events.change(tx, node, user, message);
    });
  }
}

async function found(volumes: Pick<MachineVolumeStore, "get">, node: string, name: string): Promise<MachineVolume> {
  const volume = await volumes.get(node, name);
  if (volume === undefined) throw new InputError("not-found", `there is no volume ${name}`);
  return volume;
}
