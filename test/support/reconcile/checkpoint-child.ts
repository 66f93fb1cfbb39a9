import { join } from "node:path";
import { Checkpoint } from "../../../src/checkpoint/checkpoint.ts";
import { hostFiles, type Files } from "../../../src/host/files/files.ts";
import { carry, fileSections } from "./checkpoint-machine.ts";

/** Files that call `boundary` before and after each change. */
function counted(files: Files, boundary: () => void): Files {
  const around = async (change: () => Promise<void>): Promise<void> => {
    boundary();
    await change();
    boundary();
  };
  return {
    ...files,
    writeAtomic: (path, text, mode) => around(() => files.writeAtomic(path, text, mode)),
    move: (from, to) => around(() => files.move(from, to)),
    remove: (path) => around(() => files.remove(path)),
  };
}

/** Applies `config` to the machine in `dir`, or restores it; dies at its n-th boundary, and prints their number. */
async function main([task = "", dir = "", config = "", dieAt = "0"]: readonly string[]): Promise<void> {
  let boundaries = 0;
  const files = counted(hostFiles(), () => {
    boundaries += 1;
    if (boundaries === Number(dieAt)) process.kill(process.pid, "SIGKILL");
  });
  if (task === "restore") {
    await new Checkpoint(files, join(dir, "desired")).restore(fileSections(files, dir), new AbortController().signal);
  } else {
    await carry(files, dir, JSON.parse(config) as Record<string, unknown>);
  }
  process.stdout.write(String(boundaries));
}

await main(process.argv.slice(2));
