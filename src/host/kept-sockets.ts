import { lstatSync } from "node:fs";
import { join } from "node:path";
import { toError } from "../errors.ts";
import type { Clock } from "./clock.ts";
import { remakeRunDirectory } from "./unix-socket.ts";

export interface KeptSocketsOptions {
  readonly clock: Clock;
  readonly runDir: string;
  /** Names of the sockets in the directory; they are served already. */
  readonly names: readonly string[];
  /** Serves those that are gone again, in a directory that is there and safe. @throws as `listenAgain` */
  readonly serveAgain: (gone: ReadonlySet<string>) => Promise<void>;
  /** Called with each look, before anything is made; false ends the watch for good. */
  readonly isWanted?: () => boolean;
  /** The sockets cannot be served; told once for each reason. */
  readonly onFault: (error: Error) => void;
  /** The sockets are served again. */
  readonly onServed: () => void;
}

/** Sockets that are made anew at their paths when somebody has removed or replaced them, or their directory. */
export interface KeptSockets {
  /** Resolves when nothing is made any more. */
  close(): Promise<void>;
}

const LOOK_MS = 5000;
/** What is being removed is removed whole by then, and is not to be found half made again. */
const SURE_MS = 1000;

/** Watches sockets of this process. Looking reads their entries and nothing else. */
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
  let cancel = clock.after(LOOK_MS, look);

  function look(): void {
    const isWell = isWanted() && gone().size === 0;
    cancel = isWell ? clock.after(LOOK_MS, look) : clock.after(SURE_MS, () => void (work = mend()));
  }

  async function mend(): Promise<void> {
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
    if (!isClosed) cancel = clock.after(LOOK_MS, look);
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
 * Has a directory made again that somebody has removed, by a program that may. A failure is told once, until the directory is there.
 * Returns what ends the watch.
 */
export function keepDirectory(
  clock: Clock,
  path: string,
  make: () => Promise<void>,
  onError: (error: Error) => void,
): () => void {
  let hasFailed = false;
  let cancel = clock.after(LOOK_MS, look);

  function look(): void {
    const isThere = markOf(path) !== "";
    if (isThere) hasFailed = false;
    const made = isThere ? Promise.resolve() : make();
    void made
      .catch((error: unknown) => {
        if (!hasFailed) onError(toError(error));
        hasFailed = true;
      })
      .finally(() => (cancel = isClosed ? cancel : clock.after(LOOK_MS, look)));
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
