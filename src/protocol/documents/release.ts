import { z } from "zod";
import { Ed25519PublicKey } from "../values/keys.ts";
import { Text64, Text1024, UnixSeconds } from "../values/values.ts";

/** A version as text: `<major>.<minor>.<YYYYMMDD>-<HHMM>`. */
export const PackageVersion = z
  .string()
  .max(32)
  .regex(/^\d{1,3}\.\d{1,3}\.\d{8}-\d{4}$/, "must look like 0.1.20261121-1830");

/** The architectures that releases are made for, as Debian names them. */
export const Architecture = z.enum(["amd64", "arm64"]);
export type Architecture = z.infer<typeof Architecture>;

/** A file of a release, beside its manifest. */
export const ReleaseFile = z.object({
  /** File name without a path, in the manifest's directory. */
  name: z.string().regex(/^(?!\.)[A-Za-z0-9._~+-]{1,128}$/, "must be a plain file name"),
  /** Bytes. */
  size: z.int().min(1).max(1_073_741_824),
  /** Bytes that its content takes once it is unpacked. */
  unpackedSize: z.int().min(1).max(4_294_967_296),
  /** In hexadecimal. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/, "must be 64 hexadecimal digits"),
});
export type ReleaseFile = z.infer<typeof ReleaseFile>;

/** The files of a release by architecture; it may be one that this version does not know. */
const FilesByArchitecture = z.record(z.string().regex(/^[a-z0-9]{1,16}$/, "must be an architecture"), ReleaseFile);

/**
 * A signed release: the claims of `manifest.jws`, which has a line with a compact JWS for each signing key. Unknown claims of
 * later versions are ignored.
 */
export const ReleaseClaims = z.object({
  product: z.literal("holdfast"),
  version: PackageVersion,
  /** `YYYYMMDD-HHMMSS.<commit>`. */
  build: z.string().regex(/^\d{8}-\d{6}\.[0-9A-Za-z]{1,40}$/, "must look like 20261121-183000.0123456789ab"),
  iat: UnixSeconds,
  exp: UnixSeconds,
  /** Only versions from this one on can be upgraded to it. */
  minVersion: PackageVersion,
  /** The tarball of each architecture. */
  files: FilesByArchitecture,
  /** The Debian package of each architecture, which only an installation takes. */
  packages: FilesByArchitecture.optional(),
});
export type ReleaseClaims = z.infer<typeof ReleaseClaims>;

/** The keys that may sign releases (`release-keys.json`): a JWK set (RFC 7517 §5). */
export const ReleaseKeys = z.object({ keys: z.array(Ed25519PublicKey).min(1).max(16) });
export type ReleaseKeys = z.infer<typeof ReleaseKeys>;

/** Location of a manifest: an absolute path, or an http or https URL. */
export const ManifestAddress = z
  .string()
  .min(1)
  .max(2048)
  .refine(
    (text) => text.startsWith("/") || (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)),
    "must be an absolute path, or an http or https address",
  );

/** Order to the upgrade program. */
export const UpgradeRequest = z.strictObject({
  from: ManifestAddress,
  by: z.enum(["operator", "control-plane"]),
  /** Whether to skip the update of operating system packages. */
  skipUnattended: z.boolean(),
  /** Whether an operator forces it: also to a version that failed before, or is not newer. */
  isForced: z.boolean().default(false),
  /** Whether to prepare the release without switching to it. Absent for a plain upgrade, since older versions do not know it. */
  stageOnly: z.literal(true).optional(),
});
export type UpgradeRequest = z.infer<typeof UpgradeRequest>;

/** Path of releases on a control plane. */
export const RELEASES_PATH = "/releases/";
export const MANIFEST_NAME = "manifest.jws";

/** Path of the local API that requests an upgrade. */
export const UPGRADE_PATH = "/v1/upgrade";

/** A local operator's order. Without `from`, the manifest is read from the node's configured location. */
export const UpgradeOrder = z.strictObject({
  from: ManifestAddress.optional(),
  skipUnattended: z.boolean().default(false),
  isForced: z.boolean().default(false),
  stageOnly: z.boolean().optional(),
});
export type UpgradeOrder = z.infer<typeof UpgradeOrder>;

/** Answer to a request for an upgrade. */
export const UPGRADE_ANSWERS = {
  begun: "Upgrade in progress",
  already: "Existing upgrade is already in progress",
} as const;
export const UpgradeAnswer = z.object({ output: z.object({ status: z.enum(Object.values(UPGRADE_ANSWERS)) }) });
export type UpgradeAnswer = z.infer<typeof UpgradeAnswer>;

/** The version that a manifest offers to a machine, and the reason if it would be rejected. */
export const ReleaseCheck = z.object({
  version: PackageVersion,
  build: Text64,
  isTaken: z.boolean(),
  reason: z.object({ code: Text64, message: Text1024 }).optional(),
});
export type ReleaseCheck = z.infer<typeof ReleaseCheck>;

/** Returns the location of the manifest: as given, else from the local settings, else on the control plane. Pure. */
export function manifestAddress(
  given: string | undefined,
  setting: string | undefined,
  controlPlane: string | undefined,
): string | undefined {
  return given ?? setting ?? (controlPlane === undefined ? undefined : controlPlane + RELEASES_PATH + MANIFEST_NAME);
}

/** State of the last upgrade (`upgrade.json`). Older versions read it too, so unknown members are ignored. */
export const UpgradeStanding = z.object({
  /** `STAGED`: `to` is fetched, verified and unpacked, and nothing is switched. */
  state: z.enum(["IN_PROGRESS", "STAGED", "COMPLETED", "FAILED"]),
  /** Current step while the upgrade is in progress. */
  step: z
    .enum(["fetching", "verifying", "unpacking", "testing", "switching", "judging", "comparing", "going-back"])
    .optional(),
  from: PackageVersion,
  /** Known once the manifest has been verified. */
  to: PackageVersion.optional(),
  begunAt: UnixSeconds,
  /** Set for the last upgrade that ended, successful or not. */
  completedAt: UnixSeconds.optional(),
  /** Time when operating system packages were updated during the upgrade. */
  osUpdatedAt: UnixSeconds.optional(),
  /** Reason why they were not, although the upgrade went on. */
  osReason: z.object({ code: Text64, message: Text1024 }).optional(),
  /** Reason of the failure, with a code for programs. */
  reason: z.strictObject({ code: Text64, message: Text1024 }).optional(),
  /** Time when the old version, restored for comparison, had a session. */
  betterAt: UnixSeconds.optional(),
  /** Number of starts of the version that was given up. */
  starts: z.int().min(0).optional(),
});
export type UpgradeStanding = z.infer<typeof UpgradeStanding>;

/** State of the last upgrade, and whether the running version has proven itself. Times in Unix seconds. */
export const UpgradeStatus = z.object({
  standing: UpgradeStanding.optional(),
  /** Only while it has not. */
  trial: z.object({ from: PackageVersion.optional(), since: UnixSeconds.optional() }).optional(),
});
export type UpgradeStatus = z.infer<typeof UpgradeStatus>;

/** File in the run directory that requests an upgrade. */
export const UPGRADE_REQUEST_NAME = "upgrade-request.json";

/** Paths of installed versions, and of upgrade requests. */
export const UPGRADE_PATHS = {
  package: "/usr/lib/holdfast",
  versions: "/var/lib/holdfast-versions",
  localKeys: "/etc/holdfast/release-keys.json",
  request: `/run/holdfast/${UPGRADE_REQUEST_NAME}`,
  unit: "holdfast-upgrade.service",
} as const;
