import { InputError } from "../errors.ts";
import { parseStrictJson } from "../lib/formats/strict-json.ts";
import { verifyJws, type KeySet } from "../protocol/channel/jws.ts";
import { thumbprint } from "../protocol/values/keys.ts";
import type { Architecture, ReleaseClaims, ReleaseFile, ReleaseKeys } from "../protocol/documents/release.ts";

/** Size limit of a manifest, in bytes. */
export const MAX_MANIFEST_BYTES = 64 * 1024;
const MAX_LINES = 16;
const MAX_SKEW_SECONDS = 60;
const JSON_LIMITS = { maxBytes: MAX_MANIFEST_BYTES, maxDepth: 8 };

/** Facts that decide whether a release is accepted. */
export interface Situation {
  /** The running version. */
  readonly own: string;
  /** The package's own version, which is the oldest one ever picked. */
  readonly base: string | undefined;
  /** Build time in Unix seconds; 0 if unknown. */
  readonly builtAt: number;
  readonly architecture: Architecture | undefined;
  /** Unix seconds. */
  readonly now: number;
  /** Versions that were given up on this machine, with the reasons. */
  readonly failed: ReadonlyMap<string, string>;
  /** Whether an operator forces it. */
  readonly isForced: boolean;
}

export type ReleaseRefusal =
  | "clock-before-build"
  | "release-from-future"
  | "release-expired"
  | "bad-lifetime"
  | "same-version"
  | "not-newer"
  | "older-than-package"
  | "below-min-version"
  | "wrong-architecture"
  | "ambiguous-file"
  | "failed-before";

export type Verdict =
  | { readonly is: "taken"; readonly version: string; readonly file: ReleaseFile }
  | { readonly is: "refused"; readonly code: ReleaseRefusal; readonly message: string };

/** Returns trusted keys by their thumbprints. */
export async function keySetOf({ keys }: ReleaseKeys): Promise<KeySet> {
  return new Map(await Promise.all(keys.map(async (key) => [await thumbprint(key), key] as const)));
}

/**
 * Reads a manifest with one compact JWS per line. At least one line must verify, and all that verify must agree.
 * @throws {InputError} `manifest-too-large`, `manifest-malformed`, `manifest-unsigned`, `manifest-contradictory` or
 *   `manifest-invalid`
 */
export async function readManifest(bytes: Uint8Array, keys: KeySet): Promise<ReleaseClaims> {
  if (bytes.length > MAX_MANIFEST_BYTES) {
    const message = `the manifest has ${bytes.length} bytes; the limit is ${MAX_MANIFEST_BYTES}`;
    throw new InputError("manifest-too-large", message);
  }
  const lines = Buffer.from(bytes).toString("latin1").replace(/\n$/, "").split("\n");
  if (lines.length > MAX_LINES) {
    throw new InputError("manifest-malformed", `the manifest has ${lines.length} lines; the limit is ${MAX_LINES}`);
  }
  const verified: ReleaseClaims[] = [];
  const reasons: string[] = [];
  for (const [index, line] of lines.entries()) {
    const read = await readLine(line, index + 1, keys);
    if (typeof read === "string") reasons.push(read);
    else verified.push(read);
  }
  const [claims, ...others] = verified;
  if (claims === undefined) {
    throw new InputError(
      "manifest-unsigned",
      `no line of the manifest is signed by a trusted key: ${reasons.join("; ")}; get the release from its maker, or put the maker's new key into /etc/holdfast/release-keys.json`,
    );
  }
  if (others.some((other) => JSON.stringify(other) !== JSON.stringify(claims))) {
    throw new InputError(
      "manifest-contradictory",
      "lines of the manifest that are signed by trusted keys contradict each other",
    );
  }
  return claims;
}

/** Returns the claims of a line that verifies, or the reason why it does not. */
async function readLine(line: string, number: number, keys: KeySet): Promise<ReleaseClaims | string> {
  if (!/^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/.test(line)) {
    throw new InputError("manifest-malformed", `line ${number} of the manifest is not a compact JWS`);
  }
  const invalid = (why: string, cause?: unknown): InputError =>
    new InputError("manifest-invalid", `line ${number} of the manifest is signed by a trusted key, but ${why}`, {
      cause,
    });
  let claims: ReleaseClaims;
  try {
    claims = await verifyJws("holdfast-release+jwt", line, keys);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    if (error.code === "bad-signature") return `line ${number}: ${error.message}`;
    throw invalid(error.message, error);
  }
  // Readers differ in which of two members of one name they use, so signed text must not have duplicates.
  const [header = "", payload = ""] = line.split(".");
  for (const [part, name] of [
    [header, "header"],
    [payload, "claims"],
  ] as const) {
    const text = Buffer.from(part, "base64url").toString("utf8");
    if (JSON.stringify(parseStrictJson(text, JSON_LIMITS)) !== text) {
      throw invalid(`its ${name} are not plain JSON: members twice, blanks or needless escapes`);
    }
  }
  return claims;
}

/** Reports whether a release is accepted for this machine at this time. Pure. */
export function judgeRelease(claims: ReleaseClaims, situation: Situation): Verdict {
  const { own, base, builtAt, architecture, now, failed, isForced } = situation;
  const { version, iat, exp, minVersion, files } = claims;
  const refuse = (code: ReleaseRefusal, message: string): Verdict => ({ is: "refused", code, message });
  if (now + MAX_SKEW_SECONDS < builtAt) {
    const message = `the clock is at ${time(now)}, before this version was built (${time(builtAt)}): set the clock`;
    return refuse("clock-before-build", message);
  }
  if (exp <= iat) return refuse("bad-lifetime", `exp is ${time(exp)}, which is not after iat, ${time(iat)}`);
  if (iat > now + MAX_SKEW_SECONDS) {
    return refuse("release-from-future", `iat is ${time(iat)}, and the clock is at ${time(now)}: set the clock`);
  }
  if (exp <= now)
    return refuse(
      "release-expired",
      `exp is ${time(exp)}, and the clock is at ${time(now)}: get a newly signed manifest, or set the clock if it is wrong`,
    );
  if (own < minVersion) {
    return refuse(
      "below-min-version",
      `minVersion is ${minVersion}, and this machine has ${own}: upgrade to that one first`,
    );
  }
  if (version === own)
    return refuse("same-version", `version is ${version}, which is already running: there is nothing to do`);
  if (version < own && !isForced) {
    return refuse(
      "not-newer",
      `version is ${version}, which is older than ${own}: 'holdfast upgrade --force' downgrades to it`,
    );
  }
  if (base !== undefined && version <= base) {
    return refuse("older-than-package", `version is ${version}, and the package has ${base}: install an older package`);
  }
  const file = architecture === undefined ? undefined : files[architecture];
  if (architecture === undefined || file === undefined) {
    const has = Object.keys(files).join(", ") || "none";
    return refuse(
      "wrong-architecture",
      `files has none for ${architecture ?? "this architecture"}, only: ${has}; get the release that is made for this machine`,
    );
  }
  const twin = Object.entries(files).find(
    ([other, { name, sha256 }]) => other !== architecture && (name === file.name || sha256 === file.sha256),
  );
  if (twin !== undefined) {
    return refuse("ambiguous-file", `files names ${file.name} for ${architecture} and for ${twin[0]} alike`);
  }
  const why = failed.get(version);
  if (why !== undefined && !isForced) {
    return refuse(
      "failed-before",
      `version is ${version}, which was given up here: ${why}; 'holdfast upgrade --force' retries it`,
    );
  }
  return { is: "taken", version, file };
}

const time = (seconds: number): string => new Date(seconds * 1000).toISOString().replace(/\.\d+Z$/, "Z");
