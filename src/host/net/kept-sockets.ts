import { lstatSync } from "node:fs";
import { join } from "node:path";
import { toError } from "../../errors.ts";
import type { Clock } from "../clock.ts";
import { remakeRunDirectory } from "./unix-socket.ts";

export interface KeptSocketsOptions {
  readonly clock: Clock;
  readonly runDir: string;
  /** Names of the sockets in the directory, which are already served. */
  readonly names: readonly string[];
  /** Serves the missing sockets again; their directory exists and is safe. @throws as `listenAgain` */
  readonly serveAgain: (gone: ReadonlySet<string>) => Promise<void>;
  /** Called before each check; false ends the watch permanently. */
  readonly isWanted?: () => boolean;
  /** Called once per reason for which the sockets cannot be served. */
  readonly onFault: (error: Error) => void;
  /** Called when the sockets are served again. */
  readonly onServed: () => void;
}

/** Serves sockets again when their files or their directory were removed or replaced. */
export interface KeptSockets {
  /** Resolves when no restore is running any more. */
  close(): Promise<void>;
}

const CHECK_MS = 5000;
/** Delay before a restore: a tree that is being removed must not be recreated halfway. */
const SURE_MS = 1000;

/** Watches the sockets of this process. A check only reads directory entries. */
export function keepSockets(options: KeptSocketsOptions): KeptSockets {
  const { clock, runDir, names, serveAgain, isWanted = () => true, onFault, onServed } = options;
  const marks = (): ReadonlyMap<string, string> => new Map(names.map((name) => [name, markOf(join(runDir, name))]));
  let served = marks();
  const gone = (): ReadonlySet<string> => {
    const found = marks();
    return new Set(names.filter((name) => found.get(name) === "" || found.get(name) !== served.get(name)));
  };
  let reason: string | undefined;
  let isClosed = false;
  let work = Promise.resolve();
  let cancel = clock.after(CHECK_MS, check);

  function check(): void {
    const isWell = isWanted() && gone().size === 0;
    cancel = isWell ? clock.after(CHECK_MS, check) : clock.after(SURE_MS, () => void (work = restore()));
  }

  async function restore(): Promise<void> {
    if (!isWanted()) return;
    try {
      const missing = gone();
      if (missing.size > 0) {
        await remakeRunDirectory(runDir);
        await serveAgain(missing);
        served = marks();
        reason = undefined;
        onServed();
      }
    } catch (thrown) {
      const error = toError(thrown);
      if (error.message !== reason) onFault(error);
      reason = error.message;
    }
    if (!isClosed) cancel = clock.after(CHECK_MS, check);
  }

  return {
    async close() {
      isClosed = true;
      cancel();
      await work;
    },
  };
}

/**
 * Recreates a removed directory by `make`. Reports a failure once until the directory exists. The returned function
 * stops the watch.
 */
export function keepDirectory(
  clock: Clock,
  path: string,
  make: () => Promise<void>,
  onError: (error: Error) => void,
): () => void {
  let hasFailed = false;
  let cancel = clock.after(CHECK_MS, check);

  function check(): void {
    const isThere = markOf(path) !== "";
    if (isThere) hasFailed = false;
    const made = isThere ? Promise.resolve() : make();
    void made
      .catch((error: unknown) => {
        if (!hasFailed) onError(toError(error));
        hasFailed = true;
      })
      .finally(() => (cancel = isClosed ? cancel : clock.after(CHECK_MS, check)));
  }
  let isClosed = false;
  return () => {
    isClosed = true;
    cancel();
  };
}

function markOf(path: string): string {
  try {
    const found = lstatSync(path, { throwIfNoEntry: false });
    return found === undefined ? "" : `${found.dev}:${found.ino}`;
  } catch {
    return "";
  }
}
