import { parseArgs } from "node:util";
import { z } from "zod";
import { Architecture, PackageVersion, ReleaseClaims } from "../../src/protocol/documents/release.ts";
import type { Level } from "./pack.ts";

/** Options of `scripts/package`. */
export interface Options {
  readonly architectures: readonly Architecture[];
  readonly out: string;
  /** Files of private keys, in the order of the manifest's lines. */
  readonly sign: readonly string[];
  readonly keys: string | undefined;
  readonly build: string | undefined;
  /** A bundle to deliver instead of one made now. */
  readonly bundle: string | undefined;
  readonly expiresDays: number;
  readonly minVersion: string;
  readonly systemd: string;
  readonly level: Level;
}

const Given = z.object({
  arch: z.union([Architecture, z.literal("all")]).default("all"),
  out: z.string().min(1).default("dist/release"),
  sign: z.array(z.string().min(1)).max(16).default([]),
  keys: z.string().min(1).optional(),
  build: ReleaseClaims.shape.build.optional(),
  bundle: z.string().min(1).optional(),
  expires: z.coerce.number().int().min(1).max(3650).default(365),
  "min-version": PackageVersion.default("0.1.00000000-0000"),
  systemd: z.string().min(1).default("systemd"),
  level: z.union([z.literal("none"), z.coerce.number().int().min(0).max(9)]).default(6),
});

const text = { type: "string" } as const;
const OPTIONS = {
  arch: text,
  out: text,
  sign: { type: "string", multiple: true },
  keys: text,
  build: text,
  bundle: text,
  expires: text,
  "min-version": text,
  systemd: text,
  level: text,
} as const;

/** Reads the command line. Throws with a sentence that names the option. */
export function optionsFrom(args: readonly string[]): Options {
  const { values } = parseArgs({ args: [...args], options: OPTIONS });
  const parsed = Given.safeParse(values);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new Error(`--${String(issue?.path[0])}: ${issue?.message ?? "is wrong"}`);
  }
  const { arch, out, sign, keys, build, bundle, expires, systemd, level } = parsed.data;
  return {
    architectures: arch === "all" ? ["amd64", "arm64"] : [arch],
    out,
    sign,
    keys,
    build,
    bundle,
    expiresDays: expires,
    minVersion: parsed.data["min-version"],
    systemd,
    level,
  };
}
