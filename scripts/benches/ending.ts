// What a bench takes back, however it ends.
import { setTimeout as delay } from "node:timers/promises";
import { descendantsOf, signalProcess } from "../../src/host/process/process-tree.ts";

type CleanUp = () => void | Promise<void>;

const LOOK_MS = 20;
const LOOKS = 250;

const left: CleanUp[] = [];

/** Has something taken back at the end at the latest. Gives what takes it back at once. */
export function atEnd(cleanUp: CleanUp): () => Promise<void> {
  left.push(cleanUp);
  return async () => {
    const at = left.indexOf(cleanUp);
    if (at === -1) return;
    left.splice(at, 1);
    await cleanUp();
  };
}

/** Takes back what is left, the last first, and ends every process below this one. What cannot be taken back keeps nothing else. */
export async function endAll(): Promise<void> {
  for (let last = left.pop(); last !== undefined; last = left.pop()) {
    try {
      await last();
    } catch (error) {
      console.error(`bench: ${String(error)}`);
    }
  }
  for (let look = 0; look < LOOKS; look += 1) {
    const below = descendantsOf(process.pid);
    if (below.length === 0) return;
    for (const child of below) signalProcess(child, "SIGKILL");
    await delay(LOOK_MS);
  }
}
