import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/**
 * V8 flags for a program that is mostly idle. Each saving is resident memory of an idle, registered agent. The flags affect only
 * code evaluated later, so they are set before other imports.
 */
const SMALL = [
  // The first collection drops bytecode that ran once at the start; V8 compiles it again on demand. Saves 2 MB.
  "--bytecode-old-age=1",
  // Compile only code that runs hundreds of times, not a heartbeat's once a minute. Saves 1 MB.
  "--no-sparkplug",
  "--invocation-count-for-feedback-allocation=200",
  // The optimizing compilers take 8 MB. They start at 20 times V8's default thresholds, so not during the start.
  "--invocation-count-for-maglev=8000",
  "--invocation-count-for-maglev-osr=2000",
  "--invocation-count-for-turbofan=60000",
  "--invocation-count-for-osr=10000",
  // V8 checks every 8 s whether an idle heap has garbage; once a minute saves 0.3 wake-ups a second.
  "--memory-reducer-delay-ms=60000",
];

/** Sets V8 flags that reduce memory at the cost of early peak speed. */
export function preferSmallMemory(): void {
  for (const flag of SMALL) setFlagsFromString(flag);
}

/**
 * Collects all garbage and returns the freed pages: blocks for about 50 ms, and saves 5 MB while the program idles. V8 itself waits until
 * the heap has doubled, which an idle heap never does.
 */
export function collectGarbage(): void {
  // V8 gives the function only to contexts made under the flag.
  setFlagsFromString("--expose-gc");
  const collect: unknown = runInNewContext("gc");
  setFlagsFromString("--no-expose-gc");
  if (typeof collect !== "function") throw new TypeError("V8 did not provide gc");
  Reflect.apply(collect, undefined, [{ type: "major", execution: "sync", flavor: "last-resort" }]);
}

/** Long-running programs. Other verbs start with V8's default flags, which takes half the time. */
export const LASTING_PROGRAMS = ["agent", "overlay", "guard", "upgrade-run", "controller"];

/**
 * V8 flags that the bundle sets before the first line of a long-running program. Little code of a start is worth compiling, and a
 * program that never compiles does not load the compilers: saves 3.5 MB. Collecting the garbage of a start instead of growing the
 * heap saves 3 MB.
 */
export const START_FLAGS = ["--no-opt", "--no-maglev", "--no-sparkplug", "--semi-space-growth-factor=1", "--gc-global"];

/**
 * Reverts the flags of `START_FLAGS` that limit compiling and collecting, for a program with work to do. The young generation
 * stays small: ten thousand handshakes would grow it to 54 MB, and it shrinks only if almost nothing is allocated.
 */
export function compileAll(): void {
  for (const flag of ["--opt", "--maglev", "--sparkplug", "--no-gc-global"]) setFlagsFromString(flag);
}

/** Reverts all of `START_FLAGS`, for a program that forwards data. */
export function preferSpeed(): void {
  compileAll();
  setFlagsFromString("--semi-space-growth-factor=2");
}

const ROOM_BYTES = 64 * 1024 * 1024;
const MOST_PERCENT = 500;

/**
 * Lets a small heap grow by about 64 MB before a full collection. V8 also counts the allocation of buffers. After a start with
 * collections its limit is so low that a relay spends a third of its time collecting. Valid while the heap keeps about its
 * current size.
 */
export function makeRoom(): void {
  const percent = Math.floor((100 * ROOM_BYTES) / getHeapStatistics().used_heap_size);
  // 0 leaves the limit to V8, which handles large heaps well.
  setFlagsFromString(`--heap-growing-percent=${percent < 100 ? 0 : Math.min(percent, MOST_PERCENT)}`);
}
