import { closeSync, constants, existsSync, mkdirSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { join } from "node:path";
import { descend } from "../../../src/host/data-store/descriptors.ts";
import { besideSwapping } from "../../../test/support/data-store/swapped-store.ts";
import { atEnd } from "../ending.ts";
import { median, type Figure } from "../figures.ts";

const ROUNDS = 15;
const RESOLUTIONS = 5000;
const OPERATIONS = 10_000;
const NAMES = ["images", "iso", "2026"] as const;
const PEER = "one open of the whole path, links followed";

/** Measures resolving a path name by name, and checks that it stays inside while another process replaces paths by links that lead outside. */
export async function paths(dir: string, say: (line: string) => void): Promise<readonly Figure[]> {
  const resolving = resolution(dir);
  say(`  ${resolving.value.toFixed(1)} µs for ${NAMES.length} names`);
  // In memory the disk is waited for least, and most is tried.
  const store = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : dir, "holdfast-bench-"));
  const remove = atEnd(() => rmSync(store, { recursive: true, force: true, maxRetries: 10 }));
  try {
    const { operations, done, refused, swaps, escapes, isReadingSeen } = await besideSwapping(store, OPERATIONS);
    say(`  ${operations} operations, ${done} done and ${refused} refused, beside ${swaps} swaps`);
    for (const escape of escapes.slice(0, 10)) say(`  ${escape}`);
    if (!isReadingSeen) say("  this file system does not tell whether something outside was read");
    const what = `escapes of ${operations} operations beside a swapping process`;
    return [resolving, { what, value: escapes.length, unit: "", bar: { of: "value", most: 0 } }];
  } finally {
    await remove();
  }
}

function resolution(dir: string): Figure {
  const whole = join(dir, ...NAMES);
  mkdirSync(whole, { recursive: true });
  const root = openSync(dir, constants.O_RDONLY | constants.O_DIRECTORY);
  const ours: number[] = [];
  const plain: number[] = [];
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      ours.push(microseconds(() => closeSync(descend(root, NAMES))));
      plain.push(microseconds(() => closeSync(openSync(whole, constants.O_RDONLY | constants.O_DIRECTORY))));
    }
  } finally {
    closeSync(root);
  }
  return {
    what: `a path of ${NAMES.length} names resolved`,
    value: median(ours),
    unit: "µs",
    peer: { name: PEER, value: median(plain) },
    bar: { of: "value", most: 20 },
  };
}

/** Returns the average processor time of one call, which never waits; the time of other programs does not count. */
function microseconds(call: () => void): number {
  const begun = process.cpuUsage();
  for (let index = 0; index < RESOLUTIONS; index += 1) call();
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / RESOLUTIONS;
}
