import { z } from "zod";
import { InputError } from "../../../errors.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { formatBytes, formatCount, formatDuration } from "../../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../../lib/text/terminal-text.ts";
import { FlowList, FlowsDeleted, type FlowRow } from "../../../protocol/triggers/results.ts";
import { triggerAnswer } from "../../frame/trigger-answer.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { wholeOption } from "../../frame/whole-option.ts";
import { COMMON } from "../../frame/verb-options.ts";
import { defined } from "../../../lib/defined.ts";

export const flowsVerb: Verb = {
  name: "flows",
  summary: "show the flows that the kernel tracks, or delete them",
  about:
    "Addresses and ports are those of the first packet. Bytes and age are known of flows that began after the first read. " +
    "--delete needs a filter, or --all. Needs root.",
  arguments: [],
  options: {
    protocol: { short: "p", value: "NAME", help: "icmp, tcp or udp", complete: ["icmp", "tcp", "udp"] },
    source: { short: "s", value: "CIDR", help: "from these addresses" },
    dest: { short: "d", value: "CIDR", help: "to these addresses" },
    sport: { value: "PORT", help: "from this port" },
    dport: { value: "PORT", help: "to this port" },
    delete: { help: "delete them from the kernel" },
    all: { help: "with --delete: every flow" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast flows -p tcp --dport 443",
  timeoutSeconds: 35,
  output: z.union([FlowList, FlowsDeleted]),
  async run(call) {
    const { terminal, settings, values } = call;
    const filter = filterOf(call);
    const isAll = values["all"] === true;
    if (values["delete"] === true) {
      if (Object.keys(filter).length === 0 && !isAll) {
        throw new InputError("usage", "--delete needs a filter such as --dest, or --all for every flow");
      }
      const body = { action: "delete", ...filter, confirm: isAll };
      const answer = await triggerAnswer(call, "flows", body, FlowsDeleted);
      terminal.out(settings.isJson ? `${safeJson(answer)}\n` : `${formatCount(answer.deleted, "flow")} deleted\n`);
      return "ok";
    }
    if (isAll) throw new InputError("usage", "--all goes with --delete: without it all flows are shown anyway");
    const answer = await triggerAnswer(call, "flows", { action: "read", ...filter }, FlowList);
    terminal.out(settings.isJson ? `${safeJson(answer)}\n` : listText(plainValue(answer)));
    return "ok";
  },
};

function filterOf(call: Call): Readonly<Record<string, unknown>> {
  const { protocol, source, dest } = call.values;
  if (protocol !== undefined && !["icmp", "tcp", "udp", "any"].includes(String(protocol))) {
    throw new InputError("usage", `--protocol needs icmp, tcp or udp, not ${String(protocol)}`);
  }
  const sourcePort = wholeOption(call, "sport", 1, 65_535);
  const destPort = wholeOption(call, "dport", 1, 65_535);
  return {
    ...(protocol === undefined || protocol === "any" ? {} : { protocol }),
    ...(source === undefined ? {} : { source: block("source", source) }),
    ...(dest === undefined ? {} : { dest: block("dest", dest) }),
    ...defined({ sourcePort, destPort }),
  };
}

function block(name: string, value: string | boolean): string {
  const found = typeof value === "string" ? parseCidr(value) : undefined;
  if (found !== undefined) return found.text;
  throw new InputError("usage", `--${name} needs an IP address or a CIDR, not ${String(value)}`);
}

function listText({ result, total, truncated }: FlowList): string {
  const lines = [...result.tcp, ...result.udp, ...result.icmp].map((row) => `${flowText(row)}\n`);
  if (lines.length === 0) return "no flow\n";
  return lines.join("") + (truncated === true ? `not all: there are ${total} or more\n` : "");
}

function flowText({ sip, dip, p, sport, dport, lid, state, br, bw, con, meta }: FlowRow): string {
  const parts = [
    p === "tcp" ? state : "",
    lid === undefined ? "" : `id ${lid}`,
    bw === undefined || br === undefined ? "" : `${formatBytes(bw)} sent, ${formatBytes(br)} received`,
    con === undefined ? "" : formatDuration(con * 1000),
    meta?.reply === undefined
      ? ""
      : `translated, answers ${end(meta.reply["sip"], meta.reply["sport"])} → ${end(meta.reply["dip"], meta.reply["dport"])}`,
    meta?.service === undefined ? "" : throughText(meta),
  ].filter((part) => part !== "");
  return `${p} ${end(sip, sport)} → ${end(dip, dport)}${parts.length === 0 ? "" : `: ${parts.join(", ")}`}`;
}

function throughText({ connector, service, peer, backend }: FlowRow["meta"] & {}): string {
  const through = connector === undefined ? "" : `connector ${connector}, `;
  const place = peer === undefined ? "" : ` ${connector === undefined ? "from" : "with"} node ${peer}`;
  return `${through}service ${service}${place}${backend === undefined ? "" : ` at ${backend}`}`;
}

function end(address: string | number | undefined, port: string | number | undefined): string {
  const text = String(address ?? "?");
  if (port === undefined) return text;
  return text.includes(":") ? `[${text}]:${port}` : `${text}:${port}`;
}
