import { createInterface } from "node:readline";
import { AgentError, toError } from "../../../src/errors.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostExec, SEARCH_PATH } from "../../../src/host/process/exec.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import type { Change } from "../../../src/host/network/change.ts";
import type { DhcpClient } from "../../../src/host/network/dhcp/dhcp-client.ts";
import { networkDriver, type NetworkDriver } from "../../../src/host/network/driver.ts";
import { hostReader } from "../../../src/host/reader.ts";

export interface ChildOptions {
  readonly dir: string;
  readonly searchPath?: string;
  readonly resolverPath?: string;
  readonly dhcpClients?: readonly DhcpClient[];
  readonly maxOutputBytes?: number;
  /** Whether the kernel cannot be queried, so that nft must list the firewall. */
  readonly lists?: boolean;
}

/** Calls of the driver over the pipe. */
export type Call =
  | { readonly method: "observe"; readonly sysctls: readonly string[] }
  | { readonly method: "apply"; readonly change: Change }
  | { readonly method: "features" | "observeNeighbours" | "mayOwn" | "disown" }
  | { readonly method: "open"; readonly options: ChildOptions };

async function answer(
  driver: NetworkDriver,
  call: Exclude<Call, { readonly method: "open" }>,
  signal: AbortSignal,
): Promise<unknown> {
  switch (call.method) {
    case "observe": {
      const state = await driver.observe({ sysctls: call.sysctls }, signal);
      return { ...state, sysctls: Object.fromEntries(state.sysctls), dhcp: [...state.dhcp] };
    }
    case "apply":
      return driver.apply(call.change, signal);
    case "features": {
      const features = await driver.features(signal);
      return { ...features, reasons: Object.fromEntries(features.reasons) };
    }
    case "observeNeighbours":
      return driver.observeNeighbours(signal);
    case "mayOwn":
      return driver.mayOwn();
    case "disown":
      return driver.disown();
  }
}

/** Returns a driver; `ran` receives the names of the tools that it runs. */
function driverOf(
  { dir, searchPath = SEARCH_PATH, lists = false, ...options }: ChildOptions,
  ran: string[],
): NetworkDriver {
  const clock = systemClock();
  const exec = hostExec(clock, searchPath);
  return networkDriver({
    exec: {
      ...exec,
      run: (file, args, options) => {
        ran.push(file);
        return exec.run(file, args, options);
      },
    },
    files: hostFiles(),
    reader: hostReader(),
    clock,
    stateDir: `${dir}/state`,
    runDir: `${dir}/run`,
    isManaged: false,
    ...(lists ? { tables: { read: () => undefined } } : {}),
    ...options,
  });
}

/** Serves a driver in its network namespace, and another from each `open` on: one call and one answer in each line. */
async function main([json = "{}"]: readonly string[]): Promise<void> {
  const ran: string[] = [];
  let driver = driverOf(JSON.parse(json) as ChildOptions, ran);
  const { signal } = new AbortController();
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    ran.splice(0);
    const call = JSON.parse(line) as Call;
    if (call.method === "open") driver = driverOf(call.options, ran);
    const reply = await (call.method === "open" ? Promise.resolve() : answer(driver, call, signal)).then(
      (value) => ({ value, ran }),
      (thrown: unknown) => {
        const error = toError(thrown);
        const { code, details } = error instanceof AgentError ? error : { code: error.name, details: {} };
        return { error: { code, message: error.message, details }, ran };
      },
    );
    console.log(JSON.stringify(reply));
  }
}

await main(process.argv.slice(2));
