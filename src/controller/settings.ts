import { KeyForm } from "./nodes/client-keys.ts";
import { isIP } from "node:net";
import { z } from "zod";
import { InputError } from "../errors.ts";
import { supervisionOf, writesToJournal, type Supervision } from "../host/process/service-manager.ts";
import { Origin } from "../protocol/documents/claims.ts";
import { parseCidr } from "../lib/net/cidr.ts";
import { describeIssues } from "../protocol/channel/envelope.ts";
import { RegistryPlace } from "../protocol/documents/registry.ts";
import { Base64Url32, Fqdn } from "../protocol/values/values.ts";
import { parseStoreUrl, type PostgresAddress } from "./store/postgres-settings.ts";

/** A license names at most eight keys, and one may be our own. */
const MAX_FRONT_PINS = 7;

/** Settings of a controller; all but the listening address and state directory have defaults. */
export const ControllerSettings = z.object({
  /** `host:port`, an IPv6 address in brackets; port 0 selects a free one. */
  listen: z.string().max(300).transform(readListen),
  dataDir: z.string().min(1).max(4096),
  /** Origin that nodes dial; default: the listening address. */
  publicUrl: Origin.optional(),
  domain: Fqdn.optional(),
  /** PEM files; both or none. */
  tlsCert: z.string().min(1).optional(),
  tlsKey: z.string().min(1).optional(),
  /** `self` creates a certificate, even on loopback. */
  tls: z.literal("self").optional(),
  /** SHA-256 of the public key of each front end that terminates TLS for us (RFC 7469), base64url; our own is known. */
  frontPins: z.array(Base64Url32).max(MAX_FRONT_PINS).default([]),
  /** Addresses and blocks of front ends whose `X-Forwarded-For` identifies clients. */
  trustedProxies: z.array(z.string().max(64).transform(readBlock)).max(32).default([]),
  /** Origin of the image registry's API. */
  registryUrl: Origin.optional(),
  /** Host of the registry in references; default: the host of its origin. */
  registryHost: RegistryPlace.shape.host.optional(),
  /** Directory of release files to serve. */
  releasesDir: z.string().min(1).max(4096).optional(),
  /** Geolocation database in MaxMind DB format, from which nodes get their `location`. */
  geoFile: z.string().min(1).max(4096).optional(),
  /** Database of the controller: `sqlite`, a file in the state directory, by default, or the address of a PostgreSQL. */
  store: z.string().min(1).max(4096).default("sqlite").transform(readStore),
  /** File with the password of the PostgreSQL user. */
  storePasswordFile: z.string().min(1).max(4096).optional(),
  /** File with the certificates that the PostgreSQL server's is checked against, in PEM. */
  storeCaFile: z.string().min(1).max(4096).optional(),
  /** Answer requests with the documented examples. */
  isMock: z.boolean().default(false),
  heartbeatSeconds: z.int().min(10).max(300).default(30),
  /** Form of nodes' public keys in the API. */
  nodeKeys: KeyForm.default("text"),
  /** Time for which the earlier secret of a service user stays valid after a new one is generated; 0: it ends at once. */
  secretOverlapSeconds: z.int().min(0).max(604_800).default(0),
  /** Limit of open sessions; further nodes must retry later. */
  maxSessions: z.int().min(1).max(100_000).default(20_000),
});
export type ControllerSettings = z.infer<typeof ControllerSettings>;
export type ControllerSettingsInput = z.input<typeof ControllerSettings>;

/** Command line option of each setting. */
const NAMES: ReadonlyMap<PropertyKey, string> = new Map([
  ["listen", "--listen"],
  ["dataDir", "--data"],
  ["publicUrl", "--url"],
  ["domain", "--domain"],
  ["tlsCert", "--tls-cert"],
  ["tlsKey", "--tls-key"],
  ["tls", "--tls"],
  ["frontPins", "--front-pin"],
  ["trustedProxies", "--trusted-proxy"],
  ["registryUrl", "--registry"],
  ["registryHost", "--registry-host"],
  ["releasesDir", "--releases"],
  ["geoFile", "--geo-file"],
  ["store", "--store"],
  ["storePasswordFile", "--store-password-file"],
  ["storeCaFile", "--store-ca-file"],
  ["nodeKeys", "--node-keys"],
  ["secretOverlapSeconds", "--secret-overlap"],
]);

/** Reports whether the log goes to the journal. */
export function isLogInJournal(): boolean {
  return writesToJournal(process.env);
}

/** Reads the service manager's environment of this process. */
export function readSupervision(): Supervision {
  return supervisionOf(process.env, process.pid);
}

/** TLS of the controller's port. */
export type TlsMode = "none" | "self" | "files";

/**
 * Checks the settings of a controller.
 * @throws {InputError} `invalid-settings`, naming each option
 */
export function controllerSettings(input: ControllerSettingsInput): ControllerSettings {
  const parsed = ControllerSettings.safeParse(input);
  if (!parsed.success) throw new InputError("invalid-settings", describeIssues(named(parsed.error)).join("; "));
  const settings = parsed.data;
  if ((settings.tlsCert === undefined) !== (settings.tlsKey === undefined)) {
    throw new InputError("invalid-settings", "--tls-cert and --tls-key must be set together");
  }
  if (isWildcard(settings.listen.host) && settings.publicUrl === undefined) {
    throw new InputError("invalid-settings", "--url: required when listening on every address");
  }
  if (settings.registryHost !== undefined && settings.registryUrl === undefined) {
    throw new InputError("invalid-settings", "--registry-host: requires --registry");
  }
  if (settings.store === undefined && settings.storePasswordFile !== undefined) {
    throw new InputError("invalid-settings", "--store-password-file: requires a PostgreSQL --store");
  }
  if (settings.store === undefined && settings.storeCaFile !== undefined) {
    throw new InputError("invalid-settings", "--store-ca-file: requires a PostgreSQL --store");
  }
  checkFrontPins(settings);
  return Object.freeze(settings);
}

/** Returns the issues with settings named by their options. */
function named({ issues }: z.ZodError): z.ZodError {
  return new z.ZodError(
    issues.map((issue) => ({
      ...issue,
      path: issue.path.map((part, at) => (at === 0 ? (NAMES.get(part) ?? part) : part)),
    })),
  );
}

/** Requires pins for a front end that terminates TLS, because a license always contains pins. */
function checkFrontPins(settings: ControllerSettings): void {
  const isHttps = settings.publicUrl?.startsWith("https:") === true;
  const count = settings.frontPins.length;
  if (count > 0 && !isHttps) throw new InputError("invalid-settings", "--front-pin: requires an https --url");
  if (isHttps && count === 0 && tlsModeOf(settings) === "none") {
    throw new InputError(
      "invalid-settings",
      `--url: ${settings.publicUrl} is https but this controller serves plain HTTP; specify the keys of the front end ` +
        "with --front-pin, or serve TLS here with --tls or --tls-cert and --tls-key",
    );
  }
}

/** Returns the registry's host in references; undefined without a registry. */
export function registryHostOf({ registryUrl, registryHost }: ControllerSettings): string | undefined {
  return registryUrl === undefined ? undefined : (registryHost ?? new URL(registryUrl).host);
}

/** Returns the TLS mode. Plain HTTP is for loopback only; elsewhere a certificate is created by default. */
export function tlsModeOf(settings: ControllerSettings): TlsMode {
  if (settings.tlsCert !== undefined) return "files";
  return settings.tls === "self" || !isLoopback(settings.listen.host) ? "self" : "none";
}

/** Reports whether an address or name is a loopback one. */
export function isLoopback(host: string): boolean {
  if (isIP(host) === 4) return host.startsWith("127.");
  return host === "::1" || host === "localhost";
}

/** Returns undefined for the file of the embedded engine. */
function readStore(text: string, context: z.RefinementCtx): PostgresAddress | undefined {
  if (text === "sqlite") return undefined;
  try {
    return parseStoreUrl(text);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    context.addIssue({ code: "custom", message: error.message.replace(/^--store: /, "") });
    return z.NEVER;
  }
}

function readBlock(text: string, context: z.RefinementCtx): string {
  const block = parseCidr(text);
  if (block !== undefined) return block.text;
  context.addIssue({ code: "custom", message: `${text} is not an address or address block` });
  return z.NEVER;
}

function isWildcard(host: string): boolean {
  return host === "0.0.0.0" || host === "::";
}

function readListen(text: string, context: z.RefinementCtx): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2] ?? "";
  const port = Number(match?.[3]);
  if (host === "" || !Number.isInteger(port) || port > 65_535) {
    context.addIssue({ code: "custom", message: "must be host:port, an IPv6 address in brackets" });
    return z.NEVER;
  }
  return { host, port };
}
