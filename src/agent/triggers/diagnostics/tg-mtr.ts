import type { z } from "zod";
import type { Exec } from "../../../host/process/exec.ts";
import type { Files } from "../../../host/files/files.ts";
import { TgMtrBody } from "../../../protocol/triggers/bodies.ts";
import { needLink } from "../tools/known-link.ts";
import { flagList, numberFlag, plainFlags, type AllowedFlags } from "../tools/tool-flags.ts";
import type { StreamTrigger } from "../execution/trigger.ts";

const FLAGS: AllowedFlags = new Map([
  ...plainFlags("-n", "-b", "-r", "-w", "-z", "-T", "-u", "-4", "-6", "-j"),
  numberFlag("-P", 1, 65_535),
  numberFlag("-c", 1, 100),
  numberFlag("-i", 0.2, 60, "number"),
  numberFlag("-s", 28, 9000),
  numberFlag("-m", 1, 64),
  ["-a", { takes: "address" }],
  ["-I", { takes: "link" }],
]);

/** Long forms of the flags, mtr(8). */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ["--no-dns", "-n"],
  ["--show-ips", "-b"],
  ["--report", "-r"],
  ["--report-wide", "-w"],
  ["--aslookup", "-z"],
  ["--tcp", "-T"],
  ["--udp", "-u"],
  ["--json", "-j"],
  ["--port", "-P"],
  ["--report-cycles", "-c"],
  ["--interval", "-i"],
  ["--psize", "-s"],
  ["--max-ttl", "-m"],
  ["--address", "-a"],
  ["--interface", "-I"],
]);

export const TgMtr = TgMtrBody.extend({ options: flagList(FLAGS, ALIASES).prefault("") });
export type TgMtr = z.infer<typeof TgMtr>;

const COUNT = 10;
const INTERVAL_SECONDS = 1;
const MARGIN_MS = 30_000;

/**
 * Traces the route to a host with mtr(8) and its harmless flags. Always in report mode, since there is no terminal; a request for the
 * interactive display gets a note first.
 */
export function tgMtr(exec: Exec, files: Files): StreamTrigger<TgMtr> {
  return {
    event: "tg-mtr",
    kind: "stream",
    request: TgMtr,
    deadlineMs: 180_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    async handle(request, { wait, signal, emit }) {
      const { options } = request;
      const link = valueOf(options, "-I");
      if (link !== undefined) await needLink(files, link, "options");
      const count = Number(valueOf(options, "-c") ?? COUNT);
      const interval = Number(valueOf(options, "-i") ?? INTERVAL_SECONDS);
      const trace = exec.spawn("mtr", mtrArguments(request, wait), {
        signal,
        deadlineMs: count * interval * 1000 + MARGIN_MS,
      });
      if (!wait && !isReport(options)) {
        const text = `no terminal for mtr's screen: its report follows after ${count} rounds of ${interval} s\n`;
        await emit({ kind: "stderr", data: text });
      }
      for await (const chunk of trace.output) await emit(chunk);
      return { exitCode: await trace.exitCode };
    },
  };
}

/** Builds mtr's arguments: JSON for a caller that waits without choosing a report, else a wide report. */
export function mtrArguments({ hostname, options }: Pick<TgMtr, "hostname" | "options">, wait: boolean): string[] {
  const count = options.includes("-c") ? [] : ["-c", String(COUNT)];
  const form = isReport(options) ? [] : wait ? ["-j", ...(options.includes("-b") ? [] : ["-n"])] : ["-w"];
  const added = form.filter((flag) => !options.includes(flag));
  return [...options, ...added, ...count, "--", hostname];
}

function isReport(options: readonly string[]): boolean {
  return ["-r", "-w", "-j"].some((flag) => options.includes(flag));
}

function valueOf(flags: readonly string[], flag: string): string | undefined {
  const at = flags.indexOf(flag);
  return at < 0 ? undefined : flags[at + 1];
}
