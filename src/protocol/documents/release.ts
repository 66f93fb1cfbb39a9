import { z } from "zod";
import { Ed25519PublicKey } from "../values/keys.ts";
import { Text64, Text1024, UnixSeconds } from "../values/values.ts";

/** A version as operators compare it, as text: `<major>.<minor>.<YYYYMMDD>-<HHMM>`. */
export const PackageVersion = z
  .string()
  .max(32)
  .regex(/^\d{1,3}\.\d{1,3}\.\d{8}-\d{4}$/, "must look like 0.1.20261121-1830");

/** The architectures that releases are made for, as Debian names them. */
export const Architecture = z.enum(["amd64", "arm64"]);
export type Architecture = z.infer<typeof Architecture>;

/** A file of a release, beside its manifest. */
export const ReleaseFile = z.object({
  /** One name without a path: it lies where the manifest does. */
  name: z.string().regex(/^(?!\.)[A-Za-z0-9._~+-]{1,128}$/, "must be a plain file name"),
  /** Bytes. */
  size: z.int().min(1).max(1_073_741_824),
  /** Bytes that its content takes once it is unpacked. */
  unpackedSize: z.int().min(1).max(4_294_967_296),
  /** In hexadecimal. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/, "must be 64 hexadecimal digits"),
});
export type ReleaseFile = z.infer<typeof ReleaseFile>;

/** The files of a release by architecture; one that this version does not know may be among them. */
const FilesByArchitecture = z.record(z.string().regex(/^[a-z0-9]{1,16}$/, "must be an architecture"), ReleaseFile);

/**
 * What a release is, signed: the claims of `manifest.jws`, a line of which is a compact JWS for each key that vouches for it. Later versions
 * may say more of themselves, and are to be installed by this one all the same.
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

/** Where a manifest may be: an absolute path, or an http or https address. */
export const ManifestAddress = z
  .string()
  .min(1)
  .max(2048)
  .refine(
    (text) => text.startsWith("/") || (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)),
    "must be an absolute path, or an http or https address",
  );

/** What is asked of the upgrade's program. */
export const UpgradeRequest = z.strictObject({
  from: ManifestAddress,
  by: z.enum(["operator", "control-plane"]),
  /** Whether the packages of the operating system stay as they are. */
  skipUnattended: z.boolean(),
  /** An operator insists: on a version that failed before, or on one that is not newer. */
  isForced: z.boolean().default(false),
});
export type UpgradeRequest = z.infer<typeof UpgradeRequest>;

/** Where a control plane offers releases, below its origin. */
export const RELEASES_PATH = "/releases/";
export const MANIFEST_NAME = "manifest.jws";

/** Where the agent is asked for an upgrade on the machine itself. */
export const UPGRADE_PATH = "/v1/upgrade";

/** What an operator asks of the agent on the machine itself; without `from` the manifest is where the node is told to look. */
export const UpgradeOrder = z.strictObject({
  from: ManifestAddress.optional(),
  skipUnattended: z.boolean().default(false),
  isForced: z.boolean().default(false),
});
export type UpgradeOrder = z.infer<typeof UpgradeOrder>;

/** The one answer to who asks for an upgrade. */
export const UPGRADE_ANSWERS = {
  begun: "Upgrade in progress",
  already: "Existing upgrade is already in progress",
} as const;
export const UpgradeAnswer = z.object({ output: z.object({ status: z.enum(Object.values(UPGRADE_ANSWERS)) }) });
export type UpgradeAnswer = z.infer<typeof UpgradeAnswer>;

/** What a manifest offers to a machine, and why it would not be taken. */
export const ReleaseCheck = z.object({
  version: PackageVersion,
  build: Text64,
  isTaken: z.boolean(),
  reason: z.object({ code: Text64, message: Text1024 }).optional(),
});
export type ReleaseCheck = z.infer<typeof ReleaseCheck>;

/** Where to look for a manifest: what somebody says, else the local settings, else the control plane's own. Pure. */
export function manifestAddress(
  given: string | undefined,
  setting: string | undefined,
  controlPlane: string | undefined,
): string | undefined {
  return given ?? setting ?? (controlPlane === undefined ? undefined : controlPlane + RELEASES_PATH + MANIFEST_NAME);
}

/** How the last upgrade stands (`upgrade.json`). Older versions read it too, so members that are not known are let be. */
export const UpgradeStanding = z.object({
  state: z.enum(["IN_PROGRESS", "COMPLETED", "FAILED"]),
  /** What is being done while it is in progress. */
  step: z
    .enum(["fetching", "verifying", "unpacking", "testing", "switching", "judging", "comparing", "going-back"])
    .optional(),
  from: PackageVersion,
  /** Known once the manifest has been verified. */
  to: PackageVersion.optional(),
  begunAt: UnixSeconds,
  /** Of the last upgrade that ended, well or not. */
  completedAt: UnixSeconds.optional(),
  /** When packages of the operating system were brought up to date in its course. */
  osUpdatedAt: UnixSeconds.optional(),
  /** Why they were not, although the upgrade went on. */
  osReason: z.object({ code: Text64, message: Text1024 }).optional(),
  /** Why it failed, with a code that programs compare. */
  reason: z.strictObject({ code: Text64, message: Text1024 }).optional(),
  /** When the old version, which was tried in the place of the one on trial, had a session. */
  betterAt: UnixSeconds.optional(),
  /** Starts that the version given up has had. */
  starts: z.int().min(0).optional(),
});
export type UpgradeStanding = z.infer<typeof UpgradeStanding>;

/** How the last upgrade stands, and whether the version that runs has proven itself, as the agent tells people. Times in Unix seconds. */
export const UpgradeStatus = z.object({
  standing: UpgradeStanding.optional(),
  /** Only while it has not. */
  trial: z.object({ from: PackageVersion.optional(), since: UnixSeconds.optional() }).optional(),
});
export type UpgradeStatus = z.infer<typeof UpgradeStatus>;

/** The file in the run directory by which an upgrade is asked for. */
export const UPGRADE_REQUEST_NAME = "upgrade-request.json";

/** Where versions lie, and what asks for an upgrade. */
export const UPGRADE_PATHS = {
  package: "/usr/lib/holdfast",
  versions: "/var/lib/holdfast-versions",
  localKeys: "/etc/holdfast/release-keys.json",
  request: `/run/holdfast/${UPGRADE_REQUEST_NAME}`,
  unit: "holdfast-upgrade.service",
} as const;
