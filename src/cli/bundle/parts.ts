import { join } from "node:path";
import type { z } from "zod";
import { HostError } from "../../errors.ts";
import { buildInfo } from "../../lib/build-info.ts";
import { CommitReport } from "../../protocol/local/commit.ts";
import { ContainersReport, VolumesReport } from "../../protocol/local/containers.ts";
import { GatewaysReport, PeersReport } from "../../protocol/local/mesh.ts";
import { ConnectorsReport, ServicesReport } from "../../protocol/local/overlay.ts";
import { Health, LogLine, Status } from "../../protocol/local/answers.ts";
import { LOG_LINES_MAX, READ_SOCKET } from "../../protocol/local/api.ts";
import { NetworkReport } from "../../protocol/local/network.ts";
import { PlanReport, WhyReport } from "../../protocol/documents/reconcile.ts";
import { adminRequest, ask, follow } from "../frame/client.ts";
import { OTHER_UNITS, SUCCESSORS, SYSTEM_UPDATE, UNITS } from "../doctor/units.ts";
import type { PartSpec, PartTools } from "./part.ts";

const MAX_TOOL_BYTES = 16 * 1024 * 1024;
const TOOL_MS = 10_000;
const JOURNAL_LINES = "50000";

/** Returns every part of a bundle except the README and the doctor's report. */
export function partsOf({ left, reader, call }: Pick<PartTools, "left" | "reader" | "call">): readonly PartSpec[] {
  return [
    ...agentParts,
    ...stateParts(left.documents.map(({ name }) => name)),
    ...machineParts,
    ...logParts({ left, reader, call }),
  ];
}

const json = (value: unknown): string => `${JSON.stringify(value, undefined, 2)}\n`;

/** Parts from the agent's reports, limited to the fields of their schemas. */
function answer<T>(name: string, path: string, schema: z.ZodType<T>, about: string): PartSpec {
  return {
    name: `agent/${name}.json`,
    about: `${about}, as the agent answers GET ${path}`,
    make: async ({ call, signal }) =>
      json(await ask({ ...call, signal }, { method: "GET", path, socket: READ_SOCKET }, schema)),
  };
}

const agentParts: readonly PartSpec[] = [
  answer("status", "/v1/status", Status, "how the node stands"),
  answer("health", "/v1/health", Health, "what is well and what is not"),
  answer("why", "/v1/why", WhyReport, "why something is not as it should be"),
  answer("connectors", "/v1/connectors", ConnectorsReport, "connectors with their counters"),
  answer("services", "/v1/services", ServicesReport, "services with their health"),
  answer("gateways", "/v1/gateways", GatewaysReport, "gateways and paths"),
  answer("peers", "/v1/peers", PeersReport, "other nodes"),
  answer("containers", "/v1/containers", ContainersReport, "containers"),
  answer("volumes", "/v1/volumes", VolumesReport, "volumes"),
  answer("network", "/v1/network", NetworkReport, "links, addresses, routes, rules and neighbours"),
  answer("network-change", "/v1/network/change", CommitReport, "how changes of the network stand"),
  {
    name: "agent/plan.json",
    about: "the steps that are left to do, as 'holdfast plan' shows them",
    make: async ({ call, signal }) => json(await ask({ ...call, signal }, adminRequest("/v1/plan", {}), PlanReport)),
  },
  {
    name: "agent/log.jsonl",
    about: "the newest lines of the agent's log, from its memory",
    isLog: true,
    async make({ call, signal }) {
      const path = `/v1/logs?lines=${LOG_LINES_MAX}&follow=0`;
      const lines: string[] = [];
      for await (const line of follow({ ...call, signal }, { method: "GET", path, socket: READ_SOCKET }, LogLine))
        lines.push(JSON.stringify(line));
      return lines.map((line) => `${line}\n`).join("");
    },
  },
];

function stateParts(documents: readonly string[]): readonly PartSpec[] {
  return [
    {
      name: "state/left.json",
      about: "which files of the state can be read, and who this node is",
      make: ({ left }) => {
        const { settings, files, node, hasPendingChange, documents } = left;
        const versions = documents.map(({ name, version, receivedAt, refused }) => ({
          name,
          version,
          receivedAt,
          refused,
        }));
        return Promise.resolve(json({ settings, files, node, hasPendingChange, documents: versions }));
      },
    },
    {
      name: "state/settings.json",
      about: "the local settings, field by field",
      async make({ call }) {
        const parts = await call.offline.forBundle?.();
        const shown = await parts?.shownSettings(configOf(call));
        if (shown === undefined) throw new HostError("absent", "there are no local settings, or none that can be used");
        return json(shown);
      },
    },
    ...documents.map((name): PartSpec => ({
      name: `documents/${name}.json`,
      about: `the ${name} document in force: fields that are known to hold no secret`,
      async make({ call, left }) {
        const parts = await call.offline.forBundle?.();
        const document = left.documents.find((one) => one.name === name);
        return json(document === undefined ? undefined : parts?.shownDocument(document).shown);
      },
    })),
  ];
}

export function configOf({ values }: PartTools["call"]): string | undefined {
  return typeof values["config"] === "string" ? values["config"] : undefined;
}

function tool(name: string, file: string, args: readonly string[], isLog = false): PartSpec {
  return {
    name,
    about: `${file} ${args.join(" ")}`,
    ...(isLog ? { isLog } : {}),
    make: (tools) => outputOf(tools, file, args),
  };
}

async function outputOf(
  { exec, signal, mostBytes }: PartTools,
  file: string,
  args: readonly string[],
): Promise<string> {
  const options = { signal, deadlineMs: TOOL_MS, maxOutputBytes: Math.min(MAX_TOOL_BYTES, mostBytes) };
  const { stdout, stderr, exitCode, truncated } = await exec.run(file, args, options);
  // Half of a secret is not known as one: what was cut off ends with a whole line.
  if (truncated) return stdout.slice(0, stdout.lastIndexOf("\n") + 1);
  if (exitCode === 0) return stdout;
  throw new HostError("exec-failed", `${file} ended with status ${exitCode}: ${stderr.trim().slice(0, 300)}`);
}

/** Returns the end of a file, from the start of a line. */
async function endOf(path: string, tools: PartTools): Promise<string> {
  const bytes = Math.min(MAX_TOOL_BYTES, tools.mostBytes) - 1;
  const text = await outputOf(tools, "tail", ["-c", String(bytes), "--", path]);
  return Buffer.byteLength(text) < bytes ? text : text.slice(text.indexOf("\n") + 1);
}

function kernelFile(name: string, ...paths: readonly string[]): PartSpec {
  return {
    name,
    about: paths.join(", "),
    make({ reader }) {
      const texts = paths.flatMap((path) => {
        const text = reader.read(path);
        return text === undefined ? [] : [`# ${path}\n${text}`];
      });
      if (texts.length === 0) throw new HostError("absent", "it cannot be read here");
      return Promise.resolve(texts.join("\n"));
    },
  };
}

const machineParts: readonly PartSpec[] = [
  tool("network/links.txt", "ip", ["-d", "-s", "link", "show"]),
  tool("network/addresses.txt", "ip", ["address", "show"]),
  tool("network/routes-v4.txt", "ip", ["-4", "route", "show", "table", "all"]),
  tool("network/routes-v6.txt", "ip", ["-6", "route", "show", "table", "all"]),
  tool("network/rules.txt", "ip", ["rule", "show"]),
  tool("network/neighbours.txt", "ip", ["neighbour", "show"]),
  tool("network/sockets.txt", "ss", ["-tuln"]),
  tool("network/nft.txt", "nft", ["-s", "list", "ruleset"]),
  kernelFile(
    "network/conntrack.txt",
    "/proc/sys/net/netfilter/nf_conntrack_count",
    "/proc/sys/net/netfilter/nf_conntrack_max",
    "/proc/net/stat/nf_conntrack",
  ),
  kernelFile("network/resolver.txt", "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"),
  kernelFile("network/counters.txt", "/proc/net/snmp", "/proc/net/netstat", "/proc/net/dev"),
  kernelFile("system/versions.txt", "/proc/version", "/etc/os-release"),
  kernelFile("system/memory.txt", "/proc/meminfo", "/proc/loadavg", "/proc/pressure/memory", "/proc/pressure/io"),
  {
    name: "system/program.json",
    about: "this program, and the upgrade's standing",
    make: ({ reader }) => {
      const upgrade = reader.read("/var/lib/holdfast-versions/upgrade.json");
      const versions = reader.list("/var/lib/holdfast-versions");
      return Promise.resolve(json({ ...buildInfo, node: process.version, arch: process.arch, upgrade, versions }));
    },
  },
  tool("system/processes.txt", "ps", ["-eo", "pid,ppid,user,stat,rss,vsz,etime,time,wchan:24,comm"]),
  tool("system/disks.txt", "df", ["-h"]),
  tool("system/units.txt", "systemctl", ["--no-pager", "list-units", "--all", "holdfast*"]),
  tool("system/dmesg.txt", "dmesg", [], true),
];

/** Parts of the logs: the journal of each unit under systemd, and the log files of programs outside it. */
function logParts({ left, reader, call }: Pick<PartTools, "left" | "reader" | "call">): readonly PartSpec[] {
  const { stateDir, runDir } = call.settings;
  const overlay = left.settings.isGood ? [left.settings.overlay.stateDir] : [];
  const directories = [...new Set([stateDir, runDir, join(stateDir, "overlay"), ...overlay])];
  const files = directories.flatMap((directory) =>
    (reader.list(directory) ?? [])
      .filter((name) => /^[\w.-]{1,60}\.log$/.test(name))
      .map((name) => join(directory, name)),
  );
  const isManaged = reader.list("/run/systemd/system") !== undefined;
  return [
    ...(isManaged ? [...UNITS, ...OTHER_UNITS, SYSTEM_UPDATE, SUCCESSORS].map(journal) : []),
    ...files.map((path, at): PartSpec => ({
      name: `logs/${at}-${path.slice(path.lastIndexOf("/") + 1)}`,
      about: path,
      isLog: true,
      make: (tools) => endOf(path, tools),
    })),
  ];
}

function journal(unit: string): PartSpec {
  return {
    // All successors share one file.
    name: `logs/${unit.replace("*", "")}.log`,
    about: `journalctl -u ${unit}, the newest ${JOURNAL_LINES} lines`,
    isLog: true,
    async make(tools) {
      // The newest first: what is too much is the oldest.
      const args = ["--no-pager", "-q", "-o", "short-iso", "-r", "-n", JOURNAL_LINES, "-u", unit];
      return `${(await outputOf(tools, "journalctl", args)).trimEnd().split("\n").reverse().join("\n")}\n`;
    },
  };
}
