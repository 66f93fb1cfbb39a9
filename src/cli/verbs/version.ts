import { z } from "zod";
import type { InstalledVersion } from "../../host/releases/versions.ts";
import { buildInfo, packageVersion } from "../../lib/build-info.ts";
import { formatCount } from "../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../lib/text/terminal-text.ts";
import { openInstalled } from "./installed.ts";
import { layOut } from "../frame/terminal.ts";
import type { Verb } from "../frame/verb.ts";
import { DIRECTORIES, JSON_OPTION } from "../frame/verb-options.ts";

const Installed = z.object({
  version: z.string(),
  /** Whether it was installed by the package. */
  isBase: z.boolean(),
  /** Only a `ready` version, or one on trial or probation, starts. */
  state: z.enum(["ready", "trial", "probation", "failed", "broken"]),
  /** Whether it is the version of this program. */
  isOwn: z.boolean(),
  /** Starts that failed; only of a version on trial or on probation. */
  starts: z.int().min(0).optional(),
  reason: z.object({ code: z.string(), message: z.string() }).optional(),
});
type Installed = z.infer<typeof Installed>;

const VersionOutput = z.object({
  schema: z.literal(1),
  version: z.string(),
  build: z.string(),
  /** Version of the runtime. */
  node: z.string(),
  /** Versions installed on this machine, the newest first; empty without a package. */
  installed: z.array(Installed),
});

export const versionVerb: Verb = {
  name: "version",
  summary: "print the version of this program, and the installed versions",
  arguments: [],
  options: { ...JSON_OPTION, ...DIRECTORIES },
  exits: ["ok", "usage"],
  example: "holdfast version",
  output: VersionOutput,
  async run({ settings, terminal, signal }) {
    const { version, build } = buildInfo;
    const found = await openInstalled(signal).list();
    const installed = found.map((one) => describe(one, packageVersion(buildInfo)));
    const output: z.infer<typeof VersionOutput> = { schema: 1, version, build, node: process.version, installed };
    if (settings.isJson) {
      terminal.out(`${safeJson(output)}\n`);
    } else {
      terminal.out(`holdfast ${version} (${build}) on Node ${process.version}\n`);
      const rows = plainValue(installed).map((one) => [one.version, stateText(one)] as const);
      if (rows.length > 0) terminal.out(layOut(rows, terminal.size().columns));
    }
    return "ok";
  },
};

/** Returns a version's state; a failure comes first. Pure. */
export function describe(found: InstalledVersion, own: string): Installed {
  const { version, isBase, failed, starts, isWhole, trial, probationUntil } = found;
  const about = { version, isBase, isOwn: version === own };
  if (failed !== undefined) {
    return { ...about, state: "failed", reason: { code: failed.code, message: failed.message } };
  }
  if (!isWhole) return { ...about, state: "broken" };
  if (trial !== undefined) return { ...about, state: "trial", starts };
  return probationUntil === undefined ? { ...about, state: "ready" } : { ...about, state: "probation", starts };
}

function stateText({ state, isBase, isOwn, starts = 0, reason }: Installed): string {
  const counted = starts === 0 ? "" : `, ${formatCount(starts, "start")} not known to have ended well`;
  const states: Readonly<Record<Installed["state"], string>> = {
    ready: isBase ? "of the package" : "proven",
    trial: `on trial${counted}`,
    probation: `proven, on probation${counted}`,
    failed: `failed: ${reason?.code ?? ""}: ${reason?.message ?? ""}`,
    broken: "not whole: it is never started",
  };
  return `${states[state]}${isOwn ? ", this one" : ""}`;
}
