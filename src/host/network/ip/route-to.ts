import { HostError } from "../../../errors.ts";
import { asObject, listOf, scalarOf, textOf } from "../../../lib/formats/json-shape.ts";
import { toCount } from "../../../lib/text/text-fields.ts";
import type { RouteAnswer } from "../../../protocol/local/network.ts";
import type { Exec, ExecResult } from "../../process/exec.ts";
import { OUR_PROTOCOL } from "../state/state.ts";
import { defined } from "../../../lib/defined.ts";

/** Finds the IPv4 route to an address with one process. @throws {HostError} `tool-missing`, `exec-failed`, `bad-output`. */
export type RouteTo = (address: string, signal: AbortSignal) => Promise<RouteAnswer>;

const SHOW = ["-4", "-N", "-json", "-details"] as const;
const BOUNDS = { deadlineMs: 10_000, maxOutputBytes: 64 * 1024 };

/** The kernel's errors if no packet may leave (rtnetlink(7), errno(3)). */
const REFUSALS: readonly (readonly [RegExp, string])[] = [
  [/Network is unreachable/u, "none"],
  [/No route to host/u, "unreachable"],
  [/Permission denied/u, "prohibit"],
  [/Invalid argument/u, "blackhole"],
];
/** rtm_type of rtnetlink(7). */
const KINDS: Readonly<Record<string, string>> = { 1: "unicast", 2: "local", 3: "broadcast", 5: "multicast" };

/** Returns a finder of routes in this network namespace by ip-route(8). */
export function routeFinder(exec: Exec): RouteTo {
  return async (address, signal) => {
    const input = `route get ${address}\nroute get fibmatch ${address}\n`;
    const found = await exec.run("ip", [...SHOW, "-batch", "-"], { signal, input, ...BOUNDS });
    const refusal = REFUSALS.find(([said]) => said.test(found.stderr))?.[1];
    if (refusal !== undefined) return { schema: 1, to: address, kind: refusal };
    return parseRouteTo(address, needed(found));
  };
}

/** Parses `ip -N -json route get` and, on the next line, `route get fibmatch`. @throws {HostError} `bad-output`. */
export function parseRouteTo(address: string, stdout: string): RouteAnswer {
  const [taken, matched] = stdout
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map(firstOf);
  if (taken === undefined)
    throw new HostError("bad-output", "cannot parse the output of ip for a route", { details: { tool: "ip" } });
  const [via, link, source] = [textOf(taken["gateway"]), textOf(taken["dev"]), textOf(taken["prefsrc"])];
  const table = count(taken["table"]);
  const destination = textOf(matched?.["dst"]);
  const protocol = count(matched?.["protocol"]);
  return {
    schema: 1,
    to: address,
    kind: KINDS[scalarOf(taken["type"]) ?? "1"] ?? "unicast",
    ...defined({ via, link, source, table }),
    ...(destination === undefined || protocol === undefined
      ? {}
      : {
          matched: {
            destination: blockOf(destination),
            protocol,
            metric: count(matched?.["metric"]) ?? 0,
            isOurs: protocol === OUR_PROTOCOL,
          },
        }),
  };
}

function firstOf(line: string): Readonly<Record<string, unknown>> | undefined {
  try {
    return asObject(listOf(JSON.parse(line))[0]);
  } catch {
    return undefined;
  }
}

function blockOf(destination: string): string {
  if (destination === "default") return "0.0.0.0/0";
  return destination.includes("/") ? destination : `${destination}/32`;
}

function count(value: unknown): number | undefined {
  return toCount(scalarOf(value));
}

function needed({ exitCode, stdout, stderr, truncated }: ExecResult): string {
  if (exitCode === 0 && !truncated) return stdout;
  const said = truncated ? "its answer is too long" : stderr.trim().slice(0, 512);
  throw new HostError("exec-failed", `ip: ${said}`, { details: { tool: "ip", exitCode } });
}
