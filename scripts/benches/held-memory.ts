// Preloaded into a measured server, with --expose-gc: at SIGUSR2 it collects garbage and writes what is still held, in
// bytes, to the file that HOLDFAST_BENCH_HELD names.
import { renameSync, writeFileSync } from "node:fs";

const path = process.env["HOLDFAST_BENCH_HELD"] ?? "";
process.on("SIGUSR2", () => {
  for (let round = 0; round < 3; round += 1) globalThis.gc?.({ type: "major", execution: "sync" });
  const { heapUsed, external } = process.memoryUsage();
  writeFileSync(`${path}.new`, String(heapUsed + external));
  renameSync(`${path}.new`, path);
});
