import { z } from "zod";

/** The part of `package-lock.json` that goes into the bill of materials. */
export const Lockfile = z.object({
  packages: z.record(
    z.string(),
    z.object({ version: z.string().optional(), license: z.string().optional(), integrity: z.string().optional() }),
  ),
});
export type Lockfile = z.infer<typeof Lockfile>;

/** A package that something of is delivered. */
export interface Component {
  readonly name: string;
  readonly version: string;
  /** An SPDX identifier. */
  readonly licence: string;
  /** As the lockfile has it: `sha512-` and base64. */
  readonly integrity: string;
  readonly purl: string;
  /** Its folder in the checkout. */
  readonly folder: string;
}

/** The licences that may be delivered: all of them permit it with their text. */
const KNOWN_LICENCES: ReadonlySet<string> = new Set([
  "0BSD",
  "Apache-2.0",
  "BSD-2-Clause",
  "BSD-3-Clause",
  "ISC",
  "MIT",
]);

const FOLDER = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/;

/** The folder of the package that a file of the bundle belongs to; undefined for our own. */
export function packageFolder(path: string): string | undefined {
  return FOLDER.exec(path)?.[0];
}

/** The packages that the bundle's files belong to, sorted. Throws for one that the lockfile does not know, or whose licence nobody has looked at. */
export function componentsOf(inputs: readonly string[], lockfile: Lockfile): Component[] {
  const folders = new Set(inputs.map(packageFolder).filter((folder) => folder !== undefined));
  return [...folders].sort().map((folder) => componentAt(folder, lockfile));
}

/** One package of the lockfile. */
export function componentAt(folder: string, { packages }: Lockfile): Component {
  const { version, license, integrity } = packages[folder] ?? {};
  if (version === undefined || integrity === undefined) throw new Error(`${folder} is not in the lockfile`);
  if (license === undefined || !KNOWN_LICENCES.has(license)) {
    throw new Error(`${folder} has the unknown licence ${license ?? "(none)"}: look at it, then list it`);
  }
  const name = folder.slice(folder.lastIndexOf("node_modules/") + "node_modules/".length);
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  return { name, version, licence: license, integrity, purl, folder };
}

/** SHA-512 in hexadecimal of what an integrity says. */
export function sha512Of(integrity: string): string {
  const [, digest] = /^sha512-([A-Za-z0-9+/]{86}==)$/.exec(integrity) ?? [];
  if (digest === undefined) throw new Error(`${integrity} is no SHA-512`);
  return Buffer.from(digest, "base64").toString("hex");
}
