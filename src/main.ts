import type { Offline } from "./cli/verb.ts";
import { preferSmallMemory, preferSpeed } from "./host/engine-flags.ts";

/** A program of its own, fetched only when its verb is the one asked for. */
type ProgramLoader = () => Promise<{ run(argv: readonly string[]): Promise<number> }>;

const programs: Readonly<Record<string, ProgramLoader>> = {
  agent: () => {
    preferSpeed();
    preferSmallMemory();
    return import("./agent/main.ts");
  },
  overlay: () => import("./overlay/main.ts"),
  guard: () => import("./guard/main.ts"),
  controller: () => {
    preferSpeed();
    return import("./controller/main.ts");
  },
  transfer: () => {
    preferSpeed();
    return import("./transfer/main.ts");
  },
  inventory: () => import("./agent/inventory.ts"),
};
const offline: Offline = {
  register: async () => (await import("./agent/offline.ts")).registerOffline,
  readIdentity: async () => (await import("./agent/offline.ts")).readIdentity,
  readTargets: async () => (await import("./agent/offline.ts")).readTargets,
};

const [verb = "", ...argv] = process.argv.slice(2);
const program = Object.hasOwn(programs, verb) && !asksForHelp(argv) ? programs[verb] : undefined;
process.exitCode =
  program === undefined
    ? await (await import("./cli/cli.ts")).runCli(process.argv.slice(2), offline)
    : await (await program()).run(argv);

function asksForHelp(args: readonly string[]): boolean {
  return args.includes("--help") || args.includes("-h");
}
