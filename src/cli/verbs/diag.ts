import { z } from "zod";
import { AgentError } from "../../errors.ts";
import { formatBytes, formatDuration, formatMoment } from "../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import {
  DnsHealthAnswer,
  ErrorsAnswer,
  NetworkStatusAnswer,
  NodeStatusAnswer,
  RepoConnectivityAnswer,
} from "../../protocol/triggers/diagnostics.ts";
import { networkChecksOf } from "../netcheck/netcheck.ts";
import { NetworkCheck } from "../netcheck/result.ts";
import { layOut, type Style } from "../frame/terminal.ts";
import { triggerAnswer } from "../frame/trigger-answer.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";

/** The diagnostic events that the agent runs, and their answers. */
const EVENTS = {
  status: NodeStatusAnswer,
  "network-status": NetworkStatusAnswer,
  "dns-health": DnsHealthAnswer,
  "repo-connectivity": RepoConnectivityAnswer,
  errors: ErrorsAnswer,
} as const;

const DiagReport = z.object({
  schema: z.literal(1),
  verdict: z.enum(["ok", "degraded"]),
  /** Checks by this process: names, connections and TLS, one for each address. */
  checks: z.array(NetworkCheck).max(10_000),
  /** Answers of the agent's diagnostic events; events without an answer are in `unanswered`. */
  status: NodeStatusAnswer.optional(),
  network: NetworkStatusAnswer.optional(),
  dns: DnsHealthAnswer.optional(),
  repository: RepoConnectivityAnswer.optional(),
  errors: ErrorsAnswer.optional(),
  unanswered: z.array(z.object({ event: z.string(), code: z.string(), message: z.string() })),
});
type DiagReport = z.infer<typeof DiagReport>;
type Unanswered = DiagReport["unanswered"][number];

export const diagVerb: Verb = {
  name: "diag",
  summary: "show the live diagnostics of this node on one page",
  about:
    "Health, load and units; DNS, connections and TLS to the control plane and each gateway; name servers, package repository, " +
    "interfaces and errors. The agent runs its diagnostic events; without an agent only the checks that need none run. Needs root.",
  arguments: [],
  options: COMMON,
  exits: ["ok", "failed", "usage", "unregistered", "degraded", "timeout", "interrupted"],
  example: "holdfast diag",
  // A name server is asked three times, ten seconds apart.
  timeoutSeconds: 70,
  output: DiagReport,
  async run(call) {
    const report = await diagnose(call);
    call.terminal.out(call.settings.isJson ? `${safeJson(report)}\n` : reportText(call, report));
    if (report.status?.status.node === null) return "unregistered";
    return report.verdict;
  },
};

async function diagnose(call: Call): Promise<DiagReport> {
  const unanswered: Unanswered[] = [];
  const live = async <T>(event: keyof typeof EVENTS, schema: z.ZodType<T>): Promise<T | undefined> => {
    try {
      return await triggerAnswer(call, event, {}, schema);
    } catch (error) {
      call.signal.throwIfAborted();
      if (!(error instanceof AgentError)) throw error;
      unanswered.push({ event, code: error.code, message: error.message });
      return undefined;
    }
  };
  const [checks, status, network, dns, repository, errors] = await Promise.all([
    networkChecksOf(call),
    live("status", EVENTS.status),
    live("network-status", EVENTS["network-status"]),
    live("dns-health", EVENTS["dns-health"]),
    live("repo-connectivity", EVENTS["repo-connectivity"]),
    live("errors", EVENTS.errors),
  ]);
  const isWell =
    status?.health.verdict === "ok" &&
    checks.every((check) => check.status !== "fail") &&
    dns?.success !== false &&
    repository?.repositories.some(({ success }) => !success) !== true;
  return DiagReport.parse({
    schema: 1,
    verdict: isWell ? "ok" : "degraded",
    checks,
    status,
    network,
    dns,
    repository,
    errors,
    unanswered: unanswered.toSorted((a, b) => (a.event < b.event ? -1 : 1)),
  });
}

/** Headings of the groups of checks, in the order in which a connection is made. */
const STAGES: readonly (readonly [string, readonly NetworkCheck["check"][]])[] = [
  ["DNS", ["dns"]],
  ["CONNECTIVITY", ["proxy", "tcp", "udp", "mtu"]],
  ["TLS", ["tls"]],
  ["SESSION", ["agent", "http", "clock", "captive-portal", "tunnel"]],
];
const STYLES: Readonly<Record<NetworkCheck["status"], Style>> = { pass: "green", fail: "red", skip: "dim" };
const MAX_ERRORS_SHOWN = 20;

type Row = readonly [string, string];

function reportText({ terminal, clock }: Call, untrusted: DiagReport): string {
  const report = plainValue(untrusted);
  const { columns } = terminal.size();
  const mark = (is: NetworkCheck["status"]): string =>
    terminal.style(STYLES[is], is === "pass" ? "OK" : is.toUpperCase());
  const checkRow = ({ check, status, target, name, path, message, fix }: NetworkCheck): readonly Row[] => {
    const about = [check, target === "node" ? "" : name, path].filter(Boolean).join(" ");
    const row: Row = [`  ${mark(status)} ${about}`.trimEnd(), message];
    return fix === undefined ? [row] : [row, ["", terminal.style("bold", `fix: ${fix}`)]];
  };
  const good = (isGood: boolean, what: string, text: string): Row => [
    `  ${mark(isGood ? "pass" : "fail")} ${what}`,
    text,
  ];
  const blocks: readonly (readonly [string, readonly Row[]])[] = [
    ["NODE", nodeRows(report, terminal.style.bind(terminal))],
    ...STAGES.map(
      ([title, kinds]) =>
        [title, report.checks.filter(({ check }) => kinds.includes(check)).flatMap(checkRow)] as const,
    ),
    [
      "NAME SERVERS",
      (report.dns?.servers ?? []).map(({ ip, success, reason }) => good(success, ip, reason ?? "answers")),
    ],
    [
      "REPOSITORY",
      (report.repository?.repositories ?? []).map(({ url, success, reason }) =>
        good(success, url, reason ?? "reached"),
      ),
    ],
    [
      "INTERFACES",
      (report.network?.interfaces ?? []).map(({ name, state, addresses, mtu }): Row => [
        `  ${name}`,
        [state, ...addresses, ...(mtu === undefined ? [] : [`MTU ${mtu}`])].join(", "),
      ]),
    ],
    [
      "ERRORS",
      (report.errors?.errors ?? [])
        .slice(-MAX_ERRORS_SHOWN)
        .map(({ time, component, message }): Row => [
          `  ${formatMoment(time, clock.now())}`,
          `${component}: ${message}`,
        ]),
    ],
    ["NOT ANSWERED", unansweredRows(report.unanswered)],
  ];
  const parts = blocks.flatMap(([title, rows]) =>
    rows.length === 0 ? [] : [`${terminal.style("bold", title)}\n${layOut(rows, columns)}`],
  );
  return `${parts.join("")}${terminal.style(report.verdict === "ok" ? "green" : "yellow", report.verdict)}\n`;
}

/** Formats one row for all events that failed for the same reason. */
function unansweredRows(unanswered: readonly Unanswered[]): readonly Row[] {
  const byReason = new Map<string, Unanswered[]>();
  for (const one of unanswered) {
    const reason = `${one.code}: ${one.message}`;
    byReason.set(reason, [...(byReason.get(reason) ?? []), one]);
  }
  return [...byReason].map(([reason, events]): Row => [`  ${events.map(({ event }) => event).join(", ")}`, reason]);
}

function nodeRows({ status }: DiagReport, style: Call["terminal"]["style"]): readonly Row[] {
  if (status === undefined) return [];
  const { cpu, memory, disk, uptimeSeconds, services, health } = status;
  const troubles = health.items.filter((item) => item.status === "warn" || item.status === "fail");
  return [
    ["  health", style(health.verdict === "ok" ? "green" : "yellow", health.verdict)],
    ...troubles.map(({ name, message }): Row => [`  ${name}`, message]),
    ["  load", cpu.load.toFixed(2)],
    ["  memory", `${memory.usedPercent} % of ${formatBytes(memory.totalBytes)} used`],
    ["  disk", `${disk.usedPercent} % of ${formatBytes(disk.totalBytes)} used`],
    ["  machine", `up ${formatDuration(uptimeSeconds * 1000)}`],
    ...Object.entries(services).map(([unit, state]): Row => [`  ${unit}`, state]),
  ];
}
