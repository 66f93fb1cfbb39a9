import { closeSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { InputError } from "../../errors.ts";
import { oneAtATime } from "../../lib/async/one-at-a-time.ts";
import { untilAborted } from "../../lib/async/until-aborted.ts";
import { systemClock } from "../clock.ts";
import { descend, holding, makeDirectory, makeDirectories, via } from "./descriptors.ts";
import { storeFailure } from "./failures.ts";
import { listTree } from "./list.ts";
import type { Place } from "./open-file.ts";
import { openFile } from "./open-file.ts";
import { IMAGES, parseNewPath, parsePath, shown, VOLUMES } from "./parse-path.ts";
import { dropPart, isPublished, openPart, syncDirectory } from "./part.ts";
import { removeEntry } from "./remove.ts";
import { openRoot } from "./root.ts";
import type { Store, StoreOptions } from "./store.ts";
import { bytesOnDisk, sweep } from "./walk.ts";

const COUNT_EVERY_MS = 60_000;
/** Pause between two steps of a walk through the whole store, in milliseconds. */
const REST_MS = 4;

/**
 * Opens a data store and makes its root if missing. Paths below the root are checked name by name, see `Store`.
 * @throws {HostError} `storage-failed` if the root cannot be opened.
 */
export function openStore(path: string, options: StoreOptions = {}): Store {
  const { isInUse = () => undefined, clock = systemClock(), countEveryMs = COUNT_EVERY_MS } = options;
  const root = openRoot(path);
  const closed = new AbortController();
  const pause = (): Promise<void> => clock.sleep(REST_MS);

  const refuseInUse = (names: readonly string[]): void => {
    const reason = isInUse(names);
    if (reason !== undefined) throw new InputError("in-use", `${shown(names.join("/"))} is in use: ${reason}`);
  };
  const placeOf = (names: readonly string[]): Place => {
    const name = names.at(-1);
    if (name === undefined) throw new InputError("not-a-file", "the root of the data store is a directory");
    return { root: () => root.current(), parents: names.slice(0, -1), name };
  };

  let counted: { readonly bytes: number; readonly at: number } | undefined;
  const fresh = (): number | undefined =>
    counted !== undefined && clock.elapsed() - counted.at < countEveryMs ? counted.bytes : undefined;
  const count = oneAtATime(async () => {
    // A caller that waited for another count uses its result.
    const known = fresh();
    if (known !== undefined) return known;
    const signal = closed.signal;
    const bytes = await holding(descend(root.current(), []), (fd) => bytesOnDisk(fd, { signal, pause }));
    counted = { bytes, at: clock.elapsed() };
    return bytes;
  });

  return {
    root: path,
    list: (path, caps, signal) =>
      doing(`list ${shown(path ?? "/")}`, async () => {
        const names = parsePath(path ?? "/");
        const files = await listTree((names) => descend(root.current(), names), names, caps, signal);
        return { files: [...files] };
      }),
    mkdir: (path) =>
      doing(`make ${shown(path)}`, async () => {
        const names = parseNewPath(path);
        const name = names.at(-1);
        if (name === undefined) throw new InputError("exists", "the root of the data store already exists");
        const { directory, found } = makeDirectories(root.current(), names.slice(0, -1));
        try {
          if (!makeDirectory(directory, name)) throw new InputError("exists", `${shown(path)} already exists`);
        } finally {
          closeSync(directory);
        }
        for (let depth = Math.min(found, names.length - 1); depth < names.length; depth += 1) {
          await syncDirectory(root.current(), names.slice(0, depth));
        }
      }),
    remove: (path, signal, onRemoved) =>
      doing(`remove ${shown(path)}`, async () => {
        const names = parsePath(path);
        refuseStaying(names);
        refuseInUse(names);
        const { parents, name } = placeOf(names);
        await holding(descend(root.current(), parents), async (directory) => {
          await removeEntry(directory, name, { path: names.join("/"), signal, onRemoved });
          await syncDirectory(directory, []).catch(() => undefined);
        });
      }),
    open: (path) => doingNow(`open ${shown(path)}`, () => openFile(placeOf(parsePath(path)))),
    openPart: (path, id, keepBytes) =>
      doingNow(`write ${shown(path)}`, () => {
        const names = parseNewPath(path);
        return openPart(placeOf(names), id, keepBytes, () => refuseInUse(names));
      }),
    isPublished: (path, mark) => doing(`inspect ${shown(path)}`, () => isPublished(placeOf(parsePath(path)), mark)),
    dropPart: (path, id) => doing(`drop a part of ${shown(path)}`, () => dropPart(placeOf(parsePath(path)), id)),
    sweepParts: (known, signal) =>
      doing("sweep the data store", () =>
        holding(descend(root.current(), []), (fd) => sweep(fd, known, { signal, pause })),
      ),
    space: () =>
      doing("ask for the space of the data store", async () => {
        const { bavail, blocks, bsize } = await holding(descend(root.current(), []), (fd) => statfs(via(fd)));
        return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
      }),
    used: (signal) => doing("count the bytes of the data store", async () => fresh() ?? untilAborted(count(), signal)),
    close: () => {
      closed.abort();
      root.close();
    },
  };
}

function refuseStaying(names: readonly string[]): void {
  if (names.length > 1 || (names.length === 1 && names[0] !== IMAGES && names[0] !== VOLUMES)) return;
  const what = names.length === 0 ? "the root" : names[0];
  throw new InputError("forbidden-path", `${what} of the data store cannot be removed`);
}

async function doing<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw storeFailure(error, what);
  }
}

function doingNow<T>(what: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw storeFailure(error, what);
  }
}
