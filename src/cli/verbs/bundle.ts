import { dirname, resolve } from "node:path";
import { z } from "zod";
import { HostError, InputError } from "../../errors.ts";
import { packArchive, writeArchive, writeOutput, type ArchiveFile } from "../../host/files/archive.ts";
import { hostExec } from "../../host/process/exec.ts";
import { isRoot } from "../../host/files/path-entry.ts";
import { MachineOwner } from "../../host/machine/machine-owner.ts";
import { hostReader } from "../../host/reader.ts";
import { buildInfo } from "../../lib/build-info.ts";
import { scrubber } from "../../lib/text/scrub.ts";
import { sizeText } from "../../lib/text/size-text.ts";
import { plainLine, plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { BundleReport, PushedLogs } from "../../protocol/documents/bundle.ts";
import { LEFT_OUT } from "../../protocol/documents/shown.ts";
import { collect } from "../bundle/collect.ts";
import { fitInto } from "../bundle/fit.ts";
import { byReason, type PartSpec } from "../bundle/part.ts";
import { configOf, partsOf } from "../bundle/parts.ts";
import { readme } from "../bundle/readme.ts";
import { bundleInStore, storePath } from "../bundle/in-store.ts";
import { doctorTools, examine } from "../doctor/examine.ts";
import { families } from "../doctor/families.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { COMMON, CONFIG } from "../frame/verb-options.ts";

const DEFAULT_MAX = 200_000_000;
/** Minimum free space of the disk, in bytes. */
const RESERVE = { bytes: 64 * 1024 * 1024, ratio: 0.05 };
const LEAST = 64 * 1024;
const DOCTOR_MS = 120_000;
const STANDARD_OUTPUT = "-";

export const bundleVerb: Verb = {
  name: "bundle",
  summary: "collect state, logs and checks of this node into one archive, without secrets",
  about:
    "A gzipped tar with a README that lists each file and what is missing. Works while the agent hangs or does not run and, to the extent " +
    "possible, without root. One bundle is made at a time; only its owner can read it (0600).",
  arguments: [],
  options: {
    to: {
      value: "FILE",
      help: "where to write it (holdfast-<node>-<time>.tar.gz here); - is standard output, store:PATH the node's data store",
      complete: "file",
    },
    max: { value: "SIZE", help: "maximum content, such as 50M (200M); the largest logs are cut first" },
    ...CONFIG,
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "interrupted"],
  example: "holdfast bundle --to /tmp/node.tar.gz",
  timeoutSeconds: 5,
  output: z.union([BundleReport, PushedLogs]),
  async run(call) {
    const max = maxBytes(call.values["max"]);
    const inStore = storePath(call.values["to"]);
    if (inStore !== undefined) return bundleInStore(call, inStore, call.values["max"] === undefined ? undefined : max);
    if (call.values["to"] === STANDARD_OUTPUT && !call.settings.isJson && call.terminal.isInteractive)
      throw new InputError("usage", "--to - is for a file or another program: 'holdfast bundle --to - > node.tar.gz'");
    // The kernel lets go of the name when the process ends, however that happens.
    const owner = new MachineOwner({
      clock: call.clock,
      onOwned: () => undefined,
      name: `\0holdfast-bundle:${call.settings.runDir.slice(-80)}`,
    });
    if (!(await owner.claim())) {
      owner.close();
      throw new HostError("busy", "another bundle of this node is in progress; wait for its end");
    }
    try {
      return await make(call, max);
    } finally {
      owner.close();
    }
  },
};

async function make(call: Call, max: number): Promise<"ok"> {
  const { clock, offline, settings, signal, terminal, values } = call;
  const [inspectState, forBundle] = await Promise.all([offline.inspectState?.(), offline.forBundle?.()]);
  if (inspectState === undefined || forBundle === undefined)
    throw new HostError("internal", "this build cannot read the state");
  const config = configOf(call);
  const left = await inspectState(settings.stateDir, config, settings.runDir);
  const now = clock.now();
  const name = `holdfast-${fileName(left.node?.name ?? "node")}-${new Date(now).toISOString().replaceAll(/[-:]|\.\d+/g, "")}.tar.gz`;
  const isOutput = values["to"] === STANDARD_OUTPUT;
  const path = isOutput ? STANDARD_OUTPUT : resolve(typeof values["to"] === "string" ? values["to"] : name);
  const reader = hostReader();
  const room = isOutput ? max : roomFor(max, reader.space(dirname(path)), path);
  const scrub = scrubber(await forBundle.readSecrets(settings.stateDir, config), LEFT_OUT);
  const tools = { call, exec: hostExec(clock), reader, left, mostBytes: room, signal };
  const collected = await collect(partsOf(tools), tools, scrub);
  // After the rest: the agent serves so many callers at once.
  const examined = await collect([doctorPart], tools, scrub, DOCTOR_MS);
  const fitted = fitInto([...examined.parts, ...collected.parts], room);
  const missing = [...examined.missing, ...collected.missing, ...fitted.missing];
  const madeAt = new Date(now).toISOString();
  const version = `${buildInfo.version} (${buildInfo.build})`;
  const text = scrub(readme({ madeAt, version, isRoot: isRoot(), parts: fitted.parts, missing }));
  const files: readonly ArchiveFile[] = [{ name: "README", text }, ...fitted.parts];
  const parts = fitted.parts.map(({ name, text, cutBytes }) => ({ name, bytes: Buffer.byteLength(text), cutBytes }));
  const about = { schema: 1, path, name, parts, missing } as const;
  if (isOutput) return give(call, about, await packArchive(files, now, signal));
  const report = { ...about, bytes: await writeArchive(path, files, now, signal) };
  terminal.out(settings.isJson ? `${safeJson(report)}\n` : reportText(plainValue(report)));
  return "ok";
}

/** Returns a node's name with only characters that are safe in a file name. */
const fileName = (text: string): string => text.replaceAll(/[^\w.-]/g, "-").slice(0, 100);

/** Prints the archive: with `--json` as one object with the report, otherwise raw, with the report on standard error. */
async function give({ terminal, settings }: Call, about: Omit<BundleReport, "bytes">, archive: Buffer): Promise<"ok"> {
  const report = { ...about, bytes: archive.length };
  if (settings.isJson) {
    terminal.out(`${safeJson({ ...report, archive: archive.toString("base64") })}\n`);
    return "ok";
  }
  await writeOutput(archive);
  terminal.err(reportText(plainValue(report)));
  return "ok";
}

const doctorPart: PartSpec = {
  name: "doctor.json",
  about: "every check there is, as 'holdfast doctor --json' prints it",
  make: async ({ call, signal }) =>
    `${JSON.stringify(await examine(families, doctorTools({ ...call, signal })), undefined, 2)}\n`,
};

function reportText({ path, bytes, parts, missing }: BundleReport): string {
  const cut = parts.filter(({ cutBytes }) => cutBytes > 0).map(({ name }) => `${name} was cut for want of room\n`);
  const gone = byReason(missing).map(({ names, reason }) => `without ${names.join(", ")}: ${plainLine(reason)}\n`);
  return `${[...gone, ...cut].join("")}${path}: ${parts.length} files, ${sizeText(bytes)}; review it before you share it\n`;
}

const UNITS: Readonly<Record<string, number>> = { "": 1, K: 1e3, M: 1e6, G: 1e9 };

/** @throws {InputError} `usage` */
function maxBytes(value: string | boolean | undefined): number {
  if (value === undefined) return DEFAULT_MAX;
  const [, digits, unit = ""] = (typeof value === "string" && /^(\d{1,12})([KMG]?)B?$/i.exec(value)) || [];
  const bytes = Number(digits) * (UNITS[unit.toUpperCase()] ?? Number.NaN);
  if (bytes >= LEAST && bytes <= 10e9) return bytes;
  throw new InputError("usage", `--max needs a size from 64K to 10G, such as 50M, not ${String(value)}`);
}

/** Returns the room for content; an archive is never larger. @throws {HostError} `disk-full` */
export function roomFor(
  max: number,
  space: { readonly totalBytes: number; readonly freeBytes: number } | undefined,
  path: string,
): number {
  if (space === undefined) return max;
  const room = space.freeBytes - Math.max(RESERVE.bytes, space.totalBytes * RESERVE.ratio);
  if (room >= LEAST) return Math.min(max, room);
  throw new HostError("disk-full", `there is no room for ${path}: write it to another disk with --to`);
}
