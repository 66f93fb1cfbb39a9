import { createHash } from "node:crypto";
import { ReleaseClaims, type Architecture, type ReleaseFile } from "../../src/protocol/documents/release.ts";

/** Limit for an architecture's compressed package. */
export const MAX_PACKAGE_BYTES = 40_000_000;

/** A file of the release, made. */
export interface Made {
  readonly name: string;
  readonly data: Buffer;
  /** Bytes that its content takes once it is unpacked. */
  readonly unpackedSize: number;
}

/** The packages of an architecture. */
export interface MadePackages {
  readonly architecture: Architecture;
  readonly deb: Made;
  readonly tarball: Made;
}

/** When a build was made, in Unix seconds: its date is in its name. */
export function buildTime(build: string): number {
  const [, year, month, day, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)\./.exec(build) ?? [];
  const time = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  if (Number.isNaN(time)) throw new Error(`--build: ${build} has no date`);
  return time / 1000;
}

/** The claims of `manifest.jws`: they say the build's time, so that the same build is signed as the same bytes. */
export function claimsOf(
  made: readonly MadePackages[],
  {
    version,
    build,
    expiresDays,
    minVersion,
  }: Readonly<Record<"version" | "build" | "minVersion", string>> & { readonly expiresDays: number },
): ReleaseClaims {
  const iat = buildTime(build);
  const filesOf = (pick: (packages: MadePackages) => Made): Partial<Record<Architecture, ReleaseFile>> =>
    Object.fromEntries(made.map((packages) => [packages.architecture, fileOf(pick(packages))]));
  return ReleaseClaims.parse({
    product: "holdfast",
    version,
    build,
    iat,
    exp: iat + expiresDays * 86_400,
    minVersion,
    files: filesOf(({ tarball }) => tarball),
    packages: filesOf(({ deb }) => deb),
  });
}

/** Throws for a file that is larger than a package may be. */
export function requireSmall({ name, data }: Made): void {
  if (data.length > MAX_PACKAGE_BYTES) {
    throw new Error(`${name} takes ${data.length} bytes, more than the ${MAX_PACKAGE_BYTES} a package may take`);
  }
}

/** `SHA256SUMS`, as sha256sum(1) reads it. */
export function sumsOf(files: readonly { readonly name: string; readonly data: Buffer }[]): string {
  return files
    .map(({ name, data }) => `${sha256(data)}  ${name}\n`)
    .sort((a, b) => (a.slice(66) < b.slice(66) ? -1 : 1))
    .join("");
}

const sha256 = (data: Buffer): string => createHash("sha256").update(data).digest("hex");

const fileOf = ({ name, data, unpackedSize }: Made): ReleaseFile => ({
  name,
  size: data.length,
  unpackedSize,
  sha256: sha256(data),
});
