import { parseArgs } from "node:util";
import { AgentError, InputError, toError } from "../errors.ts";
import { plainLine } from "../lib/text/terminal-text.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import { checkRelease, fetchRelease, type FetchDeps } from "./fetch.ts";
import { openFetching } from "./open-fetching.ts";
import { defined } from "../lib/defined.ts";

const OPTIONS = {
  check: { type: "boolean" },
  force: { type: "boolean" },
  package: { type: "string" },
  versions: { type: "string" },
  keys: { type: "string" },
  state: { type: "string" },
  config: { type: "string" },
} as const;
const USAGE = "usage: holdfast upgrade-fetch [--check] [--force] FILE|URL";

type Deps = Omit<FetchDeps, "onRetry">;

/**
 * The program `holdfast upgrade-fetch`: performs all slow steps of an upgrade before the switch. With `--check` it only reports
 * whether the release would be accepted. Prints one JSON object per line; the last one is the result.
 */
export function upgradeFetch(readTargets: (stateDir: string) => Promise<NetworkTargets>): {
  run(argv: readonly string[]): Promise<number>;
} {
  return {
    async run(argv) {
      process.umask(0o022);
      const print = (object: unknown): void => void process.stdout.write(`${JSON.stringify(object)}\n`);
      const ending = new AbortController();
      const stop = (): void => ending.abort(new InputError("cancelled", "stopped by a signal"));
      process.once("SIGTERM", stop).once("SIGINT", stop);
      try {
        const { from, isCheck, isForced, ...where } = readArguments(argv);
        const targets = await readTargets(where.stateDir ?? "/var/lib/holdfast").catch(() => undefined);
        const onStep: FetchDeps["onStep"] = (step, to) => print({ step, ...defined({ to }) });
        const deps = openFetching({ ...where, targets }, onStep, ending.signal);
        const request = { from, by: "operator" as const, isForced };
        print(await (isCheck ? check(request, deps, ending.signal) : fetchLocked(request, deps, ending.signal)));
        return 0;
      } catch (thrown) {
        const error = toError(thrown);
        const code = error instanceof AgentError ? error.code : "internal";
        print({ error: { code, message: error.message } });
        process.stderr.write(`holdfast upgrade-fetch: ${plainLine(error.message)}\n`);
        return code === "usage" ? 2 : error instanceof AgentError ? 1 : 70;
      }
    },
  };
}

async function check(request: Parameters<typeof checkRelease>[0], deps: Deps, signal: AbortSignal): Promise<unknown> {
  const { claims, verdict } = await checkRelease(request, deps, signal);
  const { version, build } = claims;
  if (verdict.is === "taken") return { version, build, isTaken: true };
  const { code, message } = verdict;
  return { version, build, isTaken: false, reason: { code, message } };
}

async function fetchLocked(
  request: Parameters<typeof fetchRelease>[0],
  deps: Deps,
  signal: AbortSignal,
): Promise<unknown> {
  await deps.versions.staging();
  const lock = deps.versions.lock();
  try {
    const onRetry = (error: Error, afterMs: number): void => {
      process.stderr.write(
        `holdfast upgrade-fetch: ${plainLine(error.message)}; retrying in ${Math.ceil(afterMs / 1000)} s\n`,
      );
    };
    return { fetched: await fetchRelease(request, { ...deps, onRetry }, signal) };
  } finally {
    lock.release();
  }
}

interface Arguments {
  readonly from: string;
  readonly isCheck: boolean;
  readonly isForced: boolean;
  readonly packagePath?: string;
  readonly versionsPath?: string;
  readonly keyPaths?: readonly string[];
  readonly stateDir?: string;
  readonly configFile?: string;
}

function readArguments(argv: readonly string[]): Arguments {
  try {
    const parsed = parseArgs({ args: [...argv], options: OPTIONS, strict: true, allowPositionals: true });
    const { values, positionals } = parsed;
    const [from, ...rest] = positionals;
    if (from === undefined || rest.length > 0) throw new InputError("usage", USAGE);
    return {
      from,
      isCheck: values.check ?? false,
      isForced: values.force ?? false,
      ...defined({ packagePath: values.package, versionsPath: values.versions }),
      ...(values.keys === undefined ? {} : { keyPaths: [values.keys] }),
      ...defined({ stateDir: values.state, configFile: values.config }),
    };
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError("usage", toError(error).message, { cause: error });
  }
}
