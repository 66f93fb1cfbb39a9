import { getHeapStatistics, queryObjects, setFlagsFromString } from "node:v8";

/**
 * V8's settings for a program that idles most of its life. Each gain is of the resident memory of an idle, registered
 * agent; they hold for what is evaluated afterwards, so they are set before anything else is imported.
 */
const SMALL = [
  // What ran once, at the start, is forgotten by the first collection and compiled again if need be: 2 MB.
  "--bytecode-old-age=1",
  // Compile only code that runs hundreds of times, not that of a heartbeat each minute: saves 1 MB.
  "--no-sparkplug",
  "--invocation-count-for-feedback-allocation=200",
  // The optimising compilers, 8 MB, come for work that lasts and not for the start: 20 times V8's own thresholds.
  "--invocation-count-for-maglev=8000",
  "--invocation-count-for-maglev-osr=2000",
  "--invocation-count-for-turbofan=60000",
  "--invocation-count-for-osr=10000",
  // V8 asks every 8 s whether an idle heap has garbage; once a minute is soon enough, and saves 0.3 wake-ups a second.
  "--memory-reducer-delay-ms=60000",
];

/** Makes V8 prefer little memory to an early peak of speed. */
export function preferSmallMemory(): void {
  for (const flag of SMALL) setFlagsFromString(flag);
}

/**
 * Collects the garbage of the start: about 120 ms, for 5 MB less as long as the program idles. V8 itself waits until
 * the heap has doubled, which an idle program's never does. A search of the heap is documented to collect all garbage
 * first, and needs no flag.
 */
export function collectGarbage(): void {
  queryObjects(nobodyMakes, { format: "count" });
}

/** What is searched for; nothing of it exists. */
function nobodyMakes(): void {}

/** The programs that stay. A verb that answers and ends starts with V8's own settings, in half the time. */
export const LASTING_PROGRAMS = ["agent", "overlay", "guard", "upgrade-run", "controller"];

/**
 * What the bundle tells V8 before the first line of a program that stays. Hardly any code of a start is worth compiling, and a program that
 * never needs the compilers never has them in memory: 3.5 MB. What a start leaves behind is collected rather than let the heap grow: 3 MB.
 */
export const START_FLAGS = ["--no-opt", "--no-maglev", "--no-sparkplug", "--semi-space-growth-factor=1", "--gc-global"];

/**
 * Takes back what `START_FLAGS` say of compiling and collecting: for a program that has work to do. The young generation stays small;
 * ten thousand handshakes would make it grow to 54 MB, and it shrinks only where next to nothing is allocated.
 */
export function compileAll(): void {
  for (const flag of ["--opt", "--maglev", "--sparkplug", "--no-gc-global"]) setFlagsFromString(flag);
}

/** Takes `START_FLAGS` back, all of them: for a program that carries something. */
export function preferSpeed(): void {
  compileAll();
  setFlagsFromString("--semi-space-growth-factor=2");
}

const ROOM_BYTES = 64 * 1024 * 1024;
const MOST_PERCENT = 500;

/**
 * Lets a small heap grow by some 64 MB before all of it is collected. V8 counts what passes by in buffers, too, and after a start that
 * was collected allows it so little that a relay spends a third of its time on collecting. For as long as the heap is about this size.
 */
export function makeRoom(): void {
  const percent = Math.floor((100 * ROOM_BYTES) / getHeapStatistics().used_heap_size);
  // 0 leaves it to V8, which deals well with large ones.
  setFlagsFromString(`--heap-growing-percent=${percent < 100 ? 0 : Math.min(percent, MOST_PERCENT)}`);
}
