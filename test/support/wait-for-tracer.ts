// Preloaded into a traced program: starts the single pool thread, reports that on descriptor 4, and waits until descriptor 3 is closed, so
// that a tracer can attach before anything that counts.
import { readSync, writeSync } from "node:fs";
import { stat } from "node:fs/promises";

export async function waitForTracer(): Promise<void> {
  await stat("/");
  writeSync(4, "ready");
  readSync(3, Buffer.alloc(1));
}
