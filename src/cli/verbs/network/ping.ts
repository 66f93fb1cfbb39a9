import { z } from "zod";
import { InputError, SessionError } from "../../../errors.ts";
import { plainLine, safeJson } from "../../../lib/text/terminal-text.ts";
import type { GatewayPing } from "../../../protocol/triggers/bodies.ts";
import { Host, Text64, Text128, Text253, Version } from "../../../protocol/values/values.ts";
import { pathName } from "../../text/mesh-text.ts";
import { measurement } from "../../text/measurement.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { wholeOption } from "../../frame/whole-option.ts";
import { COMMON } from "../../frame/verb-options.ts";
import { defined } from "../../../lib/defined.ts";

/** Result of one probe: the responder and the path of its answer, or no answer. */
const ProbeLine = z.union([
  z.object({
    seq: Version,
    peer: Text253,
    size: Version,
    rttMs: z.number().min(0),
    path: Text128,
    gateway: Text253.optional(),
  }),
  z.object({ seq: Version, timeout: z.literal(true), reason: Text64.optional() }),
]);
type ProbeLine = z.infer<typeof ProbeLine>;

/** Summary of all probes; `ways` counts the answers by gateway and path. */
const PingSummary = z.object({
  summary: z.object({
    sent: Version,
    answered: Version,
    minMs: z.number().optional(),
    meanMs: z.number().optional(),
    maxMs: z.number().optional(),
    ways: z.array(z.object({ gateway: z.string(), path: z.string(), answered: Version })).max(64),
  }),
});
type Summary = z.infer<typeof PingSummary>["summary"];

export const pingVerb: Verb = {
  name: "ping",
  summary: "ping another node through the tunnel, and show which gateway and path answer",
  about:
    "Ctrl-C ends it with a summary. Exits with 0 if a probe was answered. With --json each line is one object, the last the summary.",
  arguments: [{ name: "node", isRequired: true, help: "its name, FQDN or uid", complete: "none" }],
  options: {
    count: { short: "c", value: "N", help: "number of probes (until Ctrl-C, 600 at most)" },
    interval: { short: "i", value: "SECONDS", help: "time between probes (1)" },
    size: { short: "s", value: "BYTES", help: "bytes of a probe (64)" },
    path: { value: "ID", help: "only by this path of the gateway section" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout", "interrupted"],
  example: "holdfast ping -c 5 edge-2",
  output: z.union([ProbeLine, PingSummary]),
  async run(call) {
    const { settings, terminal, signal } = call;
    const { dest, body } = request(call);
    const probes: ProbeLine[] = [];
    try {
      for await (const probe of measurement(call, "gateway-ping", body, ProbeLine)) {
        // Only then is it known that there is such a node.
        if (probes.length === 0 && !settings.isJson)
          terminal.out(`PING ${plainLine(dest)} through the tunnel, ${body.size} bytes\n`);
        probes.push(probe);
        terminal.out(settings.isJson ? `${safeJson(probe)}\n` : probeText(call, dest, probe));
      }
    } catch (error) {
      // Ctrl-C is how it usually ends.
      if (!signal.aborted || probes.length === 0) throw explained(error);
    }
    const summary = summaryOf(probes);
    terminal.out(settings.isJson ? `${safeJson({ summary })}\n` : summaryText(dest, summary));
    return exitOf(summary);
  },
};

function exitOf({ answered }: Summary): ExitClass {
  return answered > 0 ? "ok" : "failed";
}

function request(call: Call): { readonly dest: string; readonly body: GatewayPing } {
  const dest = call.positionals[0] ?? "";
  if (!Host.safeParse(dest).success) throw new InputError("usage", `'${dest}' cannot be the name of a node`);
  const { path } = call.values;
  const count = wholeOption(call, "count", 1, 600);
  const body = {
    dest,
    sendJson: true,
    interval: wholeOption(call, "interval", 1, 60) ?? 1,
    size: wholeOption(call, "size", 8, 65_000) ?? 64,
    ...defined({ count }),
    ...(typeof path === "string" ? { gwPath: path } : {}),
  };
  return { dest, body };
}

function explained(error: unknown): unknown {
  if (!(error instanceof SessionError) || error.code !== "exec-failed") return error;
  return new SessionError(error.code, `${error.message}: see 'holdfast gateways'`, { cause: error });
}

function probeText({ terminal }: Call, dest: string, probe: ProbeLine): string {
  if ("timeout" in probe) {
    const why = probe.reason === "not-connected" ? ": it is not connected" : "";
    return `${terminal.style("red", "no answer")} from ${plainLine(dest)}: seq=${probe.seq}${why}\n`;
  }
  const { seq, peer, size, rttMs } = probe;
  return `${size} bytes from ${plainLine(peer)}: seq=${seq} time=${rttMs.toFixed(2)} ms by ${pathText(probe)}\n`;
}

/** Formats the gateway that relayed the answer, and the path to it. */
function pathText({ gateway = "?", path }: { readonly gateway?: string | undefined; readonly path: string }): string {
  return `${plainLine(gateway)} ${plainLine(pathName(path))}`;
}

/** Formats the summary of the probes. Pure. */
export function summaryOf(probes: readonly ProbeLine[]): Summary {
  const answers = probes.flatMap((probe) => ("rttMs" in probe ? [probe] : []));
  const rtts = answers.map(({ rttMs }) => rttMs);
  const ways = new Map<string, Summary["ways"][number]>();
  for (const { gateway = "?", path } of answers) {
    const key = `${gateway} ${path}`;
    const answered = (ways.get(key)?.answered ?? 0) + 1;
    if (ways.has(key) || ways.size < 64) ways.set(key, { gateway, path, answered });
  }
  const times =
    rtts.length === 0
      ? {}
      : {
          minMs: Math.min(...rtts),
          meanMs: rtts.reduce((sum, rtt) => sum + rtt, 0) / rtts.length,
          maxMs: Math.max(...rtts),
        };
  return { sent: probes.length, answered: answers.length, ...times, ways: [...ways.values()] };
}

function summaryText(dest: string, { sent, answered, minMs, meanMs, maxMs, ways }: Summary): string {
  const lost = sent === 0 ? 0 : Math.round(((sent - answered) / sent) * 1000) / 10;
  const times = [minMs, meanMs, maxMs].flatMap((ms) => (ms === undefined ? [] : [ms.toFixed(2)]));
  return [
    `--- ${plainLine(dest)}: ${sent} sent, ${answered} answered, ${lost}% lost\n`,
    times.length === 0 ? "" : `rtt min/avg/max = ${times.join("/")} ms\n`,
    ...ways.map((path) => `${path.answered} by ${pathText(path)}\n`),
  ].join("");
}
