import type { Offline } from "./cli/frame/verb.ts";
import { preferSmallMemory, preferSpeed } from "./host/process/engine-flags.ts";
import { becomeOwnBundle, loadOwnBundle } from "./host/process/own-bundle.ts";

/** A program of its own, fetched only when its verb is the one asked for. */
type ProgramLoader = () => Promise<{ run(argv: readonly string[]): Promise<number> }>;

const programs: Readonly<Record<string, ProgramLoader>> = {
  agent: () => {
    preferSpeed();
    preferSmallMemory();
    return import("./agent/main.ts");
  },
  overlay: () => {
    becomeOwnBundle("overlay");
    return import("./overlay/main.ts");
  },
  "upgrade-run": async () => {
    const { readTargets, standingAsker } = await import("./agent/offline/offline.ts");
    return (await import("./upgrade/main.ts")).upgradeRun({ readTargets, standingAsker });
  },
  guard: () => import("./guard/main.ts"),
  controller: () => {
    preferSpeed();
    return import("./controller/main.ts");
  },
  transfer: () => {
    preferSpeed();
    return import("./transfer/main.ts");
  },
  inventory: () => import("./agent/shadow/inventory.ts"),
  "resolver-file": () => import("./agent/network/resolver-file.ts"),
  "upgrade-fetch": async () =>
    (await import("./upgrade/fetch-main.ts")).upgradeFetch((await import("./agent/offline/offline.ts")).readTargets),
  "self-test": async () => (await import("./agent/self-test.ts")).selfTest(loaders),
};

/** Loads all of a version, for its self-test. */
const loaders = {
  ...programs,
  overlay: async () => [await import("./overlay/main.ts"), await loadOwnBundle("overlay")],
  cli: loadVerbs,
};

/** Every verb of the command line, each a module of its own. */
async function loadVerbs(): Promise<unknown> {
  const [{ verbs }, { allVerbs }] = await Promise.all([import("./cli/verbs.ts"), import("./cli/frame/find-verb.ts")]);
  return allVerbs(verbs);
}
const offline: Offline = {
  register: async () => {
    process.umask(0o077);
    return (await import("./agent/offline/offline.ts")).registerOffline;
  },
  activate: async () => {
    process.umask(0o077);
    return (await import("./agent/offline/offline.ts")).activateOffline;
  },
  reset: async () => {
    process.umask(0o077);
    return (await import("./agent/offline/offline.ts")).resetOffline;
  },
  readIdentity: async () => (await import("./agent/offline/offline.ts")).readIdentity,
  localSettings: async () => {
    const { changeLocalSettings: change, readLocalSettings: read } = await import("./agent/local-settings.ts");
    return { change, read };
  },
  forBundle: () => import("./agent/offline/offline-state.ts"),
  inspectState: async () => (await import("./agent/offline/offline-state.ts")).inspectState,
  readTargets: async () => (await import("./agent/offline/offline.ts")).readTargets,
  askUpgrade: async () => (await import("./agent/offline/offline.ts")).askUpgradeOffline,
  async checkRelease() {
    const { readReleasePlace, readTargets } = await import("./agent/offline/offline.ts");
    const { checkHere } = await import("./upgrade/check-here.ts");
    return async (stateDir, { from, isForced }, signal) => {
      const targets = await readTargets(stateDir).catch(() => undefined);
      return checkHere({ ...(await readReleasePlace(stateDir, from)), isForced, targets }, signal);
    };
  },
  async handOverRelease() {
    const { readReleasePlace } = await import("./agent/offline/offline.ts");
    const { handOverHere } = await import("./upgrade/check-here.ts");
    return async (stateDir, { from, isForced }, signal) =>
      handOverHere({ ...(await readReleasePlace(stateDir, from)), isForced, targets: undefined }, signal);
  },
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
