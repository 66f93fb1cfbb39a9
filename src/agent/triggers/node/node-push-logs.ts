import { createHash } from "node:crypto";
import { HostError, InputError } from "../../../errors.ts";
import type { MakeBundle } from "../../../host/process/bundle-process.ts";
import { DataStoreListing, type DataStoreRequest } from "../../../protocol/triggers/data-store.ts";
import type { PushedLogs } from "../../../protocol/documents/bundle.ts";
import { NodePushLogs } from "../../../protocol/triggers/bodies.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

const PUSH_LOGS_TRIGGER = "node-push-logs";

/** Default directory of bundles in the data store, and the number kept there. */
const DIRECTORY = "holdfast-bundles";
const KEPT = 3;
const OWN_NAME = /^holdfast-.{1,200}-(\d{8}T\d{6}Z)\.tar\.gz$/;

/** The data store's operations for bundles. */
export interface BundleStore {
  handle(request: DataStoreRequest, signal: AbortSignal): Promise<unknown>;
  create(path: string, signal: AbortSignal): Promise<BundleFile>;
}

interface BundleFile {
  append(content: string | Uint8Array): void;
  publish(): Promise<number>;
  discard(): void;
}

/** Creates the bundle of `holdfast bundle`, and stores it in the data store or returns it. */
export function nodePushLogs(make: MakeBundle, store: BundleStore): OneShotTrigger<NodePushLogs> {
  return {
    event: PUSH_LOGS_TRIGGER,
    kind: "one-shot",
    request: NodePushLogs,
    deadlineMs: 180_000,
    needsDataPlane: false,
    readOnly: false,
    // A bundle is needed most when the disk is full.
    isReadOnly: ({ inline }) => inline,
    agents: true,
    exclusive: PUSH_LOGS_TRIGGER,
    async handle({ inline, file, maxBytes }, { signal }): Promise<PushedLogs> {
      // Refuses before the work, if there is no data store or it is not writable.
      if (!inline) (await store.create(file ?? `${DIRECTORY}/probe`, signal)).discard();
      const { archive, name, missing } = await make(maxBytes, signal);
      const content = Buffer.from(archive, "base64");
      const sha256 = createHash("sha256").update(content).digest("hex");
      const made = { name, bytes: content.length, sha256, missing };
      if (inline) return { ...made, archive };
      const path = file ?? `${DIRECTORY}/${name}`;
      if (file === undefined) await prune(store, signal);
      await write(store, path, content, signal);
      return { ...made, file: path };
    },
  };
}

async function write(store: BundleStore, path: string, content: Uint8Array, signal: AbortSignal): Promise<void> {
  const part = await store.create(path, signal);
  let isOver = false;
  try {
    part.append(content);
    await part.publish();
    isOver = true;
  } finally {
    if (!isOver) part.discard();
  }
}

/** Deletes the oldest bundles to leave room for one more; other files, and a bundle in transfer, stay. */
async function prune(store: BundleStore, signal: AbortSignal): Promise<void> {
  const listing = await store.handle({ action: "LIST", filename: DIRECTORY }, signal).catch((error: unknown) => {
    if (error instanceof InputError && error.code === "not-found") return { files: [] };
    throw error;
  });
  for (const name of bundlesToRemove(DataStoreListing.parse(listing).files)) {
    await store.handle({ action: "DELETE", filename: `${DIRECTORY}/${name}` }, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      if (!(error instanceof InputError) && !(error instanceof HostError)) throw error;
    });
  }
}

/** Returns the oldest bundles beyond the limit. Pure. */
export function bundlesToRemove(files: DataStoreListing["files"]): readonly string[] {
  const stamped = files.flatMap(({ name, type }) => {
    const [, at] = type === "file" ? (OWN_NAME.exec(name) ?? []) : [];
    return at === undefined ? [] : [{ name, at }];
  });
  const newestFirst = stamped.sort((a, b) => b.at.localeCompare(a.at) || a.name.localeCompare(b.name));
  return newestFirst.slice(KEPT - 1).map(({ name }) => name);
}
