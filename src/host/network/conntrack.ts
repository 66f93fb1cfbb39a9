import { HostError } from "../../errors.ts";
import { addressFilter } from "../../lib/net/address-filter.ts";
import { parseFlow, type TrackedFlow } from "./conntrack-line.ts";
import type { Exec } from "../process/exec.ts";
import { switchOn, type SwitchOptions } from "./switched-on.ts";

/** Selects flows; an absent field matches any. Addresses and ports are the original ones. */
export interface FlowFilter {
  readonly protocol?: "icmp" | "tcp" | "udp";
  /** Blocks, as `10.0.0.0/8`. */
  readonly source?: string;
  readonly dest?: string;
  readonly sourcePort?: number;
  readonly destPort?: number;
  /** An address that starts or answers the flow, regardless of translation. */
  readonly party?: string;
}

export interface FlowList {
  readonly flows: readonly TrackedFlow[];
  /** Whether there are more than the limit. */
  readonly isTruncated: boolean;
}

/** The flows tracked by the kernel in this network namespace, through conntrack(8). */
export interface Conntrack {
  /** Lists matching flows, at most `limit`. @throws {HostError} `tool-missing`, `exec-failed`. */
  list(filter: FlowFilter, limit: number, signal: AbortSignal): Promise<FlowList>;
  /** Deletes matching flows from the kernel's table and returns their number. @throws as `list`. */
  remove(filter: FlowFilter, signal: AbortSignal): Promise<number>;
  /** Enables the kernel's byte counters and timestamps of new flows; returns whether they are enabled. */
  account(): Promise<boolean>;
}

export interface ConntrackOptions extends SwitchOptions {
  readonly exec: Exec;
}

const SETTINGS = ["net.netfilter.nf_conntrack_acct", "net.netfilter.nf_conntrack_timestamp"] as const;
const MAX_COMPLAINT = 512;

/** Returns the flows of this machine. */
export function hostConntrack({ exec, ...options }: ConntrackOptions): Conntrack {
  return {
    async list(filter, limit, signal) {
      const isWanted = flowMatcher(filter);
      const flows: TrackedFlow[] = [];
      let isTruncated = false;
      const tool = exec.spawn("conntrack", listArguments(filter), { signal });
      let complaint = "";
      let rest = "";
      for await (const { kind, data } of tool.output) {
        if (kind === "stderr") {
          complaint = (complaint + data).slice(0, MAX_COMPLAINT);
          continue;
        }
        const lines = (rest + data).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          const flow = parseFlow(line);
          if (flow === undefined || !isWanted(flow)) continue;
          isTruncated = flows.length >= limit;
          if (isTruncated) break;
          flows.push(flow);
        }
        // Leaving the loop stops the tool.
        if (isTruncated) return { flows, isTruncated };
      }
      signal.throwIfAborted();
      const exitCode = await tool.exitCode;
      if (exitCode !== 0) throw failed(exitCode, complaint);
      return { flows, isTruncated };
    },

    async remove(filter, signal) {
      let count = 0;
      for (const args of removalArguments(filter)) {
        const tool = exec.spawn("conntrack", args, { signal });
        let stderrText = "";
        for await (const { kind, data } of tool.output) {
          if (kind === "stderr") stderrText = (stderrText + data).slice(-MAX_COMPLAINT);
        }
        signal.throwIfAborted();
        const exitCode = await tool.exitCode;
        const deleted = /(\d+) flow entries have been deleted/u.exec(stderrText)?.[1];
        // The tool exits with 1 if it deleted nothing.
        if (deleted === undefined || exitCode > 1) throw failed(exitCode, stderrText);
        count += Number(deleted);
      }
      return count;
    },

    account: () => switchOn(SETTINGS, options),
  };
}

/** Returns the arguments of a listing. ICMP has two protocol names, so it is filtered here. */
export function listArguments({ protocol }: FlowFilter): string[] {
  const only = protocol === undefined || protocol === "icmp" ? [] : ["-p", protocol];
  return ["-L", "-o", "extended,id,timestamp", ...only];
}

/** Returns one command line per family, and per protocol if ports need one; the tool itself deletes what matches. */
export function removalArguments(filter: FlowFilter): readonly (readonly string[])[] {
  const { party, ...rest } = filter;
  // The tool takes an address for one direction only, so two command lines are needed.
  if (party !== undefined) {
    const begins = rest.source === undefined || addressFilter(rest.source)(party);
    return [
      ...(begins ? removalArguments({ ...rest, source: party }) : []),
      ...removalArguments(rest)
        .filter((args) => args[2] === (party.includes(":") ? "ipv6" : "ipv4"))
        .map((args) => args.concat("--reply-src", party)),
    ];
  }
  const { protocol, source, dest, sourcePort, destPort } = filter;
  const hasPorts = sourcePort !== undefined || destPort !== undefined;
  const fitting = ([4, 6] as const).filter((family) =>
    [source, dest].every((block) => block === undefined || block.includes(":") === (family === 6)),
  );
  return fitting.flatMap((family) => {
    const protocols = protocol === undefined ? (hasPorts ? ["tcp", "udp"] : [undefined]) : [nameOf(protocol, family)];
    return protocols.map((name) => removalLine(family, name, filter));
  });
}

function removalLine(family: 4 | 6, protocol: string | undefined, filter: FlowFilter): readonly string[] {
  const { source, dest, sourcePort, destPort } = filter;
  return [
    "-D",
    "-f",
    family === 4 ? "ipv4" : "ipv6",
    ...(protocol === undefined ? [] : ["-p", protocol]),
    ...(source === undefined ? [] : ["--orig-src", source]),
    ...(dest === undefined ? [] : ["--orig-dst", dest]),
    ...(sourcePort === undefined ? [] : ["--orig-port-src", String(sourcePort)]),
    ...(destPort === undefined ? [] : ["--orig-port-dst", String(destPort)]),
  ];
}

function nameOf(protocol: "icmp" | "tcp" | "udp", family: 4 | 6): string {
  return protocol === "icmp" && family === 6 ? "icmpv6" : protocol;
}

/** Returns a function that reports whether a flow matches. */
function flowMatcher(filter: FlowFilter): (flow: TrackedFlow) => boolean {
  const { protocol, sourcePort, destPort, party } = filter;
  const isFrom = filter.source === undefined ? undefined : addressFilter(filter.source);
  const isTo = filter.dest === undefined ? undefined : addressFilter(filter.dest);
  return ({ family, protocol: own, original, reply }) =>
    (protocol === undefined || own === nameOf(protocol, family)) &&
    (sourcePort === undefined || original.sourcePort === sourcePort) &&
    (destPort === undefined || original.destPort === destPort) &&
    (isFrom === undefined || isFrom(original.source)) &&
    (isTo === undefined || isTo(original.dest)) &&
    (party === undefined || original.source === party || reply.source === party);
}

function failed(exitCode: number, complaint: string): HostError {
  const reason =
    complaint
      .trim()
      .split("\n")[0]
      ?.replace(/^conntrack v[\d.]+ \(conntrack-tools\): /u, "") ?? "";
  return new HostError("exec-failed", `conntrack exited with status ${exitCode}: ${reason}`, {
    details: { tool: "conntrack" },
  });
}
