// Preloaded into a measured program, with --expose-gc: at SIGUSR2 it collects garbage.
process.on("SIGUSR2", () => {
  for (let round = 0; round < 3; round += 1) globalThis.gc?.({ type: "major", execution: "sync" });
});
