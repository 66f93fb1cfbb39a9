import { isIP } from "node:net";
import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { Exec } from "../../host/exec.ts";
import type { Files } from "../../host/files.ts";
import { TgTracerouteBody } from "../../protocol/trigger-bodies.ts";
import type { StreamTrigger } from "./trigger.ts";

const PLAIN_FLAGS: ReadonlySet<string> = new Set(["-n", "-4", "-6", "-I", "-T", "-U", "-F"]);
/** Flags with a whole number, and its bounds. */
const NUMBER_FLAGS: ReadonlyMap<string, readonly [number, number]> = new Map([
  ["-p", [1, 65_535]],
  ["-m", [1, 64]],
  ["-q", [1, 10]],
  ["-w", [1, 10]],
  ["-f", [1, 64]],
  ["-N", [1, 64]],
  ["-z", [0, 1000]],
]);
const MAX_SHOWN = 64;

const Filter = z
  .string()
  .max(256)
  .transform((text, context) => {
    const problem = findProblem(tokens(text));
    if (problem !== undefined) context.addIssue({ code: "custom", message: problem });
    return tokens(text);
  });

export const TgTraceroute = TgTracerouteBody.extend({ filter: Filter.prefault("-n") });
export type TgTraceroute = z.infer<typeof TgTraceroute>;

/** Traces the way to a host with traceroute(8) and the flags that cannot do harm. */
export function tgTraceroute(exec: Exec, files: Files): StreamTrigger<TgTraceroute> {
  return {
    event: "tg-traceroute",
    kind: "stream",
    request: TgTraceroute,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    async handle({ host, filter, iface }, { signal, emit }) {
      if (iface !== undefined && !(await files.list("/sys/class/net")).includes(iface)) {
        throw new InputError("not-found", `no interface ${iface}`, { details: { field: "iface" } });
      }
      const link = iface === undefined ? [] : ["-i", iface];
      const trace = exec.spawn("traceroute", [...link, ...filter, "--", host], { signal });
      for await (const chunk of trace.output) await emit(chunk);
      return { exitCode: await trace.exitCode };
    },
  };
}

function tokens(text: string): string[] {
  return text.split(" ").filter((token) => token !== "");
}

/** What is wrong with the flags, or undefined. */
function findProblem(flags: readonly string[]): string | undefined {
  const seen = new Set<string>();
  for (let at = 0; at < flags.length; at += 1) {
    const flag = flags[at] ?? "";
    if (seen.has(flag)) return `the flag ${flag} is given twice`;
    seen.add(flag);
    if (PLAIN_FLAGS.has(flag)) continue;
    const bounds = NUMBER_FLAGS.get(flag);
    if (bounds === undefined && flag !== "-s")
      return `the flag ${JSON.stringify(flag.slice(0, MAX_SHOWN))} is not allowed`;
    at += 1;
    const value = flags[at] ?? "";
    if (bounds === undefined) {
      if (isIP(value) === 0 || value.includes("%")) return "-s needs an IP address";
    } else if (!isWithin(value, bounds)) {
      return `${flag} needs a whole number from ${bounds[0]} to ${bounds[1]}`;
    }
  }
  return undefined;
}

function isWithin(text: string, [low, high]: readonly [number, number]): boolean {
  return /^\d{1,5}$/.test(text) && Number(text) >= low && Number(text) <= high;
}
