import { InputError } from "../../errors.ts";
import type { NodeLabel } from "../events/records.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import { Violations } from "../http/problem.ts";
import type { Transact } from "../store/transact.ts";
import type { ImageRecord, ImageRecords } from "./records.ts";

/** Stores of an open transaction that changes images. */
export interface ImageParts extends EventParts {
  readonly images: ImageRecords;
  readonly nodes: { label(uid: string): Promise<NodeLabel | undefined> };
}

export interface ImagesDeps {
  readonly store: Transact<ImageParts> & { readonly images: ImageRecords };
  readonly events: Pick<EventLog, "change">;
}

export const MAX_IMAGES = 256;

/** Records of virtual machines' images. Changes are recorded; they reject with `InputError`. */
export class Images {
  readonly #deps: ImagesDeps;

  constructor(deps: ImagesDeps) {
    this.#deps = deps;
  }

  ofNode(node: string): Promise<readonly ImageRecord[]> {
    return this.#deps.store.images.ofNode(node);
  }

  /** @throws {InputError} `not-found` */
  get(node: string, id: string): Promise<ImageRecord> {
    return found(this.#deps.store.images, node, id);
  }

  /** @throws {InputError} `item-collision` if the id is taken; {Violations} at the limit of 256 per node */
  checkRoom(node: string, id: string): Promise<void> {
    return checkRoom(this.#deps.store.images, node, id);
  }

  /** Adds a record. @throws {InputError} as `checkRoom`; `not-found` without the node */
  add(node: string, record: ImageRecord, user: string): Promise<void> {
    return this.#change(node, user, async ({ images }) => {
      await checkRoom(images, node, record.id);
      await images.put(node, record);
      return `Image ${record.displayName} added`;
    });
  }

  /** Replaces a record. @throws {InputError} `not-found` */
  replace(node: string, record: ImageRecord, user: string): Promise<void> {
    return this.#change(node, user, async ({ images }) => {
      await found(images, node, record.id);
      await images.put(node, record);
      return `Image ${record.displayName} changed`;
    });
  }

  /** @throws {InputError} `not-found` */
  remove(node: string, id: string, user: string): Promise<void> {
    return this.#change(node, user, async ({ images }) => {
      const { displayName } = await found(images, node, id);
      await images.remove(node, id);
      return `Image ${displayName} removed`;
    });
  }

  /** Runs a change, which returns its text in the event. */
  #change(uid: string, user: string, work: (tx: ImageParts) => Promise<string>): Promise<void> {
    const { store, events } = this.#deps;
    return store.transact(async (tx) => {
      const node = await tx.nodes.label(uid);
      if (node === undefined) throw new InputError("not-found", `there is no node ${uid}`);
      await events.change(tx, node, user, await work(tx));
    });
  }
}

async function found(images: ImageRecords, node: string, id: string): Promise<ImageRecord> {
  const record = await images.get(node, id);
  if (record === undefined) throw new InputError("not-found", `there is no image ${id}`);
  return record;
}

async function checkRoom(images: ImageRecords, node: string, id: string): Promise<void> {
  if ((await images.get(node, id)) !== undefined) {
    throw new InputError("item-collision", `image ${id} already exists`, { details: { field: "id" } });
  }
  if ((await images.ofNode(node)).length >= MAX_IMAGES) {
    throw new Violations([`body: cannot add an image: the limit of ${MAX_IMAGES} per node is reached`]);
  }
}
