import { join } from "node:path";
import { parseArgs } from "node:util";
import { AgentError, InputError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { hostDialler } from "../host/net/dial.ts";
import { hostDirectories } from "../host/files/directories.ts";
import { hostExec } from "../host/process/exec.ts";
import { hostFiles } from "../host/files/files.ts";
import { parseBootId } from "../host/proc.ts";
import { hostReader } from "../host/reader.ts";
import { resolveSet, systemResolve } from "../host/net/system-resolve.ts";
import { hostVersions } from "../host/releases/versions.ts";
import { buildInfo, packageVersion } from "../lib/build-info.ts";
import { plainLine } from "../lib/text/terminal-text.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import { UPGRADE_PATHS } from "../protocol/documents/release.ts";
import { fetchRelease } from "./fetch.ts";
import { sweepHandedOver } from "./hand-over.ts";
import { JUDGE_LIMITS } from "./judge.ts";
import { localAgent } from "./local-agent.ts";
import { openFetching, type FetchingOptions } from "./open-fetching.ts";
import { hostProbe, type AskStanding } from "./probe.ts";
import { requestBox } from "./request-box.ts";
import { systemdServices } from "./services.ts";
import { upgrade, type UpgradeEnd } from "./upgrade.ts";
import type { Prepare, UpgradeDeps, UpgradeLimits } from "./deps.ts";

const USAGE =
  "usage: holdfast upgrade-run [--state DIR] [--run DIR] [--config FILE] [--versions DIR] [--package DIR] [--request FILE]";
const OPTIONS = {
  state: { type: "string", default: "/var/lib/holdfast" },
  config: { type: "string", default: "/etc/holdfast/agent.json" },
  run: { type: "string", default: "/run/holdfast" },
  versions: { type: "string", default: UPGRADE_PATHS.versions },
  package: { type: "string", default: UPGRADE_PATHS.package },
  request: { type: "string", default: UPGRADE_PATHS.request },
} as const;

export const LIMITS: UpgradeLimits = {
  ...JUDGE_LIMITS,
  everyMs: 3000,
  askEveryMs: 30_000,
  pendingMs: 10 * 60_000,
  backMs: 2 * 60_000,
  probationSeconds: 24 * 60 * 60,
};

/** Exit statuses of a run: after `busy` the caller may retry; after `failed` the reason is on disk. */
export const EXIT = { failed: 3, busy: 75, usage: 2 } as const;

/** Functions that need the agent of this version. */
export interface OfAgent {
  /** Reads the node's targets without a running agent. */
  readonly readTargets: (stateDir: string) => Promise<NetworkTargets>;
  readonly standingAsker: (stateDir: string) => AskStanding;
}

/** The program `holdfast upgrade-run`, which runs until nothing is left to do. */
export function upgradeRun(ofAgent: OfAgent): { run(argv: readonly string[]): Promise<number> } {
  return { run: (argv) => run(argv, ofAgent) };
}

async function run(argv: readonly string[], ofAgent: OfAgent): Promise<number> {
  process.umask(0o022);
  const ending = new AbortController();
  const stop = (): void => ending.abort(new InputError("cancelled", "stopped by a signal"));
  process.once("SIGTERM", stop).once("SIGINT", stop);
  try {
    return await runAlone(hostDeps(readArguments(argv), ofAgent, ending.signal), ending.signal);
  } catch (thrown) {
    const error = toError(thrown);
    // The progress is on disk, and the next start resumes it.
    if (ending.signal.aborted) return 0;
    process.stderr.write(`holdfast upgrade-run: ${error.message}\n`);
    if (!(error instanceof AgentError)) return 70;
    return error.code === "usage" ? EXIT.usage : error.code === "busy" ? EXIT.busy : 1;
  }
}

/** Upgrades while holding the lock. @throws {HostError} `busy`, and errors of the disk. */
export async function runAlone(deps: UpgradeDeps, signal: AbortSignal): Promise<number> {
  const lock = deps.versions.lock();
  try {
    const end: UpgradeEnd = await upgrade(deps, signal);
    return end === "failed" ? EXIT.failed : 0;
  } finally {
    lock.release();
  }
}

interface Where {
  readonly state: string;
  readonly config: string;
  readonly run: string;
  readonly versions: string;
  readonly package: string;
  readonly request: string;
}

function hostDeps(where: Where, { readTargets, standingAsker }: OfAgent, signal: AbortSignal): UpgradeDeps {
  const clock = systemClock();
  const files = hostFiles();
  const resolve = systemResolve();
  const print = (line: string): void => void process.stdout.write(`${plainLine(line)}\n`);
  const { package: packagePath, versions: path } = where;
  const directories = hostDirectories();
  const requests = requestBox(files, { asked: where.request, kept: path, print });
  const isAskedFor = async (given: string): Promise<boolean> =>
    (await Promise.all([where.request, join(path, "request.json")].map((at) => files.read(at)))).some((text) =>
      text?.includes(given),
    );
  const sweep = (): Promise<void> =>
    sweepHandedOver(path, { files, directories, isAskedFor }).catch((error: unknown) =>
      print(`cannot remove all copied releases: ${toError(error).message}`),
    );
  const targets = (): Promise<NetworkTargets | undefined> => readTargets(where.state).catch(() => undefined);
  return {
    versions: hostVersions({ path, packagePath, files, directories, signal }),
    requests: {
      ...requests,
      async settle() {
        await requests.settle();
        await sweep();
      },
      async done() {
        await requests.done();
        await sweep();
      },
    },
    prepare: fetching(
      { packagePath, versionsPath: path, stateDir: where.state, configFile: where.config },
      targets,
      print,
    ),
    services: systemdServices(hostExec(clock)),
    agent: localAgent(where.run),
    isChangeLeft: async () => (await files.read(join(where.state, "desired/checkpoint.json"))) !== undefined,
    targets,
    probe: hostProbe({
      askStanding: standingAsker(where.state),
      dialler: (proxies) =>
        hostDialler(clock, proxies, async (host) => resolveSet((await targets())?.hosts ?? {}, resolve)(host)),
      resolve,
    }),
    clock,
    bootId: parseBootId(hostReader().read("/proc/sys/kernel/random/boot_id") ?? "") ?? "",
    ownVersion: packageVersion(buildInfo),
    limits: LIMITS,
    print,
  };
}

function fetching(
  where: Omit<FetchingOptions, "targets">,
  targets: () => Promise<NetworkTargets | undefined>,
  print: (line: string) => void,
): Prepare {
  const onRetry = (error: Error, afterMs: number): void =>
    print(`${error.message}; retrying in ${Math.ceil(afterMs / 1000)} s`);
  return async (request, onStep, signal) => {
    const deps = openFetching({ ...where, targets: await targets() }, onStep, signal);
    return (await fetchRelease(request, { ...deps, onRetry }, signal)).version;
  };
}

function readArguments(argv: readonly string[]): Where {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, strict: true, allowPositionals: false }).values;
  } catch (error) {
    throw new InputError("usage", `${toError(error).message}; ${USAGE}`, { cause: error });
  }
}
