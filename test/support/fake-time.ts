import { existsSync, globSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ProgramOptions } from "./machine/programs.ts";

/** A wall clock for one program (libfaketime); the monotonic clock is unchanged. */
export interface FakeTime {
  readonly options: ProgramOptions;
  /** Sets it: `+0d` is the real time, `+365d` a year ahead, `@1970-01-01 00:00:10` counts on from there. */
  set(text: string): void;
}

/** @throws {Error} naming the package when libfaketime is not installed. */
export function fakeTime(dir: string, text: string): FakeTime {
  const file = join(dir, "faketime");
  const set = (value: string): void => writeFileSync(file, `${value}\n`);
  set(text);
  return {
    set,
    options: {
      env: {
        ...process.env,
        TZ: "UTC",
        LD_PRELOAD: libfaketime(),
        FAKETIME_TIMESTAMP_FILE: file,
        FAKETIME_NO_CACHE: "1",
        FAKETIME_DONT_FAKE_MONOTONIC: "1",
      },
    },
  };
}

/**
 * A command prefix, for `within`: every clock and timer of the program and its children runs faster by this factor. Its peers have that
 * much less time to answer.
 * @throws {Error} naming the package when libfaketime is not installed.
 */
export function hastened(factor: number): readonly string[] {
  return ["env", `LD_PRELOAD=${libfaketime()}`, `FAKETIME=+0 x${factor}`];
}

/**
 * A command prefix, for `within`: shifts the wall clock of the program, as `+30d`; the monotonic clock is unchanged.
 * @throws {Error} naming the package when libfaketime is not installed.
 */
export function shifted(by: string): readonly string[] {
  const env = { LD_PRELOAD: libfaketime(), FAKETIME: by, FAKETIME_DONT_FAKE_MONOTONIC: "1" };
  return ["env", ...Object.entries(env).map(([name, value]) => `${name}=${value}`)];
}

/** Also removes what killed programs have left, since a program with the same process id could not start. */
function libfaketime(): string {
  for (const path of globSync("/dev/shm/*faketime_*_*")) {
    const pid = path.slice(path.lastIndexOf("_") + 1);
    if (!existsSync(`/proc/${pid}`)) rmSync(path, { force: true });
  }
  const [library] = globSync("/usr/lib/*/faketime/libfaketime.so.1");
  if (library === undefined) throw new Error("libfaketime is missing: apt-get install faketime");
  return library;
}
